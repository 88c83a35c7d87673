//! Timeouts, drains and errors of HTTP/2 connections.

use lowroad_http::h2::ErrorCode;
use lowroad_http::protocol::ServerProtocol;

use crate::client_pace::{ClientPace, PaceVerdict};
use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::multiplexed::LOOK_MS;
use crate::protocol::Protocol;
use crate::service::HttpService;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
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
            session.progress.used_ms = now_ms;
        }
        self.deadline_ms = match is_idle {
            true if session.progress.is_draining => self.deadline_ms.min(next_check_ms),
            // Only requests count: PINGs do not keep a connection open.
            true => {
                // An idle connection should hold little memory.
                session.http.trim();
                session.progress.used_ms + idle_timeout_ms
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
            session.progress.used_ms = now_ms;
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
            session.progress.pace = ClientPace::new(now_ms);
        }
        if session.http.is_blocked() && !is_sending {
            let timeout_ms = worker.settings.send_timeout_ms;
            session.progress.pace.own_rate = self.exchanges.own_rate();
            match session
                .progress
                .pace
                .judge(&worker.settings, timeout_ms, now_ms)
            {
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
        } else if session.progress.is_draining {
            // This is the second GOAWAY: requests sent before the client saw the first GOAWAY count (RFC 9113 §6.8).
            session.http.send_final_goaway(&mut worker.out.bytes);
        } else if session.http.is_idle()
            && !is_sending
            && now_ms >= session.progress.used_ms + idle_timeout_ms
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

    /// Announces the end of a connection.
    pub(crate) fn drain_frames(&mut self, worker: &mut WorkerContext<D, V>) {
        self.begin_drain(worker);
        self.flush(worker);
    }
}
