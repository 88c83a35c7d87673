//! Timeouts, drains and errors of HTTP/3 connections.

use lowroad_http::h3::{H3ErrorCode, H3Server};

use crate::client_pace::{ClientPace, PaceVerdict};
use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::multiplexed::LOOK_MS;
use crate::protocol::Protocol;
use crate::service::HttpService;

/// How long a finished connection waits for the client's acknowledgements.
const SETTLE_MS: u64 = 2_000;
/// The interval of packets that keep a connection with a pending request alive.
const KEEP_ALIVE_MS: u64 = 10_000;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Ends the connection if it is finished, or else schedules the next check.
    pub(crate) fn schedule_http3_check(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        let idle_timeout_ms = worker.idle_timeout_ms();
        if self.is_closed() {
            return;
        }
        let is_delivered = self.is_http3_delivered(worker);
        let Protocol::Http3(session) = &mut self.protocol else {
            return;
        };
        // The last response is acknowledged. The end is not sent with the final GOAWAY: a client that gets both at once
        // can't tell that a request which it has just sent was not processed.
        let is_known = session
            .gone_ms
            .is_none_or(|gone_ms| now_ms >= gone_ms + LOOK_MS);
        if is_delivered && is_known {
            return self.end_http3(worker, H3Server::END_CODE, "the connection has ended");
        }
        let is_idle = session.is_idle();
        if !is_idle {
            session.progress.used_ms = now_ms;
        }
        let next_check_ms = now_ms + LOOK_MS;
        self.deadline_ms = match is_idle && !session.http.is_finished() {
            true if session.progress.is_draining => self.deadline_ms.min(next_check_ms),
            true => {
                // An idle connection should hold little memory.
                session.http.trim();
                session.outputs.shrink_to(0);
                session.progress.used_ms + idle_timeout_ms
            }
            // Input does not postpone the next check, not even one that is due.
            false => self.deadline_ms.min(next_check_ms),
        };
        self.schedule_check(worker);
    }

    /// Whether the connection is finished, and the client has everything.
    fn is_http3_delivered(&mut self, worker: &mut WorkerContext<D, V>) -> bool {
        let Protocol::Http3(session) = &mut self.protocol else {
            return false;
        };
        if !session.http.is_finished() || !session.outputs.is_empty() {
            return false;
        }
        // These never end while the connection is open.
        let own_streams = session.own_streams.map_or(0, |streams| streams.len());
        let transport = worker.quic.transport(session.id);
        transport.is_none_or(|it| it.unfinished_streams(session.id.key) <= own_streams)
    }

    /// Checks the timeouts of a connection.
    pub(crate) fn on_http3_deadline(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        let idle_timeout_ms = worker.idle_timeout_ms();
        self.deadline_ms = now_ms + LOOK_MS;
        if self.cut_silent_tunnels(worker) {
            return self.emit_and_schedule(worker);
        }
        self.cancel_unread_bodies(worker);
        if self.exchanges.has_incoming() {
            self.check_incoming_pace(worker);
        }
        if self.is_closed() {
            return;
        }
        let Protocol::Http3(session) = &mut self.protocol else {
            return;
        };
        if session.is_head_late(worker.settings.header_timeout_ms, now_ms) {
            worker.counters.header_timeouts.bump();
            let reason = "the head of a request did not arrive in time";
            return self.end_http3(worker, H3ErrorCode::EXCESSIVE_LOAD, reason);
        }
        let is_idle = session.is_idle();
        let progress = &mut session.progress;
        if !is_idle {
            // If the next lines end the last stream, the idle time starts now.
            progress.used_ms = now_ms;
            // The client may wait long for a response, and QUIC ends connections without packets.
            if now_ms >= session.kept_alive_ms + KEEP_ALIVE_MS {
                session.kept_alive_ms = now_ms;
                if let Some(transport) = worker.quic.transport(session.id) {
                    transport.keep_alive(session.id.key);
                }
            }
        }
        if session.http.is_finished() && now_ms >= progress.used_ms + SETTLE_MS {
            return self.end_http3(worker, H3Server::END_CODE, "the connection has ended");
        }
        // QUIC's windows and its congestion control look the same from here.
        let is_blocked = session.outputs.iter().any(|it| it.is_blocked);
        // The pace is measured only while windows block output.
        if !is_blocked {
            progress.pace = ClientPace::new(now_ms);
        }
        if is_blocked {
            let timeout_ms = worker.settings.send_timeout_ms;
            progress.pace.own_rate = self.exchanges.own_rate();
            let reason = match progress.pace.judge(&worker.settings, timeout_ms, now_ms) {
                PaceVerdict::Fine { .. } => None,
                PaceVerdict::Stalled => {
                    worker.counters.send_timeouts.bump();
                    Some("the client did not receive in time")
                }
                PaceVerdict::TooSlow => {
                    worker.counters.rate_too_low.bump();
                    Some("the client received too slowly")
                }
            };
            if let Some(reason) = reason {
                return self.end_http3(worker, H3ErrorCode::REQUEST_CANCELLED, reason);
            }
        }
        if progress.is_draining {
            // This is the second GOAWAY: requests sent before the client saw the first GOAWAY count (RFC 9114 §5.2).
            session.http.send_final_goaway(&mut session.control);
            session.gone_ms.get_or_insert(now_ms);
        } else if !is_blocked && is_idle && now_ms >= progress.used_ms + idle_timeout_ms {
            worker.counters.idle_timeouts.bump();
            let reason = "the connection was idle for too long";
            return self.end_http3(worker, H3Server::END_CODE, reason);
        }
        self.advance_all(worker);
        self.emit_and_schedule(worker);
    }

    /// Ends a connection with all pending exchanges.
    pub(crate) fn end_http3(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        code: H3ErrorCode,
        reason: &'static str,
    ) {
        self.close_quic(worker, code, reason);
        self.close();
    }

    /// Closes the connection's QUIC; later closes have no effect.
    pub(crate) fn close_quic(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        code: H3ErrorCode,
        reason: &'static str,
    ) {
        if let Protocol::Http3(session) = &mut self.protocol {
            // Input that QUIC has still to report is discarded.
            session.http.end();
            let now_us = worker.driver.now_us();
            if let Some(transport) = worker.quic.transport(session.id) {
                transport.close(session.id.key, code.0, reason, now_us);
            }
        }
    }

    /// Announces the end of a connection.
    pub(crate) fn drain_http3(&mut self, worker: &mut WorkerContext<D, V>) {
        self.begin_drain(worker);
        self.flush_streams(worker);
    }
}
