//! Puts a representation's bytes where they stay: head and body in the arena, side by side if they are
//! short, apart if the body is long enough to be sent from where it lies.
//!
//! Knows nothing of where the bytes come from.

use super::SharedStore;
use super::object::{Bytes, Content, Object};
use lowroad_cache::{PAGE, UNIT};
use lowroad_engine::arena::{Block, Draft, PAGED_LEN_MIN};
use lowroad_http::encoded::Encoded;

/// Head and body are stored side by side, and copied to be sent, if they are shorter than this. Of longer ones only the
/// head is copied, which costs a few hundred instructions for the second piece (`docs/performance.md`).
const INLINE_LEN_MAX: usize = 16 * 1024;

/// What a stored object costs besides its bytes.
pub const OVERHEAD: u64 = size_of::<Object>() as u64 + 16;

/// A head and a body where they stay, and what they are accounted for.
pub struct Placed {
    /// The head, and the body if it is inline.
    pub bytes: Bytes,
    /// See [`Encoded`].
    pub head: Encoded,
    /// Where the body is.
    pub content: Content,
    /// Bytes for the store's account.
    pub size: u64,
}

/// Why there is no representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unplaced {
    /// The arena has no room; what it holds may still be on its way to slow clients.
    NoRoom,
    /// The bytes changed while they were taken.
    Changed,
    /// The bytes could not be read.
    Failed,
}

/// Puts a head and a body of `body_len` bytes, which `fill` writes, into memory; `hash` is that of their key, whose shard
/// makes room.
///
/// # Errors
/// As `fill` says, or that there is no room.
pub fn in_memory(
    store: &SharedStore,
    hash: u64,
    (mut head, map): (Vec<u8>, Encoded),
    body_len: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), Unplaced>,
) -> Result<Placed, Unplaced> {
    head.extend_from_slice(b"\r\n");
    let whole_len = head.len() + body_len;
    if whole_len < INLINE_LEN_MAX {
        let bytes = filled(store, hash, whole_len, |into| {
            into[..head.len()].copy_from_slice(&head);
            fill(&mut into[head.len()..])
        })?;
        return Ok(Placed {
            bytes: bytes.owned(),
            head: map,
            content: Content::Inline,
            size: account(whole_len),
        });
    }
    let content = match filled(store, hash, body_len, fill)? {
        Filled::Arena(draft) => Content::Block(draft.finish()),
        Filled::Heap(bytes) => Content::Heap(Box::new(bytes.into())),
    };
    let bytes = filled(store, hash, head.len(), |into| {
        into.copy_from_slice(&head);
        Ok(())
    })?;
    Ok(Placed {
        bytes: bytes.owned(),
        head: map,
        content,
        size: account(head.len()) + body_size(body_len),
    })
}

/// The same for a head whose body lies somewhere else already.
///
/// # Errors
/// There is no room.
pub fn head_alone(
    store: &SharedStore,
    hash: u64,
    (mut head, map): (Vec<u8>, Encoded),
) -> Result<(Bytes, Encoded), Unplaced> {
    head.extend_from_slice(b"\r\n");
    let bytes = filled(store, hash, head.len(), |into| {
        into.copy_from_slice(&head);
        Ok(())
    })?;
    Ok((bytes.owned(), map))
}

/// Puts some bytes of a body into a block of their own. `None`: there is no room.
pub fn piece(store: &SharedStore, hash: u64, bytes: &[u8]) -> Option<Block> {
    let copy = |into: &mut [u8]| {
        into.copy_from_slice(bytes);
        Ok(())
    };
    match filled(store, hash, bytes.len(), copy) {
        Ok(Filled::Arena(draft)) => Some(draft.finish()),
        Ok(Filled::Heap(_)) | Err(_) => None,
    }
}

/// What a head and such pieces are accounted for.
pub fn size_in_pieces(head_len: usize, lens: impl Iterator<Item = usize>) -> u64 {
    account(head_len) + lens.map(body_size).sum::<u64>()
}

fn body_size(len: usize) -> u64 {
    let unit = if len < PAGED_LEN_MIN { UNIT } else { PAGE };
    (len as u64).next_multiple_of(unit)
}

fn account(len: usize) -> u64 {
    (len as u64).next_multiple_of(UNIT) + OVERHEAD
}

/// Bytes that are there.
enum Filled {
    Arena(Draft),
    Heap(Box<[u8]>),
}

impl Filled {
    fn owned(self) -> Bytes {
        match self {
            Filled::Arena(draft) => Bytes::Piece(draft.finish_owned()),
            Filled::Heap(bytes) => Bytes::Heap(bytes),
        }
    }
}

fn filled(
    store: &SharedStore,
    hash: u64,
    len: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), Unplaced>,
) -> Result<Filled, Unplaced> {
    if !store.has_arena() {
        // Nothing is to be stored: the bytes live as long as the answers made of them.
        let mut bytes = vec![0; len].into_boxed_slice();
        fill(&mut bytes)?;
        return Ok(Filled::Heap(bytes));
    }
    let mut draft = store.allocate(hash, len).ok_or(Unplaced::NoRoom)?;
    fill(&mut draft)?;
    Ok(Filled::Arena(draft))
}
