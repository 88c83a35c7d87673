//! The request memo: maps heads that were parsed before to their stored response, so a repeated request for a file
//! costs one hash and one comparison. It holds only requests with a complete stored file as their response.

use alloc::vec::Vec;

use lowroad_http::h1::H1RequestHead;

use crate::archive::FileVariant;

/// Longer heads are parsed each time.
const HEAD_LEN_MAX: usize = 496;
/// A power of two. Two heads in the same slot displace each other.
const SLOTS: usize = 256;

/// Offset and length in a head.
type HeadSpan = (u16, u16);

struct MemoSlot {
    file: Option<&'static FileVariant>,
    len: usize,
    /// Spans of the request line, Referer and User-Agent.
    spans: [HeadSpan; 3],
    head: [u8; HEAD_LEN_MAX],
}

/// A known request.
pub struct MemoHit<'h> {
    /// The complete file, for a persistent connection.
    pub file: &'static FileVariant,
    /// The request line, Referer and User-Agent.
    pub texts: [&'h [u8]; 3],
}

/// The memo: a direct-mapped table.
pub struct RequestMemo {
    slots: Vec<MemoSlot>,
}

impl RequestMemo {
    /// An empty memo.
    pub fn new() -> RequestMemo {
        let empty = || MemoSlot {
            file: None,
            len: 0,
            spans: [(0, 0); 3],
            head: [0; HEAD_LEN_MAX],
        };
        RequestMemo {
            slots: (0..SLOTS).map(|_| empty()).collect(),
        }
    }

    /// The known request that equals these bytes, if there is one.
    #[inline]
    pub fn find<'h>(&self, bytes: &'h [u8]) -> Option<MemoHit<'h>> {
        if bytes.len() > HEAD_LEN_MAX {
            return None;
        }
        let slot = self.slots.get(slot_index(bytes))?;
        // Exact comparison: a collision must not give the response to another request.
        if slot.len != bytes.len() || !is_same(slot.head.get(..slot.len)?, bytes) {
            return None;
        }
        let text = |(at, len): HeadSpan| {
            let text = bytes.get(usize::from(at)..usize::from(at) + usize::from(len));
            text.unwrap_or_default()
        };
        Some(MemoHit {
            file: slot.file?,
            texts: slot.spans.map(text),
        })
    }

    /// Adds a request if it is all of `bytes`.
    pub fn insert(&mut self, bytes: &[u8], head: &H1RequestHead<'_>, file: &'static FileVariant) {
        // With a pipelined request behind it, the bytes would not occur again.
        if bytes.len() > HEAD_LEN_MAX || head.len != bytes.len() {
            return;
        }
        let span = |text: &[u8]| {
            // The texts are slices of the head, so their offsets are stored.
            let at = text.as_ptr().addr().wrapping_sub(bytes.as_ptr().addr());
            (at as u16, text.len() as u16)
        };
        let texts = [
            head.line(),
            head.request.referer().unwrap_or(&bytes[..0]),
            head.request.user_agent().unwrap_or(&bytes[..0]),
        ];
        // A collision replaces the older head, so the memo needs no other eviction.
        if let Some(slot) = self.slots.get_mut(slot_index(bytes)) {
            slot.file = Some(file);
            slot.len = bytes.len();
            slot.spans = texts.map(span);
            slot.head[..bytes.len()].copy_from_slice(bytes);
        }
    }
}

/// Whether two texts of equal length are equal. They are short and mostly equal, so there is no early exit.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    let ((words_a, rest_a), (words_b, rest_b)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let difference = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
    // Without a branch per word, so that the compiler can use vector instructions.
    let words = words_a.iter().zip(words_b).map(difference);
    words.fold(0, |all, one| all | one) == 0 && rest_a.iter().eq(rest_b)
}

/// The slot of a head, from its start and length: the path is at the start, and differences between browsers change the
/// length. Crafted collisions only cost their sender the parsing.
#[inline]
fn slot_index(bytes: &[u8]) -> usize {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    const LOOKED_AT: usize = 64;
    let mut hash = bytes.len() as u64;
    let (words, _) = bytes[..bytes.len().min(LOOKED_AT)].as_chunks::<8>();
    for word in words {
        hash = (hash ^ u64::from_le_bytes(*word))
            .wrapping_mul(FACTOR)
            .rotate_left(29);
    }
    (hash >> 40) as usize & (SLOTS - 1)
}
