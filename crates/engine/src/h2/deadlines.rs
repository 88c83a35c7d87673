//! Timeouts, drains and errors of HTTP/2 connections.

use std::task::Context;

use lowroad_http::h2::ErrorCode;
use lowroad_http::protocol::ServerProtocol;
use lowroad_http::protocol::StreamId;
use lowroad_http::request::PartialRequest;

use crate::client_pace::{ClientPace, PaceVerdict};
use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::protocol::Protocol;
use crate::service::{ConnectionRefusal, HttpService};

/// The interval of checks of a connection with pending exchanges.
const LOOK_MS: u64 = 1000;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Sends all frames that are ready, and schedules the next check.
    pub(crate) fn emit_and_schedule(&mut self, worker: &mut WorkerContext<D, V>) {
        self.emit(worker);
        self.schedule_frames_check(worker);
    }

    /// Ends the connection if it is finished, or else schedules the next check.
    pub(crate) fn schedule_frames_check(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        let idle_timeout_ms = worker.idle_timeout_ms();
        if self.is_closed() {
            return;
        }
        let Protocol::Http2(session) = &mut self.protocol else {
            return;
        };
        if self.lingering {
            return;
        }
        // GOAWAY was sent, and the last stream has ended.
        if session.http.is_finished() {
            if self.sending.is_none() {
                // Unread bytes of the client would turn the close into a reset, which may destroy the last frames.
                self.leftover = true;
                self.finish(worker);
            }
            return;
        }
        // The deadline for the client's preface and SETTINGS is not postponed.
        if session.http.is_new() {
            return;
        }
        let is_idle = session.http.is_idle() && self.sending.is_none();
        let next_check_ms = now_ms + LOOK_MS;
        if !is_idle {
            session.used_ms = now_ms;
        }
        self.deadline_ms = match is_idle {
            true if session.is_draining => self.deadline_ms.min(next_check_ms),
            // Only requests count: PINGs do not keep a connection open.
            true => {
                // An idle connection should hold little memory.
                session.http.trim();
                session.used_ms + idle_timeout_ms
            }
            // Input does not postpone the next check, not even one that is due; `on_h2_deadline` sets the deadline of
            // the check after that.
            false => self.deadline_ms.min(next_check_ms),
        };
        self.schedule_check(worker);
    }

    /// Checks the timeouts of a connection.
    pub(crate) fn on_h2_deadline(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        let idle_timeout_ms = worker.idle_timeout_ms();
        self.deadline_ms = now_ms + LOOK_MS;
        if self.cut_silent_tunnels(worker) {
            self.emit(worker);
            return self.schedule_frames_check(worker);
        }
        self.cancel_unread_bodies(worker);
        if self.sending.is_some() {
            self.check_sending_pace(worker);
        } else if self.exchanges.has_incoming() {
            self.check_incoming_pace(worker);
        }
        if self.is_closed() {
            return;
        }
        let is_sending = self.sending.is_some();
        let Protocol::Http2(session) = &mut self.protocol else {
            return;
        };
        if !session.http.is_idle() {
            // If the next lines end the last stream, the idle time starts now.
            session.used_ms = now_ms;
        }
        session.http.reset_lingering(now_ms, &mut worker.out.bytes);
        if session.http.is_new() {
            worker.counters.header_timeouts.bump();
            return self.end_with_goaway(
                worker,
                ErrorCode::SETTINGS_TIMEOUT,
                "the connection preface did not arrive in time",
            );
        }
        // The pace is measured only while the client's flow-control windows block bodies, and not the socket.
        if is_sending || !session.http.is_blocked() {
            session.pace = ClientPace::new(now_ms);
        }
        if session.http.is_blocked() && !is_sending {
            let timeout_ms = worker.settings.send_timeout_ms;
            session.pace.own_rate = self.exchanges.own_rate();
            match session.pace.judge(&worker.settings, timeout_ms, now_ms) {
                PaceVerdict::Fine { .. } => {}
                PaceVerdict::Stalled => {
                    worker.counters.send_timeouts.bump();
                    return self.end_with_goaway(
                        worker,
                        ErrorCode::CANCEL,
                        "the client did not open its window in time",
                    );
                }
                PaceVerdict::TooSlow => {
                    worker.counters.rate_too_low.bump();
                    return self.end_with_goaway(
                        worker,
                        ErrorCode::CANCEL,
                        "the client opened its windows too slowly",
                    );
                }
            }
        } else if session.is_draining {
            // This is the second GOAWAY: requests sent before the client saw the first GOAWAY count (RFC 9113 §6.8).
            session.http.send_final_goaway(&mut worker.out.bytes);
        } else if session.http.is_idle()
            && !is_sending
            && now_ms >= session.used_ms + idle_timeout_ms
        {
            worker.counters.idle_timeouts.bump();
            return self.end_with_goaway(
                worker,
                ErrorCode::NO_ERROR,
                "the connection was idle for too long",
            );
        }
        self.advance_all(worker);
        self.emit(worker);
        self.schedule_frames_check(worker);
    }

    /// Drops request bodies that are no longer read, of streams with a complete response. From then on a fixed time for
    /// the rest of the body applies, instead of a minimum pace.
    fn cancel_unread_bodies(&mut self, worker: &mut WorkerContext<D, V>) {
        let mut last = None;
        while !self.is_closed() {
            last = self.exchanges.next_incoming(last);
            let Some(stream) = last else { return };
            let token = self.token;
            let waker = worker.wakers.waker_for(&worker.mailbox, token);
            let mut context = Context::from_waker(waker);
            let state = self.exchanges.get(stream);
            let is_unread = state.is_some_and(|state| {
                let incoming = state.incoming.as_ref();
                state.tunnel.is_none()
                    && incoming.is_some_and(|body| body.is_reader_gone(&mut context))
            });
            if let Protocol::Http2(session) = &mut self.protocol
                && is_unread
                && session.http.is_response_complete(stream)
            {
                session.http.discard_body(stream, &mut worker.out.bytes);
                self.exchanges.end_incoming(stream);
            }
        }
    }

    /// Ends a connection with all pending exchanges.
    pub(crate) fn end_with_goaway(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        code: ErrorCode,
        debug_text: &str,
    ) {
        self.leftover = true;
        if let Protocol::Http2(session) = &mut self.protocol {
            session
                .http
                .end_with_error(code, debug_text, &mut worker.out.bytes);
        }
        self.drop_bodies(worker);
        self.flush(worker);
        self.schedule_frames_check(worker);
    }

    /// Reports incomplete responses to the service, and drops all pending exchanges.
    pub(crate) fn drop_bodies(&mut self, worker: &mut WorkerContext<D, V>) {
        self.abandon_deferred(worker);
        let now_ms = worker.driver.now_ms();
        for (record, len) in self.exchanges.take_records() {
            worker.service.sent(record, len, false, now_ms);
        }
        self.exchanges.clear();
    }

    /// Announces the end of a connection.
    pub(crate) fn drain_frames(&mut self, worker: &mut WorkerContext<D, V>) {
        if let Protocol::Http2(session) = &mut self.protocol {
            session.is_draining = true;
            session.http.drain(&mut worker.out.bytes);
        }
        self.flush(worker);
    }

    /// Called when a body has more bytes or more room.
    pub(crate) fn handle_stream_progress(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        let mut stream = None;
        while !self.is_closed() {
            stream = self.exchanges.next_incoming(stream);
            let Some(stream) = stream else { break };
            let token = self.token;
            if let Some(incoming) = self.exchanges.incoming(stream)
                && incoming.full
            {
                let waker = worker.wakers.waker_for(&worker.mailbox, token);
                incoming.poll_room(&mut Context::from_waker(waker), now_ms);
            }
            self.return_stream_window(worker, stream);
            self.settle_tunnel(worker, stream);
        }
        self.advance_all(worker);
        self.emit(worker);
        self.schedule_frames_check(worker);
    }

    /// Stops reading a request's body, and refuses the request unless it was answered.
    pub(crate) fn break_stream(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        refusal: ConnectionRefusal,
    ) {
        let Protocol::Http2(session) = &mut self.protocol else {
            return;
        };
        session.http.discard_body(stream, &mut worker.out.bytes);
        self.exchanges.end_incoming(stream);
        if !session.http.is_answered(stream) {
            self.refuse_with(worker, stream, refusal, &PartialRequest::default());
            self.emit(worker);
        }
    }
}
