//! The ghost queue of S3-FIFO: hashes of recently evicted keys.
//!
//! The queue stores neither keys nor values, so two keys with the same hash count as equal. The only effect of a
//! collision is that a key enters the wrong queue of the store.

use alloc::collections::VecDeque;
use core::mem::size_of;
use hashbrown::HashTable;

/// A FIFO of hashes with fast look-up.
#[derive(Debug, Default)]
pub(crate) struct GhostQueue {
    /// The hashes, oldest first.
    order: VecDeque<u64>,
    /// Each hash in `order`, with the number of its occurrences.
    counts: HashTable<(u64, u32)>,
}

impl GhostQueue {
    /// The bytes that one hash takes in both structures at worst, with a half-full table.
    pub(crate) const BYTES_EACH: usize = size_of::<u64>() + 2 * (size_of::<(u64, u32)>() + 1);

    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.counts.find(hash, |entry| entry.0 == hash).is_some()
    }

    /// Adds a hash, and then removes the oldest hashes until at most `len_max` are left.
    pub(crate) fn push(&mut self, hash: u64, len_max: usize) {
        self.order.push_back(hash);
        match self.counts.find_mut(hash, |entry| entry.0 == hash) {
            // A key may be evicted again while its older entry is still in the queue.
            Some(entry) => entry.1 += 1,
            None => {
                self.counts.insert_unique(hash, (hash, 1), |entry| entry.0);
            }
        }
        while self.order.len() > len_max {
            self.remove_oldest();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.order.clear();
        self.counts.clear();
    }

    fn remove_oldest(&mut self) {
        let Some(hash) = self.order.pop_front() else {
            return;
        };
        if let Ok(mut entry) = self.counts.find_entry(hash, |known| known.0 == hash) {
            entry.get_mut().1 -= 1;
            if entry.get().1 == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_hash_is_removed_first() {
        let mut ghost = GhostQueue::default();
        for hash in 1..=4 {
            ghost.push(hash, 3);
        }
        assert_eq!(
            [1, 2, 3, 4].map(|hash| ghost.contains(hash)),
            [false, true, true, true]
        );
    }

    #[test]
    fn hash_pushed_twice_is_contained_until_both_are_removed() {
        let mut ghost = GhostQueue::default();
        for hash in [7, 8, 7] {
            ghost.push(hash, 3);
        }
        ghost.push(9, 3);
        assert!(ghost.contains(7), "the younger 7 is still there");
        ghost.push(10, 3);
        ghost.push(11, 3);
        assert!(!ghost.contains(7));
        assert_eq!(ghost.counts.len(), 3);
    }

    #[test]
    fn ghost_queue_with_bound_zero_stays_empty() {
        let mut ghost = GhostQueue::default();
        ghost.push(1, 0);
        assert!(!ghost.contains(1));
        assert_eq!((ghost.order.len(), ghost.counts.len()), (0, 0));
    }
}
