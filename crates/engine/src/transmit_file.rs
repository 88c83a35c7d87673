//! Sends parts of responses that are files: starts transfers by helper threads, handles their results, and holds back
//! the last bytes.
//!
//! [`crate::file`] describes the transfer of files, and why their last bytes are held back.

use std::io;

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::file::TAIL_LEN;
use crate::response_body::BodyPart;
use crate::send_queue::TransferStep;
use crate::service::HttpService;

/// The interval of checks whether a client has acknowledged all but the tail of a file: it grows from the first value
/// to the second while the client receives.
const SETTLE_MS: std::ops::RangeInclusive<u64> = 8..=250;
/// The delay before another attempt to send a file, if no file descriptor or helper was available.
const POSTPONED_MS: u64 = 100;

/// The time until the next check of a client's acknowledgement, after a wait of this time.
pub(crate) fn settle_ms(waited_ms: u64) -> u64 {
    // The longer the client takes, the less another delay matters.
    (waited_ms / 8).clamp(*SETTLE_MS.start(), *SETTLE_MS.end())
}

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Starts the transfer of the file at the front of the queue by a helper.
    pub(crate) fn start_file(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        let token = self.token;
        let Some(sending) = &mut self.sending else {
            return;
        };
        let (TransferStep::Idle, Some(BodyPart::File { file, range })) =
            (&sending.transfer, sending.parts.front())
        else {
            return;
        };
        let (transport, driver) = (&mut self.transport, &mut worker.driver);
        if transport.offload(driver, range.end - range.start) {
            worker.counters.kernel_tls.bump();
        }
        match transport.start_file(driver, token, file, range.clone()) {
            Ok(()) => sending.transfer = TransferStep::Underway { writable: false },
            // The key of kernel TLS is used up.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.close_broken(worker),
            Err(_) => {
                sending.transfer = TransferStep::Postponed;
                self.deadline_ms = now_ms + POSTPONED_MS;
                self.schedule_check(worker);
            }
        }
    }

    /// Handles the progress of a helper's transfer.
    pub(crate) fn file_progress(&mut self, worker: &mut WorkerContext<D, V>, len: u64, full: bool) {
        let now_ms = worker.driver.now_ms();
        let Some(sending) = &mut self.sending else {
            return;
        };
        let Some(BodyPart::File { file, range }) = sending.parts.front_mut() else {
            return;
        };
        range.start += len;
        // An immutable file is not checked, and none of its bytes are held back.
        let is_over = range.is_empty() && file.is_immutable;
        // With kernel TLS, the queue contains encrypted copies, which the helper has already checked.
        let needs_proof = !file.is_immutable && !self.transport.is_offloaded();
        if len > 0 {
            sending.paged |= needs_proof;
            sending.record_sent(len, len, now_ms);
            worker.counters.sent_bytes.add(len);
        }
        let writable = matches!(sending.transfer, TransferStep::Underway { writable: true });
        sending.transfer = TransferStep::Idle;
        if is_over || !full || writable {
            self.transmit(worker);
            self.resume(worker);
        }
    }

    /// Handles the last bytes of a file's range, which a helper has read.
    pub(crate) fn file_tail(&mut self, worker: &mut WorkerContext<D, V>, tail: Vec<u8>) {
        let Some(sending) = &mut self.sending else {
            return;
        };
        match std::mem::replace(&mut sending.transfer, TransferStep::Idle) {
            // A check after the client's acknowledgement has found the file unchanged.
            TransferStep::Verifying(tail) => self.send_tail(worker, tail),
            // All bytes of the file that were sent are copies of checked bytes, and so is the tail.
            _ if !sending.paged => self.send_tail(worker, tail),
            _ => {
                let since_ms = worker.driver.now_ms();
                sending.transfer = TransferStep::AwaitingAck { tail, since_ms };
                self.check_acknowledged(worker);
            }
        }
    }

    /// Handles bytes of a file that a helper has read, to be encrypted.
    pub(crate) fn put_file_bytes(&mut self, worker: &mut WorkerContext<D, V>, bytes: Vec<u8>) {
        let Some(sending) = &mut self.sending else {
            return;
        };
        let Some(BodyPart::File { range, .. }) = sending.parts.front_mut() else {
            return;
        };
        range.start += bytes.len() as u64;
        sending.transfer = TransferStep::Idle;
        sending.parts.push_front(BodyPart::Bytes(bytes.into()));
        self.transmit(worker);
        self.resume(worker);
    }

    /// Retries a transfer for which no file descriptor or helper was available.
    pub(crate) fn retry_transfer(&mut self, worker: &mut WorkerContext<D, V>) {
        if let Some(sending) = &mut self.sending {
            sending.transfer = TransferStep::Idle;
            self.transmit(worker);
            self.resume(worker);
        }
    }

    /// Checks whether the client has acknowledged all but the tail; if so, a helper checks the file once more.
    pub(crate) fn check_acknowledged(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        let token = self.token;
        let Some(sending) = &mut self.sending else {
            return;
        };
        let TransferStep::AwaitingAck { since_ms, .. } = &sending.transfer else {
            return;
        };
        let retry_ms = settle_ms(now_ms - since_ms);
        // Unacknowledged pages are still in the socket's queue, where a rewrite would reach them.
        if self.transport.unacknowledged(&worker.driver) > 0 {
            self.deadline_ms = self.deadline_ms.min(now_ms + retry_ms);
            return self.schedule_check(worker);
        }
        let Some(BodyPart::File { file, range }) = sending.parts.front() else {
            return;
        };
        // An empty range only checks that the file is unchanged.
        let nothing = range.end..range.end;
        let transport = &mut self.transport;
        if transport
            .start_file(&mut worker.driver, token, file, nothing)
            .is_err()
        {
            self.deadline_ms = self.deadline_ms.min(now_ms + POSTPONED_MS);
            return self.schedule_check(worker);
        }
        if let TransferStep::AwaitingAck { tail, .. } =
            std::mem::replace(&mut sending.transfer, TransferStep::Idle)
        {
            sending.transfer = TransferStep::Verifying(tail);
        }
    }

    fn send_tail(&mut self, worker: &mut WorkerContext<D, V>, tail: Vec<u8>) {
        debug_assert!(tail.len() as u64 <= TAIL_LEN);
        let Some(sending) = &mut self.sending else {
            return;
        };
        sending.paged = false;
        sending.parts.pop_front();
        sending.parts.push_front(BodyPart::Bytes(tail.into()));
        self.transmit(worker);
        self.resume(worker);
    }
}
