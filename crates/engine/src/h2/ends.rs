//! What a connection that speaks HTTP/2 waits for, and how it ends.

use std::task::Context;

use lowroad_http::fields::Lines;
use lowroad_http::h2::Code;
use lowroad_http::protocol::ServerProtocol;
use lowroad_http::request::PartialRequest;

use crate::driver::Driver;
use crate::interim::Interim;
use crate::pace::{Pace, Verdict};
use crate::service::{Refused, Service};
use crate::underway::StreamId;
use crate::worker::Worker;

/// How often a connection on which something is under way is looked at.
const LOOK_MS: u64 = 1000;

impl<D: Driver, V: Service> Worker<D, V> {
    /// All that could be done is done: ends the connection if it is over, or notes when to look again.
    pub(crate) fn rest_frames(&mut self, id: usize) {
        let now_ms = self.driver.now_ms();
        let idle_timeout_ms = self.idle_timeout_ms();
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let Some(two) = &mut connection.two else {
            return;
        };
        if connection.lingering {
            return;
        }
        if two.http.is_over() {
            if connection.sending.is_none() {
                // What the client still sends is of no use, and must not destroy our last word.
                connection.leftover = true;
                self.finish(id);
            }
            return;
        }
        if two.http.is_new() {
            return;
        }
        let is_idle = two.http.is_idle() && connection.sending.is_none();
        let look_ms = now_ms + LOOK_MS;
        if !is_idle {
            two.used_ms = now_ms;
        }
        connection.deadline_ms = match is_idle {
            true if two.is_draining => connection.deadline_ms.min(look_ms),
            // Only what is asked counts: a PING keeps nobody here.
            true => {
                two.http.trim();
                two.used_ms + idle_timeout_ms
            }
            // Nor does input put off the next look, not even one that is due: `frames_expired` sets the next.
            false => connection.deadline_ms.min(look_ms),
        };
        self.note(id);
    }

    /// It is time to look at a connection.
    pub(crate) fn frames_expired(&mut self, id: usize) {
        let now_ms = self.driver.now_ms();
        let idle_timeout_ms = self.idle_timeout_ms();
        self.connections[id].deadline_ms = now_ms + LOOK_MS;
        if self.cut_silent_tunnels(id) {
            self.emit(id);
            return self.rest_frames(id);
        }
        self.leave_unread_bodies(id);
        if self.connections[id].sending.is_some() {
            self.sending_expired(id);
        } else if self.connections[id].exchanges.has_incoming() {
            self.incoming_expired(id);
        }
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let is_sending = connection.sending.is_some();
        let Some(two) = &mut connection.two else {
            return;
        };
        if !two.http.is_idle() {
            // The next lines may end the last stream: the connection is idle from now on, not for `idle_timeout`.
            two.used_ms = now_ms;
        }
        two.http.reset_lingering(now_ms, &mut self.out.bytes);
        if two.http.is_new() {
            self.counters.header_timeouts.bump();
            return self.end_frames(
                id,
                Code::SETTINGS_TIMEOUT,
                "the connection did not begin in time",
            );
        }
        if is_sending || !two.http.is_blocked() {
            two.pace = Pace::new(now_ms);
        }
        if two.http.is_blocked() && !is_sending {
            let timeout_ms = self.settings.send_timeout_ms;
            match two.pace.judge(&self.settings, timeout_ms, now_ms) {
                Verdict::Fine { .. } => {}
                Verdict::Stalled => {
                    self.counters.send_timeouts.bump();
                    return self.end_frames(id, Code::CANCEL, "no window was opened in time");
                }
                Verdict::TooSlow => {
                    self.counters.rate_too_low.bump();
                    return self.end_frames(id, Code::CANCEL, "windows were opened too slowly");
                }
            }
        } else if two.is_draining {
            two.http.leave(&mut self.out.bytes);
        } else if two.http.is_idle() && !is_sending && now_ms >= two.used_ms + idle_timeout_ms {
            self.counters.idle_timeouts.bump();
            return self.end_frames(id, Code::NO_ERROR, "nothing was asked for long");
        }
        self.advance_all(id);
        self.emit(id);
        self.rest_frames(id);
    }

    /// Leaves the bodies that the service does not read, of streams with a complete response. From then on their time is
    /// limited, and no longer their pace.
    fn leave_unread_bodies(&mut self, id: usize) {
        let mut last = None;
        while let Some(connection) = self.connections.get_mut(id) {
            last = connection.exchanges.next_incoming(last);
            let Some(stream) = last else { return };
            let token = connection.token(id);
            let waker = self.wakers.of(&self.mailbox, token);
            let mut context = Context::from_waker(waker);
            let it = connection.exchanges.get(stream);
            let is_unread = it.is_some_and(|it| {
                let incoming = it.incoming.as_ref();
                it.tunnel.is_none() && incoming.is_some_and(|it| it.is_unwanted(&mut context))
            });
            if let Some(two) = &mut connection.two
                && is_unread
                && two.http.is_response_complete(stream)
            {
                two.http.leave_body(stream, &mut self.out.bytes);
                connection.exchanges.end_incoming(stream);
            }
        }
    }

    /// Ends a connection with what is under way.
    pub(crate) fn end_frames(&mut self, id: usize, code: Code, why: &str) {
        let connection = &mut self.connections[id];
        connection.leftover = true;
        if let Some(two) = &mut connection.two {
            two.http.give_up(code, why, &mut self.out.bytes);
        }
        self.drop_bodies(id);
        self.flush(id);
        self.rest_frames(id);
    }

    /// Tells the service of responses that will not be completed, and forgets all that is under way.
    pub(crate) fn drop_bodies(&mut self, id: usize) {
        self.abandon_waiting(id);
        let now_ms = self.driver.now_ms();
        let connection = &mut self.connections[id];
        for (record, len) in connection.exchanges.take_records() {
            self.service.sent(record, len, false, now_ms);
        }
        connection.exchanges.clear();
    }

    /// Announces the end of a connection.
    pub(crate) fn drain_frames(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        if let Some(two) = &mut connection.two {
            two.is_draining = true;
            two.http.drain(&mut self.out.bytes);
        }
        self.flush(id);
    }

    /// A body of this connection's has bytes, or room for some.
    pub(crate) fn streams_moved(&mut self, id: usize) {
        let now_ms = self.driver.now_ms();
        let mut stream = None;
        while let Some(connection) = self.connections.get_mut(id) {
            stream = connection.exchanges.next_incoming(stream);
            let Some(stream) = stream else { break };
            let token = connection.token(id);
            if let Some(incoming) = connection.exchanges.incoming(stream)
                && incoming.full
            {
                let waker = self.wakers.of(&self.mailbox, token);
                incoming.look_for_room(&mut Context::from_waker(waker), now_ms);
            }
            self.take_stream(id, stream);
            self.settle_tunnel(id, stream);
        }
        self.advance_all(id);
        self.emit(id);
        self.rest_frames(id);
    }

    /// A deferred request has an interim response.
    pub(crate) fn stream_interim(&mut self, id: usize, stream: StreamId, interim: &Interim) {
        let mut lines = Vec::new();
        lowroad_http::h1::put_fields(&interim.fields, &mut lines);
        if let Some(two) = &mut self.connections[id].two {
            let out = &mut self.out.bytes;
            two.http
                .interim(stream, interim.status, Lines::of(&lines), out);
        }
        self.flush(id);
    }

    /// The rest of a request's body will not come, or not as it should: it is answered so, if it was not.
    pub(crate) fn break_stream(&mut self, id: usize, stream: StreamId, why: Refused) {
        let connection = &mut self.connections[id];
        let Some(two) = &mut connection.two else {
            return;
        };
        two.http.leave_body(stream, &mut self.out.bytes);
        connection.exchanges.end_incoming(stream);
        if !two.http.is_answered(stream) {
            self.write_refusal(id, stream, why, &PartialRequest::default());
            self.emit(id);
        }
    }
}
