//! The interface between the server and its modules: events, results, values, and the functions that the server
//! provides.
//!
//! The numbers of enum variants are those in `lowroad.h`.

use std::borrow::Cow;

/// An event of a call, passed to the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEvent {
    /// A request has arrived. This is always the first event of a call.
    Request,
    /// This number of bytes of the request body is available to [`crate::Call::read`].
    Body(u32),
    /// The body is complete; this event also follows a request without a body.
    BodyEnd,
    /// The time set with [`crate::Call::timer`] has passed.
    Timer,
    /// The fetch with this number is complete; [`crate::Call::fetched`] returns its result.
    Fetched(u32),
    /// The call was resumed with its ticket.
    Continued,
    /// There is room again, after [`crate::Call::send`] had returned `SendStatus::Full`.
    Room,
    /// The client has closed the connection, or the time limit has passed. This is the last event of the call.
    Gone,
}

impl CallEvent {
    /// The event's number in the ABI, and its argument.
    pub fn to_numbers(self) -> (i32, u32) {
        match self {
            CallEvent::Request => (1, 0),
            CallEvent::Body(len) => (2, len),
            CallEvent::BodyEnd => (3, 0),
            CallEvent::Timer => (4, 0),
            CallEvent::Fetched(number) => (5, number),
            CallEvent::Continued => (6, 0),
            CallEvent::Room => (7, 0),
            CallEvent::Gone => (8, 0),
        }
    }

    /// The event with this number and argument.
    pub fn from_numbers(event: i32, number: u32) -> Option<CallEvent> {
        Some(match event {
            1 => CallEvent::Request,
            2 => CallEvent::Body(number),
            3 => CallEvent::BodyEnd,
            4 => CallEvent::Timer,
            5 => CallEvent::Fetched(number),
            6 => CallEvent::Continued,
            7 => CallEvent::Room,
            8 => CallEvent::Gone,
            _ => return None,
        })
    }
}

/// The result of processing an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStep {
    /// The response is complete.
    Done,
    /// The module waits for the next event.
    Wait,
    /// The module has failed: the client gets 500, or a truncated response if it was already being sent.
    Failed,
}

impl CallStep {
    /// The number of this result in the ABI.
    pub fn to_number(self) -> i32 {
        match self {
            CallStep::Done => 0,
            CallStep::Wait => 1,
            CallStep::Failed => -1,
        }
    }

    /// The result with this number; unknown numbers mean failure.
    pub fn from_number(number: i32) -> CallStep {
        match number {
            0 => CallStep::Done,
            1 => CallStep::Wait,
            _ => CallStep::Failed,
        }
    }
}

/// A value that a module can get from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostValue {
    /// The method, for example `GET`.
    Method = 1,
    /// The request target, path and query, as the client sent it.
    Target = 2,
    /// The decoded path; begins with `/`, without dot segments and NUL.
    Path = 3,
    /// The part of the target after `?`, as the client sent it.
    Query = 4,
    /// The requested host.
    Host = 5,
    /// The client's address.
    Peer = 6,
    /// The first request field with the given name (case-insensitive).
    Field = 7,
    /// The cookie with the given name.
    Cookie = 8,
    /// The first query parameter with the given name, decoded.
    Parameter = 9,
    /// All request fields, each as `Name: value` and CRLF.
    Fields = 10,
    /// The site's folder.
    Root = 11,
    /// The module's setting with the given name.
    Setting = 12,
    /// The index of the worker.
    Worker = 13,
}

impl HostValue {
    /// The kind of value with this number.
    pub fn from_number(number: u32) -> Option<HostValue> {
        const ALL: [HostValue; 13] = [
            HostValue::Method,
            HostValue::Target,
            HostValue::Path,
            HostValue::Query,
            HostValue::Host,
            HostValue::Peer,
            HostValue::Field,
            HostValue::Cookie,
            HostValue::Parameter,
            HostValue::Fields,
            HostValue::Root,
            HostValue::Setting,
            HostValue::Worker,
        ];
        let index = number.checked_sub(1)?;
        ALL.get(index as usize).copied()
    }
}

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MessageLevel {
    /// Data was lost, or a request was refused.
    Error = 0,
    /// A problem that does not prevent operation.
    Warn = 1,
    /// Information for operators.
    Info = 2,
    /// Details for debugging.
    Debug = 3,
}

impl MessageLevel {
    /// The level with this number; higher numbers mean `MessageLevel::Debug`.
    pub fn from_number(number: u32) -> MessageLevel {
        match number {
            0 => MessageLevel::Error,
            1 => MessageLevel::Warn,
            2 => MessageLevel::Info,
            _ => MessageLevel::Debug,
        }
    }
}

/// The result of sending bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStatus {
    /// The bytes were accepted, and there is room for more.
    Room,
    /// The bytes were accepted; wait for `CallEvent::Room` before sending more.
    Full,
    /// The bytes were refused, since the response is too long.
    Refused,
}

impl SendStatus {
    /// The number of this result in the ABI.
    pub fn to_number(self) -> i32 {
        match self {
            SendStatus::Room => 1,
            SendStatus::Full => 0,
            SendStatus::Refused => -1,
        }
    }

    /// The result with this number; unknown numbers mean refusal.
    pub fn from_number(number: i32) -> SendStatus {
        match number {
            1 => SendStatus::Room,
            0 => SendStatus::Full,
            _ => SendStatus::Refused,
        }
    }
}

/// A handle with which any thread or other call can resume a waiting call.
#[derive(Clone, Copy, Debug)]
pub struct ResumeTicket {
    number: u64,
    go_on: fn(u64) -> bool,
}

impl ResumeTicket {
    /// A ticket with this number. `go_on` resumes the call that a number belongs to.
    pub fn new(number: u64, go_on: fn(u64) -> bool) -> ResumeTicket {
        ResumeTicket { number, go_on }
    }

    /// The number; unique within this server.
    pub fn number(self) -> u64 {
        self.number
    }

    /// Resumes the call with `CallEvent::Continued`. Returns false if the call has ended.
    pub fn go_on(self) -> bool {
        (self.go_on)(self.number)
    }
}

/// The functions that the server provides for a call. Modules use them through [`crate::Call`].
///
/// If a function returns `false` or `None`, the operation was refused, and the server's log contains the reason.
pub trait CallHost {
    /// A value of the request, a setting, or the worker's index.
    fn get(&self, kind: HostValue, name: &[u8]) -> Option<Cow<'_, [u8]>>;
    /// Takes available bytes of the request body (`from` = 0), or of the fetch with the number `from`.
    fn read(&mut self, from: u32, buf: &mut [u8]) -> usize;
    /// The number of bytes that `CallHost::read` could return now.
    fn left(&self, from: u32) -> usize;
    /// Sets the status, 200 to 599.
    fn status(&mut self, status: u32) -> bool;
    /// Adds a field to the response.
    fn field(&mut self, name: &[u8], value: &[u8]) -> bool;
    /// Appends bytes to the response's body.
    fn send(&mut self, bytes: &[u8]) -> SendStatus;
    /// Appends the site's content for a path.
    fn send_stored(&mut self, path: &[u8]) -> bool;
    /// Sends the response created so far, and streams the rest.
    fn flush(&mut self) -> bool;
    /// Sets the call's timer.
    fn timer(&mut self, after_ms: u32);
    /// Starts to fetch a path of the site or an `http://` URL. Returns the number of the fetch.
    fn fetch(&mut self, target: &[u8]) -> Option<u32>;
    /// The status of a completed fetch; 0 without a response.
    fn fetched(&self, number: u32) -> Option<u16>;
    /// A ticket for this call.
    fn ticket(&mut self) -> ResumeTicket;
    /// Writes a line to the error log.
    fn log(&self, level: MessageLevel, text: &str);
    /// Milliseconds since 1970-01-01 UTC.
    fn now_ms(&self) -> u64;
    /// A number that a library stores with the call; initially 0. Rust modules use `Module::Memory` instead.
    fn memory(&self) -> u64;
    /// Sets the number that a library stores with the call.
    fn set_memory(&mut self, memory: u64);
}
