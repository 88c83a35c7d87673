//! User scripts: a sequence of requests with think times, cookies, and values captured from responses. Each simulated
//! client is one such user, and starts again after the last step. Uses no sockets.

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

/// The content type of forms in browsers.
const FORM: &str = "application/x-www-form-urlencoded";

/// A script as a workload.
#[derive(Clone)]
pub struct ScriptWorkload(Arc<ScriptSteps>);

struct ScriptSteps {
    steps: Vec<ScriptStep>,
    classes: Vec<String>,
    /// Number of captured values.
    values: usize,
    host: String,
    version: WorkloadVersion,
    connection: ScriptConnection,
}

/// The part of a script that one connection carries.
#[derive(Clone, Copy, Debug)]
pub enum ScriptConnection {
    /// All users, one after the other.
    All,
    /// All steps once: for open loops of connections, each of which is a user.
    Once,
    /// This many requests.
    Requests(PerConnection),
}

/// One request, and the handling of its response.
struct ScriptStep {
    method: String,
    path: TextTemplate,
    fields: Vec<(String, TextTemplate)>,
    body: StepBody,
    status: Option<u16>,
    captures: Vec<ValueCapture>,
    /// Range of the think time after the step, in ns.
    think_ns: (u64, u64),
}

enum StepBody {
    None,
    Text(TextTemplate),
    /// Names and values.
    Form(Vec<(String, TextTemplate)>),
}

/// A captured value: the first group of the pattern, or the whole match without groups.
struct ValueCapture {
    value: usize,
    pattern: Regex,
}

impl ScriptWorkload {
    /// Parses a script (TOML, lab/README.md).
    ///
    /// # Errors
    /// The text names the step, the fault and a remedy.
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
            .map(|(index, step)| format!("{} {} {}", index + 1, step.method, step.path.text()));
        Ok(ScriptWorkload(Arc::new(ScriptSteps {
            classes: classes.collect(),
            steps,
            values,
            host: host.into(),
            version,
            connection: carries,
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
            is_outstanding: false,
            is_incomplete: false,
            pause_ns: 0,
        })
    }
}

/// The state of one user.
struct ScriptUser {
    script: Arc<ScriptSteps>,
    random: SplitMix,
    cookies: CookieJar,
    values: Vec<String>,
    /// Index of the next step.
    step: usize,
    /// Whether the request of the current step is outstanding.
    is_outstanding: bool,
    /// Whether a pattern did not match the last response.
    is_incomplete: bool,
    pause_ns: u64,
}

impl ScriptUser {
    /// Draws the think time after the current step.
    fn think(&mut self) -> u64 {
        let (min_ns, max_ns) = self.script.steps[self.step].think_ns;
        min_ns + self.random.below(max_ns - min_ns + 1)
    }

    /// Starts again as a new user.
    fn begin(&mut self) {
        self.step = 0;
        // The new user must not be recognised as the previous one.
        self.cookies = CookieJar::default();
    }
}

impl ClientSession for ScriptUser {
    fn open(&mut self) -> ConnectionOpening {
        // The connection ended before the response, without which the script can't continue.
        if std::mem::take(&mut self.is_outstanding) {
            self.begin();
        }
        let script = &*self.script;
        let requests = match (script.version, &script.connection) {
            // HTTP/1.0 without keep-alive: the server closes after each response.
            (WorkloadVersion::Http10, _) => 1,
            (_, ScriptConnection::All) => u64::MAX,
            (_, ScriptConnection::Once) => script.steps.len() as u64,
            (_, ScriptConnection::Requests(per_connection)) => {
                per_connection.draw(&mut self.random)
            }
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
        self.is_outstanding = true;
        ExpectedResponse {
            class: self.step as u8,
            head_only: step.method == "HEAD",
            status: step.status,
            len: None,
            crc32: None,
        }
    }

    fn handle_response(&mut self, answer: &ReceivedResponse<'_>) {
        let script = self.script.clone();
        let step = &script.steps[self.step];
        let text = answer.text.unwrap_or_default();
        self.is_outstanding = false;
        set_cookies(&mut self.cookies, text);
        self.pause_ns = self.think();
        self.is_incomplete = !step
            .captures
            .iter()
            .all(|capture| capture.capture(text, &mut self.values));
        self.step = (self.step + 1) % script.steps.len();
        // After a wrong response the later steps would fail too, so a new user starts.
        if self.is_incomplete || !step.is_right(answer.status) || self.step == 0 {
            self.begin();
        }
    }

    fn handle_failure(&mut self) {
        self.is_outstanding = false;
        self.pause_ns = self.think();
        self.begin();
    }

    fn interest(&self) -> ResponseInterest {
        ResponseInterest {
            cookies: false,
            text: true,
        }
    }

    fn is_incomplete(&self) -> bool {
        self.is_incomplete
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
            StepBody::Form(pairs) => (encode_form(pairs, values), Some(FORM)),
        };
        let fields = self.fields.iter();
        let fields = fields.map(|(name, value)| (name.as_str(), value.fill(values)));
        let host = ("Host", script.host.clone());
        let kind = kind.map(|kind| ("Content-Type", kind.to_owned()));
        let path = target(&self.path.fill(values));
        let head = wire::head(
            wire::RequestLine {
                method: &self.method,
                target: &path,
                version: script.version,
            },
            [host].into_iter().chain(fields).chain(kind),
            body.len(),
            last,
        );
        out.extend_from_slice(head.as_bytes());
        cookies.append(out);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body.as_bytes());
    }
}

impl ValueCapture {
    /// Captures the value from a response; returns whether the pattern matched. Control characters are rejected, since
    /// the value may be used in a field.
    fn capture(&self, text: &[u8], values: &mut [String]) -> bool {
        let Some(matched) = self.pattern.captures(text) else {
            return false;
        };
        let group = matched.get(1).or(matched.get(0));
        let value = group.and_then(|group| std::str::from_utf8(group.as_bytes()).ok());
        match value.filter(|value| wire::is_value(value)) {
            Some(value) => {
                values[self.value] = unescaped(value);
                true
            }
            None => false,
        }
    }
}

/// The request target for a path or a URL of the same server.
fn target(path: &str) -> String {
    let after_scheme = path
        .strip_prefix("http://")
        .or(path.strip_prefix("https://"));
    let path = match after_scheme {
        Some(after_scheme) => after_scheme
            .find('/')
            .map_or("/", |path_start| &after_scheme[path_start..]),
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
            unsafe_byte => target += &format!("%{unsafe_byte:02X}"),
        }
    }
    target
}

fn encode_form(pairs: &[(String, TextTemplate)], values: &[String]) -> String {
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

/// Decodes HTML character references, since most captured values are from HTML.
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
