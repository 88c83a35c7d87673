//! Buffers, all made at the start. Who takes one owns it until it gives it back. It knows no connections.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::api::{LARGE, SMALL};

/// A buffer of [`SMALL`] or [`LARGE`] bytes.
pub(crate) type Buffer = Box<[u8]>;

/// The buffers that nobody has.
pub(crate) struct Pool {
    small: Vec<Buffer>,
    large: Vec<Buffer>,
    /// Below so many small ones, what can be sent again is not kept.
    reserve: usize,
    /// Below so many large ones, others should give theirs back; input that waits leaves twice as many.
    reserve_large: usize,
}

impl Pool {
    /// Takes the memory.
    pub(crate) fn new(small: usize, large: usize) -> Pool {
        let make = |count: usize, len: usize| {
            (0..count)
                .map(|_| vec![0; len].into_boxed_slice())
                .collect()
        };
        Pool {
            small: make(small, SMALL),
            large: make(large, LARGE),
            reserve: small / 4,
            reserve_large: large / 4,
        }
    }

    /// Whether few are left of one kind.
    pub(crate) fn is_short(&self) -> bool {
        self.small.len() < self.reserve || self.large.len() < self.reserve_large
    }

    /// A small one.
    pub(crate) fn small(&mut self) -> Option<Buffer> {
        self.small.pop()
    }

    /// A small one for what is nice to have only.
    pub(crate) fn spare(&mut self) -> Option<Buffer> {
        if self.small.len() <= self.reserve {
            return None;
        }
        self.small.pop()
    }

    /// A large one for what can do with less.
    pub(crate) fn spare_large(&mut self) -> Option<Buffer> {
        if self.large.len() <= 2 * self.reserve_large {
            return None;
        }
        self.large.pop()
    }

    /// One that has room for so many bytes.
    pub(crate) fn of(&mut self, len: usize) -> Option<Buffer> {
        let small = if len <= SMALL { self.small.pop() } else { None };
        if small.is_some() || len > LARGE {
            return small;
        }
        self.large.pop()
    }

    /// Takes one back.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        match buffer.len() {
            SMALL => self.small.push(buffer),
            _ => self.large.push(buffer),
        }
    }

    /// How many there are, small and large.
    pub(crate) fn free(&self) -> (usize, usize) {
        (self.small.len(), self.large.len())
    }
}
