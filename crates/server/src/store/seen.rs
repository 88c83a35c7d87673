//! How far purges had come when something began, and what an object remembers of them. Knows no rules.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
};

/// How far purges had come when something began: what is made from then on is made after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Since {
    /// Of the rules.
    pub generation: u64,
    /// How often its key was forgotten.
    pub forgotten: u32,
}

impl Since {
    /// As bytes, for names of makings.
    pub fn to_le_bytes(self) -> [u8; 16] {
        (u128::from(self.generation) << 64 | u128::from(self.forgotten)).to_le_bytes()
    }
}

/// What an object remembers of purges.
#[derive(Debug)]
pub struct Seen {
    /// The generation of rules up to which it was compared with them.
    pub(super) generation: AtomicU64,
    /// When the first soft purge came that means it.
    pub(super) stale_from_ms: AtomicU64,
}

impl From<Since> for Seen {
    fn from(since: Since) -> Seen {
        Seen {
            generation: AtomicU64::new(since.generation),
            stale_from_ms: AtomicU64::new(u64::MAX),
        }
    }
}

impl Clone for Seen {
    fn clone(&self) -> Seen {
        Seen {
            // In this order: what the generation says was looked at is there.
            generation: AtomicU64::new(self.generation.load(Acquire)),
            stale_from_ms: AtomicU64::new(self.stale_from_ms.load(Relaxed)),
        }
    }
}

impl Seen {
    /// When it became stale by a purge, if it did.
    pub fn stale_from_ms(&self) -> Option<u64> {
        Some(self.stale_from_ms.load(Relaxed)).filter(|at_ms| *at_ms != u64::MAX)
    }
}
