//! The active streams of a connection, by their identifiers. Read RFC 9113 §5.1.
//!
//! ```text
//!           HEADERS                     last of the body                       a stream exists while
//! input     ─────────► Open ────────────────────────────► Ended                one of its directions is open,
//! output    ─────────► Head ── head ──► Body ── last ───► Ended                or work for it continues (is_dead)
//!
//!           RST_STREAM from either side: is_dead, until the caller reports that the work for the stream has ended
//! ```

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::priority::Priority;
use super::window::FlowControlWindow;

/// No slot.
pub(super) const NONE: u16 = u16::MAX;
/// A length that was not announced.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// The next input of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamInput {
    /// The head of a response (clients only).
    Head,
    /// DATA, or trailers.
    Open,
    /// DATA or trailers, which are discarded.
    Unwanted,
    Ended,
}

/// The next output of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamOutput {
    Head,
    Body,
    Ended,
}

/// One stream.
#[derive(Debug)]
pub(super) struct H2Stream {
    pub(super) id: u32,
    pub(super) input: StreamInput,
    pub(super) output: StreamOutput,
    /// The stream was reset, by either side; the work for it may continue.
    pub(super) is_dead: bool,
    /// The request is a HEAD.
    pub(super) is_head: bool,
    /// The content is that of a tunnel, of any length.
    pub(super) is_tunnel: bool,
    /// The client waits for 100 (Continue).
    pub(super) expects_continue: bool,
    /// `ready` includes the last bytes of the body.
    pub(super) is_complete: bool,
    /// The stream is in the queue of streams that can send.
    pub(super) is_queued: bool,
    pub(super) priority: Priority,
    /// Neighbours in the queue.
    pub(super) next: u16,
    pub(super) previous: u16,
    /// The window for sending.
    pub(super) send_window: i32,
    /// The window for receiving.
    pub(super) window: FlowControlWindow,
    /// Bytes that were received, but not returned to the window.
    pub(super) unconsumed: u32,
    /// When to reset a lingering stream; `None` before the first check after its response.
    pub(super) linger_until_ms: Option<u64>,
    /// Announced bytes still to be received, or [`UNKNOWN`].
    pub(super) recv_remaining: u64,
    /// Bytes received.
    pub(super) received: u64,
    /// Bytes that can be sent as soon as the windows allow.
    pub(super) ready: u64,
    /// Announced bytes that are not ready yet, or [`UNKNOWN`].
    pub(super) send_remaining: u64,
    /// The field block of the trailers.
    pub(super) trailers: Option<Box<[u8]>>,
}

impl H2Stream {
    /// Whether the stream could send, if the connection's window allows it.
    pub(super) fn can_send(&self) -> bool {
        let has_window = self.ready > 0 && self.send_window > 0;
        // An empty DATA frame with END_STREAM needs no window (RFC 9113 §6.9.1).
        self.output == StreamOutput::Body && (has_window || self.ready == 0 && self.is_complete)
    }

    /// Whether the response has ended while the client still sends an unwanted body.
    pub(super) fn is_lingering(&self) -> bool {
        !self.is_dead && self.input == StreamInput::Unwanted && self.output == StreamOutput::Ended
    }

    /// Whether both directions are complete.
    pub(super) fn is_closed(&self) -> bool {
        !self.is_dead && self.input == StreamInput::Ended && self.output == StreamOutput::Ended
    }
}

/// The active streams. A stream keeps its slot for as long as it exists.
#[derive(Debug, Default)]
pub(super) struct H2StreamTable {
    slots: Vec<H2Stream>,
    free: Vec<u16>,
    /// Identifier and slot, in ascending order of identifiers. Most streams end in the order in which they were opened.
    order: VecDeque<(u32, u16)>,
}

impl H2StreamTable {
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The slot of a stream.
    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<u16> {
        // The newest stream is looked up most often.
        if let Some((last, slot)) = self.order.back()
            && *last == id
        {
            return Some(*slot);
        }
        // Identifiers ascend in the order of creation (RFC 9113 §5.1.1).
        let at = self.order.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.order.get(at).map(|(_, slot)| *slot)
    }

    #[inline]
    pub(super) fn get(&mut self, slot: u16) -> &mut H2Stream {
        &mut self.slots[usize::from(slot)]
    }

    pub(super) fn peek(&self, slot: u16) -> &H2Stream {
        &self.slots[usize::from(slot)]
    }

    #[inline]
    pub(super) fn by_id(&mut self, id: u32) -> Option<&mut H2Stream> {
        let slot = self.find(id)?;
        self.slots.get_mut(usize::from(slot))
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = u16> {
        self.order.iter().map(|(_, slot)| *slot)
    }

    /// Adds a stream with an identifier higher than all others.
    pub(super) fn add(&mut self, stream: H2Stream) -> u16 {
        let id = stream.id;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[usize::from(slot)] = stream;
                slot
            }
            None => {
                self.slots.push(stream);
                (self.slots.len() - 1) as u16
            }
        };
        self.order.push_back((id, slot));
        slot
    }

    /// Removes a stream.
    pub(super) fn remove(&mut self, id: u32) {
        if let Ok(at) = self.order.binary_search_by_key(&id, |(id, _)| *id)
            && let Some((_, slot)) = self.order.remove(at)
        {
            // The slot keeps the other values of the removed stream, which own no heap memory.
            self.slots[usize::from(slot)].trailers = None;
            self.free.push(slot);
        }
    }

    /// Frees the memory if there are no streams.
    pub(super) fn trim(&mut self) {
        if self.order.is_empty() {
            *self = H2StreamTable::default();
        }
    }
}
