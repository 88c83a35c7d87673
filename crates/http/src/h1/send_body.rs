//! Sends the body of a request or response: writes its framing, and checks its announced length.

use alloc::vec::Vec;

/// The length of a body, as known when its head is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLen {
    /// There is no body.
    None,
    /// The length in bytes.
    Known(u64),
    /// The length is unknown until the body ends.
    Unknown,
}

impl BodyLen {
    /// Whether it is known that there are no bytes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        matches!(self, BodyLen::None | BodyLen::Known(0))
    }
}

/// The source of a body produced more or fewer bytes than announced. The connection has to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLengthMismatch;

/// The part of a message that is sent next. The caller stores the number of outstanding bytes, to keep the state small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutgoingMessage {
    /// No message; the next one may begin.
    Idle,
    /// The head.
    Head,
    /// A body with a length; the caller's `remaining` bytes are outstanding.
    Length,
    /// Chunks, with the last chunk at the end.
    Chunked,
    /// The body ends when the connection is closed.
    UntilClose,
    /// The message has no body (HEAD, 204, 304): given bytes are dropped.
    Omitted,
}

impl OutgoingMessage {
    /// Writes the framing before `len` bytes of the body; `len` must not be 0. Returns whether to send the bytes.
    pub(super) fn data(
        self,
        remaining: &mut u64,
        len: u64,
        out: &mut Vec<u8>,
    ) -> Result<bool, BodyLengthMismatch> {
        match self {
            OutgoingMessage::Length => {
                *remaining = remaining.checked_sub(len).ok_or(BodyLengthMismatch)?;
                Ok(true)
            }
            OutgoingMessage::Chunked => {
                // A size of 0 would be the last chunk, hence the rule about `len`.
                put_chunk_size(len, out);
                Ok(true)
            }
            OutgoingMessage::UntilClose => Ok(true),
            OutgoingMessage::Omitted => Ok(false),
            OutgoingMessage::Idle | OutgoingMessage::Head => Err(BodyLengthMismatch),
        }
    }

    /// The framing after the bytes that [`OutgoingMessage::data`] announced.
    pub(super) fn data_end(self) -> &'static [u8] {
        match self {
            OutgoingMessage::Chunked => b"\r\n",
            _ => b"",
        }
    }

    /// Writes the end of the body. `trailers` are field lines; they are sent only if the body is chunked.
    pub(super) fn end(
        &mut self,
        remaining: u64,
        trailers: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), BodyLengthMismatch> {
        match core::mem::replace(self, OutgoingMessage::Idle) {
            OutgoingMessage::Chunked => {
                out.extend_from_slice(b"0\r\n");
                out.extend_from_slice(trailers);
                out.extend_from_slice(b"\r\n");
                Ok(())
            }
            OutgoingMessage::Length if remaining == 0 => Ok(()),
            OutgoingMessage::UntilClose | OutgoingMessage::Omitted => Ok(()),
            OutgoingMessage::Length | OutgoingMessage::Idle | OutgoingMessage::Head => {
                Err(BodyLengthMismatch)
            }
        }
    }
}

fn put_chunk_size(len: u64, out: &mut Vec<u8>) {
    let digits = (u64::BITS - len.leading_zeros()).div_ceil(4).max(1);
    for digit_index in (0..digits).rev() {
        let digit = (len >> (digit_index * 4) & 15) as usize;
        out.push(b"0123456789abcdef"[digit]);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn chunk_sizes_are_hexadecimal() {
        for len in [1, 9, 10, 15, 16, 255, 4096, 0xdead_beef, u64::MAX] {
            let mut out = Vec::new();
            put_chunk_size(len, &mut out);
            assert_eq!(out, format!("{len:x}\r\n").into_bytes());
        }
    }

    #[test]
    fn body_longer_or_shorter_than_announced_is_an_error() {
        let (mut out, mut left) = (Vec::new(), 5);
        let mut body = OutgoingMessage::Length;
        assert_eq!(body.data(&mut left, 3, &mut out), Ok(true));
        assert_eq!(body.data(&mut left, 3, &mut out), Err(BodyLengthMismatch));
        assert_eq!(body.end(5, b"", &mut out), Err(BodyLengthMismatch));
        let mut body = OutgoingMessage::Length;
        assert_eq!(body.end(0, b"", &mut out), Ok(()));
        assert!(out.is_empty());
    }
}
