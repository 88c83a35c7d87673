//! What is sent, owned: a driver may keep it until it has left, and then gives it back. Knows no connection and no
//! protocol.

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
        /// What is to be sent of it.
        range: Range<usize>,
    },
    /// A worker's output, and a range of a block behind it.
    Headed {
        /// The output.
        head: Vec<u8>,
        /// The block, kept while it is sent.
        block: ArenaBlock,
        /// What is to be sent of it.
        range: Range<usize>,
    },
    /// Bytes with something before and behind them.
    Framed(FramedPart),
}

impl Default for SendBuffer {
    fn default() -> SendBuffer {
        SendBuffer::Vec(Vec::new())
    }
}

impl SendBuffer {
    /// The bytes, one piece behind the other; some are empty.
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
    /// Whether nothing is to be sent.
    pub fn is_empty(&self) -> bool {
        self.pieces().iter().all(|piece| piece.is_empty())
    }

    /// So many bytes of it were sent.
    pub fn advance(&mut self, len: usize) {
        match self {
            SendBuffer::Vec(bytes) => drop(bytes.drain(..len)),
            SendBuffer::Bytes(bytes) => bytes.advance(len),
            SendBuffer::Block { range, .. } => range.start += len,
            SendBuffer::Headed { head, range, .. } => {
                let of_head = len.min(head.len());
                head.drain(..of_head);
                range.start += len - of_head;
            }
            SendBuffer::Framed(framed) => framed.advance(len),
        }
    }
}

/// Part of a body with its framing.
#[derive(Default)]
pub struct FramedPart {
    /// What stands before `data`; its memory is used again.
    pub(crate) before: Vec<u8>,
    /// Bytes of `before` that were sent.
    pub(crate) before_sent: usize,
    /// What is sent, where it was made.
    pub(crate) data: Bytes,
    /// What stands behind `data`.
    pub(crate) after: &'static [u8],
}

impl FramedPart {
    /// These bytes, one behind the other.
    pub fn new(before: Vec<u8>, data: Bytes, after: &'static [u8]) -> FramedPart {
        FramedPart {
            before,
            before_sent: 0,
            data,
            after,
        }
    }

    /// Takes out the memory of what stood before, of which nothing is left to be sent.
    pub fn take_before(&mut self) -> Vec<u8> {
        self.before_sent = 0;
        let mut before = std::mem::take(&mut self.before);
        before.clear();
        before
    }

    /// What is still to be sent.
    pub fn pieces(&self) -> [&[u8]; 3] {
        [&self.before[self.before_sent..], &self.data, self.after]
    }

    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.pieces().iter().all(|piece| piece.is_empty())
    }

    /// So many bytes were sent.
    pub(crate) fn advance(&mut self, mut len: usize) {
        let before = len.min(self.before.len() - self.before_sent);
        self.before_sent += before;
        len -= before;
        let data = len.min(self.data.len());
        self.data.advance(data);
        self.after = &self.after[len - data..];
    }
}
