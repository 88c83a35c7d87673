//! From answers to sent bytes: at once where the socket takes them, bit by bit where it does not.
//!
//! How a file goes out and why its last bytes wait is told in [`crate::file`].

use std::collections::VecDeque;

use std::task::Context;

use crate::body::{Filled, Part};
use crate::connection::{Pace, Sending, Transfer};
use crate::driver::{Driver, Sent};
use crate::file::TAIL_LEN;
use crate::service::Service;
use crate::worker::{LINGER_MS, Worker};

/// How often it is asked whether a client has acknowledged all but the tail of a file: at first,
/// and at last, when a client takes long.
const SETTLE_MS: std::ops::RangeInclusive<u64> = 8..=250;
/// When a file is tried again for which there was no descriptor or no helper.
const POSTPONED_MS: u64 = 100;

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
        let len = self.out.bytes.len();
        let parts = !self.out.parts.is_empty();
        let more = follows_at_once(self.out.parts.first());
        let driver = &mut self.driver;
        let sent = match connection.transport.send(driver, &self.out.bytes, more) {
            Sent::Bytes(sent) => sent,
            Sent::Full => 0,
            Sent::Broken => {
                self.discard_out();
                return self.close_broken(id);
            }
        };
        self.counters.sent_bytes.add(sent as u64);
        if parts || sent < len {
            return self.start_sending(id, sent);
        }
        self.out.bytes.clear();
        let is_over = connection.http.is_over();
        if !self.records.is_empty() {
            self.tell_sent();
        }
        if is_over {
            self.finish(id);
        }
    }

    /// All answers in the output have left, for their service to know.
    fn tell_sent(&mut self) {
        let now_ms = self.driver.now_ms();
        for (record, body_len) in self.records.drain(..) {
            self.service.sent(record, body_len, true, now_ms);
        }
    }

    fn discard_out(&mut self) {
        let now_ms = self.driver.now_ms();
        self.out.bytes.clear();
        self.out.parts.clear();
        for (record, _) in self.records.drain(..) {
            self.service.sent(record, 0, false, now_ms);
        }
    }

    /// Makes what is left of the output, after `sent` bytes of it, the connection's business.
    fn start_sending(&mut self, id: usize, sent: usize) {
        let now_ms = self.driver.now_ms();
        let len = self.out.bytes.len() as u64;
        let mut parts = VecDeque::with_capacity(1 + self.out.parts.len());
        if sent < self.out.bytes.len() {
            let left = self.out.bytes[sent..].to_vec();
            parts.push_back(Part::Bytes(left.into()));
        }
        parts.extend(self.out.parts.drain(..));
        self.out.bytes.clear();
        // Earlier pipelined answers count as sent with the last one's first byte.
        let (record, body_len) = self.records.pop().unzip();
        let head_len = len - body_len.unwrap_or(0);
        self.tell_sent();
        let mut pace = Pace::new(now_ms);
        pace.moved(sent as u64, now_ms);
        self.connections[id].sending = Some(Box::new(Sending {
            parts,
            transfer: Transfer::Idle,
            paged: false,
            record,
            head_len,
            pace,
        }));
        self.transmit(id);
        if self.connections.contains(id) {
            self.sending_expired(id);
        }
        if self.connections.contains(id) {
            self.note(id);
        }
    }

    /// The socket may have room again.
    pub(crate) fn writable(&mut self, id: usize) {
        let Some(sending) = &mut self.connections[id].sending else {
            return;
        };
        if let Transfer::Underway { writable } = &mut sending.transfer {
            *writable = true;
            return;
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

    fn send_front(&mut self, id: usize) -> Try {
        let now_ms = self.driver.now_ms();
        if let Some(done) = self.fill_stream(id) {
            return done;
        }
        let (driver, connection) = (&mut self.driver, &mut self.connections[id]);
        let token = connection.token(id);
        let Some(sending) = &mut connection.sending else {
            return Try::Blocked;
        };
        let transport = &mut connection.transport;
        let more = follows_at_once(sending.parts.get(1));
        let sent = match sending.parts.front_mut() {
            Some(Part::Bytes(bytes)) => {
                let sent = transport.send(driver, bytes, more);
                if let Sent::Bytes(len) = sent {
                    bytes::Buf::advance(bytes, len);
                }
                sent
            }
            Some(Part::Block { block, range }) => {
                let sent = transport.send_block(driver, block, range.clone());
                if let Sent::Bytes(len) = sent {
                    range.start += len;
                }
                sent
            }
            Some(Part::Stream(streamed)) => {
                let sent = transport.send_pieces(driver, streamed.pieces());
                if let Sent::Bytes(len) = sent {
                    streamed.advance(len);
                }
                sent
            }
            Some(Part::File { file, range }) => {
                let Transfer::Idle = sending.transfer else {
                    return Try::Blocked;
                };
                let started = transport.start_file(driver, token, file, range.clone());
                sending.transfer = match started {
                    Ok(()) => Transfer::Underway { writable: false },
                    Err(_) => Transfer::Postponed,
                };
                if started.is_err() {
                    connection.deadline_ms = now_ms + POSTPONED_MS;
                    self.note(id);
                }
                return Try::Blocked;
            }
            None => return Try::Blocked,
        };
        match sent {
            Sent::Bytes(len) => {
                sending.pace.moved(len as u64, now_ms);
                self.counters.sent_bytes.add(len as u64);
                Try::Moved
            }
            Sent::Full => Try::Blocked,
            Sent::Broken => Try::Broken,
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
            let body_len = sending.pace.bytes.saturating_sub(sending.head_len);
            if let Some(record) = sending.record {
                self.service.sent(record, body_len, true, now_ms);
            }
        }
        // What comes next has its full time, whatever the client took for this response.
        let connection = &mut self.connections[id];
        let is_over = connection.http.is_over();
        let begun = connection.begun;
        let timeout_ms = match connection.incoming() {
            Some(incoming) => {
                incoming.pace = Pace::new(now_ms);
                self.settings.body_timeout_ms
            }
            None if begun => self.settings.header_timeout_ms,
            None => idle_timeout_ms,
        };
        connection.deadline_ms = now_ms + timeout_ms;
        if is_over {
            self.finish(id);
        } else {
            self.note(id);
        }
    }

    /// A helper sent some of a file.
    pub(crate) fn file_progress(&mut self, id: usize, len: u64, full: bool) {
        let now_ms = self.driver.now_ms();
        let Some(sending) = &mut self.connections[id].sending else {
            return;
        };
        let Some(Part::File { range, .. }) = sending.parts.front_mut() else {
            return;
        };
        range.start += len;
        if len > 0 {
            sending.paged = true;
            sending.pace.moved(len, now_ms);
            self.counters.sent_bytes.add(len);
        }
        let writable = matches!(sending.transfer, Transfer::Underway { writable: true });
        sending.transfer = Transfer::Idle;
        if !full || writable {
            self.transmit(id);
            self.resume(id);
        }
    }

    /// A helper read the last bytes of a file's range.
    pub(crate) fn file_tail(&mut self, id: usize, tail: Vec<u8>) {
        let Some(sending) = &mut self.connections[id].sending else {
            return;
        };
        match std::mem::replace(&mut sending.transfer, Transfer::Idle) {
            // The file is still what it was when all before had arrived.
            Transfer::Proving(tail) => self.send_tail(id, tail),
            // All that is sent of it is this copy, read and found unchanged.
            _ if !sending.paged => self.send_tail(id, tail),
            _ => {
                let since_ms = self.driver.now_ms();
                sending.transfer = Transfer::Settling { tail, since_ms };
                self.settle(id);
            }
        }
    }

    /// Goes on with a file for which there was no descriptor or no helper.
    pub(crate) fn try_again(&mut self, id: usize) {
        if let Some(sending) = &mut self.connections[id].sending {
            sending.transfer = Transfer::Idle;
            self.transmit(id);
            self.resume(id);
        }
    }

    /// Looks whether the client has all but the tail; if so, has the file looked at once more.
    pub(crate) fn settle(&mut self, id: usize) {
        let now_ms = self.driver.now_ms();
        let connection = &mut self.connections[id];
        let token = connection.token(id);
        let Some(sending) = &mut connection.sending else {
            return;
        };
        let Transfer::Settling { since_ms, .. } = &sending.transfer else {
            return;
        };
        // The longer it takes, the less another moment matters.
        let again_ms = ((now_ms - since_ms) / 8).clamp(*SETTLE_MS.start(), *SETTLE_MS.end());
        if connection.transport.unacknowledged(&self.driver) > 0 {
            connection.deadline_ms = connection.deadline_ms.min(now_ms + again_ms);
            return self.note(id);
        }
        let Some(Part::File { file, range }) = sending.parts.front() else {
            return;
        };
        let nothing = range.end..range.end;
        let transport = &mut connection.transport;
        if transport
            .start_file(&mut self.driver, token, file, nothing)
            .is_err()
        {
            connection.deadline_ms = connection.deadline_ms.min(now_ms + POSTPONED_MS);
            return self.note(id);
        }
        if let Transfer::Settling { tail, .. } =
            std::mem::replace(&mut sending.transfer, Transfer::Idle)
        {
            sending.transfer = Transfer::Proving(tail);
        }
    }

    fn send_tail(&mut self, id: usize, tail: Vec<u8>) {
        debug_assert!(tail.len() as u64 <= TAIL_LEN);
        let Some(sending) = &mut self.connections[id].sending else {
            return;
        };
        sending.paged = false;
        sending.parts.pop_front();
        sending.parts.push_front(Part::Bytes(tail.into()));
        self.transmit(id);
        self.resume(id);
    }

    /// Everything is said. Bytes of the peer that nobody will read would turn a plain close into a
    /// reset, which could destroy our last answer on its way: then the close waits for the peer's.
    pub(crate) fn finish(&mut self, id: usize) {
        let now_ms = self.driver.now_ms();
        let connection = &mut self.connections[id];
        if !connection.leftover && !connection.unread {
            return self.close(id);
        }
        connection.transport.finish(&mut self.driver);
        connection.lingering = true;
        connection.underway = None;
        connection.input = Vec::new();
        connection.deadline_ms = now_ms + LINGER_MS;
        self.note(id);
    }
}

/// Whether a part follows that needs no wait: what comes before it may go out with it.
fn follows_at_once(next: Option<&Part>) -> bool {
    next.is_some_and(|part| !matches!(part, Part::Stream(_)))
}
