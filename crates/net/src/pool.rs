//! A pool of buffers, allocated at the start. A buffer that was taken is owned until it is released.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::stack_api::{LARGE, SMALL};

/// A buffer of [`SMALL`] or [`LARGE`] bytes.
pub(crate) type PoolBuffer = Box<[u8]>;

/// The free buffers.
pub(crate) struct BufferPool {
    small: Vec<PoolBuffer>,
    large: Vec<PoolBuffer>,
    /// If fewer small buffers are free, out-of-order segments are not stored, since peers retransmit them.
    reserve: usize,
    /// If fewer large buffers are free, stalled connections are ended. Buffering of input leaves twice as many free.
    reserve_large: usize,
}

impl BufferPool {
    /// Allocates the buffers.
    pub(crate) fn new(small: usize, large: usize) -> BufferPool {
        let new_buffers = |count: usize, len: usize| {
            (0..count)
                .map(|_| vec![0; len].into_boxed_slice())
                .collect()
        };
        BufferPool {
            small: new_buffers(small, SMALL),
            large: new_buffers(large, LARGE),
            reserve: small / 4,
            reserve_large: large / 4,
        }
    }

    /// Whether few buffers of one of the sizes are free.
    pub(crate) fn is_short(&self) -> bool {
        self.small.len() < self.reserve || self.large.len() < self.reserve_large
    }

    /// Takes a small buffer.
    pub(crate) fn small(&mut self) -> Option<PoolBuffer> {
        self.small.pop()
    }

    /// Takes a small buffer for an optional use.
    pub(crate) fn take_spare(&mut self) -> Option<PoolBuffer> {
        if self.small.len() <= self.reserve {
            return None;
        }
        self.small.pop()
    }

    /// Takes a large buffer for a use that can also do without.
    pub(crate) fn take_spare_large(&mut self) -> Option<PoolBuffer> {
        if self.large.len() <= 2 * self.reserve_large {
            return None;
        }
        self.large.pop()
    }

    /// Takes the smallest buffer with room for `len` bytes.
    pub(crate) fn allocate(&mut self, len: usize) -> Option<PoolBuffer> {
        let small = if len <= SMALL { self.small.pop() } else { None };
        if small.is_some() || len > LARGE {
            return small;
        }
        self.large.pop()
    }

    /// Returns a buffer to the pool.
    pub(crate) fn release(&mut self, buffer: PoolBuffer) {
        match buffer.len() {
            SMALL => self.small.push(buffer),
            _ => self.large.push(buffer),
        }
    }

    /// The number of free small and large buffers.
    pub(crate) fn free(&self) -> (usize, usize) {
        (self.small.len(), self.large.len())
    }
}
