//! The parts of responses that are files: what a helper has sent of them, and when their last bytes may follow.
//!
//! How a file goes out and why its last bytes wait is told in [`crate::file`].

use std::io;

use crate::body::Part;
use crate::driver::Driver;
use crate::file::TAIL_LEN;
use crate::sending::Transfer;
use crate::service::Service;
use crate::worker::Worker;

/// How often it is asked whether a client has acknowledged all but the tail of a file: at first,
/// and at last, when a client takes long.
const SETTLE_MS: std::ops::RangeInclusive<u64> = 8..=250;
/// When a file is tried again for which there was no descriptor or no helper.
const POSTPONED_MS: u64 = 100;

impl<D: Driver, V: Service> Worker<D, V> {
    /// Has a helper send of the file at the front.
    pub(crate) fn start_file(&mut self, id: usize) {
        let now_ms = self.driver.now_ms();
        let connection = &mut self.connections[id];
        let token = connection.token(id);
        let Some(sending) = &mut connection.sending else {
            return;
        };
        let (Transfer::Idle, Some(Part::File { file, range })) =
            (&sending.transfer, sending.parts.front())
        else {
            return;
        };
        let (transport, driver) = (&mut connection.transport, &mut self.driver);
        if transport.offload(driver, range.end - range.start) {
            self.counters.kernel_tls.bump();
        }
        match transport.start_file(driver, token, file, range.clone()) {
            Ok(()) => sending.transfer = Transfer::Underway { writable: false },
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.close_broken(id),
            Err(_) => {
                sending.transfer = Transfer::Postponed;
                connection.deadline_ms = now_ms + POSTPONED_MS;
                self.note(id);
            }
        }
    }

    /// A helper sent some of a file.
    pub(crate) fn file_progress(&mut self, id: usize, len: u64, full: bool) {
        let now_ms = self.driver.now_ms();
        let connection = &mut self.connections[id];
        let Some(sending) = &mut connection.sending else {
            return;
        };
        let Some(Part::File { file, range }) = sending.parts.front_mut() else {
            return;
        };
        range.start += len;
        // Nothing of it was held back, and nothing has to be proved.
        let is_over = range.is_empty() && file.is_immutable;
        // What was sealed can't change any more, and the helper has found the file unchanged since.
        let needs_proof = !file.is_immutable && !connection.transport.is_offloaded();
        if len > 0 {
            sending.paged |= needs_proof;
            sending.moved(len, len, now_ms);
            self.counters.sent_bytes.add(len);
        }
        let writable = matches!(sending.transfer, Transfer::Underway { writable: true });
        sending.transfer = Transfer::Idle;
        if is_over || !full || writable {
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

    /// A helper read some of a file, which the connection's layer is to seal.
    pub(crate) fn file_read(&mut self, id: usize, bytes: Vec<u8>) {
        if self.connections[id].two.is_some() {
            return self.stream_read(id, Some(bytes));
        }
        let Some(sending) = &mut self.connections[id].sending else {
            return;
        };
        let Some(Part::File { range, .. }) = sending.parts.front_mut() else {
            return;
        };
        range.start += bytes.len() as u64;
        sending.transfer = Transfer::Idle;
        sending.parts.push_front(Part::Bytes(bytes.into()));
        self.transmit(id);
        self.resume(id);
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
}
