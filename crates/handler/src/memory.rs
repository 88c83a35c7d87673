//! How much memory a thread has taken and not given back, counted where all memory comes from. Knows
//! nothing of who asks.
//!
//! A thread that gives back what another one took has a smaller number by that: what is meant is the
//! difference between two moments of one thread that works alone in between.

#![allow(unsafe_code)] // an allocator is an unsafe trait; each call is passed on as it came

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

/// An allocator that counts what another one gives.
pub struct Counting<A>(pub A);

/// Bytes that this thread has taken, less those that it has given back. 0 where the program's allocator
/// does not count.
pub fn held() -> isize {
    HELD.get()
}

fn add(len: usize) {
    // No destructor: it works for as long as a thread does anything. Sizes are below isize::MAX.
    HELD.set(HELD.get().wrapping_add(len.cast_signed()));
}

fn sub(len: usize) {
    HELD.set(HELD.get().wrapping_sub(len.cast_signed()));
}

// SAFETY: each call goes to the allocator within, with what came; counting neither allocates nor
// unwinds.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's duty is the same.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        sub(layout.size());
        // SAFETY: the caller's duty is the same.
        unsafe { self.0.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's duty is the same.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        add(len);
        sub(layout.size());
        // SAFETY: the caller's duty is the same.
        unsafe { self.0.realloc(at, layout, len) }
    }
}
