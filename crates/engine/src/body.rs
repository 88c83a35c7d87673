//! What a response's body is made of: bytes at once, and parts that follow from memory, from a file or from a stream.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use lowroad_http::h1::Server;

use crate::arena::Block;
use crate::file::OpenFile;
use crate::stream::{Next, Receiver};

/// A piece of a response that is sent after the bytes of [`Out`].
pub enum Part {
    /// Bytes, made for this response or shared with others.
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
        /// The open file as it was when the response's head was made.
        file: Arc<OpenFile>,
        /// What is still to be sent of it.
        range: Range<u64>,
    },
    /// Bytes that are still being made; always the last part.
    Stream(Streamed),
}

/// A body that is sent while it is made.
pub struct Streamed {
    from: Receiver,
    /// Framing that stands before `data`; its memory is used again.
    before: Vec<u8>,
    /// Bytes of `before` that were sent.
    before_sent: usize,
    /// What can be sent now, where it was made.
    data: Bytes,
    /// Framing that stands behind `data`.
    after: &'static [u8],
    is_ended: bool,
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
    pub fn new(from: Receiver) -> Streamed {
        Streamed {
            from,
            before: Vec::new(),
            before_sent: 0,
            data: Bytes::new(),
            after: &[],
            is_ended: false,
        }
    }

    /// Sees to it that there is something to send; if there can't be yet, the waker tells. `http` is the connection's.
    pub(crate) fn fill(&mut self, http: &mut Server, context: &mut Context<'_>) -> Filled {
        if !self.is_empty() {
            return Filled::Ready;
        }
        if self.is_ended {
            return Filled::Ended;
        }
        self.before.clear();
        self.before_sent = 0;
        match self.from.poll_next(context) {
            Poll::Pending => Filled::Pending,
            Poll::Ready(Next::Bytes(bytes)) => {
                // Whoever makes more than was announced has broken its word.
                if http.data(bytes.len() as u64, &mut self.before).is_err() {
                    return Filled::Cut;
                }
                self.data = bytes;
                self.after = http.data_end();
                Filled::Ready
            }
            Poll::Ready(Next::End) => {
                self.is_ended = true;
                match http.end(b"", &mut self.before) {
                    Ok(()) if self.before.is_empty() => Filled::Ended,
                    Ok(()) => Filled::Ready,
                    Err(_) => Filled::Cut,
                }
            }
            Poll::Ready(Next::Cut) => Filled::Cut,
        }
    }

    /// What can be sent now.
    pub(crate) fn pieces(&self) -> [&[u8]; 3] {
        [&self.before[self.before_sent..], &self.data, self.after]
    }

    /// So many bytes of it were sent.
    pub(crate) fn advance(&mut self, mut len: usize) {
        let before = len.min(self.before.len() - self.before_sent);
        self.before_sent += before;
        len -= before;
        let data = len.min(self.data.len());
        self.data.advance(data);
        self.after = &self.after[len - data..];
    }

    fn is_empty(&self) -> bool {
        self.pieces().iter().all(|piece| piece.is_empty())
    }
}

impl Part {
    /// Whether nothing is left to send, as far as that is known.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Part::Bytes(bytes) => bytes.is_empty(),
            Part::Block { range, .. } => range.is_empty(),
            Part::File { range, .. } => range.is_empty(),
            // Whether it is over is found out when it is sent.
            Part::Stream(_) => false,
        }
    }
}

/// Where responses are written: one per worker, used again and again.
#[derive(Default)]
pub(crate) struct Out {
    /// Heads and small bodies, of several responses if requests are pipelined.
    pub bytes: Vec<u8>,
    /// What follows `bytes`, in order.
    pub parts: Vec<Part>,
    /// How many of `bytes` are the current response's body; for the log.
    pub body_in_bytes: u64,
}

impl Out {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.parts.is_empty()
    }
}
