//! What is sent: bodies by turns, as far as the windows allow, and the windows that are given back. Read RFC 9113 §5.2 and
//! §6.1.

use alloc::vec::Vec;

use super::StreamId;
use super::connection::{Connection, Phase};
use super::frame::{self, HEAD_LEN, flag, kind};
use super::streams::{Output, UNKNOWN};
use crate::h1::Broken;

/// Bytes of a DATA frame from which on it is worth its cost, and makes good for window updates.
pub(super) const WORTHWHILE_LEN: u32 = 256;
/// For so many.
const UPDATES_OF_DATA: u32 = 4;

/// What is to be sent next: these bytes of a stream's body, behind what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The stream.
    pub stream: StreamId,
    /// So many bytes; 0 if its end only had to be said.
    pub len: u32,
    /// The response, or request, is whole with them.
    pub is_last: bool,
}

impl Connection {
    /// Puts a stream into the queue if it has something to send.
    pub(super) fn enqueue(&mut self, slot: u16) {
        if self.streams.get(slot).can_send() {
            self.queue.add(&mut self.streams, slot);
        }
    }

    /// More of a body is ready. Whether it is to be sent.
    pub(super) fn ready(&mut self, id: u32, len: u64) -> Result<bool, Broken> {
        let Some(slot) = self.streams.find(id) else {
            return Ok(false);
        };
        let stream = self.streams.get(slot);
        match stream.output {
            Output::Head => return Err(Broken),
            Output::Ended => return Ok(false),
            Output::Body => {}
        }
        if stream.to_be_ready != UNKNOWN {
            stream.to_be_ready = stream.to_be_ready.checked_sub(len).ok_or(Broken)?;
        }
        stream.ready += len;
        self.enqueue(slot);
        Ok(true)
    }

    /// A body is ready as a whole. Whether it is to be sent.
    #[inline]
    pub(super) fn ready_whole(&mut self, id: u32, len: u64) -> Result<bool, Broken> {
        let Some(slot) = self.streams.find(id) else {
            return Ok(false);
        };
        let stream = self.streams.get(slot);
        if stream.output != Output::Body {
            return match stream.output {
                Output::Head => Err(Broken),
                _ => Ok(false),
            };
        }
        if stream.to_be_ready != UNKNOWN && stream.to_be_ready != len {
            return Err(Broken);
        }
        stream.to_be_ready = 0;
        stream.ready += len;
        stream.is_complete = true;
        self.enqueue(slot);
        Ok(true)
    }

    /// All of a body is ready. `trailers` is their field block, or empty.
    pub(super) fn complete(&mut self, id: u32, trailers: Vec<u8>) -> Result<(), Broken> {
        let Some(slot) = self.streams.find(id) else {
            return Ok(());
        };
        let stream = self.streams.get(slot);
        match stream.output {
            Output::Head => return Err(Broken),
            Output::Ended => return Ok(()),
            Output::Body => {}
        }
        if stream.to_be_ready != UNKNOWN && stream.to_be_ready > 0 {
            return Err(Broken);
        }
        stream.is_complete = true;
        stream.trailers = (!trailers.is_empty()).then(|| trailers.into());
        self.enqueue(slot);
        Ok(())
    }

    /// Writes the head of the next DATA frame, or what ends a stream. `None`: nothing is ready, or no window is open.
    #[inline]
    pub(super) fn send(&mut self, len_max: usize, out: &mut Vec<u8>) -> Option<Piece> {
        self.settle_last(out);
        if self.phase == Phase::Ended {
            return None; // nothing follows GOAWAY
        }
        let slot = self.queue.first()?;
        let frame_len_max = self.peer.frame_len_max;
        let stream = self.streams.get(slot);
        let id = stream.id;
        if stream.ready == 0 {
            match stream.trailers.take() {
                None => frame::put_head(kind::DATA, flag::END_STREAM, id, 0, out),
                Some(block) => {
                    let at = self.open_block(out);
                    out.extend_from_slice(&block);
                    frame::close_block(id, true, at, frame_len_max as usize, out);
                }
            }
            return Some(self.sent(slot, 0, true));
        }
        let window = self.send_window.min(stream.send_window);
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
        stream.send_window -= len as i32;
        self.send_window -= len as i32;
        if len >= WORTHWHILE_LEN {
            self.glitch_credit = self.glitch_credit.saturating_add(UPDATES_OF_DATA);
        }
        Some(self.sent(slot, len, is_last))
    }

    /// Nothing may be written here: the bytes of the body are to follow their frame's head.
    #[inline]
    fn sent(&mut self, slot: u16, len: u32, is_last: bool) -> Piece {
        let stream = self.streams.get(slot);
        let id = stream.id;
        self.queue.had_turn(stream.priority);
        if is_last {
            stream.output = Output::Ended;
            let is_over = stream.is_over() && stream.untaken == 0;
            self.queue.remove(&mut self.streams, slot);
            match is_over {
                true => self.streams.remove(id),
                false => self.unsettled = id,
            }
        } else if stream.can_send() {
            self.queue.again(&mut self.streams, slot);
        } else {
            self.queue.remove(&mut self.streams, slot);
        }
        Piece {
            stream: StreamId(id),
            len,
            is_last,
        }
    }

    /// Whether something is ready that no window lets out.
    pub(super) fn is_blocked(&self) -> bool {
        let has_stuck = |slot: u16| self.streams.peek(slot).ready > 0;
        match self.queue.first() {
            Some(slot) => self.send_window <= 0 && self.streams.peek(slot).ready > 0,
            None => self.streams.slots().any(has_stuck),
        }
    }

    /// Does what the last end of a stream's output asks for.
    #[inline]
    pub(super) fn settle_last(&mut self, out: &mut Vec<u8>) {
        if self.unsettled != 0 {
            let id = core::mem::take(&mut self.unsettled);
            self.settle(id, out);
        }
    }

    /// Begins a field block at the end of `out`, behind room for its frame's head: where that is.
    #[inline]
    pub(super) fn open_block(&mut self, out: &mut Vec<u8>) -> usize {
        let at = out.len();
        out.extend_from_slice(&[0; HEAD_LEN]);
        if core::mem::replace(&mut self.owes_table_len, false) {
            // We never use the table, whatever size it has (RFC 7541 §4.2).
            out.push(0x20);
        }
        at
    }

    /// So many bytes of a stream were taken.
    pub(super) fn give_back(&mut self, id: u32, len: u32, out: &mut Vec<u8>) {
        let size = self.estimate.size;
        let Some(stream) = self.streams.by_id(id) else {
            return;
        };
        let len = len.min(stream.untaken);
        if len == 0 {
            return;
        }
        stream.untaken -= len;
        stream.window.grow(size);
        if let Some(increment) = stream.window.give(len)
            && stream.input == super::streams::Input::Open
        {
            frame::put_window_update(id, increment, out);
        }
        self.give_connection(len, out);
    }

    /// So many bytes of any stream were taken.
    pub(super) fn give_connection(&mut self, len: u32, out: &mut Vec<u8>) {
        if len > 0
            && let Some(increment) = self.window.give(len)
        {
            frame::put_window_update(0, increment, out);
        }
    }
}
