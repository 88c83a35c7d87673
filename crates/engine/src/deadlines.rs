//! What happens when nothing happens: a worker's waits and their ends.
//!
//! A deadline is a number in its connection; the wheel only says when to look at it.

use crate::driver::Driver;
use crate::pace::Verdict;
use crate::sending::Transfer;
use crate::service::{Refused, Service};
use crate::worker::Worker;
use lowroad_http::protocol::ServerProtocol;

impl<D: Driver, V: Service> Worker<D, V> {
    /// How long the next wait may last.
    pub(crate) fn timeout_ms(&self) -> Option<u64> {
        let close_ms = self.closing.first().map(|(_, close_ms)| *close_ms);
        let next_ms = [
            self.wheel.next_ms(),
            self.paused_until_ms,
            self.drain_until_ms,
            close_ms,
        ];
        let next_ms = next_ms.into_iter().flatten().min()?;
        Some(next_ms.saturating_sub(self.driver.now_ms()))
    }

    pub(crate) fn look_at_deadlines(&mut self) {
        let now_ms = self.driver.now_ms();
        if self
            .paused_until_ms
            .is_some_and(|until_ms| now_ms >= until_ms)
        {
            self.paused_until_ms = None;
            self.listeners
                .iter()
                .for_each(|id| self.driver.listen(*id, true));
        }
        self.close_listeners(now_ms);
        if self
            .drain_until_ms
            .is_some_and(|until_ms| now_ms >= until_ms)
        {
            self.end_drain();
        }
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(now_ms, &mut due);
        for token in due.drain(..) {
            let Some(id) = self.find(token) else { continue };
            let connection = &mut self.connections[id];
            if connection.noted_ms > now_ms {
                continue; // an older note; a later one stands
            }
            connection.noted_ms = u64::MAX;
            if connection.deadline_ms <= now_ms {
                self.expired(id);
            }
            if self.connections.contains(id) {
                self.note(id);
            }
        }
        self.due = due;
    }

    /// Sees to it that the connection is looked at when its deadline comes.
    pub(crate) fn note(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        if connection.deadline_ms < connection.noted_ms {
            let token = connection.token(id);
            connection.noted_ms = self.wheel.note(token, connection.deadline_ms);
        }
    }

    pub(crate) fn expired(&mut self, id: usize) {
        let connection = &self.connections[id];
        if connection.lingering {
            self.close(id);
        } else if connection.transport.is_handshaking() {
            self.counters.handshake_timeouts.bump();
            self.close(id);
        } else if connection.two.is_some() {
            self.frames_expired(id);
        } else if connection.http.is_tunnel() {
            self.tunnel_expired(id);
        } else if connection.sending.is_some() {
            self.sending_expired(id);
        } else if connection.exchanges.has_incoming() {
            self.incoming_expired(id);
        } else if connection.exchanges.waits() {
            // An outcome always comes: the file system, or whoever answers, decides when.
            let deadline_ms = self.driver.now_ms() + self.settings.idle_timeout_ms;
            self.connections[id].deadline_ms = deadline_ms;
        } else if self.ended_unintroduced(id, true) {
            // and is closed
        } else if self.connections[id].begun {
            self.head_expired(id);
        } else {
            self.counters.idle_timeouts.bump();
            self.close(id);
        }
    }

    /// A head that is too slow is refused. In front of another web server that decides how long it waits.
    fn head_expired(&mut self, id: usize) {
        self.pass_rest_through(id);
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        if !connection.http.is_tunnel() {
            self.counters.header_timeouts.bump();
            let input = self.connections[id].input.take();
            self.refuse(id, Refused::Timeout, &input);
        }
    }

    /// Judges a client for the bodies that it still sends.
    pub(crate) fn incoming_expired(&mut self, id: usize) {
        if self.connections[id].http.is_tunnel() {
            return; // what moves there is judged by itself
        }
        let now_ms = self.driver.now_ms();
        let mut deadline_ms = u64::MAX;
        let mut stream = None;
        while let Some(connection) = self.connections.get_mut(id) {
            stream = connection.exchanges.next_incoming(stream);
            let Some(stream) = stream else {
                if deadline_ms < u64::MAX {
                    connection.deadline_ms = deadline_ms;
                }
                return;
            };
            if connection
                .exchanges
                .get(stream)
                .is_some_and(|it| it.tunnel.is_some())
            {
                continue; // the same
            }
            let Some(incoming) = connection.exchanges.incoming(stream) else {
                return;
            };
            if incoming.full {
                incoming.pace.excuse(now_ms);
            }
            let timeout_ms = self.settings.body_timeout_ms;
            match incoming.pace.judge(&self.settings, timeout_ms, now_ms) {
                Verdict::Fine { look_again_ms } => {
                    deadline_ms = deadline_ms.min(look_again_ms);
                    continue;
                }
                Verdict::Stalled => self.counters.body_timeouts.bump(),
                Verdict::TooSlow => self.counters.rate_too_low.bump(),
            }
            self.break_incoming(id, stream, Refused::Timeout);
        }
    }

    /// While responses are on their way: gives up bodies that have stopped coming, and that nobody's response waits for.
    fn leave_stalled(&mut self, id: usize) {
        let now_ms = self.driver.now_ms();
        let timeout_ms = self.settings.body_timeout_ms;
        let connection = &mut self.connections[id];
        if connection.http.is_tunnel() || connection.two.is_some() {
            return;
        }
        let mut stream = None;
        while let Some(next) = connection.exchanges.next_incoming(stream) {
            stream = Some(next);
            let Some(it) = connection.exchanges.get(next) else {
                return;
            };
            let (Some(incoming), None) = (&it.incoming, &it.waiting) else {
                continue;
            };
            let verdict = incoming.pace.judge(&self.settings, timeout_ms, now_ms);
            if !incoming.full && matches!(verdict, Verdict::Stalled) {
                self.counters.body_timeouts.bump();
                connection.leave_body_unread(next);
            }
        }
    }

    pub(crate) fn sending_expired(&mut self, id: usize) {
        let now_ms = self.driver.now_ms();
        self.leave_stalled(id);
        let connection = &mut self.connections[id];
        let Some(sending) = &mut connection.sending else {
            return;
        };
        let queued = connection.transport.unacknowledged(&self.driver);
        sending.pace.acknowledged(queued, now_ms);
        if sending.transfer.is_ours() {
            // The client waits for us: neither its stall nor its rate.
            sending.pace.excuse(now_ms);
        }
        match sending
            .pace
            .judge(&self.settings, self.settings.send_timeout_ms, now_ms)
        {
            Verdict::Fine { look_again_ms } => {
                connection.deadline_ms = match connection.two {
                    // A new send does not put off the look at other streams.
                    Some(_) => connection.deadline_ms.min(look_again_ms),
                    None => look_again_ms,
                };
                match sending.transfer {
                    Transfer::Settling { .. } => self.settle(id),
                    Transfer::Postponed => self.try_again(id),
                    _ => {}
                }
            }
            Verdict::Stalled => {
                self.counters.send_timeouts.bump();
                self.close(id);
            }
            Verdict::TooSlow => {
                self.counters.rate_too_low.bump();
                self.close(id);
            }
        }
    }
}
