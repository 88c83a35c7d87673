//! The heap: one piece of memory, given once. For one processor; interrupt handlers never allocate.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};

use linked_list_allocator::Heap;

struct Local(UnsafeCell<Heap>);

// SAFETY: there is one processor, and no interrupt handler allocates.
unsafe impl Sync for Local {}

#[global_allocator]
static HEAP: Local = Local(UnsafeCell::new(Heap::empty()));

// SAFETY: `Heap` gives memory as asked for; `Local` keeps it to one user at a time.
unsafe impl GlobalAlloc for Local {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: no other reference exists, see `Local`.
        let heap = unsafe { &mut *self.0.get() };
        heap.allocate_first_fit(layout)
            .map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: no other reference exists, see `Local`.
        let heap = unsafe { &mut *self.0.get() };
        if let Some(memory) = NonNull::new(memory) {
            // SAFETY: of this heap and layout, by the caller's contract.
            unsafe { heap.deallocate(memory, layout) }
        }
    }
}

/// Gives the heap its memory.
///
/// # Safety
/// Called once; the memory is mapped, is nobody else's and stays.
pub unsafe fn give(start: u64, len: usize) {
    // SAFETY: no other reference exists; the memory is as the caller says.
    unsafe { (*HEAP.0.get()).init(ptr::with_exposed_provenance_mut(start as usize), len) }
}

/// Bytes that nobody has taken.
pub fn free_len() -> usize {
    // SAFETY: no other reference exists, see `Local`.
    unsafe { (*HEAP.0.get()).free() }
}

/// Memory for a device to read and write, zeroed, at a page, for as long as the machine runs.
pub fn pages(len: usize) -> Option<NonNull<u8>> {
    let layout = Layout::from_size_align(len.max(1), 4096).ok()?;
    // SAFETY: the layout's length is not 0.
    NonNull::new(unsafe { alloc::alloc::alloc_zeroed(layout) })
}
