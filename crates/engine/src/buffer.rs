//! Buffers of bytes to send. A driver may take a buffer and keep it until its bytes are sent; then it returns the
//! buffer.

use std::ops::Range;

use bytes::{Buf, Bytes};

use crate::arena::ArenaBlock;

/// Bytes to be sent.
pub enum SendBuffer {
    /// A worker's output.
    Vec(Vec<u8>),
    /// Bytes shared with others.
    Bytes(Bytes),
    /// A range of a block in memory.
    Block {
        /// The block, kept while it is sent.
        block: ArenaBlock,
        /// The range to send.
        range: Range<usize>,
    },
    /// A worker's output, followed by a range of a block.
    Headed {
        /// The output.
        head: Vec<u8>,
        /// The block, kept while it is sent.
        block: ArenaBlock,
        /// The range to send.
        range: Range<usize>,
    },
    /// Bytes with framing before and after them.
    Framed(FramedPart),
}

impl Default for SendBuffer {
    fn default() -> SendBuffer {
        SendBuffer::Vec(Vec::new())
    }
}

impl SendBuffer {
    /// The bytes in pieces; some may be empty.
    pub fn pieces(&self) -> [&[u8]; 3] {
        match self {
            SendBuffer::Vec(bytes) => [bytes, &[], &[]],
            SendBuffer::Bytes(bytes) => [bytes, &[], &[]],
            SendBuffer::Block { block, range } => [&block[range.clone()], &[], &[]],
            SendBuffer::Headed { head, block, range } => [head, &block[range.clone()], &[]],
            SendBuffer::Framed(framed) => framed.pieces(),
        }
    }
}

impl SendBuffer {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.pieces().iter().all(|piece| piece.is_empty())
    }

    /// Removes the first `len` bytes, which were sent.
    pub fn advance(&mut self, len: usize) {
        match self {
            SendBuffer::Vec(bytes) => drop(bytes.drain(..len)),
            SendBuffer::Bytes(bytes) => bytes.advance(len),
            SendBuffer::Block { range, .. } => range.start += len,
            SendBuffer::Headed { head, range, .. } => {
                // The head is sent first.
                let head_len = len.min(head.len());
                head.drain(..head_len);
                range.start += len - head_len;
            }
            SendBuffer::Framed(framed) => framed.advance(len),
        }
    }
}

/// Part of a body with its framing.
#[derive(Default)]
pub struct FramedPart {
    /// The framing before `data`; its memory is reused.
    pub(crate) prefix: Vec<u8>,
    /// Bytes of `prefix` that were sent.
    pub(crate) prefix_sent: usize,
    /// Part of the body, not copied.
    pub(crate) data: Bytes,
    /// The framing after `data`.
    pub(crate) suffix: &'static [u8],
}

impl FramedPart {
    /// A part that consists of these three pieces, in this order.
    pub fn new(prefix: Vec<u8>, data: Bytes, suffix: &'static [u8]) -> FramedPart {
        FramedPart {
            prefix,
            prefix_sent: 0,
            data,
            suffix,
        }
    }

    /// Takes the memory of `prefix`, all of which was sent, for reuse.
    pub fn take_prefix(&mut self) -> Vec<u8> {
        self.prefix_sent = 0;
        let mut prefix = std::mem::take(&mut self.prefix);
        prefix.clear();
        prefix
    }

    /// The unsent bytes, in three pieces.
    pub fn pieces(&self) -> [&[u8]; 3] {
        [&self.prefix[self.prefix_sent..], &self.data, self.suffix]
    }

    /// Whether all bytes were sent.
    pub fn is_empty(&self) -> bool {
        self.pieces().iter().all(|piece| piece.is_empty())
    }

    /// Removes the first `len` bytes, which were sent.
    pub(crate) fn advance(&mut self, mut len: usize) {
        let prefix_len = len.min(self.prefix.len() - self.prefix_sent);
        self.prefix_sent += prefix_len;
        len -= prefix_len;
        let data = len.min(self.data.len());
        self.data.advance(data);
        self.suffix = &self.suffix[len - data..];
    }
}
