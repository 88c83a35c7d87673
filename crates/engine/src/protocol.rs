//! The protocol of a connection: its state machine, which is in [`lowroad_http`], and the calls of the protocol's
//! module in this crate (`h1`, `h2` or `h3`).
//!
//! All protocols share the table of streams (`stream_table`), the calls of the service (`exchange`), request bodies
//! (`request_bodies`). `h1` and `h2` share the output (`transmit`), `h2` and `h3` the handling of streams
//! (`multiplexed`). The differences are in these modules, which are called only by the methods here. Another protocol
//! would need a variant, an arm in each method, and a module.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use lowroad_http::h1;
use lowroad_http::h2::ErrorCode;
use lowroad_http::h3::H3ErrorCode;
use lowroad_http::protocol::{MultiplexedProtocol, ServerProtocol, StreamId};

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::h2::state::H2Session;
use crate::h3::state::H3Session;
use crate::multiplexed::{MultiplexedSession, StreamAbort};
use crate::response::ResponseWriter;
use crate::response_body::OutputBuffer;
use crate::service::{ConnectionRefusal, HttpService};
use crate::settings::WorkerSettings;
use crate::tls_session::TlsInfo;

/// The protocol of a connection.
pub(crate) enum Protocol {
    /// HTTP/1; also before the first bytes have arrived.
    Http1(h1::H1Server),
    /// HTTP/2.
    Http2(Box<H2Session>),
    /// HTTP/3.
    Http3(Box<H3Session>),
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
            Protocol::Http3(session) => &session.http,
        }
    }
}

impl DerefMut for Protocol {
    #[inline]
    fn deref_mut(&mut self) -> &mut (dyn ServerProtocol + 'static) {
        match self {
            Protocol::Http1(http) => http,
            Protocol::Http2(session) => &mut session.http,
            Protocol::Http3(session) => &mut session.http,
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
            Protocol::Http3(_) => settings.h3.limits.body_len_max,
        }
    }

    /// Whether the latest request came in early data of TLS.
    pub fn is_early(&self) -> bool {
        matches!(self, Protocol::Http3(session) if session.is_early)
    }

    /// The session of a protocol that interleaves responses.
    #[inline]
    pub fn multiplexed(&mut self) -> Option<MultiplexedSession<'_>> {
        let (http, progress): (&mut dyn MultiplexedProtocol, _) = match self {
            Protocol::Http1(_) => return None,
            Protocol::Http2(session) => (&mut session.http, &mut session.progress),
            Protocol::Http3(session) => (&mut session.http, &mut session.progress),
        };
        Some(MultiplexedSession { http, progress })
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
            Protocol::Http3(session) => {
                ResponseWriter::for_http3(&mut session.http, stream, out, date)
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
            // There is no socket: `h3::input` handles the bytes of streams.
            Protocol::Http3(_) => input.len(),
        }
    }

    /// Whether the connection receives at present.
    pub(crate) fn can_receive(&self) -> bool {
        match self.protocol {
            _ if self.lingering => true,
            Protocol::Http1(_) => self.reads_requests(),
            Protocol::Http2(_) => self.reads_frames(),
            Protocol::Http3(_) => false,
        }
    }

    /// Sends the worker's output for this connection.
    #[inline]
    pub(crate) fn flush(&mut self, worker: &mut WorkerContext<D, V>) {
        match self.protocol {
            Protocol::Http1(_) | Protocol::Http2(_) => self.flush_bytes(worker),
            Protocol::Http3(_) => self.flush_streams(worker),
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
            Protocol::Http2(_) | Protocol::Http3(_) => {
                self.on_stream_response_written(worker, stream, record);
            }
        }
    }

    /// Sends output that is ready, and resumes requests after the arrival of their outcome.
    pub(crate) fn proceed(&mut self, worker: &mut WorkerContext<D, V>) {
        match self.protocol {
            Protocol::Http1(_) => self.resume_deferred(worker),
            Protocol::Http2(_) => self.emit(worker),
            Protocol::Http3(_) => self.emit_http3(worker),
        }
    }

    /// Sends output that is ready on a connection with interleaved responses, and schedules the next check.
    pub(crate) fn emit_and_schedule(&mut self, worker: &mut WorkerContext<D, V>) {
        match self.protocol {
            Protocol::Http1(_) => {}
            Protocol::Http2(_) => {
                self.emit(worker);
                self.schedule_frames_check(worker);
            }
            Protocol::Http3(_) => {
                self.emit_http3(worker);
                self.schedule_http3_check(worker);
            }
        }
    }

    /// Assigns bytes that were written for a stream: the output of HTTP/3 is separate for each stream.
    #[inline]
    pub(crate) fn commit_output(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        if let Protocol::Http3(_) = self.protocol {
            self.commit_stream_output(worker, stream);
        }
    }

    /// Ends the output of a stream, if its response is complete without a body.
    #[inline]
    pub(crate) fn end_output(&mut self, stream: StreamId) {
        if let Protocol::Http3(_) = self.protocol {
            self.end_stream_output(stream);
        }
    }

    /// Handles the record of a response after its last frame was written.
    #[inline]
    pub(crate) fn end_response(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        record: Option<V::Record>,
        body_len: u64,
    ) {
        match (&self.protocol, record) {
            (_, None) => {}
            (Protocol::Http3(_), Some(record)) => {
                let now_ms = worker.driver.now_ms();
                worker.service.sent(record, body_len, true, now_ms);
            }
            (_, record) => worker.push_framed_record(record, body_len),
        }
    }

    /// Resets a stream for a reason of the server, and frees it.
    pub(crate) fn abort_stream(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        abort: StreamAbort,
    ) {
        match &mut self.protocol {
            Protocol::Http1(_) => {}
            Protocol::Http2(session) => {
                let code = match abort {
                    StreamAbort::Failed => ErrorCode::INTERNAL_ERROR,
                    StreamAbort::Cancelled => ErrorCode::CANCEL,
                };
                session.http.reset(stream, code, &mut worker.out.bytes);
            }
            Protocol::Http3(_) => self.abort_http3_stream(worker, stream, abort),
        }
    }

    /// Frees a stream that the client has reset, after its work has ended.
    pub(crate) fn release_reset_stream(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
    ) {
        match &mut self.protocol {
            Protocol::Http1(_) => {}
            Protocol::Http2(session) => session
                .http
                .release_reset_stream(stream, &mut worker.out.bytes),
            Protocol::Http3(session) => session.http.release_reset_stream(stream),
        }
    }

    /// Lets the client send more of a request's body, if the body's queue has room.
    pub(crate) fn return_stream_window(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
    ) {
        match self.protocol {
            Protocol::Http1(_) => {}
            Protocol::Http2(_) => self.return_h2_window(worker, stream),
            Protocol::Http3(_) => self.return_http3_window(worker, stream),
        }
    }

    /// Writes the announcement of the connection's end, if the protocol has one.
    pub(crate) fn begin_drain(&mut self, worker: &mut WorkerContext<D, V>) {
        match &mut self.protocol {
            Protocol::Http1(_) => {}
            Protocol::Http2(session) => {
                session.progress.is_draining = true;
                session.http.drain(&mut worker.out.bytes);
            }
            Protocol::Http3(session) => {
                session.progress.is_draining = true;
                session.http.drain(&mut session.control);
            }
        }
    }

    /// The parameters of TLS; `None` without TLS and during the handshake.
    pub(crate) fn tls(&self) -> Option<&Arc<TlsInfo>> {
        match &self.protocol {
            Protocol::Http3(session) => session.tls.as_ref(),
            _ => self.transport.tls(),
        }
    }

    /// Handles the outcome of a deferred request.
    pub(crate) fn handle_outcome(&mut self, worker: &mut WorkerContext<D, V>) {
        match self.protocol {
            // Earlier responses may not be sent yet, and HTTP/1 responses keep the order of their requests.
            Protocol::Http1(_) if self.sending.is_some() => {}
            Protocol::Http1(_) => self.resume(worker),
            Protocol::Http2(_) | Protocol::Http3(_) => {
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
            Protocol::Http2(_) | Protocol::Http3(_) => self.emit_and_schedule(worker),
        }
    }

    /// Handles the connection's deadline.
    pub(crate) fn on_protocol_deadline(&mut self, worker: &mut WorkerContext<D, V>) {
        match self.protocol {
            Protocol::Http1(_) => self.on_h1_deadline(worker),
            Protocol::Http2(_) => self.on_h2_deadline(worker),
            Protocol::Http3(_) => self.on_http3_deadline(worker),
        }
    }

    /// Called when a body of this connection has more bytes or more room.
    pub(crate) fn handle_progress(&mut self, worker: &mut WorkerContext<D, V>) {
        match self.protocol {
            Protocol::Http1(_) => self.handle_body_progress(worker),
            Protocol::Http2(_) | Protocol::Http3(_) => self.handle_stream_progress(worker),
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
            Protocol::Http2(_) | Protocol::Http3(_) => self.break_stream(worker, stream, refusal),
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
            Protocol::Http3(_) => self.end_http3(worker, H3ErrorCode::EXCESSIVE_LOAD, "refused"),
        }
    }

    /// Handles a file that can't be sent completely.
    pub(crate) fn cut_file(&mut self, worker: &mut WorkerContext<D, V>) {
        match self.protocol {
            // A close is the only way of HTTP/1 to show that a body is incomplete.
            Protocol::Http1(_) => self.close(),
            Protocol::Http2(_) | Protocol::Http3(_) => self.stream_read(worker, None),
        }
    }

    /// Handles a part of a file that a helper thread has read.
    pub(crate) fn file_read(&mut self, worker: &mut WorkerContext<D, V>, bytes: Vec<u8>) {
        match self.protocol {
            Protocol::Http1(_) => self.put_file_bytes(worker, bytes),
            Protocol::Http2(_) | Protocol::Http3(_) => self.stream_read(worker, Some(bytes)),
        }
    }

    /// Announces the end of the connection, if the protocol can do that before its last response.
    pub(crate) fn announce_end(&mut self, worker: &mut WorkerContext<D, V>) {
        match self.protocol {
            Protocol::Http1(_) => {}
            Protocol::Http2(_) => self.drain_frames(worker),
            Protocol::Http3(_) => self.drain_http3(worker),
        }
    }
}
