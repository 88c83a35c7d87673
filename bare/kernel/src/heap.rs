//! The heap. With one core it is one piece of memory, and nothing is locked. For several, [`split`] gives each a piece: a
//! core takes memory from its own, and from another's only when that is used up; memory goes back to the piece that it
//! is of, whoever gives it back. Each piece has a lock, so that all of this is sound; and since what a core takes is
//! nearly always given back by the same core, nobody waits at one. Interrupt handlers never allocate.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use linked_list_allocator::Heap;

use crate::cores;

const PAGE_LEN: usize = 4096;

struct Piece {
    heap: UnsafeCell<Heap>,
    is_taken: AtomicBool,
}

struct Pieces {
    all: [Piece; cores::MAX],
    /// 1 until [`split`].
    count: AtomicUsize,
    /// Where the second piece begins.
    start: AtomicUsize,
    /// Of every piece but the first.
    len: AtomicUsize,
}

// SAFETY: a piece is used by who has its lock, or by the only core while there is one piece.
unsafe impl Sync for Pieces {}

#[global_allocator]
static HEAP: Pieces = Pieces {
    all: [const {
        Piece {
            heap: UnsafeCell::new(Heap::empty()),
            is_taken: AtomicBool::new(false),
        }
    }; cores::MAX],
    count: AtomicUsize::new(1),
    start: AtomicUsize::new(0),
    len: AtomicUsize::new(0),
};

impl Piece {
    fn with<T>(&self, use_it: impl FnOnce(&mut Heap) -> T) -> T {
        while self.is_taken.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        // SAFETY: this core has the lock, and takes it once: `use_it` allocates nothing.
        let result = use_it(unsafe { &mut *self.heap.get() });
        self.is_taken.store(false, Ordering::Release);
        result
    }
}

impl Pieces {
    fn is_one(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 1
    }

    /// The only piece of a machine with one core.
    ///
    /// # Safety
    /// There is one piece, so only one core allocates; the reference is the only one.
    #[allow(clippy::mut_from_ref, reason = "the caller sees to it")]
    unsafe fn only(&self) -> &mut Heap {
        // SAFETY: as the caller says.
        unsafe { &mut *self.all[0].heap.get() }
    }

    /// The pieces from this core's on.
    fn beginning_with_own(&self) -> impl Iterator<Item = &Piece> {
        let all = &self.all[..self.count.load(Ordering::Relaxed)];
        let (before, from) = all.split_at(usize::from(cores::own()).min(all.len()));
        from.iter().chain(before)
    }

    /// For several cores. Not to be repeated at each place where memory is taken.
    #[inline(never)]
    fn alloc_shared(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.beginning_with_own()
            .find_map(|piece| piece.with(|heap| heap.allocate_first_fit(layout).ok()))
    }

    /// See [`Pieces::alloc_shared`].
    ///
    /// # Safety
    /// The memory is of this heap and layout.
    #[inline(never)]
    unsafe fn dealloc_shared(&self, memory: NonNull<u8>, layout: Layout) {
        self.of(memory.as_ptr() as usize)
            // SAFETY: as the caller says; of this piece.
            .with(|heap| unsafe { heap.deallocate(memory, layout) });
    }

    /// The piece that an address is of.
    fn of(&self, address: usize) -> &Piece {
        let (start, len) = (
            self.start.load(Ordering::Relaxed),
            self.len.load(Ordering::Relaxed),
        );
        let n = address
            .checked_sub(start)
            .map_or(0, |offset| offset / len.max(1) + 1);
        // What lies behind all of them is of the first, out of which the others were taken.
        if n < self.count.load(Ordering::Relaxed) {
            &self.all[n]
        } else {
            &self.all[0]
        }
    }
}

// SAFETY: `Heap` gives memory as asked for; `Piece` keeps it to one user at a time.
unsafe impl GlobalAlloc for Pieces {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let found = if self.is_one() {
            // SAFETY: just asked.
            unsafe { self.only() }.allocate_first_fit(layout).ok()
        } else {
            self.alloc_shared(layout)
        };
        found.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let Some(memory) = NonNull::new(memory) else {
            return;
        };
        if self.is_one() {
            // SAFETY: one piece, as just asked; of this heap and layout, by the caller's contract.
            unsafe { self.only().deallocate(memory, layout) }
        } else {
            // SAFETY: as the caller says.
            unsafe { self.dealloc_shared(memory, layout) }
        }
    }
}

/// Gives the heap its memory.
///
/// # Safety
/// Called once; the memory is mapped, is nobody else's and stays.
pub unsafe fn give(start: u64, len: usize) {
    // SAFETY: nobody else is there yet; the memory is as the caller says.
    unsafe {
        HEAP.only()
            .init(ptr::with_exposed_provenance_mut(start as usize), len);
    }
}

/// Divides what is free among `count` cores, about equally; the first one's piece is what is left. Called once at most, by
/// the first core, before any other allocates. Gives what each has at least, in bytes; None: what is free is in pieces.
pub fn split(count: u16) -> Option<usize> {
    let count = usize::from(count);
    if count == 1 {
        return Some(free_len());
    }
    let len = (free_len() / count) & !(PAGE_LEN - 1);
    let layout = Layout::from_size_align(len * (count - 1), PAGE_LEN).ok()?;
    if layout.size() == 0 {
        return None;
    }
    // SAFETY: the layout's length is not 0.
    let start = NonNull::new(unsafe { alloc::alloc::alloc(layout) })?;
    for (n, piece) in HEAP.all[1..count].iter().enumerate() {
        // SAFETY: within the memory just taken, which is never given back.
        piece.with(|heap| unsafe { heap.init(start.as_ptr().add(n * len), len) });
    }
    HEAP.start.store(start.as_ptr() as usize, Ordering::Relaxed);
    HEAP.len.store(len, Ordering::Relaxed);
    HEAP.count.store(count, Ordering::Release);
    Some(len.min(HEAP.all[0].with(|heap| heap.free())))
}

/// Bytes that nobody has taken, before [`split`].
pub fn free_len() -> usize {
    HEAP.all[0].with(|heap| heap.free())
}

/// Memory for a device to read and write, zeroed, at a page, for as long as the machine runs.
pub fn pages(len: usize) -> Option<NonNull<u8>> {
    let layout = Layout::from_size_align(len.max(1), PAGE_LEN).ok()?;
    // SAFETY: the layout's length is not 0.
    NonNull::new(unsafe { alloc::alloc::alloc_zeroed(layout) })
}
