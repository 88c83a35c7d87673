//! One connection, and what is under way on it.
//!
//! ```text
//!  input ─► http ─► a request ─┬─ answered at once ───────────────► the worker's output ─► sending ─► the socket
//!                     │        └─ deferred: exchange.waiting ─ outcome ─┘
//!                     └─ its body: exchange.incoming ─► who answers, or nobody
//! ```
//! What belongs to the connection (socket, protocol, input, what is being sent) is in [`Connection`]; what belongs to one
//! request and its response, in [`Underway`], which there is only while something of it is waited for. HTTP/1 has one
//! at a time. Holds data only; `exchange` and `transmit` move it.

use lowroad_http::h1::Server;

use crate::driver::{ListenerId, Token};
use crate::incoming::Incoming;
use crate::sending::Sending;
use crate::service::Service;
use crate::transport::Transport;

/// A connection of a worker. Idle ones are kept by the ten thousand: what is not always needed lives in boxes.
pub(crate) struct Connection<S, V: Service> {
    pub transport: Transport<S>,
    /// Whose turn it is to speak, and where the bytes received belong.
    pub http: Server,
    /// Bytes received and not used yet; empty, and without memory, while idle.
    pub input: Vec<u8>,
    /// When to give up or to look again, monotonic ms.
    pub deadline_ms: u64,
    /// When the timing wheel's earliest note on this connection comes due.
    pub noted_ms: u64,
    pub requests: u32,
    pub generation: u32,
    pub listener: ListenerId,
    /// Bytes, or the end of them, came while nobody would read them.
    pub unread: bool,
    /// There are, or may come, bytes that nobody will read.
    pub leftover: bool,
    /// A head has begun, and its deadline is set.
    pub begun: bool,
    /// All is said; what the peer still sends is thrown away, so that our last bytes arrive (RFC 9112 §9.6).
    pub lingering: bool,
    /// What the socket has not taken yet.
    pub sending: Option<Box<Sending<V::Record>>>,
    /// The request that is not over.
    pub underway: Option<Box<Underway<V>>>,
}

/// What is waited for of one request.
pub(crate) struct Underway<V: Service> {
    /// Its body, while it comes.
    pub incoming: Option<Incoming>,
    /// Its response, while the service waits for something.
    pub waiting: Option<Waiting<V>>,
}

/// A request that the service has deferred.
pub(crate) struct Waiting<V: Service> {
    pub pending: V::Pending,
    /// When it came.
    pub since_ms: u64,
    /// What it waits for.
    pub come: Come<V::Outcome>,
    /// Somebody works for it alone.
    pub gives_up: bool,
}

/// What a request waits for, and whether it has come.
pub(crate) enum Come<O> {
    /// An outcome, which has not come.
    Nothing,
    /// The outcome; earlier responses may still be being sent.
    Outcome(O),
    /// The end of a body that is dropped.
    Body { is_over: bool },
}

impl<S, V: Service> Connection<S, V> {
    /// This connection's name, given its slot.
    pub fn token(&self, slot: usize) -> Token {
        Token {
            slot: slot as u32,
            generation: self.generation,
        }
    }

    /// What is waited for of a request.
    pub fn underway(&mut self) -> &mut Underway<V> {
        self.underway.get_or_insert_with(|| {
            Box::new(Underway {
                incoming: None,
                waiting: None,
            })
        })
    }

    /// The body that comes in.
    pub fn incoming(&mut self) -> Option<&mut Incoming> {
        self.underway.as_mut()?.incoming.as_mut()
    }

    /// The request that the service has deferred.
    pub fn waiting(&mut self) -> Option<&mut Waiting<V>> {
        self.underway.as_mut()?.waiting.as_mut()
    }

    /// No more will come of the body: a request that waits only for its end can go on.
    pub fn end_wait_for_body(&mut self) {
        if let Some(waiting) = self.waiting()
            && let Come::Body { is_over } = &mut waiting.come
        {
            *is_over = true;
        }
    }

    /// Whether a request waits for the service.
    pub fn waits(&self) -> bool {
        let underway = self.underway.as_ref();
        underway.is_some_and(|underway| underway.waiting.is_some())
    }

    /// Whether a body comes in.
    pub fn has_incoming(&self) -> bool {
        let underway = self.underway.as_ref();
        underway.is_some_and(|underway| underway.incoming.is_some())
    }

    /// Forgets the request under way if nothing of it is waited for any more.
    pub fn tidy(&mut self) {
        let nothing = |it: &Underway<V>| it.incoming.is_none() && it.waiting.is_none();
        if self.underway.as_deref().is_some_and(nothing) {
            self.underway = None;
        }
    }

    /// Nobody will read the rest of the request's body: the connection ends with the response.
    pub fn leave_body_unread(&mut self) {
        if let Some(underway) = &mut self.underway {
            underway.incoming = None;
        }
        self.http.leave_body();
        self.leftover = true;
        self.tidy();
    }

    /// Whether received bytes can be used now.
    pub fn reads(&self) -> bool {
        if self.lingering {
            return true;
        }
        match &self.underway {
            Some(underway) => match &underway.incoming {
                Some(incoming) => !incoming.full,
                None => false,
            },
            None => self.sending.is_none(),
        }
    }

    /// Whether nothing is under way, and no request has begun.
    pub fn is_idle(&self) -> bool {
        self.sending.is_none() && self.underway.is_none() && !self.begun
    }
}
