//! The protocol of a connection: its state machine, which is in [`lowroad_http`], and the calls of the protocol's
//! module in this crate (`h1` or `h2`).
//!
//! All protocols share the table of streams (`stream_table`), the calls of the service (`exchange`), request bodies
//! (`request_bodies`) and the output (`transmit`). The differences are in the modules `h1` and `h2`, which are called
//! only by the methods here. Another protocol would need a variant, an arm in each method, and a module.

use std::ops::{Deref, DerefMut};

use lowroad_http::h1;
use lowroad_http::h2::ErrorCode;
use lowroad_http::protocol::{ServerProtocol, StreamId};

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::h2::state::H2Session;
use crate::response::ResponseWriter;
use crate::response_body::OutputBuffer;
use crate::service::{ConnectionRefusal, HttpService};
use crate::settings::WorkerSettings;

/// The protocol of a connection.
pub(crate) enum Protocol {
    /// HTTP/1; also before the first bytes have arrived.
    Http1(h1::H1Server),
    /// HTTP/2.
    Http2(Box<H2Session>),
}

impl Default for Protocol {
    fn default() -> Protocol {
        Protocol::Http1(h1::H1Server::default())
    }
}

impl Deref for Protocol {
    type Target = dyn ServerProtocol;

    #[inline]
    fn deref(&self) -> &(dyn ServerProtocol + 'static) {
        match self {
            Protocol::Http1(http) => http,
            Protocol::Http2(session) => &session.http,
        }
    }
}

impl DerefMut for Protocol {
    #[inline]
    fn deref_mut(&mut self) -> &mut (dyn ServerProtocol + 'static) {
        match self {
            Protocol::Http1(http) => http,
            Protocol::Http2(session) => &mut session.http,
        }
    }
}

impl Protocol {
    /// Whether several requests may be in progress at a time, with interleaved responses. Otherwise a response is
    /// complete before the next request is read.
    #[inline]
    pub fn is_multiplexed(&self) -> bool {
        !matches!(self, Protocol::Http1(_))
    }

    /// The longest request body, in bytes.
    pub fn body_len_max(&self, settings: &WorkerSettings) -> u64 {
        match self {
            Protocol::Http1(_) => settings.http.body_len_max,
            Protocol::Http2(_) => settings.h2.limits.body_len_max,
        }
    }

    /// The writer for the response to a request.
    #[inline]
    pub fn response<'r>(
        &'r mut self,
        stream: StreamId,
        out: &'r mut OutputBuffer,
        date: &'r [u8; 29],
    ) -> ResponseWriter<'r> {
        match self {
            Protocol::Http1(http) => ResponseWriter::new(http, out, date),
            Protocol::Http2(session) => {
                ResponseWriter::for_stream(&mut session.http, stream, out, date)
            }
        }
    }
}

/// The calls of the protocol's module.
impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Handles `input` until it ends or a request is deferred. Returns the number of bytes used.
    pub(crate) fn consume(&mut self, worker: &mut WorkerContext<D, V>, input: &[u8]) -> usize {
        match self.protocol {
            // Prior knowledge (RFC 9113 §3.3): the client's preface can't be an HTTP/1 request.
            Protocol::Http1(_) if self.begins_h2(worker, input) => {
                self.begin_h2(worker);
                self.consume_frames(worker, input)
            }
            Protocol::Http1(_) => self.consume_requests(worker, input),
            Protocol::Http2(_) => self.consume_frames(worker, input),
        }
    }

    /// Whether the connection receives at present.
    pub(crate) fn can_receive(&self) -> bool {
        match self.protocol {
            _ if self.lingering => true,
            Protocol::Http1(_) => self.reads_requests(),
            Protocol::Http2(_) => self.reads_frames(),
        }
    }

    /// Sends the worker's output for this connection.
    #[inline]
    pub(crate) fn flush(&mut self, worker: &mut WorkerContext<D, V>) {
        match self.protocol {
            Protocol::Http1(_) | Protocol::Http2(_) => self.flush_bytes(worker),
        }
    }

    /// Handles a response after its head and body in memory were written. `may_follow`: the client may have sent
    /// another request.
    pub(crate) fn on_response_written(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        record: Option<V::Record>,
        may_follow: bool,
    ) {
        match self.protocol {
            Protocol::Http1(_) => self.on_h1_response_written(worker, record, may_follow),
            Protocol::Http2(_) => self.on_h2_response_written(worker, stream, record),
        }
    }

    /// Sends output that is ready, and resumes requests after the arrival of their outcome.
    pub(crate) fn proceed(&mut self, worker: &mut WorkerContext<D, V>) {
        match self.protocol {
            Protocol::Http1(_) => self.resume_deferred(worker),
            Protocol::Http2(_) => self.emit(worker),
        }
    }

    /// Handles the outcome of a deferred request.
    pub(crate) fn handle_outcome(&mut self, worker: &mut WorkerContext<D, V>) {
        match self.protocol {
            // Earlier responses may not be sent yet, and HTTP/1 responses keep the order of their requests.
            Protocol::Http1(_) if self.sending.is_some() => {}
            Protocol::Http1(_) => self.resume(worker),
            Protocol::Http2(_) => {
                self.resume_all_due(worker);
                self.emit_and_schedule(worker);
            }
        }
    }

    /// Called when the socket has accepted all output.
    pub(crate) fn on_all_sent(&mut self, worker: &mut WorkerContext<D, V>) {
        if !self.is_delivered(worker) {
            return;
        }
        self.log_all_sent(worker);
        match self.protocol {
            Protocol::Http1(_) => self.on_h1_responses_sent(worker),
            Protocol::Http2(_) => self.emit_and_schedule(worker),
        }
    }

    /// Handles the connection's deadline.
    pub(crate) fn on_protocol_deadline(&mut self, worker: &mut WorkerContext<D, V>) {
        match self.protocol {
            Protocol::Http1(_) => self.on_h1_deadline(worker),
            Protocol::Http2(_) => self.on_h2_deadline(worker),
        }
    }

    /// Called when a body of this connection has more bytes or more room.
    pub(crate) fn handle_progress(&mut self, worker: &mut WorkerContext<D, V>) {
        match self.protocol {
            Protocol::Http1(_) => self.handle_body_progress(worker),
            Protocol::Http2(_) => self.handle_stream_progress(worker),
        }
    }

    /// Stops reading a request's body, and refuses the request unless it was answered.
    pub(crate) fn break_incoming(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        refusal: ConnectionRefusal,
    ) {
        match self.protocol {
            Protocol::Http1(_) => self.break_request_body(worker, stream, refusal),
            Protocol::Http2(_) => self.break_stream(worker, stream, refusal),
        }
    }

    /// Refuses `input`, which is not a valid request, and ends the connection.
    pub(crate) fn refuse(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        refusal: ConnectionRefusal,
        input: &[u8],
    ) {
        // No response can be encrypted before the handshake is complete.
        if self.transport.is_handshaking() {
            return self.close();
        }
        match self.protocol {
            Protocol::Http1(_) => self.refuse_request(worker, refusal, input),
            Protocol::Http2(_) => {
                self.end_with_goaway(worker, ErrorCode::ENHANCE_YOUR_CALM, "refused")
            }
        }
    }

    /// Handles a file that can't be sent completely.
    pub(crate) fn cut_file(&mut self, worker: &mut WorkerContext<D, V>) {
        match self.protocol {
            // A close is the only way of HTTP/1 to show that a body is incomplete.
            Protocol::Http1(_) => self.close(),
            Protocol::Http2(_) => self.stream_read(worker, None),
        }
    }

    /// Handles a part of a file that a helper thread has read.
    pub(crate) fn file_read(&mut self, worker: &mut WorkerContext<D, V>, bytes: Vec<u8>) {
        match self.protocol {
            Protocol::Http1(_) => self.put_file_bytes(worker, bytes),
            Protocol::Http2(_) => self.stream_read(worker, Some(bytes)),
        }
    }

    /// Announces the end of the connection, if the protocol can do that before its last response.
    pub(crate) fn announce_end(&mut self, worker: &mut WorkerContext<D, V>) {
        match self.protocol {
            Protocol::Http1(_) => {}
            Protocol::Http2(_) => self.drain_frames(worker),
        }
    }
}
