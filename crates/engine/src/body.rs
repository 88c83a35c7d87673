//! What an answer is made of: bytes at once, and parts that follow from memory or from a file.

use std::ops::Range;
use std::sync::Arc;

use crate::arena::Block;
use crate::file::OpenFile;

/// A piece of an answer that is sent after the bytes of [`Out`].
pub enum Part {
    /// Bytes made for this answer, from `at` on.
    Bytes {
        /// The bytes.
        data: Vec<u8>,
        /// How many of them are sent: 0 <= at <= data.len().
        at: usize,
    },
    /// Bytes that several answers share, from `at` on.
    Shared {
        /// The bytes.
        data: Arc<[u8]>,
        /// How many of them are sent: 0 <= at <= data.len().
        at: usize,
    },
    /// A range of a block in memory.
    Block {
        /// The block, kept while it is sent.
        block: Block,
        /// What is still to be sent of it.
        range: Range<usize>,
    },
    /// A range of a file.
    File {
        /// The open file as it was when the answer's head was made.
        file: Arc<OpenFile>,
        /// What is still to be sent of it.
        range: Range<u64>,
    },
}

impl Part {
    /// Bytes still to be sent.
    pub fn len(&self) -> u64 {
        match self {
            Part::Bytes { data, at } => (data.len() - at) as u64,
            Part::Shared { data, at } => (data.len() - at) as u64,
            Part::Block { range, .. } => range.len() as u64,
            Part::File { range, .. } => range.end - range.start,
        }
    }

    /// Whether nothing is left to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where answers are written: one per worker, used again and again.
#[derive(Default)]
pub struct Out {
    /// Heads and small bodies, of several answers if requests are pipelined.
    pub bytes: Vec<u8>,
    /// What follows `bytes`, in order.
    pub parts: Vec<Part>,
    /// How many of `bytes` are the current answer's body; for the log.
    pub body_in_bytes: u64,
}

impl Out {
    /// Appends bytes of a body.
    pub fn body(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.body_in_bytes += bytes.len() as u64;
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.parts.is_empty()
    }
}
