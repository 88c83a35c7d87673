//! Connections that speak HTTP/2: many exchanges at a time, each a stream. What a frame is, which may be sent and what a
//! client may cost is decided in [`lowroad_http::h2`]; here its events become requests, and responses its bodies.
//!
//! ```text
//!  input ─► Server::next ─► a request ─┬─ answered at once ─► head: the worker's output
//!                                      │                      body: fresh ─┐  what did not leave
//!                                      └─ deferred ─ outcome ─► …          ├─► its stream's line (`Body`)
//!  the worker's output ◄── DATA frames, by turns ◄── Server::send ◄────────┘
//! ```
//! Bodies are copied into the worker's output, up to [`OUT_LEN_MAX`], which leaves at once; what the socket does not take
//! is the connection's `Sending`, and nothing more of a body follows until it has left.

mod bodies;
mod ends;
mod input;
mod output;
mod tunnels;

use lowroad_http::h2;
use lowroad_http::protocol::ServerProtocol;

use crate::connection::Connection;
use crate::context::WorkerContext;
use crate::driver::Driver;
use crate::pace::Pace;
use crate::protocol::Protocol;
use crate::service::Service;
use crate::underway::StreamId;

pub(crate) use self::bodies::Body;
pub(crate) use self::output::Fresh;

/// Output that is sent before more is written.
const OUT_LEN_MAX: usize = 64 * 1024;
/// Bytes of a body in one frame: with its head they fill a record of TLS.
const PIECE_LEN_MAX: usize = 16_375;
/// Bytes that wait for the socket, beyond which nothing more is received.
const UNSENT_LEN_MAX: u64 = 2 * OUT_LEN_MAX as u64;

/// What a connection has instead of HTTP/1.
pub(crate) struct Http2 {
    pub http: h2::Server,
    /// Of which stream a helper reads a file.
    pub reading: Option<StreamId>,
    /// How the client takes bodies, while its windows hold some of them back.
    pub pace: Pace,
    /// When a request last came or was under way, monotonic ms.
    pub used_ms: u64,
    /// The end was announced.
    pub is_draining: bool,
}

/// What all connections of a worker share for it.
pub(crate) struct Shared<R> {
    /// Fields of a request are decoded here.
    pub text: Vec<u8>,
    pub counters: h2::Counters,
    /// Responses that were written and have not been given to the connection's streams.
    pub fresh: Vec<Fresh<R>>,
    /// Which of them is probably sent next.
    pub next_fresh: usize,
}

impl<R> Default for Shared<R> {
    fn default() -> Shared<R> {
        Shared {
            text: Vec::new(),
            counters: h2::Counters::default(),
            fresh: Vec::new(),
            next_fresh: 0,
        }
    }
}

impl<D: Driver, V: Service> Connection<D, V> {
    /// Whether more may be received over HTTP/2: not while much waits that the client does not take.
    pub fn reads_frames(&self) -> bool {
        let sending = self.sending.as_ref();
        sending.is_none_or(|sending| sending.unsent() < UNSENT_LEN_MAX)
    }
}

impl<D: Driver, V: Service> Connection<D, V> {
    /// Whether the connection speaks HTTP/2: it did before, or `input` is its first and begins so.
    #[inline]
    pub(crate) fn speaks_h2(&mut self, worker: &mut WorkerContext<D, V>, input: &[u8]) -> bool {
        if self.is_closed() {
            return false;
        }
        if self.protocol.is_multiplexed() {
            return true;
        }
        // The first comparison is all that a connection with HTTP/1 costs from its second request on.
        if self.requests != 0 || !input.starts_with(b"PRI * HTTP/2.0\r\n") {
            return false;
        }
        let listener = self.listener;
        if worker.service.pass_through(listener, None).is_some() {
            return false; // as HTTP/1 it is no request
        }
        self.begin_h2(worker);
        // It may be closed by now.
        !self.is_closed() && self.protocol.is_multiplexed()
    }

    /// A connection speaks HTTP/2 from now on.
    pub(crate) fn begin_h2(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        let mut turn = h2::Turn {
            now_ms,
            settings: &worker.settings.h2,
            out: &mut worker.out.bytes,
            counters: &mut worker.h2.counters,
        };
        let mut http = h2::Server::new(&mut turn);
        worker.counters.h2_connections.bump();
        let is_draining = worker.drain_until_ms.is_some();
        if is_draining {
            http.drain(&mut worker.out.bytes);
        }
        self.protocol = Protocol::Http2(Box::new(Http2 {
            http,
            reading: None,
            pace: Pace::new(now_ms),
            used_ms: now_ms,
            is_draining,
        }));
        self.begun = false;
        self.deadline_ms = now_ms + worker.settings.header_timeout_ms;
        self.flush(worker);
        if !self.is_closed() {
            self.note(worker);
        }
    }
}
