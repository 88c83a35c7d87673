//! Sends responses: immediately as far as the socket accepts them, the rest when it has room again. Files are sent by
//! helper threads, see `transmit_file`.

use std::collections::VecDeque;
use std::task::Context;

use bytes::Bytes;

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::{IoDriver, SendCompletion};
use crate::protocol::Protocol;
use crate::response_body::{BodyPart, FillOutcome};
use crate::response_pace::PaceStep;
use crate::send_queue::{SendQueue, TransferStep};
use crate::service::HttpService;
use crate::transmit_file::settle_ms;
use crate::transport::{SendEnd, TransferOutcome};

/// How long a connection waits for the peer's close after its last byte was sent.
const LINGER_MS: u64 = 2_000;

/// The result of one attempt to send the part at the front of the queue.
enum SendAttempt {
    /// There was progress; try again.
    Moved,
    /// An event will follow, after which sending continues.
    Blocked,
    Broken,
}

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Sends the worker's output behind earlier output of the connection. Bytes that the socket does not accept now
    /// become the connection's [`SendQueue`]. Closes the connection if this was its last output.
    pub(crate) fn flush_bytes(&mut self, worker: &mut WorkerContext<D, V>) {
        if worker.out.is_empty() {
            return;
        }
        if self.is_closed() {
            return worker.discard_out();
        }
        if let Some(sending) = &mut self.sending {
            // HTTP/2 frames may follow output that is still being sent.
            sending.add(
                Bytes::copy_from_slice(&worker.out.bytes),
                &mut worker.records,
            );
            return worker.out.bytes.clear();
        }
        let token = self.token;
        let queued_len = worker.out.bytes.len() as u64;
        let (transport, driver) = (&mut self.transport, &mut worker.driver);
        let (mut buffer, more) = worker.out.take_send_buffer();
        let (sent, wire_len) = match transport.send(driver, token, &mut buffer, more) {
            TransferOutcome::Bytes { len, wire_len } => (len, wire_len),
            TransferOutcome::Filled(len) => (len, len),
            TransferOutcome::Full => (0, 0),
            TransferOutcome::Underway => return self.start_sending(worker, None, queued_len),
            TransferOutcome::Broken => {
                worker.out.return_send_buffer(buffer, 0);
                worker.discard_out();
                return self.close_broken(worker);
            }
        };
        // With TLS, encrypted bytes count as sent, though the socket may not have accepted all records.
        let has_encrypted = transport.has_encrypted();
        worker.counters.sent_bytes.add(wire_len as u64);
        worker.out.return_send_buffer(buffer, sent);
        // After a half-close the client may be gone, so its response counts only once it is acknowledged.
        if has_encrypted || !worker.out.is_empty() || self.client_ended {
            return self.start_sending(worker, Some((sent, wire_len)), queued_len);
        }
        let is_over = self.is_over();
        if !worker.records.is_empty() {
            worker.report_sent(sent as u64);
        }
        if is_over {
            self.finish(worker);
        }
    }

    /// Moves unsent output to the connection's send queue. `sent`: the numbers of bytes already sent, of the output and
    /// on the wire; `None` while the driver has the buffer.
    pub(crate) fn start_sending(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        sent: Option<(usize, usize)>,
        queued_len: u64,
    ) {
        let now_ms = worker.driver.now_ms();
        let mut parts = VecDeque::with_capacity(1 + worker.out.parts.len());
        // The driver's buffer is put back at the front when it is returned.
        if sent.is_none() || !worker.out.bytes.is_empty() {
            // Copied, as the worker's buffer serves all its connections.
            parts.push_back(BodyPart::Bytes(Bytes::copy_from_slice(&worker.out.bytes)));
        }
        parts.extend(worker.out.parts.drain(..));
        worker.out.bytes.clear();
        let mut sending = Box::new(SendQueue::new(
            parts,
            &mut worker.records,
            queued_len,
            now_ms,
        ));
        match sent {
            None => sending.transfer = TransferStep::Lent,
            Some((len, wire_len)) => sending.record_sent(len as u64, wire_len as u64, now_ms),
        }
        self.sending = Some(sending);
        self.report_sent(worker);
        self.transmit(worker);
        if !self.is_closed() {
            self.check_sending_pace(worker);
        }
        if !self.is_closed() {
            self.schedule_check(worker);
        }
    }

    /// Reports to the service the responses that were sent while others follow.
    fn report_sent(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        // Until the acknowledgement the client may be gone.
        if self.client_ended {
            return;
        }
        let Some(sending) = &mut self.sending else {
            return;
        };
        while let Some(ended_record) = sending.take_sent() {
            worker
                .service
                .sent(ended_record.record, ended_record.body_len, true, now_ms);
        }
    }

    /// Handles the result of a send that the driver completed later.
    pub(crate) fn send_ended(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        completion: SendCompletion,
    ) {
        match self.transport.complete_send(completion) {
            SendEnd::Broken => return self.close_broken(worker),
            SendEnd::Encrypted { wire_len } => self.record_sent(worker, 0, wire_len),
            SendEnd::Buffer { buffer, len } => {
                let Some(sending) = &mut self.sending else {
                    return;
                };
                sending.transfer = TransferStep::Idle;
                if let Some(bytes) = sending.return_buffer(buffer, len)
                    && worker.out.bytes.capacity() == 0
                {
                    // The worker reuses the memory, unless it has allocated another buffer.
                    worker.out.bytes = bytes;
                }
                self.record_sent(worker, len, len);
            }
        }
        self.push_encrypted(worker);
        self.transmit(worker);
        self.resume(worker);
    }

    /// Counts sent bytes, of the output and on the wire.
    fn record_sent(&mut self, worker: &mut WorkerContext<D, V>, len: usize, wire_len: usize) {
        let now_ms = worker.driver.now_ms();
        worker.counters.sent_bytes.add(wire_len as u64);
        if let Some(sending) = &mut self.sending {
            sending.record_sent(len as u64, wire_len as u64, now_ms);
        }
        self.report_sent(worker);
    }

    /// Continues sending, when the socket may have room again.
    pub(crate) fn on_writable(&mut self, worker: &mut WorkerContext<D, V>) {
        let Some(sending) = &mut self.sending else {
            return;
        };
        match &mut sending.transfer {
            // If the helper found the socket full just before, its transfer is continued immediately.
            TransferStep::Underway { writable } => return *writable = true,
            TransferStep::Lent => return,
            _ => {}
        }
        self.transmit(worker);
        self.resume(worker);
    }

    /// Handles a broken connection. If a helper is sending, its result is awaited, as the log needs the number of bytes
    /// sent; the helper gets the same error.
    pub(crate) fn on_broken(&mut self, worker: &mut WorkerContext<D, V>) {
        match &self.sending {
            Some(sending) if matches!(sending.transfer, TransferStep::Underway { .. }) => {
                self.on_writable(worker);
            }
            _ => self.close_broken(worker),
        }
    }

    /// Sends parts until the socket is full, a helper is needed, or none is left.
    pub(crate) fn transmit(&mut self, worker: &mut WorkerContext<D, V>) {
        loop {
            if self.is_closed() {
                return;
            }
            let Some(sending) = &mut self.sending else {
                return;
            };
            // The driver allows one send at a time.
            if let TransferStep::Lent = sending.transfer {
                return;
            }
            if self.transport.has_encrypted() {
                match self.push_front(worker) {
                    SendAttempt::Moved => continue,
                    SendAttempt::Blocked => return,
                    SendAttempt::Broken => return self.close_broken(worker),
                }
            }
            match sending.parts.front() {
                None => return self.on_all_sent(worker),
                Some(part) if part.is_empty() => {
                    sending.parts.pop_front();
                    continue;
                }
                Some(BodyPart::Paced(_)) => match self.release_slice(worker) {
                    SendAttempt::Moved => continue,
                    _ => return,
                },
                Some(_) => {}
            }
            match self.send_front(worker) {
                SendAttempt::Moved => {}
                SendAttempt::Blocked => return,
                SendAttempt::Broken => return self.close_broken(worker),
            }
        }
    }

    /// Puts the next slice of a body with a limited rate at the front of the queue, or waits until the limit allows it.
    fn release_slice(&mut self, worker: &mut WorkerContext<D, V>) -> SendAttempt {
        let now_ms = worker.driver.now_ms();
        let Some(sending) = &mut self.sending else {
            return SendAttempt::Blocked;
        };
        let Some(BodyPart::Paced(paced)) = sending.parts.front_mut() else {
            return SendAttempt::Moved;
        };
        match paced.release(now_ms) {
            PaceStep::Part(part) => {
                if sending.transfer.is_awaiting() {
                    sending.pace.exclude_wait(now_ms);
                }
                sending.transfer = TransferStep::Idle;
                sending.parts.push_front(part);
                SendAttempt::Moved
            }
            PaceStep::Ended => {
                sending.parts.pop_front();
                SendAttempt::Moved
            }
            PaceStep::Wait { until_ms } => self.wait_for_rate(worker, until_ms),
        }
    }

    /// Waits until the limit of a response's rate allows more bytes.
    fn wait_for_rate(&mut self, worker: &mut WorkerContext<D, V>, until_ms: u64) -> SendAttempt {
        if let Some(sending) = &mut self.sending {
            sending.transfer = TransferStep::Paced;
            sending.pace.own_rate = sending.parts.front().and_then(BodyPart::own_rate);
        }
        // A due check of the client's pace comes first, and continues here.
        self.deadline_ms = self.deadline_ms.min(until_ms);
        self.schedule_check(worker);
        SendAttempt::Blocked
    }

    /// Sends encrypted bytes that the socket has not accepted yet.
    fn push_front(&mut self, worker: &mut WorkerContext<D, V>) -> SendAttempt {
        let token = self.token;
        match self.transport.push(&mut worker.driver, token) {
            TransferOutcome::Bytes { len, wire_len } => {
                self.record_sent(worker, len, wire_len);
                SendAttempt::Moved
            }
            // Another attempt would fail, so this waits for the writable event.
            TransferOutcome::Filled(len) => {
                self.record_sent(worker, 0, len);
                SendAttempt::Blocked
            }
            TransferOutcome::Full | TransferOutcome::Underway => SendAttempt::Blocked,
            TransferOutcome::Broken => SendAttempt::Broken,
        }
    }

    fn send_front(&mut self, worker: &mut WorkerContext<D, V>) -> SendAttempt {
        if let Some(done) = self.fill_stream(worker) {
            return done;
        }
        let token = self.token;
        let Some(sending) = &mut self.sending else {
            return SendAttempt::Blocked;
        };
        // `MSG_MORE` only if the next part is available, as TCP holds back a partial segment.
        let more = sending.parts.get(1).is_some_and(BodyPart::is_ready);
        let Some(front) = sending.parts.front_mut() else {
            return SendAttempt::Blocked;
        };
        let Some(mut buffer) = front.take_send_buffer() else {
            self.start_file(worker);
            return SendAttempt::Blocked;
        };
        let transport = &mut self.transport;
        match transport.send(&mut worker.driver, token, &mut buffer, more) {
            TransferOutcome::Bytes { len, wire_len } => {
                front.return_send_buffer(buffer, len);
                self.record_sent(worker, len, wire_len);
                SendAttempt::Moved
            }
            TransferOutcome::Filled(len) => {
                front.return_send_buffer(buffer, len);
                self.record_sent(worker, len, len);
                SendAttempt::Blocked
            }
            TransferOutcome::Full => {
                front.return_send_buffer(buffer, 0);
                SendAttempt::Blocked
            }
            TransferOutcome::Underway => {
                sending.transfer = TransferStep::Lent;
                SendAttempt::Blocked
            }
            TransferOutcome::Broken => SendAttempt::Broken,
        }
    }

    /// Fetches the next bytes of a streamed body at the front of the queue; returns the attempt's result if there are
    /// none.
    fn fill_stream(&mut self, worker: &mut WorkerContext<D, V>) -> Option<SendAttempt> {
        let now_ms = worker.driver.now_ms();
        let token = self.token;
        let sending = self.sending.as_mut()?;
        let Some(BodyPart::Stream(streamed)) = sending.parts.front_mut() else {
            return None;
        };
        // HTTP/2 frames the bytes of a body elsewhere (`h2/bodies`).
        let Protocol::Http1(http) = &mut self.protocol else {
            return None;
        };
        if let Some(until_ms) = streamed.paced_until(now_ms) {
            return Some(self.wait_for_rate(worker, until_ms));
        }
        let waker = worker.wakers.waker_for(&worker.mailbox, token);
        let filled = streamed.fill(http, &mut Context::from_waker(waker));
        // The client has waited for the server until now.
        let awaited = sending.transfer.is_awaiting();
        sending.transfer = match filled {
            FillOutcome::Pending => TransferStep::Awaiting,
            _ => TransferStep::Idle,
        };
        match filled {
            FillOutcome::Ready => {
                if awaited {
                    sending.pace.exclude_wait(now_ms);
                }
                None
            }
            FillOutcome::Pending => Some(SendAttempt::Blocked),
            FillOutcome::Ended => {
                sending.parts.pop_front();
                Some(SendAttempt::Moved)
            }
            // Closing the connection is the only way to show that the body is incomplete.
            FillOutcome::Cut => {
                worker.counters.streams_cut.bump();
                self.close();
                Some(SendAttempt::Blocked)
            }
        }
    }

    /// Whether the client has acknowledged all bytes, if it may be gone; otherwise checks again later. If it is gone,
    /// its reset breaks the connection.
    pub(crate) fn is_delivered(&mut self, worker: &mut WorkerContext<D, V>) -> bool {
        let is_over = self.protocol.is_tunnel() || !self.client_ended;
        if is_over || self.transport.unacknowledged(&worker.driver) == 0 {
            return true;
        }
        let now_ms = worker.driver.now_ms();
        let Some(sending) = &mut self.sending else {
            return true;
        };
        let since_ms = match sending.transfer {
            TransferStep::Delivering { since_ms } => since_ms,
            _ => now_ms,
        };
        sending.transfer = TransferStep::Delivering { since_ms };
        // epoll does not report acknowledgements, so they are polled.
        self.deadline_ms = self.deadline_ms.min(now_ms + settle_ms(now_ms - since_ms));
        self.schedule_check(worker);
        false
    }

    /// Whether a client that may be gone has acknowledged nothing of the output being sent.
    pub(crate) fn is_client_gone(&self, worker: &WorkerContext<D, V>) -> bool {
        let sent = self.sending.as_ref().map_or(0, |sending| sending.sent());
        self.client_ended && self.transport.unacknowledged(&worker.driver) as u64 >= sent
    }

    /// Reports to the service that all responses were sent.
    pub(crate) fn log_all_sent(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        if let Some(sending) = self.sending.take() {
            for ended_record in sending.responses() {
                worker
                    .service
                    .sent(ended_record.record, ended_record.body_len, true, now_ms);
            }
        }
    }

    /// Ends the connection after its last byte. If bytes of the peer may be unread, a close would reset the connection
    /// and could destroy the response in flight; then this half-closes the connection and waits for the peer's close
    /// (nginx: lingering_close).
    pub(crate) fn finish(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        // Without close_notify the client could take the end for a truncation (RFC 8446 §6.1).
        if !self.close_tls_if_over(worker) {
            return;
        }
        // If no bytes of the peer can be unread, a plain close loses nothing.
        if !self.leftover && !self.unread {
            return self.close();
        }
        self.transport.finish(&mut worker.driver);
        self.lingering = true;
        self.input.clear();
        self.deadline_ms = now_ms + LINGER_MS;
        // A lingering connection answers no requests, so the service's work for it is cancelled.
        self.drop_bodies(worker);
        self.schedule_check(worker);
    }
}
