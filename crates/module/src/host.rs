//! What a server offers to modules, and the words that both use.
//!
//! The numbers of the variants are those of `lowroad.h`.

use std::borrow::Cow;

/// Why a module is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request is there: always the first event of a call.
    Request,
    /// So many bytes of its body are at hand: [`crate::Call::read`].
    Body(u32),
    /// That was all of the body; comes too where there is none.
    BodyEnd,
    /// The time set with [`crate::Call::timer`] has passed.
    Timer,
    /// The fetch with this number is over: [`crate::Call::fetched`].
    Fetched(u32),
    /// Somebody used the call's [`Ticket`].
    Continued,
    /// [`crate::Call::send`] said [`Sent::Full`]; now there is room again.
    Room,
    /// The client is gone, or the time is up. The last event.
    Gone,
}

impl Event {
    /// The event's number, and what it brings.
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

/// What a module says after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The response is complete.
    Done,
    /// Call again at the next event.
    Wait,
    /// The client gets 500, or a cut response if it has begun.
    Failed,
}

impl Next {
    /// Its number.
    pub fn to_number(self) -> i32 {
        match self {
            Next::Done => 0,
            Next::Wait => 1,
            Next::Failed => -1,
        }
    }

    /// What a number says; all that is no number of ours is a failure.
    pub fn from_number(number: i32) -> Next {
        match number {
            0 => Next::Done,
            1 => Next::Wait,
            _ => Next::Failed,
        }
    }
}

/// A value that the server has for a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The method: `GET`.
    Method = 1,
    /// Path and query as they were sent.
    Target = 2,
    /// The decoded path; begins with `/`, has no dot segments and no NUL.
    Path = 3,
    /// What follows the `?`, as it was sent.
    Query = 4,
    /// The host that the client asked for.
    Host = 5,
    /// The client's address.
    Peer = 6,
    /// The request field of a name, in any case; the first of them.
    Field = 7,
    /// The cookie of a name.
    Cookie = 8,
    /// The query's parameter of a name, decoded; the first of them.
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

/// How grave a line of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something is lost or refused.
    Error = 0,
    /// Something is not as it should be.
    Warn = 1,
    /// What an operator may want to know.
    Info = 2,
    /// What helps to find a fault.
    Debug = 3,
}

impl Level {
    /// The level with this number; all that is above is [`Level::Debug`].
    pub fn from_number(number: u32) -> Level {
        match number {
            0 => Level::Error,
            1 => Level::Warn,
            2 => Level::Info,
            _ => Level::Debug,
        }
    }
}

/// What became of bytes that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// There is room for more.
    Room,
    /// They were taken, but wait for [`Event::Room`] before the next.
    Full,
    /// They were refused: the response is too long.
    Refused,
}

impl Sent {
    /// Its number.
    pub fn to_number(self) -> i32 {
        match self {
            Sent::Room => 1,
            Sent::Full => 0,
            Sent::Refused => -1,
        }
    }

    /// What a number says.
    pub fn from_number(number: i32) -> Sent {
        match number {
            1 => Sent::Room,
            0 => Sent::Full,
            _ => Sent::Refused,
        }
    }
}

/// With it, any thread and any other call can have a call continued.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    number: u64,
    go_on: fn(u64) -> bool,
}

impl Ticket {
    /// A ticket with a number, and what continues the call of a number.
    pub fn new(number: u64, go_on: fn(u64) -> bool) -> Ticket {
        Ticket { number, go_on }
    }

    /// The number; no other call of this server has it.
    pub fn number(self) -> u64 {
        self.number
    }

    /// Has the call called with [`Event::Continued`]. Says whether it was still there.
    pub fn go_on(self) -> bool {
        (self.go_on)(self.number)
    }
}

/// A call as the server offers it. Modules use [`crate::Call`], which is made of it.
///
/// `bool` and `None` say whether it was done or refused; the server's log says why.
pub trait Host {
    /// A value of the request, a setting, or the worker's number.
    fn get(&self, what: What, name: &[u8]) -> Option<Cow<'_, [u8]>>;
    /// Takes bytes of the body (0) or of a fetch (its number) that are at hand.
    fn read(&mut self, from: u32, buf: &mut [u8]) -> usize;
    /// How many bytes [`Host::read`] could give now.
    fn left(&self, from: u32) -> usize;
    /// Sets the status, 200 to 599.
    fn status(&mut self, status: u32) -> bool;
    /// Adds a field to the response.
    fn field(&mut self, name: &[u8], value: &[u8]) -> bool;
    /// Appends bytes to the response's body.
    fn send(&mut self, bytes: &[u8]) -> Sent;
    /// Appends what the site has for a path.
    fn send_stored(&mut self, path: &[u8]) -> bool;
    /// Sends what is there so far.
    fn flush(&mut self) -> bool;
    /// Sets the call's timer.
    fn timer(&mut self, after_ms: u32);
    /// Begins to get a path of the site or an `http://` URL. Gives the fetch's number.
    fn fetch(&mut self, target: &[u8]) -> Option<u32>;
    /// The status of a fetch that is over, 0 if there was no answer.
    fn fetched(&self, number: u32) -> Option<u16>;
    /// A ticket for this call.
    fn ticket(&mut self) -> Ticket;
    /// Writes a line to the log.
    fn log(&self, level: Level, text: &str);
    /// Milliseconds since 1970.
    fn now_ms(&self) -> u64;
    /// What a library keeps with the call, 0 at first. Modules in Rust have their `Memory` instead.
    fn memory(&self) -> u64;
    /// Sets what a library keeps with the call.
    fn set_memory(&mut self, memory: u64);
}
