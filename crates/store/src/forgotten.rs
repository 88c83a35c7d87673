//! Keys that were forgotten lately. A response to an earlier request may be older, and is not stored. Knows keys by their
//! hashes only.
//!
//! A fetch reads the count of its key's place when it begins. If the place counts the same when it ends, its key was not
//! forgotten. Other keys share the place: parts of their hashes distinguish the last two forgotten keys. If three or more
//! of one place were forgotten during a fetch, its response is not stored, whichever they were. With `n` keys forgotten
//! during a fetch that has a probability of `(n / 16,384)³ / 6`.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Places for forgotten keys.
const PLACES: usize = 1 << 14;

/// Counts of forgotten keys, by place.
pub struct ForgottenKeys {
    /// From the lowest bit: how often a key of this place was forgotten (32 bits), and part of the hashes of the last but one
    /// and of the last (16 bits each).
    places: Box<[AtomicU64]>,
}

impl ForgottenKeys {
    /// None.
    pub fn new() -> ForgottenKeys {
        ForgottenKeys {
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// How often keys were forgotten that share the place of one with this hash.
    pub fn count(&self, hash: u64) -> u32 {
        self.place(hash).load(SeqCst) as u32
    }

    /// A key with this hash is forgotten.
    pub fn add(&self, hash: u64) {
        let next = |place: u64| {
            let (count, last) = (place as u32, place >> 48);
            Some(u64::from(tag(hash)) << 48 | last << 32 | u64::from(count.wrapping_add(1)))
        };
        // It never fails: there always is a next one.
        let _ = self.place(hash).fetch_update(SeqCst, SeqCst, next);
    }

    /// Whether a key with this hash may have been forgotten since the count of its place was `since`.
    pub fn may_have(&self, hash: u64, since: u32) -> bool {
        let place = self.place(hash).load(SeqCst);
        let is_last = (place >> 48) as u16 == tag(hash);
        let is_last_but_one = (place >> 32) as u16 == tag(hash);
        match (place as u32).wrapping_sub(since) {
            0 => false,
            1 => is_last,
            2 => is_last || is_last_but_one,
            _ => true,
        }
    }

    fn place(&self, hash: u64) -> &AtomicU64 {
        &self.places[(hash >> 32) as usize % PLACES]
    }
}

/// The part of a hash that tells keys of one place apart; other bits say the place.
fn tag(hash: u64) -> u16 {
    hash as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Hashes of keys of one place.
    const OWN: u64 = 7 << 32 | 1;
    const ONE: u64 = 7 << 32 | 2;
    const TWO: u64 = 7 << 32 | 3;

    #[test]
    fn two_other_keys_of_a_place_are_told_apart() {
        for (forgotten, may_have_own) in [
            (&[][..], false),
            (&[ONE], false),
            (&[ONE, TWO], false),
            (&[ONE, ONE], false),
            (&[OWN], true),
            (&[OWN, ONE], true),
            (&[ONE, OWN], true),
            (&[OWN, ONE, TWO], true),
            // Which three they were is not known.
            (&[ONE, TWO, ONE], true),
        ] {
            let keys = ForgottenKeys::new();
            // Earlier events do not count.
            [OWN, ONE].into_iter().for_each(|hash| keys.add(hash));
            let since = keys.count(OWN);
            forgotten.iter().for_each(|hash| keys.add(*hash));
            assert_eq!(keys.may_have(OWN, since), may_have_own, "{forgotten:?}");
        }
    }

    /// Fetches under way at a time while as many keys are forgotten as come, as under load: a fetch whose key was forgotten is
    /// never stored, and of the others next to none is refused.
    #[test]
    fn fetches_are_refused_for_their_own_key_only() {
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
            // Now and then it is a key that is being fetched.
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
            let may_have = keys.may_have(hash, since);
            assert!(may_have || !is_forgotten, "{hash:x} was forgotten");
            refused += usize::from(may_have && !is_forgotten);
        }
        assert_eq!(refused, 0, "of {FETCHES}");
    }
}
