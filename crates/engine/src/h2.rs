//! HTTP/2 connections: many exchanges at a time, each on its own stream. Frame formats, stream states and limits on the
//! cost of a client are in [`lowroad_http::h2`]; this module passes requests to the service, and responses to the
//! client. What it shares with HTTP/3 is in `multiplexed`.
//!
//! ```text
//!  input ─► H2Server::next ─► a request ─┬─ answered immediately ─► head: the worker's output
//!                                        │                    body: SharedHttp2::unframed ─┐  unsent rest
//!                                        └─ deferred ─ outcome ─► …                        ├─► `RemainingBody`
//!  the worker's output ◄── DATA frames, interleaved ◄── H2Server::send ◄───────────────────┘
//! ```
//! Bodies are copied into the worker's output, up to [`OUT_LEN_MAX`] bytes, which are sent with one system call. Output
//! that the socket does not accept becomes the connection's `SendQueue`; no further frames are written until the queue
//! was sent.

mod deadlines;
mod input;
mod output;
pub(crate) mod state;

use lowroad_http::h2;
use lowroad_http::protocol::ServerProtocol;

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::h2::state::H2Session;
use crate::multiplexed::SessionProgress;
use crate::protocol::Protocol;
use crate::service::HttpService;

/// When the output has this length, it is sent before more is written.
const OUT_LEN_MAX: usize = 64 * 1024;
/// Maximum payload of a DATA frame: with the frame's header it fills a TLS record.
const PIECE_LEN_MAX: usize = 16_375;
/// While this many bytes are unsent, nothing more is received.
const UNSENT_LEN_MAX: u64 = 2 * OUT_LEN_MAX as u64;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Whether more may be received over HTTP/2: not while much output waits for a client that does not read.
    pub(crate) fn reads_frames(&self) -> bool {
        let sending = self.sending.as_ref();
        sending.is_none_or(|sending| sending.unsent() < UNSENT_LEN_MAX)
    }
}

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Whether `input`, the first bytes of a connection, begins HTTP/2.
    #[inline]
    pub(crate) fn begins_h2(&self, worker: &mut WorkerContext<D, V>, input: &[u8]) -> bool {
        // This is checked for every receive: from the second HTTP/1 request on, only `requests` is compared.
        if self.requests != 0 || !input.starts_with(b"PRI * HTTP/2.0\r\n") || self.is_closed() {
            return false;
        }
        // On listeners with pass-through, the preface is treated as bytes that are not HTTP/1, and passed through.
        worker.service.pass_through(self.listener, None).is_none()
    }

    /// Switches the connection to HTTP/2.
    pub(crate) fn begin_h2(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        let mut turn = h2::ConnectionTurn {
            now_ms,
            settings: &worker.settings.h2,
            out: &mut worker.out.bytes,
            counters: &mut worker.h2.counters,
        };
        let mut http = h2::H2Server::new(&mut turn);
        worker.counters.h2_connections.bump();
        let is_draining = worker.drain_until_ms.is_some();
        if is_draining {
            http.drain(&mut worker.out.bytes);
        }
        self.protocol = Protocol::Http2(Box::new(H2Session {
            http,
            progress: SessionProgress::new(now_ms, is_draining),
        }));
        self.has_partial_head = false;
        self.deadline_ms = now_ms + worker.settings.header_timeout_ms;
        self.flush(worker);
        if !self.is_closed() {
            self.schedule_check(worker);
        }
    }
}
