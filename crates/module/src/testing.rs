//! A simulated server, for unit tests of modules: runs a request through a module.
//!
//! Time is virtual: if no other event is due, a timer fires immediately. The order of events is that of a fast client:
//! first the body, then room, fetches, timers and tickets.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::host::{
    CallEvent, CallHost, CallStep, HostValue, MessageLevel, ResumeTicket, SendStatus,
};
use crate::{step, Module, ModuleSettings};

/// A GET request.
pub fn get(target: &str) -> TestRequest {
    TestRequest::new("GET", target)
}

/// A POST request with a body.
pub fn post(target: &str, body: impl Into<Vec<u8>>) -> TestRequest {
    let mut request = TestRequest::new("POST", target);
    request.body.push_back(body.into());
    request
}

/// A request with its environment: settings, and responses to fetches.
#[derive(Clone, Debug)]
pub struct TestRequest {
    method: String,
    target: String,
    fields: Vec<(String, String)>,
    body: VecDeque<Vec<u8>>,
    settings: Vec<(String, String)>,
    answers: BTreeMap<String, (u16, Vec<u8>)>,
}

/// A module's response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestResponse {
    /// The status.
    pub status: u16,
    /// The fields, in the order in which they were added.
    pub fields: Vec<(String, String)>,
    /// The body, without a stored object.
    pub body: Vec<u8>,
    /// The path of the stored object, and its position in the body.
    pub stored: Option<(String, usize)>,
    /// The number of flushes.
    pub flushes: usize,
    /// The log lines of the module.
    pub log: Vec<String>,
}

impl TestResponse {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The first field with this name (case-insensitive).
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(field_name, _)| field_name.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

impl TestRequest {
    /// A request without a body.
    pub fn new(method: &str, target: &str) -> TestRequest {
        TestRequest {
            method: method.to_string(),
            target: target.to_string(),
            fields: vec![("Host".to_string(), "localhost".to_string())],
            body: VecDeque::new(),
            settings: Vec::new(),
            answers: BTreeMap::new(),
        }
    }

    /// Adds a field.
    pub fn field(mut self, name: &str, value: &str) -> TestRequest {
        self.fields.push((name.to_string(), value.to_string()));
        self
    }

    /// Adds a setting of the module.
    pub fn setting(mut self, name: &str, value: &str) -> TestRequest {
        self.settings.push((name.to_string(), value.to_string()));
        self
    }

    /// Adds another part of the body, which arrives with its own event.
    pub fn part(mut self, bytes: impl Into<Vec<u8>>) -> TestRequest {
        self.body.push_back(bytes.into());
        self
    }

    /// Sets the response to a fetch of this target. Other targets get 404.
    pub fn answer(mut self, target: &str, status: u16, body: impl Into<Vec<u8>>) -> TestRequest {
        self.answers
            .insert(target.to_string(), (status, body.into()));
        self
    }

    /// Starts the module, passes it the request and all further events, then stops it.
    ///
    /// # Errors
    /// The reason that there is no response.
    pub fn run<M: Module>(self) -> Result<TestResponse, String> {
        let mut fake = FakeHost::new(self);
        let mut module = M::start(&mut ModuleSettings::new(&mut fake))?;
        let mut memory = None;
        let mut event = CallEvent::Request;
        let next = loop {
            match step(&mut module, &mut fake, &mut memory, event) {
                CallStep::Wait => event = fake.next()?,
                next => break next,
            }
        };
        module.stop();
        match next {
            CallStep::Failed => Err(format!("the module failed; log: {:?}", fake.log())),
            _ => Ok(fake.into_response()),
        }
    }
}

struct FakeHost {
    request: TestRequest,
    response: TestResponse,
    unread_body: Vec<u8>,
    body_ended: bool,
    timer: bool,
    is_full: bool,
    fetches: Vec<(u16, Vec<u8>)>,
    fetches_reported: usize,
    ticket: Option<u64>,
    memory: u64,
    lines: Mutex<Vec<String>>,
}

impl FakeHost {
    fn new(request: TestRequest) -> FakeHost {
        FakeHost {
            request,
            response: TestResponse {
                status: 200,
                ..TestResponse::default()
            },
            unread_body: Vec::new(),
            body_ended: false,
            timer: false,
            is_full: false,
            fetches: Vec::new(),
            fetches_reported: 0,
            ticket: None,
            memory: 0,
            lines: Mutex::default(),
        }
    }

    /// The next event for the waiting call.
    fn next(&mut self) -> Result<CallEvent, String> {
        // As in the server, the next part of the body arrives only after the previous one was read.
        if self.unread_body.is_empty() && !self.body_ended {
            if let Some(bytes) = self.request.body.pop_front() {
                self.unread_body = bytes;
                return Ok(CallEvent::Body(self.unread_body.len() as u32));
            }
            self.body_ended = true;
            return Ok(CallEvent::BodyEnd);
        }
        if std::mem::take(&mut self.is_full) {
            return Ok(CallEvent::Room);
        }
        if self.fetches_reported < self.fetches.len() {
            self.fetches_reported += 1;
            // Each completed fetch is reported once.
            return Ok(CallEvent::Fetched(self.fetches_reported as u32));
        }
        if std::mem::take(&mut self.timer) {
            return Ok(CallEvent::Timer);
        }
        match self.ticket {
            Some(ticket) if TICKETS.wait(ticket) => Ok(CallEvent::Continued),
            Some(_) => {
                Err("the module waits, and nothing continued it within 5 seconds".to_string())
            }
            None => Err("the module waits for nothing: no event can continue it".to_string()),
        }
    }

    fn log(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.clone()
    }

    fn into_response(self) -> TestResponse {
        let log = self.log();
        TestResponse {
            log,
            ..self.response
        }
    }

    fn query(&self) -> Option<&str> {
        self.request.target.split_once('?').map(|(_, query)| query)
    }

    fn request_field(&self, name: &str) -> Option<&str> {
        let mut fields = self.request.fields.iter();
        let found = fields.find(|(field_name, _)| field_name.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    fn cookie(&self, name: &str) -> Option<String> {
        let cookies = self.request_field("Cookie")?.split(';');
        let mut pairs = cookies.filter_map(|pair| pair.trim().split_once('='));
        let found = pairs.find(|(cookie_name, _)| *cookie_name == name);
        found.map(|(_, value)| value.to_string())
    }

    fn setting(&self, name: &str) -> Option<String> {
        let mut settings = self.request.settings.iter();
        let found = settings.find(|(setting_name, _)| setting_name == name);
        found.map(|(_, value)| value.clone())
    }

    fn all_fields(&self) -> String {
        let fields = self.request.fields.iter();
        fields
            .map(|(name, value)| format!("{}: {}\r\n", name, value))
            .collect()
    }
}

impl CallHost for FakeHost {
    fn get(&self, kind: HostValue, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let name = std::str::from_utf8(name).ok()?;
        let path = self.request.target.split('?').next().unwrap_or("/");
        let value: Vec<u8> = match kind {
            HostValue::Method => self.request.method.clone().into(),
            HostValue::Target => self.request.target.clone().into(),
            HostValue::Path => decode(path.as_bytes(), false),
            HostValue::Query => self.query()?.into(),
            HostValue::Host => self.request_field("Host")?.into(),
            HostValue::Peer => "127.0.0.1".into(),
            HostValue::Field => self.request_field(name)?.into(),
            HostValue::Cookie => self.cookie(name)?.into(),
            HostValue::Parameter => parameter(self.query()?.as_bytes(), name.as_bytes())?,
            HostValue::Fields => self.all_fields().into(),
            HostValue::Root => "/srv".into(),
            HostValue::Setting => self.setting(name)?.into(),
            HostValue::Worker => "0".into(),
        };
        Some(Cow::Owned(value))
    }

    fn read(&mut self, from: u32, buf: &mut [u8]) -> usize {
        let source = match from {
            0 => &mut self.unread_body,
            number => match self.fetches.get_mut(number as usize - 1) {
                Some((_, bytes)) => bytes,
                None => return 0,
            },
        };
        let len = source.len().min(buf.len());
        buf[..len].copy_from_slice(&source[..len]);
        source.drain(..len);
        len
    }

    fn left(&self, from: u32) -> usize {
        match from {
            0 => self.unread_body.len(),
            number => match self.fetches.get(number as usize - 1) {
                Some((_, bytes)) => bytes.len(),
                None => 0,
            },
        }
    }

    fn status(&mut self, status: u32) -> bool {
        let is_valid = (200..600).contains(&status) && self.response.flushes == 0;
        if is_valid {
            self.response.status = status as u16;
        }
        is_valid
    }

    fn field(&mut self, name: &[u8], value: &[u8]) -> bool {
        let name = String::from_utf8_lossy(name).into_owned();
        let value = String::from_utf8_lossy(value).into_owned();
        self.response.fields.push((name, value));
        self.response.flushes == 0
    }

    fn send(&mut self, bytes: &[u8]) -> SendStatus {
        self.response.body.extend_from_slice(bytes);
        self.is_full = self.response.flushes > 0;
        match self.is_full {
            true => SendStatus::Full,
            false => SendStatus::Room,
        }
    }

    fn send_stored(&mut self, path: &[u8]) -> bool {
        let is_valid = self.response.stored.is_none() && self.response.flushes == 0;
        if is_valid {
            let path = String::from_utf8_lossy(path).into_owned();
            self.response.stored = Some((path, self.response.body.len()));
        }
        is_valid
    }

    fn flush(&mut self) -> bool {
        self.response.flushes += 1;
        self.response.stored.is_none()
    }

    fn timer(&mut self, _: u32) {
        self.timer = true;
    }

    fn fetch(&mut self, target: &[u8]) -> Option<u32> {
        let target = String::from_utf8_lossy(target);
        let answer = self.request.answers.get(target.as_ref()).cloned();
        self.fetches.push(answer.unwrap_or((404, Vec::new())));
        Some(self.fetches.len() as u32)
    }

    fn fetched(&self, number: u32) -> Option<u16> {
        let number = number as usize;
        let is_complete = (1..=self.fetches_reported).contains(&number);
        is_complete.then(|| self.fetches[number - 1].0)
    }

    fn ticket(&mut self) -> ResumeTicket {
        let number = *self.ticket.get_or_insert_with(|| TICKETS.open());
        ResumeTicket::new(number, |number| TICKETS.go_on(number))
    }

    fn log(&self, _: MessageLevel, text: &str) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(text.to_string());
    }

    fn now_ms(&self) -> u64 {
        0
    }

    fn memory(&self) -> u64 {
        self.memory
    }

    fn set_memory(&mut self, memory: u64) {
        self.memory = memory;
    }
}

/// The tickets of all simulated calls; used by any thread.
struct TicketTable {
    /// The number of the last ticket, and the tickets that were used.
    state: Mutex<(u64, Vec<u64>)>,
    used: Condvar,
}

static TICKETS: TicketTable = TicketTable {
    state: Mutex::new((0, Vec::new())),
    used: Condvar::new(),
};

impl TicketTable {
    fn open(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 += 1;
        state.0
    }

    fn go_on(&self, number: u64) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.1.push(number);
        self.used.notify_all();
        true
    }

    /// Waits until the ticket is used, for at most 5 seconds.
    fn wait(&self, number: u64) -> bool {
        const LIMIT: Duration = Duration::from_secs(5);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = |state: &mut (u64, Vec<u64>)| !state.1.contains(&number);
        let waited = self.used.wait_timeout_while(state, LIMIT, unused);
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        // The use is removed, so that a later wait for the same ticket requires another use.
        state.1.retain(|used| *used != number);
        !timeout.timed_out()
    }
}

/// The first parameter of a query with this name, decoded.
fn parameter(query: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    query.split(|byte| *byte == b'&').find_map(|pair| {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let key = decode(halves.next()?, true);
        (key == name).then(|| decode(halves.next().unwrap_or(b""), true))
    })
}

/// Decodes percent-encoding; in queries, `+` is a space.
fn decode(text: &[u8], query: bool) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut index = 0;
    while index < text.len() {
        let hex = text.get(index + 1..index + 3);
        let hex = hex.filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (text[index], byte) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                index += 2;
            }
            (b'+', _) if query => decoded.push(b' '),
            (byte, _) => decoded.push(byte),
        }
        index += 1;
    }
    decoded
}
