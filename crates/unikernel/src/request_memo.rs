//! The request memo: maps request heads that were parsed before to stored responses, so that a repeated request for a
//! file costs one hash and one comparison. It contains only requests with a complete stored file as the response.

use alloc::vec::Vec;

use lowroad_http::h1::H1RequestHead;

use crate::archive::FileVariant;

/// Maximum length of a memoized head; longer heads are always parsed.
const HEAD_LEN_MAX: usize = 496;
/// Number of slots, a power of two. Of two heads for the same slot, the newer replaces the older.
const SLOTS: usize = 256;

/// Offset and length in a head.
type HeadSpan = (u16, u16);

struct MemoSlot {
    file: Option<&'static FileVariant>,
    len: usize,
    /// The positions of the request line, Referer and User-Agent.
    spans: [HeadSpan; 3],
    head: [u8; HEAD_LEN_MAX],
}

/// A memoized request.
pub struct MemoHit<'h> {
    /// The file with the stored response that is sent; the connection is kept open.
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

    /// Finds the memoized request that equals these bytes.
    #[inline]
    pub fn find<'h>(&self, bytes: &'h [u8]) -> Option<MemoHit<'h>> {
        if bytes.len() > HEAD_LEN_MAX {
            return None;
        }
        let slot = self.slots.get(slot_index(bytes))?;
        // The whole head is compared, since other requests may have the same hash.
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

    /// Adds a request, unless further bytes follow it.
    pub fn insert(&mut self, bytes: &[u8], head: &H1RequestHead<'_>, file: &'static FileVariant) {
        // If a pipelined request follows, the same bytes would hardly occur again.
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
        // The newer request replaces the older one in its slot; there is no other eviction.
        if let Some(slot) = self.slots.get_mut(slot_index(bytes)) {
            slot.file = Some(file);
            slot.len = bytes.len();
            slot.spans = texts.map(span);
            slot.head[..bytes.len()].copy_from_slice(bytes);
        }
    }
}

/// Whether two texts of equal length are equal. There is no early exit, since they are short and mostly equal.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    let ((words_a, rest_a), (words_b, rest_b)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let difference = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
    // The comparison has no branches, so that the compiler can use vector instructions.
    let words = words_a.iter().zip(words_b).map(difference);
    words.fold(0, |all, one| all | one) == 0 && rest_a.iter().eq(rest_b)
}

/// The slot of a head, computed from its first bytes and its length. The path is in the first bytes; the fields of
/// different browsers have different lengths. A client that constructs collisions only causes its own requests to be
/// parsed.
#[inline]
fn slot_index(bytes: &[u8]) -> usize {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    const HASHED_LEN: usize = 64;
    let mut hash = bytes.len() as u64;
    let (words, _) = bytes[..bytes.len().min(HASHED_LEN)].as_chunks::<8>();
    for word in words {
        hash = (hash ^ u64::from_le_bytes(*word))
            .wrapping_mul(FACTOR)
            .rotate_left(29);
    }
    (hash >> 40) as usize & (SLOTS - 1)
}
