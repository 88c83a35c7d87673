//! Per-thread memory accounting: the bytes that a thread has allocated and not freed, counted in the global allocator.
//!
//! Frees of other threads' memory make the number smaller, so only the difference between two moments of one thread
//! that works alone in between is meaningful.

#![allow(unsafe_code)] // an allocator is an unsafe trait; each call is passed on as it came

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

/// An allocator that counts the bytes of another one.
pub struct CountingAllocator<A>(pub A);

/// Bytes that this thread has allocated minus those that it has freed. 0 if the program's allocator
/// does not count.
pub fn allocated_bytes() -> isize {
    HELD.get()
}

fn add(len: usize) {
    // A thread-local without destructor is accessible until the thread's very end. Sizes are below isize::MAX.
    HELD.set(HELD.get().wrapping_add(len.cast_signed()));
}

fn sub(len: usize) {
    HELD.set(HELD.get().wrapping_sub(len.cast_signed()));
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
        // The old size is subtracted although the block may move: only the difference counts.
        sub(layout.size());
        // SAFETY: the caller has the same obligations.
        unsafe { self.0.realloc(at, layout, len) }
    }
}
