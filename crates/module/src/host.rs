//! The interface between a server and its modules.
//!
//! The variants' numbers are those of `lowroad.h`.

use std::borrow::Cow;

/// Why a module is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEvent {
    /// A request arrived: always the first event of a call.
    Request,
    /// This many bytes of the request's body are available: [`crate::Call::read`].
    Body(u32),
    /// The body is complete; also sent for a request without a body.
    BodyEnd,
    /// The time set with [`crate::Call::timer`] has passed.
    Timer,
    /// The fetch of this number is complete: [`crate::Call::fetched`].
    Fetched(u32),
    /// The call's ticket was used.
    Continued,
    /// There is room again after [`crate::Call::send`] returned `SendStatus::Full`.
    Room,
    /// The client closed the connection, or the time limit passed. The last event.
    Gone,
}

impl CallEvent {
    /// The event's number and its argument.
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

    /// The event with these numbers.
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

/// A module's result for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStep {
    /// The response is complete.
    Done,
    /// Call again at the next event.
    Wait,
    /// The client gets 500, or a truncated response if it has begun.
    Failed,
}

impl CallStep {
    /// The number of this result.
    pub fn to_number(self) -> i32 {
        match self {
            CallStep::Done => 0,
            CallStep::Wait => 1,
            CallStep::Failed => -1,
        }
    }

    /// The result of a number; unknown numbers are failures.
    pub fn from_number(number: i32) -> CallStep {
        match number {
            0 => CallStep::Done,
            1 => CallStep::Wait,
            _ => CallStep::Failed,
        }
    }
}

/// A value that a module can ask the server for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostValue {
    /// The method: `GET`.
    Method = 1,
    /// Path and query as the client sent them.
    Target = 2,
    /// The decoded path; begins with `/`, has no dot segments and no NUL.
    Path = 3,
    /// The part of the target after `?`, as the client sent it.
    Query = 4,
    /// The requested host.
    Host = 5,
    /// The client's address.
    Peer = 6,
    /// The first request field of a name, in any case.
    Field = 7,
    /// The cookie of a name.
    Cookie = 8,
    /// The first query parameter of a name, decoded.
    Parameter = 9,
    /// All request fields, `Name: value` and CRLF each.
    Fields = 10,
    /// The site's folder.
    Root = 11,
    /// The module's setting of a name.
    Setting = 12,
    /// The worker's number.
    Worker = 13,
}

impl HostValue {
    /// The value with this number.
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
    /// Data was lost or a request was refused.
    Error = 0,
    /// An irregularity that the server survives.
    Warn = 1,
    /// Information for operators.
    Info = 2,
    /// Details for finding a fault.
    Debug = 3,
}

impl MessageLevel {
    /// The level of this number; higher numbers are `MessageLevel::Debug`.
    pub fn from_number(number: u32) -> MessageLevel {
        match number {
            0 => MessageLevel::Error,
            1 => MessageLevel::Warn,
            2 => MessageLevel::Info,
            _ => MessageLevel::Debug,
        }
    }
}

/// The outcome of sending bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStatus {
    /// There is room for more.
    Room,
    /// The bytes were taken; wait for `CallEvent::Room` before sending more.
    Full,
    /// The bytes were refused: the response is too long.
    Refused,
}

impl SendStatus {
    /// The number of this outcome.
    pub fn to_number(self) -> i32 {
        match self {
            SendStatus::Room => 1,
            SendStatus::Full => 0,
            SendStatus::Refused => -1,
        }
    }

    /// The outcome of a number; unknown numbers are refusals.
    pub fn from_number(number: i32) -> SendStatus {
        match number {
            1 => SendStatus::Room,
            0 => SendStatus::Full,
            _ => SendStatus::Refused,
        }
    }
}

/// A handle with which any thread and any other call can resume a waiting call.
#[derive(Clone, Copy, Debug)]
pub struct ResumeTicket {
    number: u64,
    go_on: fn(u64) -> bool,
}

impl ResumeTicket {
    /// A ticket with this number, and the function that resumes the call of a number.
    pub fn new(number: u64, go_on: fn(u64) -> bool) -> ResumeTicket {
        ResumeTicket { number, go_on }
    }

    /// The number; unique among the calls of this server.
    pub fn number(self) -> u64 {
        self.number
    }

    /// Resumes the call with `CallEvent::Continued`. False if the call has ended.
    pub fn go_on(self) -> bool {
        (self.go_on)(self.number)
    }
}

/// The server's functions for a call. Modules use [`crate::Call`], which wraps them.
///
/// `false` and `None` mean that an operation was refused; the server's log has the reason.
pub trait CallHost {
    /// A value of the request, a setting, or the worker's number.
    fn get(&self, kind: HostValue, name: &[u8]) -> Option<Cow<'_, [u8]>>;
    /// Takes available bytes of the request's body (`from` = 0) or of a fetch (its number).
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
    /// Sends the response made so far.
    fn flush(&mut self) -> bool;
    /// Sets the call's timer.
    fn timer(&mut self, after_ms: u32);
    /// Starts to fetch a path of the site or an `http://` URL. Returns the fetch's number.
    fn fetch(&mut self, target: &[u8]) -> Option<u32>;
    /// The status of a completed fetch, 0 without an answer.
    fn fetched(&self, number: u32) -> Option<u16>;
    /// A ticket for this call.
    fn ticket(&mut self) -> ResumeTicket;
    /// Writes a line to the log.
    fn log(&self, level: MessageLevel, text: &str);
    /// Milliseconds since 1970-01-01 UTC.
    fn now_ms(&self) -> u64;
    /// The number that a library keeps with the call, 0 at first. Modules in Rust have their `Memory` instead.
    fn memory(&self) -> u64;
    /// Sets the number that a library keeps with the call.
    fn set_memory(&mut self, memory: u64);
}
