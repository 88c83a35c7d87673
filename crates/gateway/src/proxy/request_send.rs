//! The bytes of a request on their way to a server: its head, and the body piece by piece. The buffers are owned, so
//! that a driver may hold them while they are sent.

use bytes::Bytes;
use lowroad_engine::buffer::{FramedPart, SendBuffer};

/// The output of a request.
#[derive(Default)]
pub struct RequestSend {
    /// The head, until it is sent; later the framing of body pieces.
    pub out: Vec<u8>,
    /// The bytes being sent.
    buffer: SendBuffer,
    /// Bytes of `buffer` that are not sent yet, even while the driver holds it.
    remaining: usize,
    /// Bytes sent so far.
    len: u64,
    /// Whether the driver has held the buffer, so that some bytes may have been sent.
    was_lent: bool,
    /// Whether the request has no body.
    pub is_without_body: bool,
    /// Whether any byte of a response was received.
    pub is_answered: bool,
}

impl RequestSend {
    /// Whether there are bytes left to send.
    pub fn has_more(&self) -> bool {
        self.remaining > 0 || !self.out.is_empty()
    }

    /// Whether the server may have received any byte.
    pub fn has_begun(&self) -> bool {
        // Bytes in a driver's hands may be sent at any time.
        self.len > 0 || self.was_lent
    }

    /// The bytes to send next.
    pub fn buffer(&mut self) -> &mut SendBuffer {
        if self.remaining == 0 {
            self.set_piece(Bytes::new(), &[]);
        }
        &mut self.buffer
    }

    /// Records that the driver may hold the buffer.
    pub fn mark_lent(&mut self) {
        // An empty buffer with bytes left: the driver holds it.
        self.was_lent |= self.buffer.is_empty() && self.remaining > 0;
    }

    /// Records that `len` bytes were sent.
    pub fn mark_sent(&mut self, len: usize) {
        self.len += len as u64;
        self.remaining -= len;
        self.buffer.advance(len);
    }

    /// The buffer for new framing, after all is sent; its memory is reused.
    pub fn reset_framing(&mut self) -> &mut Vec<u8> {
        self.out.clear();
        // The framing buffer of the last piece is reused.
        if let SendBuffer::Framed(framed) = &mut self.buffer {
            self.out = framed.take_prefix();
        }
        &mut self.out
    }

    /// Adds a body piece after the bytes in `out`, and the framing after it.
    pub fn set_piece(&mut self, piece: Bytes, suffix: &'static [u8]) {
        let prefix = std::mem::take(&mut self.out);
        self.remaining = prefix.len() + piece.len() + suffix.len();
        self.buffer = SendBuffer::Framed(FramedPart::new(prefix, piece, suffix));
    }

    /// Discards all output.
    pub fn discard(&mut self) {
        self.out.clear();
        self.remaining = 0;
        self.buffer = SendBuffer::default();
    }
}
