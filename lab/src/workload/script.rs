//! What one user does, step by step: requests one after the other, with times to think between them, cookies, and values that
//! are taken from answers. Each simulated client is such a user, and begins anew when the last step is done. Knows no sockets.

mod form;
mod template;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use regex::bytes::Regex;

use super::urls::CookieJar;
use super::{
    ClientSession, ConnectionOpening, ExpectedResponse, PerConnection, ReceivedResponse,
    ResponseInterest, TrafficWorkload, WorkloadVersion, wire,
};
use crate::random::SplitMix;
use template::TextTemplate;

/// How browsers send forms.
const FORM: &str = "application/x-www-form-urlencoded";

/// A script as a workload.
#[derive(Clone)]
pub struct ScriptWorkload(Arc<ScriptSteps>);

struct ScriptSteps {
    steps: Vec<ScriptStep>,
    classes: Vec<String>,
    /// How many values are taken in all.
    values: usize,
    host: String,
    version: WorkloadVersion,
    carries: ScriptConnection,
}

/// What a connection carries.
#[derive(Clone, Copy, Debug)]
pub enum ScriptConnection {
    /// Everything, one user after the other.
    All,
    /// All steps, once: where connections are due, and with them users.
    Once,
    /// So many requests.
    Requests(PerConnection),
}

/// One request, and what its answer is good for.
struct ScriptStep {
    method: String,
    path: TextTemplate,
    fields: Vec<(String, TextTemplate)>,
    body: StepBody,
    status: Option<u16>,
    takes: Vec<ValueCapture>,
    /// How long is thought afterwards, from and to, ns.
    think_ns: (u64, u64),
}

enum StepBody {
    None,
    Text(TextTemplate),
    /// Names and values.
    Form(Vec<(String, TextTemplate)>),
}

/// A value of the answer: what the first group of the pattern matches, or all of it without one.
struct ValueCapture {
    value: usize,
    pattern: Regex,
}

impl ScriptWorkload {
    /// Reads a script (TOML, docs/lab.md).
    ///
    /// # Errors
    /// What is wrong with which step, and what to write instead.
    pub fn parse(
        text: &str,
        host: &str,
        version: WorkloadVersion,
        carries: ScriptConnection,
    ) -> Result<ScriptWorkload, String> {
        wire::check_host(host)?;
        let (steps, values) = form::steps(text)?;
        let classes = steps
            .iter()
            .enumerate()
            .map(|(at, step)| format!("{} {} {}", at + 1, step.method, step.path.text()));
        Ok(ScriptWorkload(Arc::new(ScriptSteps {
            classes: classes.collect(),
            steps,
            values,
            host: host.into(),
            version,
            carries,
        })))
    }
}

impl TrafficWorkload for ScriptWorkload {
    fn classes(&self) -> &[String] {
        &self.0.classes
    }

    fn session(&self, number: u64, seed: u64) -> Box<dyn ClientSession> {
        Box::new(ScriptUser {
            script: self.0.clone(),
            random: SplitMix::stream(seed, number),
            cookies: CookieJar::default(),
            values: vec![String::new(); self.0.values],
            step: 0,
            is_asked: false,
            lacks: false,
            pause_ns: 0,
        })
    }
}

/// One user on the way.
struct ScriptUser {
    script: Arc<ScriptSteps>,
    random: SplitMix,
    cookies: CookieJar,
    values: Vec<String>,
    /// The next one.
    step: usize,
    /// Its request is under way.
    is_asked: bool,
    /// The last answer had not what was to be taken.
    lacks: bool,
    pause_ns: u64,
}

impl ScriptUser {
    /// How long is thought after the step at hand.
    fn think(&mut self) -> u64 {
        let (least_ns, most_ns) = self.script.steps[self.step].think_ns;
        least_ns + self.random.below(most_ns - least_ns + 1)
    }

    /// Becomes another user, who begins.
    fn begin(&mut self) {
        self.step = 0;
        self.cookies = CookieJar::default();
    }
}

impl ClientSession for ScriptUser {
    fn open(&mut self) -> ConnectionOpening {
        // Without its answer there is no going on.
        if std::mem::take(&mut self.is_asked) {
            self.begin();
        }
        let script = &*self.script;
        let requests = match (script.version, &script.carries) {
            (WorkloadVersion::Http10, _) => 1,
            (_, ScriptConnection::All) => u64::MAX,
            (_, ScriptConnection::Once) => script.steps.len() as u64,
            (_, ScriptConnection::Requests(some)) => some.draw(&mut self.random),
        };
        ConnectionOpening {
            version: script.version,
            requests,
        }
    }

    fn request(&mut self, last: bool, out: &mut Vec<u8>) -> ExpectedResponse {
        let script = &*self.script;
        let step = &script.steps[self.step];
        step.write(script, (&self.values, &self.cookies), last, out);
        self.is_asked = true;
        ExpectedResponse {
            class: self.step as u8,
            head_only: step.method == "HEAD",
            status: step.status,
            len: None,
            crc32: None,
        }
    }

    fn answered(&mut self, answer: &ReceivedResponse<'_>) {
        let script = self.script.clone();
        let step = &script.steps[self.step];
        let text = answer.text.unwrap_or_default();
        self.is_asked = false;
        set_cookies(&mut self.cookies, text);
        self.pause_ns = self.think();
        self.lacks = !step
            .takes
            .iter()
            .all(|take| take.of(text, &mut self.values));
        self.step = (self.step + 1) % script.steps.len();
        if self.lacks || !step.is_right(answer.status) || self.step == 0 {
            self.begin();
        }
    }

    fn failed(&mut self) {
        self.is_asked = false;
        self.pause_ns = self.think();
        self.begin();
    }

    fn wants(&self) -> ResponseInterest {
        ResponseInterest {
            cookies: false,
            text: true,
        }
    }

    fn lacks(&self) -> bool {
        self.lacks
    }

    fn pause_ns(&self) -> u64 {
        self.pause_ns
    }
}

impl ScriptStep {
    fn is_right(&self, status: u16) -> bool {
        match self.status {
            Some(right) => status == right,
            None => (200..400).contains(&status),
        }
    }

    fn write(
        &self,
        script: &ScriptSteps,
        (values, cookies): (&[String], &CookieJar),
        last: bool,
        out: &mut Vec<u8>,
    ) {
        let (body, kind) = match &self.body {
            StepBody::None => (String::new(), None),
            StepBody::Text(text) => (text.fill(values), None),
            StepBody::Form(pairs) => (form_of(pairs, values), Some(FORM)),
        };
        let fields = self.fields.iter();
        let fields = fields.map(|(name, value)| (name.as_str(), value.fill(values)));
        let host = ("Host", script.host.clone());
        let kind = kind.map(|kind| ("Content-Type", kind.to_owned()));
        let path = target(&self.path.fill(values));
        let head = wire::head(
            (&self.method, &path, script.version),
            [host].into_iter().chain(fields).chain(kind),
            (body.len(), last),
        );
        out.extend_from_slice(head.as_bytes());
        cookies.append(out);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body.as_bytes());
    }
}

impl ValueCapture {
    /// Notes what it finds; whether it does. A value may stand in a field, so it has no control characters.
    fn of(&self, text: &[u8], values: &mut [String]) -> bool {
        let Some(found) = self.pattern.captures(text) else {
            return false;
        };
        let found = found.get(1).or(found.get(0));
        let value = found.and_then(|found| std::str::from_utf8(found.as_bytes()).ok());
        match value.filter(|value| wire::is_value(value)) {
            Some(value) => {
                values[self.value] = unescaped(value);
                true
            }
            None => false,
        }
    }
}

/// What stands in the request line for a path or a URL of the same server.
fn target(path: &str) -> String {
    let rest = path
        .strip_prefix("http://")
        .or(path.strip_prefix("https://"));
    let path = match rest {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => path,
    };
    let path = path.split('#').next().unwrap_or_default();
    let mut target = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        target.push('/');
    }
    for byte in path.bytes() {
        match byte {
            b'!'..=b'~' => target.push(char::from(byte)),
            other => target += &format!("%{other:02X}"),
        }
    }
    target
}

fn form_of(pairs: &[(String, TextTemplate)], values: &[String]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        if !text.is_empty() {
            text.push('&');
        }
        encode(name, &mut text);
        text.push('=');
        encode(&value.fill(values), &mut text);
    }
    text
}

fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b'-' | b'.' | b'_' | b'*' => out.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            byte => *out += &format!("%{byte:02X}"),
        }
    }
}

/// Values mostly stand in HTML.
fn unescaped(value: &str) -> String {
    let mut value = value.to_owned();
    for (reference, character) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&#039;", "'"),
        ("&amp;", "&"),
    ] {
        if value.contains(reference) {
            value = value.replace(reference, character);
        }
    }
    value
}

fn set_cookies(cookies: &mut CookieJar, text: &[u8]) {
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return;
        }
        let name = b"set-cookie:";
        if let Some((start, value)) = line.split_at_checked(name.len())
            && start.eq_ignore_ascii_case(name)
            && let Ok(value) = std::str::from_utf8(value)
            && wire::is_value(value)
        {
            cookies.set(value);
        }
    }
}
