//! The allocator of all processes: mimalloc, told of an alignment only where its blocks do not have it anyway. Knows
//! nothing of who asks.
//!
//! Asked for an alignment, mimalloc 3 takes up to that many bytes more for each size that is not a power of two, by a
//! slower way. That is a size class: 112 bytes for a stored object of 96.

#![allow(unsafe_code)] // an allocator is an unsafe trait, and mimalloc is C

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys as mi;

/// What every block of mimalloc is aligned to: it is cut from its page in whole words.
const ALIGN: usize = size_of::<usize>();

/// Memory by mimalloc.
pub struct Mimalloc;

// SAFETY: mimalloc gives null or a block of `size` bytes that no one else has; its blocks begin at multiples of a word, and
// for a larger alignment it is told of that. All memory comes from it, so `mi_free` and `mi_realloc` get what is its own.
unsafe impl GlobalAlloc for Mimalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: any size will do, and an alignment is a power of two.
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
        // SAFETY: the caller says that it is a block of this allocator.
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
    fn ninety_six_bytes_take_no_more() {
        let layout = Layout::new::<[u64; 12]>();
        // SAFETY: the size is not 0; the blocks are never touched, and freed with their layout.
        let blocks: Vec<*mut u8> = (0..1000)
            .map(|_| unsafe { Mimalloc.alloc(layout) })
            .collect();
        let mut places: Vec<usize> = blocks.iter().map(|block| block.addr()).collect();
        places.sort_unstable();
        let apart = places.windows(2).map(|pair| pair[1] - pair[0]).min();
        assert_eq!(apart, Some(96));
        for block in blocks {
            // SAFETY: as above.
            unsafe { Mimalloc.dealloc(block, layout) };
        }
    }

    #[test]
    fn blocks_are_aligned_and_keep_their_bytes() {
        for (size, align) in
            (1..200).flat_map(|size| [1, 8, 16, 64, 4096].map(|align| (size, align)))
        {
            let layout = Layout::from_size_align(size, align).expect("a power of two");
            // SAFETY: no size is 0; the block is read within its length and freed with its last layout.
            unsafe {
                let zeroed = Mimalloc.alloc_zeroed(layout);
                assert_eq!(zeroed.addr() % align, 0);
                assert!(
                    std::slice::from_raw_parts(zeroed, size)
                        .iter()
                        .all(|byte| *byte == 0)
                );
                zeroed.write_bytes(7, size);
                let longer = Mimalloc.realloc(zeroed, layout, 3 * size);
                assert_eq!(longer.addr() % align, 0);
                assert!(
                    std::slice::from_raw_parts(longer, size)
                        .iter()
                        .all(|byte| *byte == 7)
                );
                Mimalloc.dealloc(longer, Layout::from_size_align_unchecked(3 * size, align));
                let other = Mimalloc.alloc(layout);
                assert_eq!(other.addr() % align, 0);
                Mimalloc.dealloc(other, layout);
            }
        }
    }
}
