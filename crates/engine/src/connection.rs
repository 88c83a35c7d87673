//! One connection: where it stands between its first byte and its last.
//!
//! ```text
//!            request            deferred
//!   ┌─► Head ───────► (answer) ─────────► Waiting ─┐
//!   │     │ body comes  │ ▲                        │ outcome
//!   │     ▼             │ └────────────────────────┘
//!   │    Body ──────────┤
//!   │                   ├─ all sent ──────────────────► Head, or Lingering, or closed
//!   └───── all sent ─── Sending (the socket is full, or a file is on its way)
//! ```
//! Holds data only; `exchange` and `transmit` move it.

use std::collections::VecDeque;
use std::net::IpAddr;

use lowroad_http::body::BodyReader;

use crate::body::Part;
use crate::driver::{ListenerId, Token};
use crate::incoming::Incoming;
use crate::settings::Settings;

/// How often the pace of a slow client is looked at.
const PACE_CHECK_MS: u64 = 1000;

/// A connection of a worker. Idle ones are kept by the ten thousand: what is not always needed
/// lives in boxes.
pub(crate) struct Connection<S, R, O> {
    pub socket: S,
    pub state: State<R, O>,
    /// Bytes received and not used yet; empty, and without memory, while idle.
    pub input: Vec<u8>,
    /// When to give up or to look again, monotonic ms.
    pub deadline_ms: u64,
    /// When the timing wheel's earliest note on this connection comes due.
    pub noted_ms: u64,
    pub requests: u32,
    pub generation: u32,
    pub peer: IpAddr,
    pub listener: ListenerId,
    /// Bytes, or the end of them, came while nobody would read them.
    pub unread: bool,
    /// The current request is the last.
    pub closing: bool,
    /// There are, or may come, bytes that nobody will read.
    pub leftover: bool,
    /// The body of the current request, while it streams to who answers it.
    pub incoming: Option<Box<Incoming>>,
}

/// Where a connection stands.
pub(crate) enum State<R, O> {
    /// Between requests, or within a head if one has begun: `input` holds its start.
    Head { begun: bool },
    /// Within a request's body.
    Body(Box<Body>),
    /// A helper works at the answer.
    Waiting(Box<Waiting<O>>),
    /// An answer is on its way.
    Sending(Box<Sending<R, O>>),
    /// All is said; what the peer still sends is thrown away, so that our last bytes arrive
    /// (RFC 9112 §9.6).
    Lingering,
}

/// A request's body being read; the answer follows it.
pub(crate) struct Body {
    pub reader: BodyReader,
    /// The request's head.
    pub head: Vec<u8>,
    pub pace: Pace,
}

/// A request that a helper works at.
pub(crate) struct Waiting<O> {
    /// The request's head.
    pub head: Vec<u8>,
    /// When it came.
    pub since_ms: u64,
    /// What the helper made of it, if earlier answers are still being sent.
    pub outcome: Option<O>,
    /// Dropped when the connection ends: what works for it can give up.
    pub hold: Option<Box<dyn Send>>,
}

/// An answer on its way.
pub(crate) struct Sending<R, O> {
    /// Where the connection stands once this is sent.
    pub then: State<R, O>,
    pub parts: VecDeque<Part>,
    pub transfer: Transfer,
    /// Pages of the file at the front are, or were, in the socket's queue.
    pub paged: bool,
    pub record: Option<R>,
    /// Bytes of heads among what is sent first: they do not count as body.
    pub head_len: u64,
    pub pace: Pace,
}

/// How a client gets on with a body or an answer.
pub(crate) struct Pace {
    /// Bytes received, or given to the socket.
    pub bytes: u64,
    pub since_ms: u64,
    pub progress_ms: u64,
    /// Of an answer: `bytes` without those that the client had not acknowledged when last looked.
    /// Below 0 while earlier answers are still on their way.
    taken: i64,
}

/// What is thought of a client's pace.
pub(crate) enum Verdict {
    Fine { look_again_ms: u64 },
    Stalled,
    TooSlow,
}

impl Pace {
    pub fn new(now_ms: u64) -> Pace {
        Pace {
            bytes: 0,
            since_ms: now_ms,
            progress_ms: now_ms,
            taken: i64::MIN,
        }
    }

    pub fn moved(&mut self, bytes: u64, now_ms: u64) {
        self.bytes += bytes;
        self.progress_ms = now_ms;
    }

    /// All but `queued` bytes of what the socket was given are acknowledged. A large socket buffer
    /// goes without room for long while a slow client steadily takes from it.
    pub fn acknowledged(&mut self, queued: usize, now_ms: u64) {
        let taken = self.bytes as i64 - queued as i64;
        if taken > self.taken {
            self.taken = taken;
            self.progress_ms = now_ms;
        }
    }

    /// The time until now is not the client's to answer for.
    pub fn excuse(&mut self, now_ms: u64) {
        self.since_ms += now_ms - self.progress_ms;
        self.progress_ms = now_ms;
    }

    /// Judges by the time without progress and by the rate since the start.
    pub fn judge(&self, settings: &Settings, timeout_ms: u64, now_ms: u64) -> Verdict {
        let elapsed_ms = now_ms - self.since_ms;
        if now_ms - self.progress_ms >= timeout_ms {
            return Verdict::Stalled;
        }
        let graced = elapsed_ms <= settings.rate_grace_ms;
        if !graced && self.bytes.saturating_mul(1000) / elapsed_ms < settings.rate_min {
            return Verdict::TooSlow;
        }
        Verdict::Fine {
            look_again_ms: (self.progress_ms + timeout_ms).min(now_ms + PACE_CHECK_MS),
        }
    }
}

/// What goes on with the file part at the front.
pub(crate) enum Transfer {
    /// Nothing.
    Idle,
    /// A helper is at it; whether the socket became writable meanwhile.
    Underway { writable: bool },
    /// No helper or descriptor could be had for it; it is tried again.
    Postponed,
    /// All but these last bytes is sent and not yet acknowledged.
    Settling { tail: Vec<u8>, since_ms: u64 },
    /// All is acknowledged; a helper asks whether the file is unchanged.
    Proving(Vec<u8>),
    /// What is next is still being made.
    Awaiting,
}

impl Transfer {
    /// Whether a helper, or the lack of one, is what is waited for.
    pub fn is_ours(&self) -> bool {
        matches!(
            self,
            Transfer::Underway { .. }
                | Transfer::Postponed
                | Transfer::Proving(_)
                | Transfer::Awaiting
        )
    }
}

impl<S, R, O> Connection<S, R, O> {
    /// This connection's name, given its slot.
    pub fn token(&self, slot: usize) -> Token {
        Token {
            slot: slot as u32,
            generation: self.generation,
        }
    }

    /// Nobody will read the rest of the request's body: the connection ends with the answer.
    pub fn leave_body_unread(&mut self) {
        self.incoming = None;
        self.closing = true;
        self.leftover = true;
    }

    /// Whether received bytes can be used now.
    pub fn reads(&self) -> bool {
        if let Some(incoming) = &self.incoming {
            return !incoming.full;
        }
        matches!(
            self.state,
            State::Head { .. } | State::Body(_) | State::Lingering
        )
    }
}
