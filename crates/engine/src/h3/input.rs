//! Passes the events of QUIC to the HTTP/3 parser, and handles the events that it finds: requests, their bodies, resets
//! and errors.

use bytes::Bytes;
use lowroad_http::h3::{ClientAbort, H3ErrorCode, H3ServerEvent, StreamBytes};
use lowroad_http::protocol::StreamId;

use super::state::request_stream;
use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::protocol::Protocol;
use crate::quic_transport::QuicEvent;
use crate::service::HttpService;

/// The result of one parsing step, without borrowing the input.
enum StepOutcome {
    Progress,
    NeedsInput,
    Ended,
}

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Handles an event of the connection's QUIC. The output is sent afterwards.
    pub(crate) fn on_quic_event(&mut self, worker: &mut WorkerContext<D, V>, event: QuicEvent) {
        match event {
            QuicEvent::Bytes {
                stream,
                bytes,
                is_end,
            } => self.consume_stream(worker, stream, bytes, is_end),
            QuicEvent::Reset { stream, .. } => {
                self.on_client_abort(worker, stream, ClientAbort::ResetStream);
            }
            QuicEvent::Stopped { stream, .. } => {
                self.on_client_abort(worker, stream, ClientAbort::StopSending);
            }
            QuicEvent::Writable { stream } => self.on_stream_writable(stream),
            QuicEvent::Opened | QuicEvent::Over(_) => {}
        }
        self.continue_unblocked(worker);
    }

    /// Handles bytes of a stream.
    fn consume_stream(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: u64,
        bytes: Bytes,
        is_end: bool,
    ) {
        let mut used = 0;
        let mut text = std::mem::take(&mut worker.h3.text);
        while !self.is_closed() && (used == bytes.len() || !self.is_body_full(stream)) {
            let input = StreamBytes {
                bytes: &bytes[used..],
                is_end,
            };
            match self.step_stream(worker, stream, input, &mut text, &mut used) {
                StepOutcome::Progress => {}
                StepOutcome::NeedsInput | StepOutcome::Ended => break,
            }
        }
        // The buffer serves all connections.
        worker.h3.text = text;
        if self.is_closed() {
            return;
        }
        let is_full = self.is_body_full(stream);
        let Protocol::Http3(session) = &mut self.protocol else {
            return;
        };
        if used < bytes.len() || is_full {
            // The handler has to read first, or a field section waits for the dynamic table.
            // QUIC keeps the end with the bytes.
            let rest = bytes.slice(used..);
            if let Some(transport) = worker.quic.transport(session.id) {
                transport.put_back(session.id.key, stream, rest, is_end);
            }
        } else if is_end
            && let Some(request) = request_stream(stream)
            && !session.http.has_whole_request(request)
        {
            // The end has no event until the section is decoded.
            session.ended.push(stream);
        }
    }

    /// Whether the handler has to read a request's body before more is received.
    fn is_body_full(&mut self, stream: u64) -> bool {
        let incoming = request_stream(stream).and_then(|stream| self.exchanges.incoming(stream));
        incoming.is_some_and(|incoming| incoming.full)
    }

    /// Continues streams after the dynamic table received the entries that their field sections need.
    fn continue_unblocked(&mut self, worker: &mut WorkerContext<D, V>) {
        while !self.is_closed()
            && let Protocol::Http3(session) = &mut self.protocol
            && let Some(stream) = session.http.next_unblocked()
        {
            let ended_at = session.ended.iter().position(|ended| *ended == stream);
            let is_end = ended_at.map(|at| session.ended.swap_remove(at)).is_some();
            // The protocol has the section itself; bytes behind it were put back.
            self.consume_stream(worker, stream, Bytes::new(), is_end);
            self.resume_stream(worker, stream);
        }
    }

    /// Continues to read a stream after bytes were put back.
    fn resume_stream(&mut self, worker: &mut WorkerContext<D, V>, stream: u64) {
        if let Protocol::Http3(session) = &mut self.protocol
            && let Some(transport) = worker.quic.transport(session.id)
        {
            transport.resume_reading(session.id.key, stream);
        }
    }

    /// Handles the next event at the start of the input.
    fn step_stream(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: u64,
        input: StreamBytes<'_>,
        text: &mut Vec<u8>,
        used: &mut usize,
    ) -> StepOutcome {
        let Protocol::Http3(session) = &mut self.protocol else {
            return StepOutcome::NeedsInput;
        };
        let now_ms = worker.driver.now_ms();
        let counters = &mut worker.h3.counters;
        let (http, mut turn) = session.step(&worker.settings.h3, counters, now_ms);
        // Borrows the text, so it lives as long as the event.
        let mut head_slot = None;
        let step = match http.next(stream, input, text, &mut head_slot, &mut turn) {
            Ok(step) => step,
            Err(fault) => {
                self.end_http3(worker, fault.code, fault.reason);
                return StepOutcome::Ended;
            }
        };
        *used += step.used;
        match step.event {
            None if step.used == 0 => return StepOutcome::NeedsInput,
            None => {}
            Some(event) => self.on_http3_event(worker, event),
        }
        StepOutcome::Progress
    }

    fn on_http3_event(&mut self, worker: &mut WorkerContext<D, V>, event: H3ServerEvent<'_, '_>) {
        match event {
            H3ServerEvent::Request(head) => {
                self.update_client(worker);
                self.on_stream_request(worker, head);
            }
            H3ServerEvent::Data { stream, data } => {
                self.handle_body_data(worker, stream, data);
                // Reading continues when the handler has taken these bytes.
                if let Some(incoming) = self.exchanges.incoming(stream) {
                    incoming.unreturned += data.len();
                }
            }
            H3ServerEvent::End { stream, trailers } => {
                self.on_stream_end(worker, stream, &trailers);
            }
            H3ServerEvent::Cut { stream } => self.exchanges.end_incoming(stream),
            H3ServerEvent::Refused {
                stream,
                refusal,
                request,
            } => self.refuse_stream(worker, stream, refusal, &request.unwrap_or_default()),
            H3ServerEvent::Reset { stream, code } => self.reset_stream(worker, stream, code),
            H3ServerEvent::StopReading { stream_id, code } => {
                if let Protocol::Http3(session) = &mut self.protocol
                    && let Some(transport) = worker.quic.transport(session.id)
                {
                    transport.stop_reading(session.id.key, stream_id, code.0);
                }
            }
            // The protocol schedules by it; output that it has passed on waits here.
            H3ServerEvent::PriorityUpdate { stream, priority } => {
                if let Protocol::Http3(session) = &mut self.protocol {
                    session.set_urgency(stream, priority.urgency);
                }
            }
        }
    }

    /// Updates the client's address, which changes when the client migrates, and whether its bytes are early data.
    fn update_client(&mut self, worker: &mut WorkerContext<D, V>) {
        if let Protocol::Http3(session) = &mut self.protocol
            && let Some(transport) = worker.quic.transport(session.id)
            && let Some(address) = transport.peer_address(session.id.key)
        {
            // Conditions and logs have the address of the request.
            self.transport.peer = address.ip();
            self.transport.peer_port = address.port();
            session.is_early = transport.is_early(session.id.key);
        }
    }

    /// Aborts both directions of a stream, after the client's abort or its error.
    fn reset_stream(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        code: H3ErrorCode,
    ) {
        if let Protocol::Http3(session) = &mut self.protocol {
            // First, so that QUIC sends nothing more of the response.
            session.abort(stream, code.0, &mut worker.quic);
        }
        self.on_stream_reset(worker, stream);
    }

    fn on_client_abort(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: u64,
        abort: ClientAbort,
    ) {
        let Protocol::Http3(session) = &mut self.protocol else {
            return;
        };
        let now_ms = worker.driver.now_ms();
        let counters = &mut worker.h3.counters;
        let (http, mut turn) = session.step(&worker.settings.h3, counters, now_ms);
        match http.handle_abort(stream, abort, &mut turn) {
            Err(fault) => return self.end_http3(worker, fault.code, fault.reason),
            Ok(Some(event)) => return self.on_http3_event(worker, event),
            Ok(None) => {}
        }
        // The protocol has passed on the whole response, but QUIC has not taken it.
        if abort == ClientAbort::StopSending
            && let Some(request) = request_stream(stream)
            && session.remove_output(stream)
        {
            session.abort(request, H3ErrorCode::REQUEST_CANCELLED.0, &mut worker.quic);
            self.drop_body(worker, request);
        }
    }
}
