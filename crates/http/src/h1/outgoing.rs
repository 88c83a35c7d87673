//! The body that one end sends: how it is delimited, and whether it keeps to what was said of it. Knows no head.

use alloc::vec::Vec;

/// What is known of a body's length when its head is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLen {
    /// There is none.
    None,
    /// So many bytes.
    Known(u64),
    /// It ends when it ends.
    Unknown,
}

/// Who makes a body has broken its word: more or less came than was announced. The connection has to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// What is still to be sent of a message. How much is left of a length is kept beside it, so that who holds it stays
/// small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outgoing {
    /// Nothing; the next message may begin.
    Idle,
    /// The head.
    Head,
    /// As many bytes as are left.
    Length,
    /// Chunks, and the last one.
    Chunked,
    /// Bytes until the connection ends.
    UntilClose,
    /// A body that the receiver does not expect is left out, whatever its maker gives (HEAD, 204, 304).
    Omitted,
}

impl Outgoing {
    /// Writes what stands before `len` bytes of the body, which must not be 0. Whether they are to be sent.
    pub(super) fn data(self, left: &mut u64, len: u64, out: &mut Vec<u8>) -> Result<bool, Broken> {
        match self {
            Outgoing::Length => {
                *left = left.checked_sub(len).ok_or(Broken)?;
                Ok(true)
            }
            Outgoing::Chunked => {
                put_chunk_size(len, out);
                Ok(true)
            }
            Outgoing::UntilClose => Ok(true),
            Outgoing::Omitted => Ok(false),
            Outgoing::Idle | Outgoing::Head => Err(Broken),
        }
    }

    /// What stands behind those bytes.
    pub(super) fn data_end(self) -> &'static [u8] {
        match self {
            Outgoing::Chunked => b"\r\n",
            _ => b"",
        }
    }

    /// Writes what ends the body; `trailers` are field lines, and go with chunks only.
    pub(super) fn end(
        &mut self,
        left: u64,
        trailers: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        match core::mem::replace(self, Outgoing::Idle) {
            Outgoing::Chunked => {
                out.extend_from_slice(b"0\r\n");
                out.extend_from_slice(trailers);
                out.extend_from_slice(b"\r\n");
                Ok(())
            }
            Outgoing::Length if left == 0 => Ok(()),
            Outgoing::UntilClose | Outgoing::Omitted => Ok(()),
            Outgoing::Length | Outgoing::Idle | Outgoing::Head => Err(Broken),
        }
    }
}

fn put_chunk_size(len: u64, out: &mut Vec<u8>) {
    let digits = (u64::BITS - len.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        let digit = (len >> (place * 4) & 15) as usize;
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
    fn a_length_is_kept_exactly() {
        let (mut out, mut left) = (Vec::new(), 5);
        let mut body = Outgoing::Length;
        assert_eq!(body.data(&mut left, 3, &mut out), Ok(true));
        assert_eq!(body.data(&mut left, 3, &mut out), Err(Broken));
        assert_eq!(body.end(5, b"", &mut out), Err(Broken));
        let mut body = Outgoing::Length;
        assert_eq!(body.end(0, b"", &mut out), Ok(()));
        assert!(out.is_empty());
    }
}
