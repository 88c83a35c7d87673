//! Deadlines and ends of HTTP/2 connections.

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
    /// Sends all frames that are ready, then waits.
    pub(crate) fn rest_frames_after_output(&mut self, worker: &mut WorkerContext<D, V>) {
        self.emit(worker);
        self.rest_frames(worker);
    }

    /// After all possible work: ends the connection if it is over, or schedules the next check.
    pub(crate) fn rest_frames(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        let idle_timeout_ms = worker.idle_timeout_ms();
        if self.is_closed() {
            return;
        }
        let Protocol::Http2(two) = &mut self.protocol else {
            return;
        };
        if self.lingering {
            return;
        }
        // After GOAWAY and the last stream.
        if two.http.is_over() {
            if self.sending.is_none() {
                // Unread bytes of the client would turn the close into a reset, which may destroy the last frames.
                self.leftover = true;
                self.finish(worker);
            }
            return;
        }
        // The deadline for the client's preface and SETTINGS stays as it is.
        if two.http.is_new() {
            return;
        }
        let is_idle = two.http.is_idle() && self.sending.is_none();
        let look_ms = now_ms + LOOK_MS;
        if !is_idle {
            two.used_ms = now_ms;
        }
        self.deadline_ms = match is_idle {
            true if two.is_draining => self.deadline_ms.min(look_ms),
            // Only requests count: PINGs do not keep a connection open.
            true => {
                // An idle connection should hold little memory.
                two.http.trim();
                two.used_ms + idle_timeout_ms
            }
            // Input does not postpone the next check, not even one that is due: `frames_expired` schedules the next.
            false => self.deadline_ms.min(look_ms),
        };
        self.schedule_check(worker);
    }

    /// Handles the check of a connection.
    pub(crate) fn frames_expired(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        let idle_timeout_ms = worker.idle_timeout_ms();
        self.deadline_ms = now_ms + LOOK_MS;
        if self.cut_silent_tunnels(worker) {
            self.emit(worker);
            return self.rest_frames(worker);
        }
        self.leave_unread_bodies(worker);
        if self.sending.is_some() {
            self.sending_expired(worker);
        } else if self.exchanges.has_incoming() {
            self.incoming_expired(worker);
        }
        if self.is_closed() {
            return;
        }
        let is_sending = self.sending.is_some();
        let Protocol::Http2(two) = &mut self.protocol else {
            return;
        };
        if !two.http.is_idle() {
            // The next lines may end the last stream: the connection is idle from now on, not since `idle_timeout`.
            two.used_ms = now_ms;
        }
        two.http.reset_lingering(now_ms, &mut worker.out.bytes);
        if two.http.is_new() {
            worker.counters.header_timeouts.bump();
            return self.end_frames(
                worker,
                ErrorCode::SETTINGS_TIMEOUT,
                "the connection preface did not arrive in time",
            );
        }
        // The client's pace counts only while its windows, and not the socket, block bodies.
        if is_sending || !two.http.is_blocked() {
            two.pace = ClientPace::new(now_ms);
        }
        if two.http.is_blocked() && !is_sending {
            let timeout_ms = worker.settings.send_timeout_ms;
            match two.pace.judge(&worker.settings, timeout_ms, now_ms) {
                PaceVerdict::Fine { .. } => {}
                PaceVerdict::Stalled => {
                    worker.counters.send_timeouts.bump();
                    return self.end_frames(
                        worker,
                        ErrorCode::CANCEL,
                        "the client did not open its window in time",
                    );
                }
                PaceVerdict::TooSlow => {
                    worker.counters.rate_too_low.bump();
                    return self.end_frames(
                        worker,
                        ErrorCode::CANCEL,
                        "the client opened its windows too slowly",
                    );
                }
            }
        } else if two.is_draining {
            // The second GOAWAY: requests sent before the client saw the first one count (RFC 9113 §6.8).
            two.http.leave(&mut worker.out.bytes);
        } else if two.http.is_idle() && !is_sending && now_ms >= two.used_ms + idle_timeout_ms {
            worker.counters.idle_timeouts.bump();
            return self.end_frames(
                worker,
                ErrorCode::NO_ERROR,
                "the connection was idle for too long",
            );
        }
        self.advance_all(worker);
        self.emit(worker);
        self.rest_frames(worker);
    }

    /// Leaves the bodies that the service does not read, of streams with a complete response. From then on the time
    /// for them is limited, and no longer their pace.
    fn leave_unread_bodies(&mut self, worker: &mut WorkerContext<D, V>) {
        let mut last = None;
        while !self.is_closed() {
            last = self.exchanges.next_incoming(last);
            let Some(stream) = last else { return };
            let token = self.token;
            let waker = worker.wakers.waker_for(&worker.mailbox, token);
            let mut context = Context::from_waker(waker);
            let it = self.exchanges.get(stream);
            let is_unread = it.is_some_and(|it| {
                let incoming = it.incoming.as_ref();
                it.tunnel.is_none() && incoming.is_some_and(|it| it.is_unwanted(&mut context))
            });
            if let Protocol::Http2(two) = &mut self.protocol
                && is_unread
                && two.http.is_response_complete(stream)
            {
                two.http.leave_body(stream, &mut worker.out.bytes);
                self.exchanges.end_incoming(stream);
            }
        }
    }

    /// Ends a connection with all pending exchanges.
    pub(crate) fn end_frames(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        code: ErrorCode,
        why: &str,
    ) {
        self.leftover = true;
        if let Protocol::Http2(two) = &mut self.protocol {
            two.http.give_up(code, why, &mut worker.out.bytes);
        }
        self.drop_bodies(worker);
        self.flush(worker);
        self.rest_frames(worker);
    }

    /// Reports incomplete responses to the service, and drops all pending exchanges.
    pub(crate) fn drop_bodies(&mut self, worker: &mut WorkerContext<D, V>) {
        self.abandon_waiting(worker);
        let now_ms = worker.driver.now_ms();
        for (record, len) in self.exchanges.take_records() {
            worker.service.sent(record, len, false, now_ms);
        }
        self.exchanges.clear();
    }

    /// Announces the end of a connection.
    pub(crate) fn drain_frames(&mut self, worker: &mut WorkerContext<D, V>) {
        if let Protocol::Http2(two) = &mut self.protocol {
            two.is_draining = true;
            two.http.drain(&mut worker.out.bytes);
        }
        self.flush(worker);
    }

    /// Handles progress of a body: more bytes, or room for more.
    pub(crate) fn streams_moved(&mut self, worker: &mut WorkerContext<D, V>) {
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
                incoming.look_for_room(&mut Context::from_waker(waker), now_ms);
            }
            self.take_stream(worker, stream);
            self.settle_tunnel(worker, stream);
        }
        self.advance_all(worker);
        self.emit(worker);
        self.rest_frames(worker);
    }

    /// Gives up the rest of a request's body, with a refusal unless there is a response.
    pub(crate) fn break_stream(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        why: ConnectionRefusal,
    ) {
        let Protocol::Http2(two) = &mut self.protocol else {
            return;
        };
        two.http.leave_body(stream, &mut worker.out.bytes);
        self.exchanges.end_incoming(stream);
        if !two.http.is_answered(stream) {
            self.refuse_with(worker, stream, why, &PartialRequest::default());
            self.emit(worker);
        }
    }
}
