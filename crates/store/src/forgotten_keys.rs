//! Recently deleted keys (as hashes): a response that was fetched while its key was deleted may be outdated, and is not
//! stored.
//!
//! A fetch reads the deletion count of its key's slot when it begins. If the count is the same at the end of the fetch,
//! the key was not deleted. Since keys share slots, a slot also contains a part of the hashes of the last two deleted
//! keys. If three or more keys of one slot were deleted during a fetch, the fetched response is not stored in any case.
//! With `n` keys deleted during a fetch, this has a probability of `(n / 16,384)³ / 6`.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The number of slots.
const SLOTS: usize = 1 << 14;

/// The table of recently deleted keys.
pub struct ForgottenKeys {
    /// From the lowest bit: the count of deletions in this slot (32 bits), then the tags of the last but one and of the
    /// last deleted key (16 bits each).
    slots: Box<[AtomicU64]>,
}

impl ForgottenKeys {
    /// Creates an empty table.
    pub fn new() -> ForgottenKeys {
        ForgottenKeys {
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The count of deletions in the slot of this hash.
    pub fn count(&self, hash: u64) -> u32 {
        self.slot(hash).load(SeqCst) as u32
    }

    /// Records the deletion of a key with this hash.
    pub fn add(&self, hash: u64) {
        let next = |slot_value: u64| {
            // One atomic word for the tags of the last two deleted keys and the count.
            let (count, last) = (slot_value as u32, slot_value >> 48);
            Some(u64::from(tag(hash)) << 48 | last << 32 | u64::from(count.wrapping_add(1)))
        };
        // Can't fail: `next` always returns a value.
        let _ = self.slot(hash).fetch_update(SeqCst, SeqCst, next);
    }

    /// Whether a key with this hash may have been deleted since its slot's count was `since`.
    pub fn may_contain(&self, hash: u64, since: u32) -> bool {
        let slot_value = self.slot(hash).load(SeqCst);
        // If another key has the same 16-bit tag, the only cost is a response that is not stored.
        let is_last = (slot_value >> 48) as u16 == tag(hash);
        let is_last_but_one = (slot_value >> 32) as u16 == tag(hash);
        match (slot_value as u32).wrapping_sub(since) {
            0 => false,
            1 => is_last,
            2 => is_last || is_last_but_one,
            // More deletions than tags: the key may be among them.
            _ => true,
        }
    }

    fn slot(&self, hash: u64) -> &AtomicU64 {
        &self.slots[(hash >> 32) as usize % SLOTS]
    }
}

/// The part of a hash that distinguishes the keys of one slot; other bits select the slot.
fn tag(hash: u64) -> u16 {
    hash as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Hashes of keys of one slot.
    const OWN: u64 = 7 << 32 | 1;
    const ONE: u64 = 7 << 32 | 2;
    const TWO: u64 = 7 << 32 | 3;

    #[test]
    fn two_deletions_of_other_keys_in_the_slot_are_distinguished() {
        for (forgotten, may_have_own) in [
            (&[][..], false),
            (&[ONE], false),
            (&[ONE, TWO], false),
            (&[ONE, ONE], false),
            (&[OWN], true),
            (&[OWN, ONE], true),
            (&[ONE, OWN], true),
            (&[OWN, ONE, TWO], true),
            // Three deletions: the tags of only two are kept.
            (&[ONE, TWO, ONE], true),
        ] {
            let keys = ForgottenKeys::new();
            // Earlier deletions do not count.
            [OWN, ONE].into_iter().for_each(|hash| keys.add(hash));
            let since = keys.count(OWN);
            forgotten.iter().for_each(|hash| keys.add(*hash));
            assert_eq!(keys.may_contain(OWN, since), may_have_own, "{forgotten:?}");
        }
    }

    /// Simulates load with as many deletions as fetches. A response with a deleted key is never stored, and almost
    /// every other one is.
    #[test]
    fn few_fetches_are_affected_by_deletions_of_other_keys() {
        const FETCHES: usize = 200_000;
        const UNDER_WAY: usize = 120;
        let mut state = 1_u64;
        // SplitMix64.
        let mut random = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        };
        let keys = ForgottenKeys::new();
        let mut fetches: VecDeque<(u64, u32, bool)> = VecDeque::new();
        let mut refused = 0;
        for _ in 0..FETCHES {
            let own = random();
            fetches.push_back((own, keys.count(own), false));
            // At times the deleted key is one that is being fetched.
            let at = random() as usize % (50 * UNDER_WAY);
            let forgotten = match fetches.get_mut(at) {
                Some((hash, _, is_forgotten)) => {
                    *is_forgotten = true;
                    *hash
                }
                None => random(),
            };
            keys.add(forgotten);
            if fetches.len() < UNDER_WAY {
                continue;
            }
            let (hash, since, is_forgotten) = fetches.pop_front().expect("some are under way");
            let may_have = keys.may_contain(hash, since);
            assert!(may_have || !is_forgotten, "{hash:x} was forgotten");
            refused += usize::from(may_have && !is_forgotten);
        }
        assert_eq!(refused, 0, "of {FETCHES}");
    }
}
