//! Copies a representation into the arena: as one block if head and body are short; otherwise as two, so that the body
//! can be sent from the arena without a copy.

use lowroad_cache::{PAGE, UNIT};
use lowroad_engine::arena::{ArenaBlock, BlockDraft, PAGED_LEN_MIN};
use lowroad_http::stored_head::EncodedHead;

use crate::key::HashedKey;
use crate::object::{BodyLocation, PlacedResponse, StoredBytes};
use crate::shared_store::SharedStore;

/// Shorter heads and bodies are stored in one block and copied for sending. For longer ones only the head is copied;
/// sending the second block costs a few hundred instructions more (`docs/performance.md`).
const INLINE_LEN_MAX: usize = 16 * 1024;
/// The line between head and body.
const EMPTY_LINE: &[u8] = b"\r\n";

/// The reason why a representation was not placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementError {
    /// The arena has no room; evicted bytes may still be in use by slow clients.
    NoRoom,
    /// The bytes changed while they were read.
    Changed,
    /// The bytes could not be read.
    Failed,
}

/// Places a head, a body of `body_len` bytes that `fill` writes, and their key. If there is no room, objects of the
/// key's shard are evicted.
///
/// # Errors
/// The error of `fill`, or no room.
pub fn place_response(
    store: &SharedStore,
    key: HashedKey<'_>,
    head: EncodedHead,
    body_len: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), PlacementError>,
) -> Result<PlacedResponse, PlacementError> {
    // For short responses, copying head and body together is cheaper than a second buffer in the send call.
    if head.text.len() + EMPTY_LINE.len() + body_len < INLINE_LEN_MAX {
        return place_with_key(
            store,
            key,
            head,
            InlineBody {
                len: body_len,
                fill,
            },
            BodyLocation::Inline,
        );
    }
    let content = match allocate_filled(store, key.hash, body_len, fill)? {
        PlacedBytes::Arena(draft) => BodyLocation::Block(draft.finish()),
        PlacedBytes::Heap(bytes) => BodyLocation::Heap(Box::new(bytes.into())),
    };
    place_head(store, key, head, content)
}

/// Places a head for a body that is already in place.
///
/// # Errors
/// No room.
pub fn place_head(
    store: &SharedStore,
    key: HashedKey<'_>,
    head: EncodedHead,
    content: BodyLocation,
) -> Result<PlacedResponse, PlacementError> {
    let body = InlineBody {
        len: 0,
        fill: |_: &mut [u8]| Ok(()),
    };
    place_with_key(store, key, head, body, content)
}

/// A body in the same block as its head.
struct InlineBody<F> {
    len: usize,
    /// Writes the bytes of the body.
    fill: F,
}

/// Places the head, the inline body after it, and the key in one block.
fn place_with_key<F: FnOnce(&mut [u8]) -> Result<(), PlacementError>>(
    store: &SharedStore,
    key: HashedKey<'_>,
    head: EncodedHead,
    body: InlineBody<F>,
    content: BodyLocation,
) -> Result<PlacedResponse, PlacementError> {
    let HashedKey { hash, bytes: key } = key;
    let EncodedHead { text: head, map } = head;
    // Responses with longer keys are not stored.
    let key_len = u16::try_from(key.len()).map_err(|_| PlacementError::NoRoom)?;
    let len = head.len() + EMPTY_LINE.len() + body.len + key.len();
    let bytes = allocate_filled(store, hash, len, |buffer| {
        let (head_part, buffer) = buffer.split_at_mut(head.len());
        let (line, buffer) = buffer.split_at_mut(EMPTY_LINE.len());
        let (body_part, key_part) = buffer.split_at_mut(body.len);
        head_part.copy_from_slice(&head);
        line.copy_from_slice(EMPTY_LINE);
        key_part.copy_from_slice(key);
        (body.fill)(body_part)
    })?;
    let size = match &content {
        BodyLocation::Block(block) => body_size(block.len()),
        BodyLocation::Pieces(pieces) => pieces.0.iter().map(|it| body_size(it.block.len())).sum(),
        BodyLocation::Heap(bytes) => bytes.len() as u64,
        // Inline bodies are counted with the head; bodies in files take no memory of the cache.
        BodyLocation::Inline | BodyLocation::File(_) | BodyLocation::Segment(_) => 0,
    };
    Ok(PlacedResponse {
        bytes: bytes.owned().ok_or(PlacementError::NoRoom)?,
        head: map,
        key_len,
        content,
        size,
    })
}

/// Places a part of a body in its own block. `None` if there is no room.
pub fn place_part(store: &SharedStore, hash: u64, bytes: &[u8]) -> Option<ArenaBlock> {
    let copy = |buffer: &mut [u8]| {
        buffer.copy_from_slice(bytes);
        Ok(())
    };
    match allocate_filled(store, hash, bytes.len(), copy) {
        Ok(PlacedBytes::Arena(draft)) => Some(draft.finish()),
        // Without an arena, nothing is stored.
        Ok(PlacedBytes::Heap(_)) | Err(_) => None,
    }
}

fn body_size(len: usize) -> u64 {
    let unit = if len < PAGED_LEN_MIN { UNIT } else { PAGE };
    (len as u64).next_multiple_of(unit)
}

/// Placed bytes.
enum PlacedBytes {
    Arena(BlockDraft),
    Heap(Box<[u8]>),
}

impl PlacedBytes {
    /// The bytes with a single owner; `None` if they are too long for an owned block of the arena.
    fn owned(self) -> Option<StoredBytes> {
        match self {
            PlacedBytes::Arena(draft) => draft.finish_owned().map(StoredBytes::Arena),
            PlacedBytes::Heap(bytes) => Some(StoredBytes::Heap(Box::new(bytes))),
        }
    }
}

fn allocate_filled(
    store: &SharedStore,
    hash: u64,
    len: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), PlacementError>,
) -> Result<PlacedBytes, PlacementError> {
    if !store.has_arena() {
        // A store of length 0 has no arena: the bytes are on the heap, and live as long as the responses made of them.
        let mut bytes = vec![0; len].into_boxed_slice();
        fill(&mut bytes)?;
        return Ok(PlacedBytes::Heap(bytes));
    }
    let mut draft = store.allocate(hash, len).ok_or(PlacementError::NoRoom)?;
    fill(&mut draft)?;
    Ok(PlacedBytes::Arena(draft))
}
