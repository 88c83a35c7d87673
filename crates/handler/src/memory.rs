//! Per-thread memory accounting: the bytes that a thread has allocated and not freed, counted in the global allocator.
//!
//! Freeing memory of other threads decreases the number, so only the difference between two moments is meaningful, and
//! only if no memory passes between threads in the meantime.

#![allow(unsafe_code)] // an allocator is an unsafe trait; each call is passed on as it came

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! {
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
}

/// An allocator that counts the bytes of another one.
pub struct CountingAllocator<A>(pub A);

/// The bytes that this thread has allocated minus those that it has freed. 0 if the global allocator is not a
/// [`CountingAllocator`].
pub fn allocated_bytes() -> isize {
    ALLOCATED.get()
}

fn add(len: usize) {
    // A thread-local without destructor is accessible until the end of the thread. Sizes are below isize::MAX.
    ALLOCATED.set(ALLOCATED.get().wrapping_add(len.cast_signed()));
}

fn sub(len: usize) {
    ALLOCATED.set(ALLOCATED.get().wrapping_sub(len.cast_signed()));
}

// SAFETY: each call is forwarded unchanged to the inner allocator; counting neither allocates nor
// unwinds.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller has the same obligations.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        sub(layout.size());
        // SAFETY: the caller has the same obligations.
        unsafe { self.0.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller has the same obligations.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        add(len);
        // The old size is subtracted and the new one added, whether or not the block moves.
        sub(layout.size());
        // SAFETY: the caller has the same obligations.
        unsafe { self.0.realloc(at, layout, len) }
    }
}
