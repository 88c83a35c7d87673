//! The interface between a server and its modules.
//!
//! The variants' numbers are those of `lowroad.h`.

use std::borrow::Cow;

/// Why a module is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
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

impl Event {
    /// The event's number and its argument.
    pub fn to_numbers(self) -> (i32, u32) {
        match self {
            Event::Request => (1, 0),
            Event::Body(len) => (2, len),
            Event::BodyEnd => (3, 0),
            Event::Timer => (4, 0),
            Event::Fetched(number) => (5, number),
            Event::Continued => (6, 0),
            Event::Room => (7, 0),
            Event::Gone => (8, 0),
        }
    }

    /// The event with these numbers.
    pub fn from_numbers(event: i32, number: u32) -> Option<Event> {
        Some(match event {
            1 => Event::Request,
            2 => Event::Body(number),
            3 => Event::BodyEnd,
            4 => Event::Timer,
            5 => Event::Fetched(number),
            6 => Event::Continued,
            7 => Event::Room,
            8 => Event::Gone,
            _ => return None,
        })
    }
}

/// A module's result for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The response is complete.
    Done,
    /// Call again at the next event.
    Wait,
    /// The client gets 500, or a truncated response if it has begun.
    Failed,
}

impl Next {
    /// The number of this result.
    pub fn to_number(self) -> i32 {
        match self {
            Next::Done => 0,
            Next::Wait => 1,
            Next::Failed => -1,
        }
    }

    /// The result of a number; unknown numbers are failures.
    pub fn from_number(number: i32) -> Next {
        match number {
            0 => Next::Done,
            1 => Next::Wait,
            _ => Next::Failed,
        }
    }
}

/// A value that a module can ask the server for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
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

impl What {
    /// The value with this number.
    pub fn from_number(number: u32) -> Option<What> {
        const ALL: [What; 13] = [
            What::Method,
            What::Target,
            What::Path,
            What::Query,
            What::Host,
            What::Peer,
            What::Field,
            What::Cookie,
            What::Parameter,
            What::Fields,
            What::Root,
            What::Setting,
            What::Worker,
        ];
        let index = number.checked_sub(1)?;
        ALL.get(index as usize).copied()
    }
}

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Data was lost or a request was refused.
    Error = 0,
    /// An irregularity that the server survives.
    Warn = 1,
    /// Information for operators.
    Info = 2,
    /// Details for finding a fault.
    Debug = 3,
}

impl Level {
    /// The level of this number; higher numbers are `MessageLevel::Debug`.
    pub fn from_number(number: u32) -> Level {
        match number {
            0 => Level::Error,
            1 => Level::Warn,
            2 => Level::Info,
            _ => Level::Debug,
        }
    }
}

/// The outcome of sending bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// There is room for more.
    Room,
    /// The bytes were taken; wait for `CallEvent::Room` before sending more.
    Full,
    /// The bytes were refused: the response is too long.
    Refused,
}

impl Sent {
    /// The number of this outcome.
    pub fn to_number(self) -> i32 {
        match self {
            Sent::Room => 1,
            Sent::Full => 0,
            Sent::Refused => -1,
        }
    }

    /// The outcome of a number; unknown numbers are refusals.
    pub fn from_number(number: i32) -> Sent {
        match number {
            1 => Sent::Room,
            0 => Sent::Full,
            _ => Sent::Refused,
        }
    }
}

/// A handle with which any thread and any other call can resume a waiting call.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    number: u64,
    go_on: fn(u64) -> bool,
}

impl Ticket {
    /// A ticket with this number, and the function that resumes the call of a number.
    pub fn new(number: u64, go_on: fn(u64) -> bool) -> Ticket {
        Ticket { number, go_on }
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
pub trait Host {
    /// A value of the request, a setting, or the worker's number.
    fn get(&self, what: What, name: &[u8]) -> Option<Cow<'_, [u8]>>;
    /// Takes available bytes of the request's body (`from` = 0) or of a fetch (its number).
    fn read(&mut self, from: u32, buf: &mut [u8]) -> usize;
    /// The number of bytes that `CallHost::read` could return now.
    fn left(&self, from: u32) -> usize;
    /// Sets the status, 200 to 599.
    fn status(&mut self, status: u32) -> bool;
    /// Adds a field to the response.
    fn field(&mut self, name: &[u8], value: &[u8]) -> bool;
    /// Appends bytes to the response's body.
    fn send(&mut self, bytes: &[u8]) -> Sent;
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
    fn ticket(&mut self) -> Ticket;
    /// Writes a line to the log.
    fn log(&self, level: Level, text: &str);
    /// Milliseconds since 1970-01-01 UTC.
    fn now_ms(&self) -> u64;
    /// The number that a library keeps with the call, 0 at first. Modules in Rust have their `Memory` instead.
    fn memory(&self) -> u64;
    /// Sets the number that a library keeps with the call.
    fn set_memory(&mut self, memory: u64);
}
