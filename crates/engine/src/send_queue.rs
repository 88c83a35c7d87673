//! Responses on their way through a connection: what is still to be sent, and whose it is. Holds data only; `transmit`
//! moves it.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::buffer::SendBuffer;
use crate::client_pace::ClientPace;
use crate::response_body::BodyPart;

/// Responses on their way, one behind the other.
pub(crate) struct SendQueue<R> {
    pub parts: VecDeque<BodyPart>,
    pub transfer: TransferStep,
    /// Pages of the file at the front are, or were, in the socket's queue.
    pub paged: bool,
    pub pace: ClientPace,
    /// Bytes that have left, as the responses count them.
    sent: u64,
    /// Bytes that were given to it, if all are in memory.
    given: u64,
    /// Records of responses before the last one.
    earlier: Vec<PendingRecord<R>>,
    last: Option<PendingRecord<R>>,
}

/// The record of a response that has not left whole.
pub(crate) struct PendingRecord<R> {
    pub record: R,
    /// Where its body begins in what is sent.
    pub body_at: u64,
    /// Where it ends; `None` if it does with the last part.
    pub end: Option<u64>,
    /// Bytes of its body, where other bytes lie between them.
    pub framed_len: Option<u64>,
}

/// The record of a response of which no more will leave.
pub(crate) struct EndedRecord<R> {
    pub record: R,
    /// Bytes of the body that have left.
    pub body_len: u64,
}

impl<R> PendingRecord<R> {
    /// That of a response in frames, whose last byte is at `end`, and whose body has so many bytes.
    pub fn from_frames(record: R, end: u64, body_len: u64) -> PendingRecord<R> {
        PendingRecord {
            record,
            body_at: end,
            end: Some(end),
            framed_len: Some(body_len),
        }
    }

    /// How it is when so many bytes have left.
    pub fn after(self, sent: u64) -> EndedRecord<R> {
        if let (Some(end), Some(len)) = (self.end, self.framed_len) {
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

    fn has_left(&self, sent: u64) -> bool {
        self.end.is_some_and(|end| end <= sent)
    }
}

impl<R> SendQueue<R> {
    /// Begins with these parts, of which nothing has left, and the records of their responses.
    /// `given` = bytes of them and before them, for who adds to them.
    pub fn new(
        parts: VecDeque<BodyPart>,
        records: &mut Vec<PendingRecord<R>>,
        given: u64,
        now_ms: u64,
    ) -> SendQueue<R> {
        let last = records.pop();
        SendQueue {
            parts,
            transfer: TransferStep::Idle,
            paged: false,
            pace: ClientPace::new(now_ms),
            sent: 0,
            given,
            // Mostly there is none, and who lends the vector keeps its memory.
            earlier: match records.is_empty() {
                true => Vec::new(),
                false => std::mem::take(records),
            },
            last,
        }
    }

    /// Adds bytes that leave behind all others, and the records of the responses in them.
    pub fn add(&mut self, bytes: Bytes, records: &mut Vec<PendingRecord<R>>) {
        self.earlier.extend(self.last.take());
        for mut record in records.drain(..) {
            record.end = record.end.map(|end| end + self.given);
            self.earlier.push(record);
        }
        self.last = self.earlier.pop();
        self.given += bytes.len() as u64;
        self.parts.push_back(BodyPart::Bytes(bytes));
    }

    /// Bytes that have not left, if all are in memory.
    pub fn unsent(&self) -> u64 {
        self.given.saturating_sub(self.sent)
    }

    /// So many bytes have left.
    pub fn moved(&mut self, len: u64, wire_len: u64, now_ms: u64) {
        self.sent += len;
        self.pace.moved(wire_len, now_ms);
    }

    /// Puts back what the driver had of the parts at the front, without the first `sent` bytes of it, which have left.
    /// Gives back a worker's output that has left whole: its memory is used again.
    pub fn put_back(&mut self, buffer: SendBuffer, sent: usize) -> Option<Vec<u8>> {
        match buffer {
            SendBuffer::Headed { head, block, range } => {
                let body_sent = sent.saturating_sub(head.len());
                if let Some(part) = self.parts.get_mut(1) {
                    part.give_back(SendBuffer::Block { block, range }, body_sent);
                }
                self.put_back(SendBuffer::Vec(head), sent - body_sent)
            }
            SendBuffer::Vec(mut bytes) if bytes.len() == sent => {
                bytes.clear();
                Some(bytes)
            }
            buffer => {
                if let Some(part) = self.parts.front_mut() {
                    part.give_back(buffer, sent);
                }
                None
            }
        }
    }

    /// Takes a response that has left whole before all have.
    pub fn take_left(&mut self) -> Option<EndedRecord<R>> {
        let sent = self.sent;
        let leaving = match self.earlier.first() {
            Some(first) if first.has_left(sent) => self.earlier.remove(0),
            Some(_) => return None,
            None => self.last.take_if(|last| last.has_left(sent))?,
        };
        Some(leaving.after(sent))
    }

    /// All responses of which some may be left, in order.
    pub fn responses(self) -> impl Iterator<Item = EndedRecord<R>> {
        let sent = self.sent;
        let all = self.earlier.into_iter().chain(self.last);
        all.map(move |leaving| leaving.after(sent))
    }
}

/// What goes on with the part at the front.
pub(crate) enum TransferStep {
    /// Nothing.
    Idle,
    /// The driver has it, and will give it back.
    Lent,
    /// A helper sends of the file; whether the socket became writable meanwhile.
    Underway { writable: bool },
    /// No helper or descriptor could be had for it; it is tried again.
    Postponed,
    /// All but these last bytes is sent and not yet acknowledged.
    Settling { tail: Vec<u8>, since_ms: u64 },
    /// All is acknowledged; a helper asks whether the file is unchanged.
    Proving(Vec<u8>),
    /// What is next is still being made.
    Awaiting,
}

impl TransferStep {
    /// Whether the stream at the front is waited for.
    pub fn is_awaiting(&self) -> bool {
        matches!(self, TransferStep::Awaiting)
    }

    /// Whether a helper, or the lack of one, is what is waited for.
    pub fn is_ours(&self) -> bool {
        matches!(
            self,
            TransferStep::Underway { .. }
                | TransferStep::Postponed
                | TransferStep::Proving(_)
                | TransferStep::Awaiting
        )
    }
}
