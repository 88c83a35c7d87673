//! The bytes of a request that are to be sent: the head, then the body piece by piece. The buffers are owned, so that
//! an I/O driver may hold them while they are sent.

use bytes::Bytes;
use lowroad_engine::buffer::{FramedPart, SendBuffer};

/// The send state of a request.
#[derive(Default)]
pub struct RequestSend {
    /// The head until it is sent, then the framing of body pieces.
    pub out: Vec<u8>,
    /// The bytes that are being sent.
    buffer: SendBuffer,
    /// The number of bytes of `buffer` that are not sent, also while the driver owns the buffer.
    remaining: usize,
    /// The number of bytes sent so far.
    len: u64,
    /// Whether the driver has owned the buffer, so that bytes may have been sent.
    was_lent: bool,
    /// Whether the request has no body.
    pub is_without_body: bool,
    /// Whether the origin has sent any byte of a response.
    pub is_answered: bool,
}

impl RequestSend {
    /// Whether there are bytes left to send.
    pub fn has_more(&self) -> bool {
        self.remaining > 0 || !self.out.is_empty()
    }

    /// Whether the server may have received bytes of the request.
    pub fn has_begun(&self) -> bool {
        // Bytes in a buffer that the driver owns may be sent at any time.
        self.len > 0 || self.was_lent
    }

    /// The bytes to send next.
    pub fn buffer(&mut self) -> &mut SendBuffer {
        if self.remaining == 0 {
            self.set_piece(Bytes::new(), &[]);
        }
        &mut self.buffer
    }

    /// Records whether the driver has taken the buffer.
    pub fn mark_lent(&mut self) {
        // If the buffer is empty although bytes remain, the driver owns it.
        self.was_lent |= self.buffer.is_empty() && self.remaining > 0;
    }

    /// Records that `len` bytes were sent.
    pub fn mark_sent(&mut self, len: usize) {
        self.len += len as u64;
        self.remaining -= len;
        self.buffer.advance(len);
    }

    /// Returns an empty buffer for the framing of the next piece; called after all bytes were sent.
    pub fn reset_framing(&mut self) -> &mut Vec<u8> {
        self.out.clear();
        // The framing buffer of the last piece is reused.
        if let SendBuffer::Framed(framed) = &mut self.buffer {
            self.out = framed.take_prefix();
        }
        &mut self.out
    }

    /// Sets the bytes to send: those in `out`, `piece`, and then `suffix`.
    pub fn set_piece(&mut self, piece: Bytes, suffix: &'static [u8]) {
        let prefix = std::mem::take(&mut self.out);
        self.remaining = prefix.len() + piece.len() + suffix.len();
        self.buffer = SendBuffer::Framed(FramedPart::new(prefix, piece, suffix));
    }

    /// Discards all unsent bytes.
    pub fn discard(&mut self) {
        self.out.clear();
        self.remaining = 0;
        self.buffer = SendBuffer::default();
    }
}
