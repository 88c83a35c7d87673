//! Sends bodies in the order of their priorities. QUIC's flow control belongs to the caller, which reports streams that
//! it blocks. Read RFC 9114 §7.2.1, RFC 9218 §10.

use alloc::vec::Vec;

use super::frames::{self, kind};
use super::response_head::put_lines;
use super::server::{H3Server, H3Stream};
use super::{NextData, StreamId, qpack};
use crate::fields::FieldLines;
use crate::h1::BodyLengthMismatch;
use crate::streams::{Priority, StreamOutput};

/// A stream with ready bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedStream {
    /// The stream.
    pub stream: StreamId,
    /// Its priority.
    pub priority: Priority,
}

impl H3Stream {
    /// Whether the stream has something to send, and QUIC accepts it.
    fn can_send(&self) -> bool {
        self.output == StreamOutput::Body
            && (self.ready > 0 || self.is_complete)
            && !self.waits_for_window()
    }

    /// Whether the next bytes wait for the windows of QUIC. The end of a stream alone needs none (RFC 9000 §4.1).
    fn waits_for_window(&self) -> bool {
        self.transport.is_send_blocked
            && self.output == StreamOutput::Body
            && (self.ready > 0 || self.trailers.is_some())
    }
}

impl H3Server {
    /// Queues a stream if it has something to send.
    #[inline]
    fn enqueue(&mut self, slot: u16) {
        if self.streams.get(slot).can_send() {
            self.queue.add(&mut self.streams, slot);
        }
    }

    /// Announces more of a response's body; `H3Server::send` sends it. Returns false if the body is not to be sent: the
    /// response has no body, or the client has cancelled the request.
    ///
    /// # Errors
    /// The body is longer than announced: the stream is to be reset.
    pub fn body(&mut self, stream: StreamId, len: u64) -> Result<bool, BodyLengthMismatch> {
        let Some(slot) = self.streams.find(stream.0) else {
            return Ok(false);
        };
        let is_wanted = self.streams.get(slot).announce(len)?;
        self.enqueue(slot);
        Ok(is_wanted)
    }

    /// Like `H3Server::body` and `H3Server::end_body`, for a whole body.
    ///
    /// # Errors
    /// The body is longer or shorter than announced: the stream is to be reset.
    #[inline]
    pub fn whole_body(&mut self, stream: StreamId, len: u64) -> Result<bool, BodyLengthMismatch> {
        let Some(slot) = self.streams.find(stream.0) else {
            return Ok(false);
        };
        let is_wanted = self.streams.get(slot).announce_whole(len)?;
        self.enqueue(slot);
        Ok(is_wanted)
    }

    /// Announces the end of a response's body. `trailers` are field lines.
    ///
    /// # Errors
    /// The body is shorter than announced: the stream is to be reset.
    pub fn end_body(
        &mut self,
        stream: StreamId,
        trailers: FieldLines<'_>,
    ) -> Result<(), BodyLengthMismatch> {
        let Some(slot) = self.streams.find(stream.0) else {
            return Ok(());
        };
        let mut section = Vec::new();
        // An empty section would be sent as a frame without use.
        if !trailers.is_empty() {
            qpack::put_prefix(&mut section);
            put_lines(trailers, &mut section);
        }
        self.streams.get(slot).complete(section)?;
        self.enqueue(slot);
        Ok(())
    }

    /// Selects the next body bytes, at most `len_max` of one stream. Appends a frame header or trailers, if they are
    /// needed, to `out`; the stream continues with `out` and then those bytes, and with its end if they are the last
    /// ones. `None` if no data is ready, or all ready data is blocked. To be called when all input is processed, so that
    /// urgent streams are sent first.
    #[inline]
    pub fn send(&mut self, len_max: usize, out: &mut Vec<u8>) -> Option<NextData> {
        if self.is_ended {
            return None;
        }
        let slot = self.queue.first()?;
        let stream = self.streams.get(slot);
        // The end of the stream alone, or trailers.
        if stream.ready == 0 {
            if let Some(section) = stream.trailers.take() {
                let start = frames::open_section(out);
                out.extend_from_slice(&section);
                frames::close_section(start, out);
            }
            return Some(self.record_sent(slot, 0, true));
        }
        // A frame may have any length, so one header serves for all bytes that are ready.
        if stream.transport.frame_remaining == 0 {
            stream.transport.frame_remaining = stream.ready;
            frames::put_head(kind::DATA, stream.ready, out);
        }
        let len_max = u32::try_from(len_max).unwrap_or(u32::MAX);
        let remaining = u32::try_from(stream.transport.frame_remaining).unwrap_or(u32::MAX);
        let len = remaining.min(len_max);
        stream.transport.frame_remaining -= u64::from(len);
        stream.ready -= u64::from(len);
        let is_last = stream.ready == 0 && stream.is_complete && stream.trailers.is_none();
        Some(self.record_sent(slot, len, is_last))
    }

    /// Updates the queue after a part was selected.
    #[inline]
    fn record_sent(&mut self, slot: u16, len: u32, is_last: bool) -> NextData {
        let stream = self.streams.get(slot);
        let number = stream.id;
        self.queue.record_served(stream.priority);
        if is_last {
            stream.output = StreamOutput::Ended;
            let is_closed = stream.is_closed();
            self.queue.remove(&mut self.streams, slot);
            match is_closed {
                true => self.streams.remove(number),
                false => self.remove_if_complete(number),
            }
        } else if stream.can_send() {
            self.queue.requeue(&mut self.streams, slot);
        } else {
            self.queue.remove(&mut self.streams, slot);
        }
        NextData {
            stream: StreamId(number),
            len,
            is_last,
        }
    }

    /// Reports whether QUIC's flow control blocks a stream: a blocked stream is not selected.
    pub fn set_blocked(&mut self, stream: StreamId, is_blocked: bool) {
        if let Some(slot) = self.streams.find(stream.0) {
            self.streams.get(slot).transport.is_send_blocked = is_blocked;
            // The queue has only streams that can send, so that the most urgent one never waits for another.
            match self.streams.get(slot).can_send() {
                true => self.queue.add(&mut self.streams, slot),
                false => self.queue.remove(&mut self.streams, slot),
            }
        }
    }

    /// The stream that [`H3Server::send`] selects next.
    #[must_use]
    pub fn next_stream(&self) -> Option<QueuedStream> {
        let slot = self.queue.first()?;
        let stream = self.streams.peek(slot);
        Some(QueuedStream {
            stream: StreamId(stream.id),
            priority: stream.priority,
        })
    }

    /// The urgency of a stream; that of a stream that has ended is the default.
    #[must_use]
    pub fn urgency(&self, stream: StreamId) -> u8 {
        let slot = self.streams.find(stream.0);
        let priority = slot.map(|slot| self.streams.peek(slot).priority);
        priority.unwrap_or_default().urgency
    }

    /// Whether ready bodies are blocked. A client that does not open its windows for long is disconnected.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        // While the queue is not empty, some stream makes progress.
        let is_blocked = |slot: u16| self.streams.peek(slot).waits_for_window();
        self.queue.first().is_none() && self.streams.slots().any(is_blocked)
    }
}
