//! What a worker asks of the program above it: an answer to a request.
//!
//! A service answers at once from what it has in memory, or defers; it never blocks.

use std::net::IpAddr;

use lowroad_http::refusal::Refusal;
use lowroad_http::request::{Request, Version};

use crate::body::Out;
use crate::driver::{ListenerId, Token};
use crate::stream::Receiver;

/// What is known about one request besides its own bytes.
pub struct Exchange<'a> {
    /// The connection, for the reply to a deferred request.
    pub token: Token,
    /// Where the client is.
    pub peer: IpAddr,
    /// Where it connected.
    pub listener: ListenerId,
    /// Monotonic ms.
    pub now_ms: u64,
    /// When the request's head was complete, monotonic ms; differs from `now_ms` after a deferral.
    pub started_ms: u64,
    /// Seconds since 1970.
    pub unix_s: u64,
    /// `unix_s` as the value of a `Date` field.
    pub date: &'a [u8; 29],
    /// Whether the connection stays open after the answer. A service may set it to false.
    pub keep_alive: bool,
    /// The request's body, where [`Service::body_use`] said [`BodyUse::Streamed`]; not with a
    /// deferred request that comes again.
    pub body: Option<Receiver>,
}

impl Exchange<'_> {
    /// What ends the head of an answer to this request: the connection field where one is due
    /// (RFC 9112 §9.3) and the empty line.
    pub fn head_end(&self, version: Version) -> &'static [u8] {
        match (self.keep_alive, version) {
            (true, Version::Http11) => b"\r\n",
            (true, Version::Http10) => b"Connection: keep-alive\r\n\r\n",
            (false, _) => b"Connection: close\r\n\r\n",
        }
    }
}

/// What became of a request.
pub enum Answer<R> {
    /// The whole answer is in [`Out`]. The record, if any, comes back when it has been sent.
    Ready(Option<R>),
    /// An outcome will come through the mailbox; the request is put again then. What is given is
    /// dropped when the connection ends before.
    Deferred(Option<Box<dyn Send>>),
}

/// What becomes of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyUse {
    /// The request is refused without regard to it: it need not be read.
    Refused,
    /// It is read and dropped, and then the request is put.
    Dropped,
    /// The request is put at once, and the body streams in.
    Streamed,
}

/// The program above the workers; one value per worker.
pub trait Service {
    /// What a deferred request waits for.
    type Outcome: Send + 'static;
    /// What is to be logged about an answer.
    type Record;
    /// What an operator changes while the server runs.
    type Command: Send + 'static;

    /// Answers a request into `out`, or defers it. After a deferral the same request comes again
    /// with the outcome.
    fn answer(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange<'_>,
        outcome: Option<Self::Outcome>,
        out: &mut Out,
    ) -> Answer<Self::Record>;

    /// What becomes of the body of a request that came in at `listener`.
    fn body_use(&mut self, request: &Request<'_>, listener: ListenerId) -> BodyUse;

    /// Answers what is not a request. `input` is what came of it; the connection closes afterwards.
    fn refuse(
        &mut self,
        why: Refused,
        input: &[u8],
        exchange: &mut Exchange<'_>,
        out: &mut Out,
    ) -> Option<Self::Record>;

    /// An answer with a record has left: `body_len` bytes of its body, `whole` if all of them.
    fn sent(&mut self, record: Self::Record, body_len: u64, whole: bool, now_ms: u64);

    /// Takes an operator's change.
    fn command(&mut self, command: Self::Command);

    /// Called once per turn of the event loop: a place to pass on what was gathered.
    fn turn_ended(&mut self, now_ms: u64);
}

/// Why a connection gets an answer without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The bytes are not a request that we take.
    Request(Refusal),
    /// The request did not come in time (RFC 9110 §15.5.9).
    Timeout,
    /// There are too many connections.
    Overload,
}
