//! Timeouts and errors of HTTP/1 connections.

use lowroad_http::protocol::StreamId;
use lowroad_http::request::PartialRequest;

use crate::client_pace::PaceVerdict;
use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::{IoDriver, ReceiveOutcome};
use crate::protocol::Protocol;
use crate::service::{ConnectionRefusal, HttpService};

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Whether the connection is HTTP/1 and accepts no further request.
    pub(crate) fn is_closing(&self) -> bool {
        matches!(&self.protocol, Protocol::Http1(http) if http.is_closing())
    }

    /// Whether the connection is HTTP/1 and has received an incomplete request.
    pub(crate) fn is_partial(&self) -> bool {
        matches!(&self.protocol, Protocol::Http1(http) if http.is_partial())
    }

    /// Handles the deadline of an HTTP/1 connection.
    pub(crate) fn on_h1_deadline(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.protocol.is_tunnel() {
            self.check_tunnel_activity(worker);
        } else if self.sending.is_some() {
            self.check_sending_pace(worker);
        } else if self.exchanges.has_incoming() {
            self.check_incoming_pace(worker);
        } else if self.exchanges.has_deferred() {
            // A deferred request has no timeout here: its outcome always arrives, from the file system or the handler.
            self.deadline_ms = worker.driver.now_ms() + worker.settings.idle_timeout_ms;
        } else if self.close_without_proxy_header(worker, true) {
            // the connection was closed
        } else if self.has_partial_head {
            self.refuse_slow_head(worker);
        } else {
            worker.counters.idle_timeouts.bump();
            self.close();
        }
    }

    /// Refuses a head that arrives too slowly. With pass-through the head goes to the other server instead, and the
    /// timeout of that server applies.
    fn refuse_slow_head(&mut self, worker: &mut WorkerContext<D, V>) {
        self.pass_partial_head_through(worker);
        if self.is_closed() {
            return;
        }
        if !self.protocol.is_tunnel() {
            worker.counters.header_timeouts.bump();
            let input = self.input.take();
            self.refuse(worker, ConnectionRefusal::Timeout, &input);
        }
    }

    /// While responses are being sent: stops reading stalled bodies of requests that are answered.
    pub(crate) fn skip_stalled_bodies(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        let timeout_ms = worker.settings.body_timeout_ms;
        if self.protocol.is_tunnel() || self.protocol.is_multiplexed() {
            return;
        }
        let mut stream = None;
        while let Some(next) = self.exchanges.next_incoming(stream) {
            stream = Some(next);
            let Some(state) = self.exchanges.get(next) else {
                return;
            };
            let (Some(incoming), None) = (&state.incoming, &state.deferred) else {
                continue;
            };
            // The request was answered, so the rest of its body was read only to reach the next request.
            let verdict = incoming.pace.judge(&worker.settings, timeout_ms, now_ms);
            if !incoming.full && matches!(verdict, PaceVerdict::Stalled) {
                worker.counters.body_timeouts.bump();
                self.leave_body_unread(next);
            }
        }
    }

    /// Stops reading a request's body: its reader gets an error. Earlier responses that are being sent are completed
    /// first.
    pub(crate) fn break_request_body(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        refusal: ConnectionRefusal,
    ) {
        let is_answered = self.protocol.is_answered(stream);
        self.leave_body_unread(stream);
        match (self.sending.is_some(), is_answered) {
            // Responses in progress are completed, then the connection ends.
            (true, _) => {}
            (false, true) => self.finish(worker),
            (false, false) => self.refuse(worker, refusal, &[]),
        }
    }

    /// Refuses `input`, which is not a valid request, and ends the connection.
    pub(crate) fn refuse_request(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        refusal: ConnectionRefusal,
        input: &[u8],
    ) {
        let refused = self.take_refused(worker, self.stream());
        self.exchanges.clear();
        self.has_partial_head = false;
        self.input.clear();
        self.leftover = true;
        if let Protocol::Http1(http) = &mut self.protocol {
            // No later request is parsed: after an error the framing is unknown.
            http.stop_reading();
        }
        let partial = PartialRequest::from_head(input);
        let record = self.write_refusal(worker, refused, refusal, &partial);
        if let Protocol::Http1(http) = &mut self.protocol {
            http.end_sent_body();
        }
        if let Some(record) = record {
            worker.push_record(record);
        }
        self.flush(worker);
    }

    /// The client half-closed the connection while its request is processed. A half-close only means that no other
    /// request follows (RFC 9112 §9.6), so the request is cancelled only if the connection is broken.
    pub(crate) fn handle_half_close(&mut self, worker: &mut WorkerContext<D, V>) {
        self.client_ended |=
            matches!(self.protocol, Protocol::Http1(_)) && self.exchanges.has_deferred();
        if self.exchanges.has_cancellable() && self.sending.is_none() && self.is_broken(worker) {
            self.close_broken(worker);
        }
    }

    /// Whether the socket reports the connection as broken.
    fn is_broken(&mut self, worker: &mut WorkerContext<D, V>) -> bool {
        let Protocol::Http1(http) = &mut self.protocol else {
            return false;
        };
        // With input already waiting, each check would let the buffer grow.
        if !self.input.is_empty() {
            return false;
        }
        let token = self.token;
        let transport = &mut self.transport;
        match transport.receive(&mut worker.driver, token, &mut worker.plain) {
            ReceiveOutcome::Broken => true,
            ReceiveOutcome::End => {
                http.close();
                false
            }
            ReceiveOutcome::Bytes { buffer, .. } => {
                self.input.add(buffer.as_ref());
                worker.return_buffer(buffer);
                false
            }
            ReceiveOutcome::Empty => false,
        }
    }
}
