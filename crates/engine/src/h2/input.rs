//! Handles the events that the HTTP/2 parser finds in received bytes: requests, their bodies, resets and errors.

use lowroad_http::fields::FieldLines;
use lowroad_http::h2::{self, H2RequestHead, H2ServerEvent};
use lowroad_http::protocol::ServerProtocol;
use lowroad_http::protocol::StreamId;
use lowroad_http::refusal::RequestRefusal;
use lowroad_http::request::PartialRequest;

use crate::body_stream::{RequestBodyStream, WAITING_LEN_MAX};
use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::protocol::Protocol;
use crate::service::{ConnectionRefusal, HttpService};
use crate::stream;
use crate::stream_table::ResumeReason;

/// The result of one parsing step, without borrowing the input.
enum InputOutcome {
    Progress,
    NeedsInput,
    Ended,
}

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Handles `input`, and sends the resulting output. Returns the number of bytes used.
    pub(crate) fn consume_frames(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        input: &[u8],
    ) -> usize {
        let mut used = 0;
        let mut text = std::mem::take(&mut worker.h2.text);
        while !self.is_closed() {
            if self.lingering {
                used = input.len();
                break;
            }
            match self.step_frames(worker, &input[used..], &mut text, &mut used) {
                InputOutcome::Progress => {}
                InputOutcome::NeedsInput => break,
                InputOutcome::Ended => {
                    // Closing over unread bytes would cause a reset, which may destroy the GOAWAY.
                    self.leftover = true;
                    used = input.len();
                    break;
                }
            }
            // One receive may contain many small requests, and their responses must not pile up in memory.
            if worker.out.bytes.len() >= super::OUT_LEN_MAX {
                self.emit(worker);
            }
        }
        worker.h2.text = text;
        worker.publish_h2_counters();
        self.emit(worker);
        self.schedule_frames_check(worker);
        used
    }

    /// Handles the next event at the start of the input.
    fn step_frames(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        input: &[u8],
        text: &mut Vec<u8>,
        used: &mut usize,
    ) -> InputOutcome {
        let now_ms = worker.driver.now_ms();
        let Protocol::Http2(session) = &mut self.protocol else {
            return InputOutcome::NeedsInput;
        };
        let mut turn = h2::ConnectionTurn {
            now_ms,
            settings: &worker.settings.h2,
            out: &mut worker.out.bytes,
            counters: &mut worker.h2.counters,
        };
        let mut head_slot = None;
        let Ok(step) = session.http.next(input, text, &mut head_slot, &mut turn) else {
            return InputOutcome::Ended;
        };
        *used += step.used;
        match step.event {
            None if step.used == 0 => return InputOutcome::NeedsInput,
            None => {}
            Some(H2ServerEvent::Request(head)) => self.on_stream_request(worker, head),
            Some(H2ServerEvent::Data { stream, data }) => self.on_stream_data(worker, stream, data),
            Some(H2ServerEvent::End { stream, trailers }) => {
                self.on_stream_end(worker, stream, &trailers);
            }
            Some(H2ServerEvent::Refused {
                stream,
                refusal,
                request,
            }) => self.refuse_stream(worker, stream, refusal, &request.unwrap_or_default()),
            Some(H2ServerEvent::Reset { stream, .. }) => self.on_stream_reset(worker, stream),
        }
        InputOutcome::Progress
    }

    fn on_stream_request(&mut self, worker: &mut WorkerContext<D, V>, head: &H2RequestHead<'_>) {
        let now_ms = worker.driver.now_ms();
        worker.counters.requests.bump();
        let requests_max = worker.settings.requests_max;
        self.requests += 1;
        let is_last = requests_max > 0 && self.requests >= requests_max;
        if let Protocol::Http2(session) = &mut self.protocol {
            session.used_ms = now_ms;
            if is_last {
                // Requests that the client sends before it sees the GOAWAY still count (RFC 9113 §6.8).
                session.is_draining = true;
                session.http.drain(&mut worker.out.bytes);
            }
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
    fn refuse_stream(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        refusal: RequestRefusal,
        partial: &PartialRequest<'_>,
    ) {
        worker.counters.refused.bump();
        let Protocol::Http2(session) = &mut self.protocol else {
            return;
        };
        // A second response is not possible on a stream.
        if session.http.is_answered(stream) {
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
        self.on_h2_response_written(worker, stream, record);
    }

    /// Handles received bytes of a request's body.
    fn on_stream_data(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId, data: &[u8]) {
        self.handle_body_data(worker, stream, data);
        if self.is_closed() {
            return;
        }
        let Protocol::Http2(session) = &mut self.protocol else {
            return;
        };
        match self.exchanges.incoming(stream) {
            // The body was dropped: its bytes are returned to the connection's window immediately.
            None => session
                .http
                .release_capacity(stream, data.len(), &mut worker.out.bytes),
            Some(incoming) => {
                incoming.unreturned += data.len();
                self.return_stream_window(worker, stream);
            }
        }
    }

    /// Handles the end of a request's body.
    fn on_stream_end(
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

    /// Returns read bytes to the client's flow-control window, if the body's queue has room.
    pub(crate) fn return_stream_window(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
    ) {
        if self.is_closed() {
            return;
        }
        let Protocol::Http2(session) = &mut self.protocol else {
            return;
        };
        if let Some(incoming) = self.exchanges.incoming(stream)
            && !incoming.full
        {
            let len = std::mem::take(&mut incoming.unreturned);
            session
                .http
                .release_capacity(stream, len, &mut worker.out.bytes);
        }
    }

    /// Handles RST_STREAM. Work for this stream alone is cancelled. While shared work continues, the stream still
    /// counts against the client's limit of streams (rapid reset attack).
    fn on_stream_reset(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        let Protocol::Http2(session) = &mut self.protocol else {
            return;
        };
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
        let deferred = self.exchanges.take_deferred(stream);
        self.exchanges.remove(stream);
        session
            .http
            .release_reset_stream(stream, &mut worker.out.bytes);
        if let Some(deferred) = deferred {
            self.abandon(worker, deferred);
        }
    }

    /// Frees a reset stream after its work has ended.
    pub(crate) fn end_dead_stream(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        let deferred = self.exchanges.take_deferred(stream);
        self.exchanges.remove(stream);
        if let Protocol::Http2(session) = &mut self.protocol {
            session
                .http
                .release_reset_stream(stream, &mut worker.out.bytes);
        }
        if let Some(deferred) = deferred {
            self.abandon(worker, deferred);
        }
    }
}
