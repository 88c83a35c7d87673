//! Bodies that come in while their requests are answered, or wait: who gets them, how fast they have to come, and what
//! ends them early. What a body's bytes are is the protocol's to say.

use std::task::Context;

use lowroad_http::fields::Lines;
use lowroad_http::h1::{Event, Server};
use lowroad_http::limits::Limits;
use lowroad_http::protocol::ServerProtocol;
use lowroad_http::status::Status;

use crate::driver::{Driver, Received};
use crate::incoming::Incoming;
use crate::pace::Pace;
use crate::service::{Refused, Service};
use crate::underway::{Come, StreamId};
use crate::worker::Worker;

impl<D: Driver, V: Service> Worker<D, V> {
    /// Some of a body has come.
    pub(crate) fn body_came(&mut self, id: usize, stream: StreamId, data: &[u8]) {
        let now_ms = self.driver.now_ms();
        let Some(incoming) = self.connections[id].exchanges.incoming(stream) else {
            return;
        };
        incoming.data(data);
        incoming.pace.moved(data.len() as u64, now_ms);
        if incoming.full {
            self.watch_incoming(id, stream);
        }
    }

    /// A body has come whole.
    pub(crate) fn body_ended(&mut self, id: usize, stream: StreamId, trailers: &Lines<'_>) {
        let now_ms = self.driver.now_ms();
        let idle_timeout_ms = self.idle_timeout_ms();
        let connection = &mut self.connections[id];
        if let Some(incoming) = connection.exchanges.incoming(stream) {
            incoming.end(trailers);
        }
        connection.exchanges.end_incoming(stream);
        connection.leftover &= connection.http.is_closing();
        let is_idle = connection.sending.is_none() && connection.exchanges.is_empty();
        if connection.two.is_none() && is_idle {
            connection.deadline_ms = now_ms + idle_timeout_ms;
        }
    }

    /// Sends 100 (Continue) to a client that expects it before it sends a body, if that is read, or dropped before the
    /// response. The body's pace counts from now on.
    pub(crate) fn send_continue(&mut self, id: usize, stream: StreamId) {
        let now_ms = self.driver.now_ms();
        let connection = &mut self.connections[id];
        let Some(it) = connection.exchanges.get(stream) else {
            return;
        };
        let (Some(incoming), Some(waiting)) = (&mut it.incoming, &it.waiting) else {
            return;
        };
        if !incoming.has_reader() && !matches!(waiting.come, Come::Body { .. }) {
            return;
        }
        let out = &mut self.out.bytes;
        if let Some(two) = &mut connection.two {
            if !two.http.expects_continue(stream) {
                return;
            }
            two.http.interim(stream, Status::CONTINUE, Lines::NONE, out);
        } else {
            if !connection.http.expects_continue(stream) {
                return;
            }
            connection
                .http
                .interim(stream, Status::CONTINUE, Lines::NONE, out);
        }
        incoming.pace = Pace::new(now_ms);
    }

    /// Waits for a body that is still to come.
    pub(crate) fn await_body(&mut self, id: usize, stream: StreamId) {
        self.watch_incoming(id, stream);
        if self.connections.contains(id) {
            self.note(id);
        }
    }

    /// Has the worker told when there is room for more of a body, and looks at its pace.
    pub(crate) fn watch_incoming(&mut self, id: usize, stream: StreamId) {
        let now_ms = self.driver.now_ms();
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let token = connection.token(id);
        let Some(incoming) = connection.exchanges.incoming(stream) else {
            return;
        };
        if incoming.full {
            let waker = self.wakers.of(&self.mailbox, token);
            incoming.look_for_room(&mut Context::from_waker(waker), now_ms);
        }
        if connection.sending.is_none() {
            self.incoming_expired(id); // not yet: finds out when to look at its pace
            self.note(id);
        }
    }

    /// The rest of a body will not come, or not as it should. Where earlier responses are on their way, they come
    /// first, and who waits for the body finds it cut.
    pub(crate) fn break_incoming(&mut self, id: usize, stream: StreamId, why: Refused) {
        if self.connections[id].two.is_some() {
            return self.break_stream(id, stream, why);
        }
        let connection = &mut self.connections[id];
        let is_answered = connection.http.is_answered(stream);
        connection.leave_body_unread(stream);
        match (connection.sending.is_some(), is_answered) {
            (true, _) => {}
            (false, true) => self.finish(id),
            (false, false) => self.refuse(id, why, &[]),
        }
    }

    /// The client half-closed the connection while its request is processed. That only means that no other request
    /// follows (RFC 9112 §9.6), so only a broken connection is given up.
    pub(crate) fn ended_while_waiting(&mut self, id: usize) {
        let connection = &self.connections[id];
        if connection.exchanges.gives_up() && connection.sending.is_none() && self.is_broken(id) {
            self.close_broken(id);
        }
    }

    /// Whether the socket reports the connection as broken.
    fn is_broken(&mut self, id: usize) -> bool {
        let connection = &mut self.connections[id];
        if connection.two.is_some() || !connection.input.is_empty() {
            return false;
        }
        let token = connection.token(id);
        let transport = &mut connection.transport;
        match transport.receive(&mut self.driver, token, &mut self.plain) {
            Received::Broken => true,
            Received::End => {
                connection.http.close();
                false
            }
            Received::Bytes { lent, .. } => {
                connection.input.add(lent.as_ref());
                self.give_back(lent);
                false
            }
            Received::Empty => false,
        }
    }

    /// A stream of this connection's has bytes, or room for some.
    pub(crate) fn stream_moved(&mut self, id: usize) {
        if self.connections[id].two.is_some() {
            return self.streams_moved(id);
        }
        let mut stream = None;
        while let Some(connection) = self.connections.get_mut(id) {
            stream = connection.exchanges.next_incoming(stream);
            let Some(stream) = stream else { break };
            let incoming = connection.exchanges.incoming(stream);
            if incoming.is_some_and(|incoming| incoming.full) {
                self.watch_incoming(id, stream);
                self.go_on(id);
            }
        }
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        if let Some(sending) = &connection.sending
            && sending.transfer.is_awaiting()
        {
            self.transmit(id);
        }
        self.resume(id);
        self.look_for_reader(id);
    }
}

/// Reads a body of which all is at the start of `input`. Gives how many bytes it takes.
pub(crate) fn read_whole(
    http: &mut Server,
    incoming: &mut Incoming,
    input: &[u8],
    limits: &Limits,
) -> usize {
    let mut used = 0;
    while let Ok(step) = http.next(&input[used..], limits, &mut None) {
        used += step.used;
        match step.event {
            Some(Event::Data(data)) => incoming.data(data),
            Some(Event::End { trailers }) => {
                incoming.end(&trailers);
                break;
            }
            _ => break,
        }
    }
    used
}
