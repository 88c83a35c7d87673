//! Frames: their types, a reader for headers that arrive in parts, and their encoding. Read RFC 9114 §7, RFC 9218 §7.2.

use alloc::vec::Vec;

use super::varint;

/// Types of frames.
#[expect(missing_docs, reason = "each is the frame of that name")]
pub mod kind {
    pub const DATA: u64 = 0;
    pub const HEADERS: u64 = 1;
    pub const CANCEL_PUSH: u64 = 3;
    pub const SETTINGS: u64 = 4;
    pub const PUSH_PROMISE: u64 = 5;
    pub const GOAWAY: u64 = 7;
    pub const MAX_PUSH_ID: u64 = 13;
    pub const PRIORITY_UPDATE_REQUEST: u64 = 0xf0700;
    pub const PRIORITY_UPDATE_PUSH: u64 = 0xf0701;
}

/// Types of unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2).
#[expect(missing_docs, reason = "each is the stream of that name")]
pub mod stream_type {
    pub const CONTROL: u64 = 0;
    pub const PUSH: u64 = 1;
    pub const ENCODER: u64 = 2;
    pub const DECODER: u64 = 3;
}

/// The longest frame header: two integers of 8 bytes.
const HEAD_LEN_MAX: usize = 16;

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H3FrameHead {
    /// The type, see [`kind`].
    pub kind: u64,
    /// The length of the payload in bytes.
    pub len: u64,
}

impl H3FrameHead {
    /// Decodes the header at the start of `bytes`. Also returns its length; `None` if it is incomplete.
    #[must_use]
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<(H3FrameHead, usize)> {
        let (kind, kind_len) = varint::decode(bytes)?;
        let (len, len_len) = varint::decode(bytes.get(kind_len..)?)?;
        Some((H3FrameHead { kind, len }, kind_len + len_len))
    }

    /// Whether the type is one of those that HTTP/2 has and HTTP/3 forbids (RFC 9114 §7.2.8).
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self.kind, 2 | 6 | 8 | 9)
    }

    /// Whether the type is unknown, and the frame is to be ignored (RFC 9114 §9).
    pub(super) fn is_unknown(&self) -> bool {
        !matches!(
            self.kind,
            0..=9 | kind::MAX_PUSH_ID | kind::PRIORITY_UPDATE_REQUEST | kind::PRIORITY_UPDATE_PUSH
        )
    }
}

/// The received part of a frame header.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartialHead {
    bytes: [u8; HEAD_LEN_MAX],
    len: u8,
}

impl PartialHead {
    /// Nothing is kept.
    pub(super) const NONE: PartialHead = PartialHead {
        bytes: [0; HEAD_LEN_MAX],
        len: 0,
    };

    /// Reads a header from the start of `input`, after the part that is kept. Returns the bytes used, and the header
    /// once it is complete.
    #[inline]
    pub(super) fn read(&mut self, input: &[u8]) -> (usize, Option<H3FrameHead>) {
        // Headers are rarely split, so they are decoded in place.
        if self.len == 0
            && let Some((head, used)) = H3FrameHead::decode(input)
        {
            return (used, Some(head));
        }
        self.extend(input)
    }

    #[cold]
    fn extend(&mut self, input: &[u8]) -> (usize, Option<H3FrameHead>) {
        let kept = usize::from(self.len);
        let part = input.get(..HEAD_LEN_MAX - kept).unwrap_or(input);
        self.bytes[kept..kept + part.len()].copy_from_slice(part);
        match H3FrameHead::decode(&self.bytes[..kept + part.len()]) {
            Some((head, len)) => {
                self.len = 0;
                (len - kept, Some(head))
            }
            // The longest header fits, so the whole input is used.
            None => {
                self.len = (kept + part.len()) as u8;
                (part.len(), None)
            }
        }
    }

    /// Whether a part of a header is kept.
    pub(super) fn has_part(&self) -> bool {
        self.len > 0
    }
}

/// Appends a frame header.
#[inline]
pub fn put_head(kind: u64, len: u64, out: &mut Vec<u8>) {
    varint::put(kind, out);
    varint::put(len, out);
}

/// Appends a frame.
pub fn put_frame(kind: u64, payload: &[u8], out: &mut Vec<u8>) {
    put_head(kind, payload.len() as u64, out);
    out.extend_from_slice(payload);
}

/// Appends GOAWAY with the first request that will not be processed (RFC 9114 §5.2).
pub(super) fn put_goaway(id: u64, out: &mut Vec<u8>) {
    let mut payload = Vec::with_capacity(8);
    varint::put(id, &mut payload);
    put_frame(kind::GOAWAY, &payload, out);
}

/// Begins HEADERS at the end of `out`, with room for its length. Returns the offset for [`close_section`].
#[inline]
pub(super) fn open_section(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    // Two bytes suffice for the length of nearly all sections.
    out.extend_from_slice(&[kind::HEADERS as u8, 0, 0]);
    start
}

/// Completes the HEADERS frame that begins at `start`.
#[inline]
pub(super) fn close_section(start: usize, out: &mut Vec<u8>) {
    let len = out.len() - start - 3;
    // A length may have more bytes than necessary (RFC 9000 §16), so the section is never moved.
    if let Some(slot) = out.get_mut(start + 1..start + 3)
        && len < 0x4000
    {
        slot.copy_from_slice(&(len as u16 | 0x4000).to_be_bytes());
        return;
    }
    lengthen(start, len, out);
}

/// Inserts the length of a section that two bytes can't represent.
#[cold]
fn lengthen(start: usize, len: usize, out: &mut Vec<u8>) {
    let mut integer = Vec::with_capacity(8);
    varint::put(len as u64, &mut integer);
    out.splice(start + 1..start + 3, integer);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_may_be_split_at_any_byte() {
        for (kind, len) in [(0, 5), (1, 300), (varint::MAX, varint::MAX), (63, 1 << 20)] {
            let mut bytes = Vec::new();
            put_head(kind, len, &mut bytes);
            bytes.push(7);
            for at in 0..bytes.len() {
                let mut partial = PartialHead::NONE;
                let (first, rest) = bytes.split_at(at);
                let (used, head) = partial.read(first);
                let (head, rest) = match head {
                    Some(head) => (head, rest.len()),
                    None => {
                        assert_eq!((used, partial.has_part()), (at, at > 0));
                        let (used, head) = partial.read(rest);
                        (head.expect("a whole header"), rest.len() - used)
                    }
                };
                assert_eq!(
                    (head, partial.has_part()),
                    (H3FrameHead { kind, len }, false)
                );
                assert!(rest <= 1);
            }
        }
    }

    #[test]
    fn sections_have_the_length_of_their_bytes() {
        for len in [0, 1, 63, 64, 16_383, 16_384, 70_000] {
            let mut out = alloc::vec![9];
            let start = open_section(&mut out);
            out.resize(out.len() + len, b'x');
            close_section(start, &mut out);
            let head = H3FrameHead::decode(&out[1..]);
            let (head, head_len) = head.expect("a header");
            assert_eq!((head.kind, head.len), (kind::HEADERS, len as u64));
            assert_eq!(out.len(), 1 + head_len + len);
        }
    }
}
