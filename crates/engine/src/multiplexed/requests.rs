//! Requests of streams, and what happens to them: bodies, refusals and resets.

use lowroad_http::fields::FieldLines;
use lowroad_http::h3::StreamRequestHead;
use lowroad_http::protocol::StreamId;
use lowroad_http::refusal::RequestRefusal;
use lowroad_http::request::PartialRequest;

use crate::body_stream::{RequestBodyStream, WAITING_LEN_MAX};
use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::service::{ConnectionRefusal, HttpService};
use crate::stream;
use crate::stream_table::ResumeReason;

/// Why the server resets a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamAbort {
    /// The response can't be completed.
    Failed,
    /// The exchange took too long.
    Cancelled,
}

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Passes a request to the service.
    pub(crate) fn on_stream_request(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        head: &StreamRequestHead<'_>,
    ) {
        let now_ms = worker.driver.now_ms();
        worker.counters.requests.bump();
        let requests_max = worker.settings.requests_max;
        self.requests += 1;
        // Only requests count as use, so that other frames do not keep a connection open.
        if let Some(session) = self.protocol.multiplexed() {
            session.progress.used_ms = now_ms;
        }
        if requests_max > 0 && self.requests >= requests_max {
            // Requests that the client sends before it sees the GOAWAY still count (RFC 9113 §6.8, RFC 9114 §5.2).
            self.begin_drain(worker);
        }
        let stream = head.stream;
        let mut exchange = self.exchange(worker, stream, now_ms * 1000);
        // The bytes of an extended CONNECT go to a tunnel, which exists only after the response.
        let has_body = head.has_body && head.protocol.is_none();
        if has_body {
            let (sender, from) = stream::stream(WAITING_LEN_MAX);
            let incoming = RequestBodyStream::new(sender, now_ms);
            exchange.body = Some(from);
            exchange.body_len = head.body_len;
            exchange.is_body_incomplete = true;
            self.exchanges.get_or_insert(stream).incoming = Some(incoming);
        }
        self.dispatch_request(worker, &head.request, exchange, true);
    }

    /// Refuses a stream without a valid request.
    pub(crate) fn refuse_stream(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        refusal: RequestRefusal,
        partial: &PartialRequest<'_>,
    ) {
        worker.counters.refused.bump();
        // A second response is not possible on a stream.
        if self.protocol.is_answered(stream) {
            // The body exceeded a limit after the response: its reader gets an error.
            return self.exchanges.end_incoming(stream);
        }
        self.refuse_with(worker, stream, ConnectionRefusal::Request(refusal), partial);
    }

    /// Sends a refusal on a stream.
    pub(crate) fn refuse_with(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        refusal: ConnectionRefusal,
        partial: &PartialRequest<'_>,
    ) {
        let refused = self.take_refused(worker, stream);
        let record = self.write_refusal(worker, refused, refusal, partial);
        self.on_response_written(worker, stream, record, true);
    }

    /// Handles the end of a request's body.
    pub(crate) fn on_stream_end(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        trailers: &FieldLines<'_>,
    ) {
        if let Some(incoming) = self.exchanges.incoming(stream) {
            incoming.end(trailers);
        }
        self.exchanges.end_incoming(stream);
        // If the stream is a tunnel, its other direction may have ended before.
        self.settle_tunnel(worker, stream);
        self.resume_all_due(worker);
    }

    /// Handles the client's reset of a stream. Work for this stream alone is cancelled. While shared work continues, the
    /// stream still counts against the client's limit of streams (rapid reset attack).
    pub(crate) fn on_stream_reset(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        if let Some(state) = self.exchanges.get(stream) {
            // The reader of the body gets an error.
            state.incoming = None;
            let record = state.body.take().and_then(|body| body.into_record());
            if let Some((record, len)) = record {
                let now_ms = worker.driver.now_ms();
                worker.service.sent(record, len, false, now_ms);
            }
            if let Some(deferred) = &mut state.deferred
                && !deferred.cancel_on_disconnect
                && matches!(deferred.resume_reason, ResumeReason::Pending)
            {
                // Work that other requests may share continues; its outcome frees the stream.
                deferred.resume_reason = ResumeReason::Dead;
                return;
            }
        }
        self.end_dead_stream(worker, stream);
    }

    /// Frees a reset stream after its work has ended.
    pub(crate) fn end_dead_stream(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        let deferred = self.exchanges.take_deferred(stream);
        self.exchanges.remove(stream);
        self.release_reset_stream(worker, stream);
        if let Some(deferred) = deferred {
            self.abandon(worker, deferred);
        }
    }

    /// Stops reading a request's body, and refuses the request unless it was answered.
    pub(crate) fn break_stream(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        refusal: ConnectionRefusal,
    ) {
        self.protocol.discard_body(stream, &mut worker.out.bytes);
        self.exchanges.end_incoming(stream);
        if !self.protocol.is_answered(stream) {
            self.refuse_with(worker, stream, refusal, &PartialRequest::default());
            self.proceed(worker);
        }
    }
}
