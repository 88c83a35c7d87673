//! What of a request is on its way to a server: its head, and the body piece by piece. The bytes are owned, so that a
//! network may have them while they are sent. Knows no connection.

use bytes::Bytes;
use lowroad_engine::buffer::{Buffer, Framed};

/// What of a request is on its way.
#[derive(Default)]
pub struct Sending {
    /// The head, until some of it is sent; later what frames the body.
    pub out: Vec<u8>,
    /// What is being sent.
    buffer: Buffer,
    /// Bytes of `buffer` that have not been sent, wherever it is.
    left: usize,
    /// Bytes sent so far.
    len: u64,
    /// Some may have been sent, as the network had it.
    was_lent: bool,
    /// The request has no body.
    pub is_without_body: bool,
    /// Something was heard.
    pub is_answered: bool,
}

impl Sending {
    /// Whether something is still to be sent of what was put here.
    pub fn has_more(&self) -> bool {
        self.left > 0 || !self.out.is_empty()
    }

    /// Whether the server may have got any of it.
    pub fn has_begun(&self) -> bool {
        self.len > 0 || self.was_lent
    }

    /// What is to be sent now.
    pub fn buffer(&mut self) -> &mut Buffer {
        if self.left == 0 {
            self.put(Bytes::new(), &[]);
        }
        &mut self.buffer
    }

    /// The network has it.
    pub fn lent(&mut self) {
        self.was_lent |= self.buffer.is_empty() && self.left > 0;
    }

    /// So many bytes of it were sent.
    pub fn sent(&mut self, len: usize) {
        self.len += len as u64;
        self.left -= len;
        self.buffer.advance(len);
    }

    /// Where more is written, once all was sent.
    pub fn fresh(&mut self) -> &mut Vec<u8> {
        self.out.clear();
        if let Buffer::Framed(framed) = &mut self.buffer {
            self.out = framed.take_before();
        }
        &mut self.out
    }

    /// What follows what was written, and what follows that.
    pub fn put(&mut self, piece: Bytes, behind: &'static [u8]) {
        let before = std::mem::take(&mut self.out);
        self.left = before.len() + piece.len() + behind.len();
        self.buffer = Buffer::Framed(Framed::new(before, piece, behind));
    }

    /// Nothing more will be sent.
    pub fn give_up(&mut self) {
        self.out.clear();
        self.left = 0;
        self.buffer = Buffer::default();
    }
}
