//! A BPF array mapped into memory. The programs access it concurrently, so each access is a volatile or atomic access
//! of whole words; writers order the accesses that belong together.

use std::io;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Values of one type, stored contiguously.
#[derive(Debug)]
pub struct MappedArray<T> {
    first: NonNull<T>,
    len: usize,
    bytes: usize,
    marker: PhantomData<T>,
}

// SAFETY: the mapping belongs to the process, and is accessed by volatile operations only.
unsafe impl<T: Send> Send for MappedArray<T> {}
// SAFETY: as above; each word has one writer at a time.
unsafe impl<T: Sync> Sync for MappedArray<T> {}

#[allow(clippy::len_without_is_empty, reason = "a map has at least one value")]
impl<T: Copy> MappedArray<T> {
    /// Maps `len` values of an array created with `BPF_F_MMAPABLE`.
    ///
    /// # Errors
    /// Those of mmap(2); `EINVAL` if the map is smaller.
    pub fn new(map: impl AsFd, len: usize) -> io::Result<Self> {
        // The kernel maps whole pages.
        let bytes = (len * size_of::<T>()).next_multiple_of(rustix::param::page_size());
        // SAFETY: the kernel chooses the address, and checks the length against the map's size.
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
            marker: PhantomData,
        })
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// A copy of a value.
    ///
    /// # Panics
    /// If the index is out of range.
    #[must_use]
    pub fn read(&self, index: usize) -> T {
        // SAFETY: within the mapping (`at` checks that) and aligned. Any bytes are a valid value, since the types
        // consist of plain integers.
        unsafe { self.at(index).read_volatile() }
    }

    /// Writes a whole value.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn write(&self, index: usize, value: T) {
        // SAFETY: as for `read`.
        unsafe { self.at(index).write_volatile(value) }
    }

    /// Writes one word of a value; other words may have other writers. `offset` is from `offset_of!`.
    ///
    /// # Panics
    /// If the index is out of range, or `offset` is not that of a word in the value.
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

    /// Writes one word of a value with release ordering, after all earlier writes of this thread: a reader that follows
    /// the word sees the data that it refers to completely. `offset` is from `offset_of!`.
    ///
    /// # Panics
    /// As `MappedArray::set`.
    pub fn publish(&self, index: usize, offset: usize, word: u64) {
        assert!(
            offset + size_of::<u64>() <= size_of::<T>()
                && offset.is_multiple_of(align_of::<u64>())
                && align_of::<T>() >= align_of::<u64>()
        );
        // SAFETY: within the value, which is mapped for as long as `self` exists, and aligned, as just checked. All
        // other accesses, also those in the kernel, are of whole words.
        let target = unsafe { AtomicU64::from_ptr(self.at(index).byte_add(offset).cast::<u64>()) };
        target.store(word, Ordering::Release);
    }

    /// Reads one word of a value. `offset` is from `offset_of!`.
    ///
    /// # Panics
    /// As `MappedArray::set`.
    pub fn get<W: Copy>(&self, index: usize, offset: usize) -> W {
        assert!(
            offset + size_of::<W>() <= size_of::<T>() && offset.is_multiple_of(align_of::<W>())
        );
        // SAFETY: as for `set`; any bytes are a valid word.
        unsafe { self.at(index).byte_add(offset).cast::<W>().read_volatile() }
    }

    fn at(&self, index: usize) -> *mut T {
        assert!(index < self.len, "{index} of {}", self.len);
        // SAFETY: the index is within the mapping.
        unsafe { self.first.as_ptr().add(index) }
    }
}

impl<T> Drop for MappedArray<T> {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, which is not borrowed any more. munmap(2) could fail only if it did not
        // exist.
        unsafe {
            let _ = munmap(self.first.as_ptr().cast(), self.bytes);
        }
    }
}
