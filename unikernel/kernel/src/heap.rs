//! The heap. With one core, it is a single region without a lock. For several cores, [`split`] makes a heap for each: a
//! core allocates from its own heap, and from other heaps only if its own is exhausted; freed memory returns to the
//! heap from which it came. For soundness, each heap has a spin lock, with little contention, since memory is mostly
//! freed by the core that allocated it. Interrupt handlers never allocate.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use linked_list_allocator::Heap;

use crate::cores;

const PAGE_LEN: usize = 4096;

struct CoreHeap {
    heap: UnsafeCell<Heap>,
    is_locked: AtomicBool,
}

struct CoreHeaps {
    all: [CoreHeap; cores::MAX],
    /// 1 until [`split`] has been called.
    count: AtomicUsize,
    /// The start of the second heap.
    start: AtomicUsize,
    /// The length of every heap but the first.
    len: AtomicUsize,
}

// SAFETY: a heap is used only under its lock, or, while there is one heap, only by the single core.
unsafe impl Sync for CoreHeaps {}

#[global_allocator]
static HEAP: CoreHeaps = CoreHeaps {
    all: [const {
        CoreHeap {
            heap: UnsafeCell::new(Heap::empty()),
            is_locked: AtomicBool::new(false),
        }
    }; cores::MAX],
    count: AtomicUsize::new(1),
    start: AtomicUsize::new(0),
    len: AtomicUsize::new(0),
};

impl CoreHeap {
    fn with<T>(&self, action: impl FnOnce(&mut Heap) -> T) -> T {
        // Interrupt handlers don't allocate, so a core can't wait for itself.
        while self.is_locked.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        // SAFETY: this core holds the lock, and only once, since `action` allocates no memory.
        let result = action(unsafe { &mut *self.heap.get() });
        self.is_locked.store(false, Ordering::Release);
        result
    }
}

impl CoreHeaps {
    fn is_single(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 1
    }

    /// The only heap, on a machine with one core.
    ///
    /// # Safety
    /// There must be one heap, so that only one core allocates; the reference must be the only one.
    #[allow(clippy::mut_from_ref, reason = "the caller sees to it")]
    unsafe fn single(&self) -> &mut Heap {
        // SAFETY: by the caller's contract.
        unsafe { &mut *self.all[0].heap.get() }
    }

    /// The heaps, starting with the current core's.
    fn iter_from_current(&self) -> impl Iterator<Item = &CoreHeap> {
        let all = &self.all[..self.count.load(Ordering::Relaxed)];
        let (before, from) = all.split_at(usize::from(cores::current()).min(all.len()));
        from.iter().chain(before)
    }

    /// Allocates on a machine with several cores. Not inlined, to keep call sites small.
    #[inline(never)]
    fn alloc_shared(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.iter_from_current()
            .find_map(|piece| piece.with(|heap| heap.allocate_first_fit(layout).ok()))
    }

    /// Frees on a machine with several cores.
    ///
    /// # Safety
    /// The memory must have been allocated from this heap with this layout.
    #[inline(never)]
    unsafe fn dealloc_shared(&self, memory: NonNull<u8>, layout: Layout) {
        self.find_heap(memory.as_ptr() as usize)
            // SAFETY: by the caller's contract; the memory belongs to the heap that was found.
            .with(|heap| unsafe { heap.deallocate(memory, layout) });
    }

    /// The heap that an address belongs to.
    fn find_heap(&self, address: usize) -> &CoreHeap {
        let (start, len) = (
            self.start.load(Ordering::Relaxed),
            self.len.load(Ordering::Relaxed),
        );
        let n = address
            .checked_sub(start)
            .map_or(0, |offset| offset / len.max(1) + 1);
        // Addresses behind all heaps belong to the first one, from which the others were allocated.
        if n < self.count.load(Ordering::Relaxed) {
            &self.all[n]
        } else {
            &self.all[0]
        }
    }
}

// SAFETY: `Heap` returns memory of the layout; `CoreHeap` serializes its users.
unsafe impl GlobalAlloc for CoreHeaps {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = if self.is_single() {
            // SAFETY: there is one heap, as just checked.
            unsafe { self.single() }.allocate_first_fit(layout).ok()
        } else {
            self.alloc_shared(layout)
        };
        block.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let Some(memory) = NonNull::new(memory) else {
            return;
        };
        if self.is_single() {
            // SAFETY: there is one heap, as just checked; memory and layout by the caller's contract.
            unsafe { self.single().deallocate(memory, layout) }
        } else {
            // SAFETY: by the caller's contract.
            unsafe { self.dealloc_shared(memory, layout) }
        }
    }
}

/// Sets the heap's memory.
///
/// # Safety
/// To be called once. The memory must be mapped, unused and permanent.
pub unsafe fn set_memory(start: u64, len: usize) {
    // SAFETY: only one core runs so far; the memory is valid by the caller's contract.
    unsafe {
        HEAP.single()
            .init(ptr::with_exposed_provenance_mut(start as usize), len);
    }
}

/// Divides the free memory among `count` cores about equally; the first heap keeps the remainder. To be called at most
/// once, by the first core, before any other core allocates. Returns the minimum of the cores' free bytes; `None` if
/// the free memory is fragmented.
pub fn split(count: u16) -> Option<usize> {
    let count = usize::from(count);
    if count == 1 {
        return Some(free_len());
    }
    let len = (free_len() / count) & !(PAGE_LEN - 1);
    // All further heaps are made from one allocation, which fails if the free memory is fragmented.
    let layout = Layout::from_size_align(len * (count - 1), PAGE_LEN).ok()?;
    if layout.size() == 0 {
        return None;
    }
    // SAFETY: the layout's length is not 0.
    let start = NonNull::new(unsafe { alloc::alloc::alloc(layout) })?;
    for (n, piece) in HEAP.all[1..count].iter().enumerate() {
        // SAFETY: within the memory just allocated, which is never freed.
        piece.with(|heap| unsafe { heap.init(start.as_ptr().add(n * len), len) });
    }
    HEAP.start.store(start.as_ptr() as usize, Ordering::Relaxed);
    HEAP.len.store(len, Ordering::Relaxed);
    // The count is stored last, so that a core that sees the count also sees the bounds.
    HEAP.count.store(count, Ordering::Release);
    Some(len.min(HEAP.all[0].with(|heap| heap.free())))
}

/// Free bytes before [`split`].
pub fn free_len() -> usize {
    HEAP.all[0].with(|heap| heap.free())
}

/// Permanent, zeroed, page-aligned memory for a device.
pub fn pages(len: usize) -> Option<NonNull<u8>> {
    let layout = Layout::from_size_align(len.max(1), PAGE_LEN).ok()?;
    // SAFETY: the layout's length is not 0.
    NonNull::new(unsafe { alloc::alloc::alloc_zeroed(layout) })
}
