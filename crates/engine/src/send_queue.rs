//! The responses that a connection is sending: unsent parts, and the records of their responses. The code that sends
//! them is in `transmit`.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::buffer::SendBuffer;
use crate::client_pace::ClientPace;
use crate::response_body::BodyPart;

/// Responses being sent, in order.
pub(crate) struct SendQueue<R> {
    pub parts: VecDeque<BodyPart>,
    pub transfer: TransferStep,
    /// Pages of the file at the front are, or were, in the socket's queue.
    pub paged: bool,
    pub pace: ClientPace,
    /// The number of bytes sent, without the overhead of TLS.
    sent: u64,
    /// The number of bytes that were queued, if all of them are in memory.
    queued_len: u64,
    /// Records of responses before the last one.
    earlier: Vec<PendingRecord<R>>,
    last: Option<PendingRecord<R>>,
}

/// The record of a response that is not sent completely.
pub(crate) struct PendingRecord<R> {
    pub record: R,
    /// The offset of the response's body in the queued bytes.
    pub body_at: u64,
    /// The offset of the response's end; `None` if the response ends with the last part.
    pub end: Option<u64>,
    /// The length of the response's body, if the body is interleaved with framing.
    pub framed_len: Option<u64>,
}

/// The record of a response that was sent or ended early.
pub(crate) struct EndedRecord<R> {
    pub record: R,
    /// The number of body bytes sent.
    pub body_len: u64,
}

impl<R> PendingRecord<R> {
    /// The record of a framed response that ends at `end`, with a body of this length.
    pub fn from_frames(record: R, end: u64, body_len: u64) -> PendingRecord<R> {
        PendingRecord {
            record,
            body_at: end,
            end: Some(end),
            framed_len: Some(body_len),
        }
    }

    /// Ends the record after `sent` bytes of the queue were sent.
    pub fn into_ended(self, sent: u64) -> EndedRecord<R> {
        if let (Some(end), Some(len)) = (self.end, self.framed_len) {
            // The body is interleaved with framing, so the number of sent bytes is estimated from the unsent rest.
            let unsent = end.saturating_sub(sent);
            return EndedRecord {
                record: self.record,
                body_len: len.saturating_sub(unsent),
            };
        }
        let end = self.end.map_or(sent, |end| end.min(sent));
        EndedRecord {
            record: self.record,
            body_len: end.saturating_sub(self.body_at),
        }
    }

    fn is_sent(&self, sent: u64) -> bool {
        self.end.is_some_and(|end| end <= sent)
    }
}

impl<R> SendQueue<R> {
    /// A queue of these parts, which are unsent, and the records of their responses. `queued_len`: the length of the
    /// parts and of the bytes before them.
    pub fn new(
        parts: VecDeque<BodyPart>,
        records: &mut Vec<PendingRecord<R>>,
        queued_len: u64,
        now_ms: u64,
    ) -> SendQueue<R> {
        let last = records.pop();
        SendQueue {
            parts,
            transfer: TransferStep::Idle,
            paged: false,
            pace: ClientPace::new(now_ms),
            sent: 0,
            queued_len,
            // Usually there is only one record; then the caller's vector keeps its memory.
            earlier: match records.is_empty() {
                true => Vec::new(),
                false => std::mem::take(records),
            },
            last,
        }
    }

    /// Appends bytes, and the records of the responses in them.
    pub fn add(&mut self, bytes: Bytes, records: &mut Vec<PendingRecord<R>>) {
        self.earlier.extend(self.last.take());
        for mut record in records.drain(..) {
            // Offsets are relative to the start of the queue, not of this output.
            record.end = record.end.map(|end| end + self.queued_len);
            self.earlier.push(record);
        }
        self.last = self.earlier.pop();
        self.queued_len += bytes.len() as u64;
        self.parts.push_back(BodyPart::Bytes(bytes));
    }

    /// The number of unsent bytes, if all are in memory.
    pub fn unsent(&self) -> u64 {
        self.queued_len.saturating_sub(self.sent)
    }

    /// The number of bytes sent, without the overhead of TLS.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Counts sent bytes.
    pub fn record_sent(&mut self, len: u64, wire_len: u64, now_ms: u64) {
        self.sent += len;
        self.pace.record_progress(wire_len, now_ms);
    }

    /// Puts back the driver's buffer of the parts at the front, without its first `sent` bytes. If the buffer was a
    /// worker's output and was sent completely, returns it, so that its memory is reused.
    pub fn return_buffer(&mut self, buffer: SendBuffer, sent: usize) -> Option<Vec<u8>> {
        match buffer {
            SendBuffer::Headed { head, block, range } => {
                // The block is the part after the head.
                let body_sent = sent.saturating_sub(head.len());
                if let Some(part) = self.parts.get_mut(1) {
                    part.return_send_buffer(SendBuffer::Block { block, range }, body_sent);
                }
                self.return_buffer(SendBuffer::Vec(head), sent - body_sent)
            }
            SendBuffer::Vec(mut bytes) if bytes.len() == sent => {
                bytes.clear();
                Some(bytes)
            }
            buffer => {
                if let Some(part) = self.parts.front_mut() {
                    part.return_send_buffer(buffer, sent);
                }
                None
            }
        }
    }

    /// Takes the record of a response that was sent completely while others follow.
    pub fn take_sent(&mut self) -> Option<EndedRecord<R>> {
        let sent = self.sent;
        let pending_record = match self.earlier.first() {
            Some(first) if first.is_sent(sent) => self.earlier.remove(0),
            // Responses are sent in order.
            Some(_) => return None,
            None => self.last.take_if(|last| last.is_sent(sent))?,
        };
        Some(pending_record.into_ended(sent))
    }

    /// The records of all responses that were not taken, in order.
    pub fn responses(self) -> impl Iterator<Item = EndedRecord<R>> {
        let sent = self.sent;
        let pending = self.earlier.into_iter().chain(self.last);
        pending.map(move |pending_record| pending_record.into_ended(sent))
    }
}

/// The state of the part at the front of the queue.
pub(crate) enum TransferStep {
    /// Nothing is in progress.
    Idle,
    /// The driver has the part's buffer.
    Lent,
    /// A helper thread sends part of the file. `writable`: the socket became writable meanwhile.
    Underway { writable: bool },
    /// No helper or file descriptor was available; the transfer is retried.
    Postponed,
    /// All but these last bytes were sent; waits until the client has acknowledged them.
    AwaitingAck { tail: Vec<u8>, since_ms: u64 },
    /// The client has acknowledged all other bytes; a helper checks whether the file is unchanged.
    Verifying(Vec<u8>),
    /// All bytes were sent; waits until a client that may be gone has acknowledged them.
    Delivering { since_ms: u64 },
    /// Waits for the next bytes of a streamed body.
    Awaiting,
    /// Waits until the limit of the response's rate allows more bytes.
    Paced,
}

impl TransferStep {
    /// Whether the part waits for bytes of a streamed body, or for the limit of its rate.
    pub fn is_awaiting(&self) -> bool {
        matches!(self, TransferStep::Awaiting | TransferStep::Paced)
    }

    /// Whether the client waits for the server: for a helper, or for the handler's bytes.
    pub fn is_server_wait(&self) -> bool {
        matches!(
            self,
            TransferStep::Underway { .. }
                | TransferStep::Postponed
                | TransferStep::Verifying(_)
                | TransferStep::Awaiting
                | TransferStep::Paced
        )
    }
}
