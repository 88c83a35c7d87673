//! An arena for all stored responses: one mapped memory file (memfd), divided into blocks.
//!
//! A block is read as a slice; a long one can also be sent from the file without a copy. Pages that were sent that way
//! may still be in a socket's queue when their block is freed. Therefore a paged block's range is punched out of the
//! file (fallocate(2)) before it is reused: the queue keeps the old pages, and the next block gets new ones.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_cache::{ArenaExtent, ExtentAlign, ExtentAllocator, ShortExtent};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

use crate::system_calls::FileMapping;

/// Blocks of at least this length consist of whole pages and can be sent without a copy. Copying shorter ones is
/// cheaper than queueing their pages (`docs/performance.md`).
pub const PAGED_LEN_MIN: usize = 128 * 1024;

/// Memory of fixed size for stored responses; the kernel allocates its pages on first use.
pub struct ResponseArena {
    mapping: FileMapping,
    file: OwnedFd,
    extents: Mutex<ExtentAllocator>,
}

impl ResponseArena {
    /// An arena of `len` bytes.
    ///
    /// # Errors
    /// The kernel can't create a memory file of that size.
    pub fn new(len: usize) -> io::Result<Arc<ResponseArena>> {
        let file = memfd_create("lowroad-arena", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, len as u64)?;
        let mapping = FileMapping::new(&file, len)?;
        let extents = Mutex::new(ExtentAllocator::new(len as u64));
        Ok(Arc::new(ResponseArena {
            mapping,
            file,
            extents,
        }))
    }

    /// A block of `len` bytes (0 counts as 1) to fill, or `None` if there is no free extent of that length.
    pub fn allocate(self: &Arc<Self>, len: usize) -> Option<BlockDraft> {
        let align = if is_paged(len as u64) {
            ExtentAlign::Page
        } else {
            ExtentAlign::Unit
        };
        let extent = self.extents().allocate(len as u64, align)?;
        Some(BlockDraft {
            guard: BlockGuard {
                arena: self.clone(),
                extent: Some(extent),
            },
        })
    }

    /// Allocated bytes, including rounding.
    pub fn used(&self) -> u64 {
        self.extents().used()
    }

    /// The length of the largest free extent.
    pub fn largest_free(&self) -> u64 {
        self.extents().largest_free()
    }

    /// Whether a thread has panicked while it changed the extents.
    pub fn is_poisoned(&self) -> bool {
        self.extents.is_poisoned()
    }

    fn extents(&self) -> MutexGuard<'_, ExtentAllocator> {
        self.extents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self, extent: ArenaExtent) {
        if is_paged(extent.requested_len()) {
            // If punching fails, the pages stay and may still be on their way to a client: the extent is leaked rather
            // than overwritten.
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if fallocate(&self.file, flags, extent.offset(), extent.len()).is_err() {
                return;
            }
        }
        self.extents().free(extent);
    }
}

/// Whether a block of this length consists of whole pages.
fn is_paged(len: u64) -> bool {
    len >= PAGED_LEN_MIN as u64
}

/// An extent of the arena, freed when dropped.
struct BlockGuard {
    arena: Arc<ResponseArena>,
    /// Always `Some` until dropped.
    extent: Option<ArenaExtent>,
}

impl BlockGuard {
    #[inline]
    fn offset(&self) -> usize {
        // The arena's length is a usize, so every offset in the arena fits one.
        self.extent
            .as_ref()
            .map_or(0, |extent| extent.offset() as usize)
    }

    #[inline]
    fn len(&self) -> usize {
        self.extent
            .as_ref()
            .map_or(0, |extent| extent.requested_len() as usize)
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: the extent lies inside the mapping and belongs to this value alone until it is
        // dropped; bytes are written only through `BlockDraft`, which is exclusive and gone before the
        // first `ArenaBlock` or `OwnedBlock` exists.
        unsafe { self.arena.mapping.bytes(self.offset(), self.len()) }
    }
}

impl Drop for BlockGuard {
    fn drop(&mut self) {
        if let Some(extent) = self.extent.take() {
            self.arena.free(extent);
        }
    }
}

/// A block being filled.
pub struct BlockDraft {
    guard: BlockGuard,
}

impl BlockDraft {
    /// Completes the block: its bytes never change afterwards.
    pub fn finish(self) -> ArenaBlock {
        ArenaBlock {
            guard: Arc::new(self.guard),
        }
    }

    /// Like [`BlockDraft::finish`], for a single owner and without the allocation of a reference count. `None`: the
    /// block is too long for an [`OwnedBlock`].
    pub fn finish_owned(mut self) -> Option<OwnedBlock> {
        let arena = self.guard.arena.clone();
        match ShortExtent::new(self.guard.extent.take()?) {
            Ok(extent) => Some(OwnedBlock {
                arena,
                extent: Some(extent),
            }),
            Err(extent) => {
                self.guard.extent = Some(extent);
                None
            }
        }
    }
}

impl Deref for BlockDraft {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.guard.bytes()
    }
}

impl DerefMut for BlockDraft {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `BlockGuard::bytes`; `&mut self` and the absence of clones make the access exclusive.
        unsafe {
            self.guard
                .arena
                .mapping
                .bytes_mut(self.guard.offset(), self.guard.len())
        }
    }
}

/// An immutable block with shared ownership.
#[derive(Clone)]
pub struct ArenaBlock {
    guard: Arc<BlockGuard>,
}

impl ArenaBlock {
    /// The arena's file and the block's offset in it, if the block consists of whole pages.
    pub fn pages(&self) -> Option<(BorrowedFd<'_>, u64)> {
        use std::os::fd::AsFd;
        is_paged(self.guard.len() as u64)
            .then(|| (self.guard.arena.file.as_fd(), self.guard.offset() as u64))
    }
}

/// An immutable block with one owner. Each stored response has such a block, so the type is small.
pub struct OwnedBlock {
    arena: Arc<ResponseArena>,
    /// Always `Some` until dropped.
    extent: Option<ShortExtent>,
}

impl Deref for OwnedBlock {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        let Some(extent) = &self.extent else {
            return &[];
        };
        // The arena's length is a usize, so every offset and length in the arena fits one.
        let (offset, len) = (extent.offset() as usize, extent.requested_len() as usize);
        // SAFETY: as in `BlockGuard::bytes`; the extent came from a `BlockDraft`, which is gone.
        unsafe { self.arena.mapping.bytes(offset, len) }
    }
}

impl Drop for OwnedBlock {
    fn drop(&mut self) {
        if let Some(extent) = self.extent.take() {
            self.arena.free(extent.extent());
        }
    }
}

impl Deref for ArenaBlock {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.guard.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_bytes_and_are_freed_when_dropped() {
        let arena = ResponseArena::new(1 << 20).expect("memory file");
        let mut small = arena.allocate(1000).expect("space");
        small.fill(b'a');
        let mut apart = arena.allocate(100_000).expect("space");
        apart.fill(b'c');
        let mut paged = arena.allocate(200_000).expect("space");
        paged.fill(b'b');
        let (small, apart, paged) = (small.finish(), apart.finish(), paged.finish());
        assert!(small.iter().all(|b| *b == b'a') && paged.iter().all(|b| *b == b'b'));
        assert!(small.pages().is_none() && apart.pages().is_none());
        assert_eq!(paged.pages().map(|(_, at)| at % 4096), Some(0));
        assert!(arena.used() >= 301_000);
        drop((small, apart, paged));
        assert_eq!(arena.used(), 0);
        let mut owned = arena.allocate(3).expect("space");
        owned.copy_from_slice(b"abc");
        let owned = owned.finish_owned().expect("they are few");
        assert_eq!(&*owned, b"abc");
        assert_eq!(size_of_val(&owned), 16, "there are as many as responses");
        drop(owned);
        let paged = arena.allocate(PAGED_LEN_MIN).expect("space");
        assert!(paged.finish_owned().is_none());
        assert_eq!(arena.used(), 0);
    }

    #[test]
    fn unsent_pages_of_a_freed_block_keep_their_bytes() {
        let arena = ResponseArena::new(1 << 20).expect("memory file");
        let mut draft = arena.allocate(PAGED_LEN_MIN).expect("space");
        draft.fill(b'o');
        let block = draft.finish();
        let (reader, writer) = rustix::pipe::pipe().expect("pipe");
        let (file, mut at) = block.pages().expect("paged");
        rustix::pipe::splice(
            file,
            Some(&mut at),
            &writer,
            None,
            8192,
            rustix::pipe::SpliceFlags::empty(),
        )
        .expect("splice takes page references as a socket does");
        drop(block);
        let mut next = arena
            .allocate(PAGED_LEN_MIN)
            .expect("the place is free again");
        next.fill(b'n');
        let mut seen = [0u8; 8192];
        let got = rustix::io::read(&reader, &mut seen).expect("read");
        assert!(
            got > 0 && seen[..got].iter().all(|b| *b == b'o'),
            "old pages, old bytes"
        );
    }

    #[test]
    fn full_arena_allocates_no_block() {
        let arena = ResponseArena::new(64 * 1024).expect("memory file");
        let held: Vec<_> = std::iter::from_fn(|| arena.allocate(4096)).collect();
        assert_eq!(held.len(), 16);
        assert!(arena.allocate(64).is_none());
    }
}
