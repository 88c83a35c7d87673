//! A map of the kernel as memory. The programs read and write it at the same time, so every access is
//! one of a whole word, volatile or atomic; what must be seen together is ordered by who writes it.

use std::io;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Values of one type, one behind the other.
#[derive(Debug)]
pub struct Mapped<T> {
    first: NonNull<T>,
    len: usize,
    bytes: usize,
    of: PhantomData<T>,
}

// SAFETY: it is memory of the process, reached by volatile accesses only.
unsafe impl<T: Send> Send for Mapped<T> {}
// SAFETY: as above; each word has one writer at a time.
unsafe impl<T: Sync> Sync for Mapped<T> {}

#[allow(clippy::len_without_is_empty, reason = "a map has at least one value")]
impl<T: Copy> Mapped<T> {
    /// Maps `len` values of an array that was made with `BPF_F_MMAPABLE`.
    ///
    /// # Errors
    /// Those of `mmap`; `EINVAL` if the map is smaller.
    pub fn new(map: impl AsFd, len: usize) -> io::Result<Self> {
        let bytes = (len * size_of::<T>()).next_multiple_of(rustix::param::page_size());
        // SAFETY: the kernel chooses the place; the length is that of the map, which it checks.
        let first = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                map.as_fd(),
                0,
            )?
        };
        let first = NonNull::new(first.cast()).expect("mmap gives no null");
        Ok(Self {
            first,
            len,
            bytes,
            of: PhantomData,
        })
    }

    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// A copy of a value.
    ///
    /// # Panics
    /// When there is none at the index.
    #[must_use]
    pub fn read(&self, index: usize) -> T {
        // SAFETY: within the mapping (`at` checks), aligned, and any bytes are a value: the types are
        // plain integers.
        unsafe { self.at(index).read_volatile() }
    }

    /// Writes a whole value.
    ///
    /// # Panics
    /// When there is none at the index.
    pub fn write(&self, index: usize, value: T) {
        // SAFETY: as for `read`.
        unsafe { self.at(index).write_volatile(value) }
    }

    /// Writes one word of a value: what else is in it is somebody else's. The offset is from
    /// `offset_of!`.
    ///
    /// # Panics
    /// When there is no such value, or no such word in it.
    pub fn set<W: Copy>(&self, index: usize, offset: usize, word: W) {
        assert!(
            offset + size_of::<W>() <= size_of::<T>() && offset.is_multiple_of(align_of::<W>())
        );
        // SAFETY: within the value, which is within the mapping, and aligned, as just checked.
        unsafe {
            self.at(index)
                .byte_add(offset)
                .cast::<W>()
                .write_volatile(word)
        }
    }

    /// Writes one word of a value after everything that this thread has written before: who reads it, and
    /// then what it names, sees that whole. The offset is from `offset_of!`.
    ///
    /// # Panics
    /// As [`Mapped::set`].
    pub fn publish(&self, index: usize, offset: usize, word: u64) {
        assert!(
            offset + size_of::<u64>() <= size_of::<T>()
                && offset.is_multiple_of(align_of::<u64>())
                && align_of::<T>() >= align_of::<u64>()
        );
        // SAFETY: within the value, which is within the mapping for as long as `self`, and aligned, as just
        // checked. Others, in the kernel too, access it by whole words only.
        let place = unsafe { AtomicU64::from_ptr(self.at(index).byte_add(offset).cast::<u64>()) };
        place.store(word, Ordering::Release);
    }

    /// Reads one word of a value; the offset is from `offset_of!`.
    ///
    /// # Panics
    /// As [`Mapped::set`].
    pub fn get<W: Copy>(&self, index: usize, offset: usize) -> W {
        assert!(
            offset + size_of::<W>() <= size_of::<T>() && offset.is_multiple_of(align_of::<W>())
        );
        // SAFETY: as for `set`; any bytes are a word.
        unsafe { self.at(index).byte_add(offset).cast::<W>().read_volatile() }
    }

    fn at(&self, index: usize) -> *mut T {
        assert!(index < self.len, "{index} of {}", self.len);
        // SAFETY: the index is within the mapping.
        unsafe { self.first.as_ptr().add(index) }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nothing borrows from it. An error would mean that it is not mapped.
        unsafe {
            let _ = munmap(self.first.as_ptr().cast(), self.bytes);
        }
    }
}
