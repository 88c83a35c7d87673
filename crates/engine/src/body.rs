//! What an answer is made of: bytes at once, and parts that follow from memory or from a file.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::arena::Block;
use crate::file::OpenFile;
use crate::stream::{Next, Receiver};

/// A piece of an answer that is sent after the bytes of [`Out`].
pub enum Part {
    /// Bytes, made for this answer or shared with others.
    Bytes(Bytes),
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
    /// Bytes that are still being made; always the last part.
    Stream(Streamed),
}

/// How a streamed body is delimited (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By so many bytes.
    Length(u64),
    /// By chunks.
    Chunked,
    /// By the connection's end.
    Close,
}

/// A body that is sent while it is made.
pub struct Streamed {
    from: Receiver,
    framing: Framing,
    /// What of it can be sent now, framing included.
    ready: Bytes,
    ended: bool,
}

/// Whether there is something to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// There is.
    Ready,
    /// Not yet.
    Pending,
    /// Nothing more.
    Ended,
    /// Nothing more, though that was not all.
    Cut,
}

impl Streamed {
    /// A body that comes out of a stream.
    pub fn new(from: Receiver, framing: Framing) -> Streamed {
        Streamed {
            from,
            framing,
            ready: Bytes::new(),
            ended: false,
        }
    }

    /// Sees to it that there is something to send; if there can't be yet, the waker tells.
    pub(crate) fn fill(&mut self, context: &mut Context<'_>) -> Filled {
        if !self.ready.is_empty() {
            return Filled::Ready;
        }
        if self.ended {
            return Filled::Ended;
        }
        match self.from.poll_next(context) {
            Poll::Pending => Filled::Pending,
            Poll::Ready(Next::Bytes(bytes)) => self.frame(bytes),
            Poll::Ready(Next::End) => self.end(),
            Poll::Ready(Next::Cut) => Filled::Cut,
        }
    }

    fn frame(&mut self, bytes: Bytes) -> Filled {
        match &mut self.framing {
            Framing::Close => self.ready = bytes,
            // Whoever makes more than was announced has broken its word.
            Framing::Length(left) if bytes.len() as u64 > *left => return Filled::Cut,
            Framing::Length(left) => {
                *left -= bytes.len() as u64;
                self.ready = bytes;
            }
            Framing::Chunked => {
                let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
                chunk.reserve_exact(bytes.len() + 2);
                chunk.extend_from_slice(&bytes);
                chunk.extend_from_slice(b"\r\n");
                self.ready = chunk.into();
            }
        }
        Filled::Ready
    }

    fn end(&mut self) -> Filled {
        self.ended = true;
        match self.framing {
            Framing::Chunked => {
                self.ready = Bytes::from_static(b"0\r\n\r\n");
                Filled::Ready
            }
            Framing::Length(left) if left > 0 => Filled::Cut,
            Framing::Length(_) | Framing::Close => Filled::Ended,
        }
    }

    /// What can be sent now.
    pub(crate) fn ready(&self) -> &[u8] {
        &self.ready
    }

    /// So many bytes of it were sent.
    pub(crate) fn advance(&mut self, len: usize) {
        bytes::Buf::advance(&mut self.ready, len);
    }
}

impl Part {
    /// Bytes still to be sent, as far as that is known.
    pub fn len(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::Block { range, .. } => range.len() as u64,
            Part::File { range, .. } => range.end - range.start,
            // Whether it is over is found out when it is sent.
            Part::Stream(streamed) => streamed.ready.len().max(1) as u64,
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
