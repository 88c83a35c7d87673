//! From answers to sent bytes: at once where the socket takes them, bit by bit where it does not. Files are sent by
//! helpers, see `transmit_file`.

use lowroad_http::protocol::ServerProtocol;
use std::collections::VecDeque;
use std::task::Context;

use bytes::Bytes;

use crate::body::{Filled, Part};
use crate::driver::{Completion, Driver};
use crate::sending::{Sending, Transfer};
use crate::service::Service;
use crate::transport::{Ended, Moved};
use crate::worker::{LINGER_MS, Worker};

/// What one try at the front part did.
enum Try {
    /// It went on; try again.
    Moved,
    /// An event will tell when to go on.
    Blocked,
    Broken,
}

impl<D: Driver, V: Service> Worker<D, V> {
    /// Sends what was put out for a connection. What the socket does not take now becomes the
    /// connection's [`Sending`]. If the connection was to close after it, it does.
    pub(crate) fn flush(&mut self, id: usize) {
        if self.out.is_empty() {
            return;
        }
        let Some(connection) = self.connections.get_mut(id) else {
            return self.discard_out();
        };
        if let Some(sending) = &mut connection.sending {
            // Frames may follow what is still being sent.
            sending.add(Bytes::copy_from_slice(&self.out.bytes), &mut self.records);
            return self.out.bytes.clear();
        }
        let token = connection.token(id);
        let given = self.out.bytes.len() as u64;
        let (transport, driver) = (&mut connection.transport, &mut self.driver);
        let (mut buffer, more) = self.out.lend();
        let (sent, wire_len) = match transport.send(driver, token, &mut buffer, more) {
            Moved::Bytes { len, wire_len } => (len, wire_len),
            Moved::Filled(len) => (len, len),
            Moved::Full => (0, 0),
            Moved::Underway => return self.start_sending(id, None, given),
            Moved::Broken => {
                self.out.give_back(buffer, 0);
                self.discard_out();
                return self.close_broken(id);
            }
        };
        let is_left = transport.has_sealed();
        self.counters.sent_bytes.add(wire_len as u64);
        self.out.give_back(buffer, sent);
        if is_left || !self.out.is_empty() {
            return self.start_sending(id, Some((sent, wire_len)), given);
        }
        let is_over = connection.is_over();
        if !self.records.is_empty() {
            self.tell_sent(sent as u64);
        }
        if is_over {
            self.finish(id);
        }
    }

    /// All answers in the output, of so many bytes, have left, for their service to know.
    fn tell_sent(&mut self, len: u64) {
        let now_ms = self.driver.now_ms();
        for leaving in self.records.drain(..) {
            let left = leaving.after(len);
            self.service.sent(left.record, left.body_len, true, now_ms);
        }
    }

    fn discard_out(&mut self) {
        let now_ms = self.driver.now_ms();
        self.out.bytes.clear();
        self.out.parts.clear();
        for leaving in self.records.drain(..) {
            self.service.sent(leaving.record, 0, false, now_ms);
        }
    }

    /// Makes what is left of the output the connection's business: after bytes that were sent, as they were given and
    /// on the wire, or while the driver has them.
    pub(crate) fn start_sending(&mut self, id: usize, sent: Option<(usize, usize)>, given: u64) {
        let now_ms = self.driver.now_ms();
        let mut parts = VecDeque::with_capacity(1 + self.out.parts.len());
        // What the driver has is put back in front, see `put_back`.
        if sent.is_none() || !self.out.bytes.is_empty() {
            parts.push_back(Part::Bytes(Bytes::copy_from_slice(&self.out.bytes)));
        }
        parts.extend(self.out.parts.drain(..));
        self.out.bytes.clear();
        let mut sending = Box::new(Sending::new(parts, &mut self.records, given, now_ms));
        match sent {
            None => sending.transfer = Transfer::Lent,
            Some((len, wire_len)) => sending.moved(len as u64, wire_len as u64, now_ms),
        }
        self.connections[id].sending = Some(sending);
        self.tell_left(id);
        self.transmit(id);
        if self.connections.contains(id) {
            self.sending_expired(id);
        }
        if self.connections.contains(id) {
            self.note(id);
        }
    }

    /// Responses that have left while others follow, for their service to know.
    fn tell_left(&mut self, id: usize) {
        let now_ms = self.driver.now_ms();
        let Some(sending) = &mut self.connections[id].sending else {
            return;
        };
        while let Some(left) = sending.take_left() {
            self.service.sent(left.record, left.body_len, true, now_ms);
        }
    }

    /// A send that was under way is over.
    pub(crate) fn send_ended(&mut self, id: usize, completion: Completion) {
        let connection = &mut self.connections[id];
        match connection.transport.sent(completion) {
            Ended::Broken => return self.close_broken(id),
            Ended::Sealed { wire_len } => self.moved(id, 0, wire_len),
            Ended::Buffer { buffer, len } => {
                let Some(sending) = &mut connection.sending else {
                    return;
                };
                sending.transfer = Transfer::Idle;
                if let Some(bytes) = sending.put_back(buffer, len)
                    && self.out.bytes.capacity() == 0
                {
                    self.out.bytes = bytes;
                }
                self.moved(id, len, len);
            }
        }
        self.push_sealed(id);
        self.transmit(id);
        self.resume(id);
    }

    /// So many bytes have left, as they were given and on the wire.
    fn moved(&mut self, id: usize, len: usize, wire_len: usize) {
        let now_ms = self.driver.now_ms();
        self.counters.sent_bytes.add(wire_len as u64);
        if let Some(sending) = &mut self.connections[id].sending {
            sending.moved(len as u64, wire_len as u64, now_ms);
        }
        self.tell_left(id);
    }

    /// The socket may have room again.
    pub(crate) fn writable(&mut self, id: usize) {
        let Some(sending) = &mut self.connections[id].sending else {
            return;
        };
        match &mut sending.transfer {
            Transfer::Underway { writable } => return *writable = true,
            Transfer::Lent => return,
            _ => {}
        }
        self.transmit(id);
        self.resume(id);
    }

    /// The connection is broken. A helper that sends just now says first how far it got, for the
    /// log, and finds out by itself.
    pub(crate) fn broken(&mut self, id: usize) {
        match &self.connections[id].sending {
            Some(sending) if matches!(sending.transfer, Transfer::Underway { .. }) => {
                self.writable(id);
            }
            _ => self.close_broken(id),
        }
    }

    /// Sends parts until the socket is full, a helper is needed, or none is left.
    pub(crate) fn transmit(&mut self, id: usize) {
        loop {
            let Some(connection) = self.connections.get_mut(id) else {
                return;
            };
            let Some(sending) = &mut connection.sending else {
                return;
            };
            if let Transfer::Lent = sending.transfer {
                return;
            }
            if connection.transport.has_sealed() {
                match self.push_front(id) {
                    Try::Moved => continue,
                    Try::Blocked => return,
                    Try::Broken => return self.close_broken(id),
                }
            }
            match sending.parts.front() {
                None => return self.all_sent(id),
                Some(part) if part.is_empty() => {
                    sending.parts.pop_front();
                    continue;
                }
                Some(_) => {}
            }
            match self.send_front(id) {
                Try::Moved => {}
                Try::Blocked => return,
                Try::Broken => return self.close_broken(id),
            }
        }
    }

    /// Sends of what was sealed before.
    fn push_front(&mut self, id: usize) -> Try {
        let connection = &mut self.connections[id];
        let token = connection.token(id);
        match connection.transport.push(&mut self.driver, token) {
            Moved::Bytes { len, wire_len } => {
                self.moved(id, len, wire_len);
                Try::Moved
            }
            Moved::Filled(len) => {
                self.moved(id, 0, len);
                Try::Blocked
            }
            Moved::Full | Moved::Underway => Try::Blocked,
            Moved::Broken => Try::Broken,
        }
    }

    fn send_front(&mut self, id: usize) -> Try {
        if let Some(done) = self.fill_stream(id) {
            return done;
        }
        let connection = &mut self.connections[id];
        let token = connection.token(id);
        let Some(sending) = &mut connection.sending else {
            return Try::Blocked;
        };
        let more = sending.parts.get(1).is_some_and(Part::needs_no_wait);
        let Some(front) = sending.parts.front_mut() else {
            return Try::Blocked;
        };
        let Some(mut buffer) = front.lend() else {
            self.start_file(id);
            return Try::Blocked;
        };
        let transport = &mut connection.transport;
        match transport.send(&mut self.driver, token, &mut buffer, more) {
            Moved::Bytes { len, wire_len } => {
                front.give_back(buffer, len);
                self.moved(id, len, wire_len);
                Try::Moved
            }
            Moved::Filled(len) => {
                front.give_back(buffer, len);
                self.moved(id, len, len);
                Try::Blocked
            }
            Moved::Full => {
                front.give_back(buffer, 0);
                Try::Blocked
            }
            Moved::Underway => {
                sending.transfer = Transfer::Lent;
                Try::Blocked
            }
            Moved::Broken => Try::Broken,
        }
    }

    /// Sees to it that a stream at the front has bytes to send; else says what comes of it.
    fn fill_stream(&mut self, id: usize) -> Option<Try> {
        let now_ms = self.driver.now_ms();
        let connection = &mut self.connections[id];
        let token = connection.token(id);
        let sending = connection.sending.as_mut()?;
        let Some(Part::Stream(streamed)) = sending.parts.front_mut() else {
            return None;
        };
        let waker = self.wakers.of(&self.mailbox, token);
        let filled = streamed.fill(&mut connection.http, &mut Context::from_waker(waker));
        // The time until now was ours, not the client's.
        let awaited = sending.transfer.is_awaiting();
        sending.transfer = match filled {
            Filled::Pending => Transfer::Awaiting,
            _ => Transfer::Idle,
        };
        match filled {
            Filled::Ready => {
                if awaited {
                    sending.pace.excuse(now_ms);
                }
                None
            }
            Filled::Pending => Some(Try::Blocked),
            Filled::Ended => {
                sending.parts.pop_front();
                Some(Try::Moved)
            }
            Filled::Cut => {
                self.counters.streams_cut.bump();
                self.close(id);
                Some(Try::Blocked)
            }
        }
    }

    fn all_sent(&mut self, id: usize) {
        let now_ms = self.driver.now_ms();
        let idle_timeout_ms = self.idle_timeout_ms();
        let connection = &mut self.connections[id];
        if let Some(sending) = connection.sending.take() {
            for left in sending.responses() {
                self.service.sent(left.record, left.body_len, true, now_ms);
            }
        }
        let connection = &mut self.connections[id];
        if connection.http.is_tunnel() {
            return self.tunnel_said_all(id);
        }
        if connection.two.is_some() {
            self.emit(id);
            return self.rest_frames(id);
        }
        // What comes next has its full time, whatever the client took for this response.
        let is_over = connection.is_over();
        let begun = connection.begun;
        connection.exchanges.renew_pace(now_ms);
        let timeout_ms = match connection.exchanges.has_incoming() {
            true => self.settings.body_timeout_ms,
            false if begun => self.settings.header_timeout_ms,
            false => idle_timeout_ms,
        };
        connection.deadline_ms = now_ms + timeout_ms;
        if is_over {
            self.finish(id);
        } else {
            self.note(id);
        }
    }

    /// Everything is said. Bytes of the peer that nobody will read would turn a plain close into a
    /// reset, which could destroy our last answer on its way: then the close waits for the peer's.
    pub(crate) fn finish(&mut self, id: usize) {
        let now_ms = self.driver.now_ms();
        if !self.end_layer(id) {
            return;
        }
        let connection = &mut self.connections[id];
        if !connection.leftover && !connection.unread {
            return self.close(id);
        }
        connection.transport.finish(&mut self.driver);
        connection.lingering = true;
        connection.input.clear();
        connection.deadline_ms = now_ms + LINGER_MS;
        self.drop_bodies(id);
        self.note(id);
    }
}
