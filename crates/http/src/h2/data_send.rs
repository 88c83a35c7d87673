//! Sends bodies in the order of their priorities, as far as the flow-control windows allow, and returns windows to the
//! peer. Read RFC 9113 §5.2 and §6.1.

use alloc::vec::Vec;

use super::connection::{ConnectionPhase, H2Connection};
use super::frame::{self, HEAD_LEN, flag, kind};
use super::streams::StreamOutput;
use super::{NextData, StreamId};
use crate::h1::BodyLengthMismatch;

/// A DATA frame of at least this many bytes is worth its cost, and compensates for window updates.
pub(super) const WORTHWHILE_LEN: u32 = 256;
/// The number of window updates for which such a frame compensates.
const UPDATES_PER_DATA_FRAME: u32 = 4;

impl H2Connection {
    /// Queues a stream if it has data to send.
    pub(super) fn enqueue(&mut self, slot: u16) {
        if self.streams.get(slot).can_send() {
            self.queue.add(&mut self.streams, slot);
        }
    }

    /// Announces more of a body. Returns whether the body is to be sent.
    pub(super) fn announce_data(&mut self, id: u32, len: u64) -> Result<bool, BodyLengthMismatch> {
        let Some(slot) = self.streams.find(id) else {
            return Ok(false);
        };
        let is_wanted = self.streams.get(slot).announce(len)?;
        self.enqueue(slot);
        Ok(is_wanted)
    }

    /// Announces a whole body. Returns whether the body is to be sent.
    #[inline]
    pub(super) fn announce_body(&mut self, id: u32, len: u64) -> Result<bool, BodyLengthMismatch> {
        let Some(slot) = self.streams.find(id) else {
            return Ok(false);
        };
        let is_wanted = self.streams.get(slot).announce_whole(len)?;
        self.enqueue(slot);
        Ok(is_wanted)
    }

    /// Announces the end of a body. `trailers` is their field block, or empty.
    pub(super) fn complete(
        &mut self,
        id: u32,
        trailers: Vec<u8>,
    ) -> Result<(), BodyLengthMismatch> {
        let Some(slot) = self.streams.find(id) else {
            return Ok(());
        };
        self.streams.get(slot).complete(trailers)?;
        self.enqueue(slot);
        Ok(())
    }

    /// Writes the header of the next DATA frame, or the end of a stream. `None` if no data is ready, or all ready data
    /// is blocked by windows.
    #[inline]
    pub(super) fn send(&mut self, len_max: usize, out: &mut Vec<u8>) -> Option<NextData> {
        self.remove_last_ended(out);
        if self.phase == ConnectionPhase::Ended {
            return None; // nothing follows GOAWAY
        }
        let slot = self.queue.first()?;
        let frame_len_max = self.peer.frame_len_max;
        let stream = self.streams.get(slot);
        let id = stream.id;
        // END_STREAM alone, or trailers: neither needs a window.
        if stream.ready == 0 {
            match stream.trailers.take() {
                None => frame::put_head(kind::DATA, flag::END_STREAM, id, 0, out),
                Some(block) => {
                    let frame_start = self.open_block(out);
                    out.extend_from_slice(&block);
                    frame::close_block(id, true, frame_start, frame_len_max as usize, out);
                }
            }
            return Some(self.record_sent(slot, 0, true));
        }
        let window = self.send_window.min(stream.transport.send_window);
        // A change of settings may have made a window negative.
        let window = u32::try_from(window).unwrap_or(0);
        let len = window
            .min(frame_len_max)
            .min(u32::try_from(len_max).unwrap_or(u32::MAX));
        let len = u32::try_from(stream.ready).unwrap_or(u32::MAX).min(len);
        if len == 0 {
            return None;
        }
        let is_last =
            u64::from(len) == stream.ready && stream.is_complete && stream.trailers.is_none();
        let flags = if is_last { flag::END_STREAM } else { 0 };
        frame::put_head(kind::DATA, flags, id, len as usize, out);
        stream.ready -= u64::from(len);
        stream.transport.send_window -= len as i32;
        self.send_window -= len as i32;
        // Small frames give no credit, so that a client that opens its window byte by byte cannot collect credit for a
        // flood.
        if len >= WORTHWHILE_LEN {
            self.glitch_credit = self.glitch_credit.saturating_add(UPDATES_PER_DATA_FRAME);
        }
        Some(self.record_sent(slot, len, is_last))
    }

    /// Updates the queue after a frame. Must not write output: the caller appends the frame's body bytes directly after
    /// its header.
    #[inline]
    fn record_sent(&mut self, slot: u16, len: u32, is_last: bool) -> NextData {
        let stream = self.streams.get(slot);
        let id = stream.id;
        self.queue.record_served(stream.priority);
        if is_last {
            stream.output = StreamOutput::Ended;
            // If some input is unconsumed, removing the stream writes a window update, which is not possible here.
            let is_closed = stream.is_closed() && stream.transport.unconsumed == 0;
            self.queue.remove(&mut self.streams, slot);
            match is_closed {
                true => self.streams.remove(id),
                false => self.last_ended = id,
            }
        } else if stream.can_send() {
            self.queue.requeue(&mut self.streams, slot);
        } else {
            self.queue.remove(&mut self.streams, slot);
        }
        NextData {
            stream: StreamId(id),
            len,
            is_last,
        }
    }

    /// Whether data is ready, but blocked by windows.
    pub(super) fn is_blocked(&self) -> bool {
        let has_ready_data = |slot: u16| self.streams.peek(slot).ready > 0;
        match self.queue.first() {
            Some(slot) => self.send_window <= 0 && self.streams.peek(slot).ready > 0,
            None => self.streams.slots().any(has_ready_data),
        }
    }

    /// Removes the stream in `last_ended`, if it is complete.
    #[inline]
    pub(super) fn remove_last_ended(&mut self, out: &mut Vec<u8>) {
        if self.last_ended != 0 {
            let id = core::mem::take(&mut self.last_ended);
            self.remove_if_complete(id, out);
        }
    }

    /// Begins a field block at the end of `out`, after room for its frame header. Returns the offset of that room.
    #[inline]
    pub(super) fn open_block(&mut self, out: &mut Vec<u8>) -> usize {
        let frame_start = out.len();
        out.extend_from_slice(&[0; HEAD_LEN]);
        if core::mem::replace(&mut self.must_confirm_table_len, false) {
            // The byte is a table size update to 0: this encoder uses no dynamic table (RFC 7541 §4.2, §6.3).
            out.push(0x20);
        }
        frame_start
    }

    /// Returns the window of `len` consumed bytes to a stream and the connection.
    pub(super) fn release_window(&mut self, id: u32, len: u32, out: &mut Vec<u8>) {
        let size = self.estimate.size;
        let Some(stream) = self.streams.by_id(id) else {
            return;
        };
        // A caller that returns more than was received must not enlarge the window.
        let len = len.min(stream.transport.unconsumed);
        if len == 0 {
            return;
        }
        stream.transport.unconsumed -= len;
        // The estimated bandwidth-delay product may have grown since the last update.
        stream.transport.window.grow(size);
        if let Some(increment) = stream.transport.window.release(len)
            // After its last frame a stream needs no window.
            && stream.input == super::streams::StreamInput::Open
        {
            frame::put_window_update(id, increment, out);
        }
        // A client has returned the connection's window on receipt, see `begin_data`.
        if self.is_server {
            self.release_connection_window(len, out);
        }
    }

    /// Returns the window of `len` consumed bytes to the connection.
    pub(super) fn release_connection_window(&mut self, len: u32, out: &mut Vec<u8>) {
        if len > 0
            && let Some(increment) = self.window.release(len)
        {
            frame::put_window_update(0, increment, out);
        }
    }
}
