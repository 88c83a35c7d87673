//! The global allocator: mimalloc, with an explicit alignment only if it is larger than that of all mimalloc blocks.
//!
//! With an explicit alignment, mimalloc 3 takes a slower path, and uses up to the alignment in additional bytes for
//! each size that is not a power of two: 112 instead of 96 bytes for a stored object.

#![allow(unsafe_code)] // an allocator is an unsafe trait, and mimalloc is C

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys as mi;

/// The alignment of every mimalloc block: the sizes of blocks within a page are multiples of a word.
const ALIGN: usize = size_of::<usize>();

/// mimalloc as the global allocator.
pub struct MimallocAllocator;

// SAFETY: mimalloc returns null or an unused block of `size` bytes; its blocks begin at multiples of a word, and larger
// alignments are passed on. All blocks are from mimalloc, so `mi_free` and `mi_realloc` get only those.
unsafe impl GlobalAlloc for MimallocAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: every size is valid, and an alignment is a power of two.
        unsafe {
            match align <= ALIGN {
                true => mi::mi_malloc(size),
                false => mi::mi_malloc_aligned(size, align),
            }
        }
        .cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: as in `alloc`.
        unsafe {
            match align <= ALIGN {
                true => mi::mi_zalloc(size),
                false => mi::mi_zalloc_aligned(size, align),
            }
        }
        .cast()
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, _: Layout) {
        // SAFETY: the caller guarantees a block of this allocator.
        unsafe { mi::mi_free(at.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc` and `alloc`.
        unsafe {
            match layout.align() <= ALIGN {
                true => mi::mi_realloc(at.cast(), size),
                false => mi::mi_realloc_aligned(at.cast(), size, layout.align()),
            }
        }
        .cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_of_96_bytes_takes_96_bytes() {
        let layout = Layout::new::<[u64; 12]>();
        // SAFETY: the size is not 0; the blocks are never accessed, and freed with their layout.
        let blocks: Vec<*mut u8> = (0..1000)
            .map(|_| unsafe { MimallocAllocator.alloc(layout) })
            .collect();
        let mut places: Vec<usize> = blocks.iter().map(|block| block.addr()).collect();
        places.sort_unstable();
        let apart = places.windows(2).map(|pair| pair[1] - pair[0]).min();
        assert_eq!(apart, Some(96));
        for block in blocks {
            // SAFETY: as above.
            unsafe { MimallocAllocator.dealloc(block, layout) };
        }
    }

    #[test]
    fn blocks_are_aligned_and_realloc_preserves_bytes() {
        for (size, align) in
            (1..200).flat_map(|size| [1, 8, 16, 64, 4096].map(|align| (size, align)))
        {
            let layout = Layout::from_size_align(size, align).expect("a power of two");
            // SAFETY: no size is 0; the block is read within its length and freed with its last layout.
            unsafe {
                let zeroed = MimallocAllocator.alloc_zeroed(layout);
                assert_eq!(zeroed.addr() % align, 0);
                assert!(
                    std::slice::from_raw_parts(zeroed, size)
                        .iter()
                        .all(|byte| *byte == 0)
                );
                zeroed.write_bytes(7, size);
                let longer = MimallocAllocator.realloc(zeroed, layout, 3 * size);
                assert_eq!(longer.addr() % align, 0);
                assert!(
                    std::slice::from_raw_parts(longer, size)
                        .iter()
                        .all(|byte| *byte == 7)
                );
                MimallocAllocator
                    .dealloc(longer, Layout::from_size_align_unchecked(3 * size, align));
                let other = MimallocAllocator.alloc(layout);
                assert_eq!(other.addr() % align, 0);
                MimallocAllocator.dealloc(other, layout);
            }
        }
    }
}
