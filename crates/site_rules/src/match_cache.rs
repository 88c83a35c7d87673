//! The matches of frequent paths, kept by a worker: most requests are for few paths, and matching a path with all patterns
//! of a site costs more than finding its last result.

use std::cell::RefCell;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;

/// The number of slots, a power of two. Each path has one.
const SLOTS: usize = 256;
/// Longer paths are matched each time.
const PATH_LEN_MAX: usize = 256;

/// The results of matching paths with the patterns of sites. `M` is such a result.
pub struct MatchCache<M> {
    /// Empty until the first path of a site with patterns.
    slots: RefCell<Vec<CacheSlot<M>>>,
}

struct CacheSlot<M> {
    /// The hash of the last path that was not the kept one.
    candidate: u64,
    kept: Option<KeptMatches<M>>,
}

struct KeptMatches<M> {
    patterns: PatternsIdentity,
    path: Box<[u8]>,
    matches: Arc<M>,
}

/// The identity of a site's patterns: its clones are equal, and differ from all others.
#[derive(Clone, Default)]
pub struct PatternsIdentity(Arc<()>);

impl PatternsIdentity {
    fn is(&self, other: &PatternsIdentity) -> bool {
        // A kept clone keeps the allocation, so no later site can have the same address.
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl<M> Default for MatchCache<M> {
    fn default() -> Self {
        MatchCache {
            slots: RefCell::default(),
        }
    }
}

impl<M> MatchCache<M> {
    /// The matches of a path with these patterns, which `compute` finds if they are not kept.
    pub fn find(
        &self,
        patterns: &PatternsIdentity,
        path: &[u8],
        compute: impl FnOnce() -> M,
    ) -> Arc<M> {
        if path.len() > PATH_LEN_MAX {
            return Arc::new(compute());
        }
        // Many sites have the same paths, such as `/`, which must not replace each other.
        let hash = FixedState::default().hash_one((patterns.address(), path));
        let mut slots = self.slots.borrow_mut();
        // Workers of sites without rules need no memory for it.
        if slots.is_empty() {
            slots.resize_with(SLOTS, || CacheSlot {
                candidate: 0,
                kept: None,
            });
        }
        let slot = &mut slots[hash as usize % SLOTS];
        if let Some(kept) = &slot.kept
            && kept.path[..] == *path
            && kept.patterns.is(patterns)
        {
            return kept.matches.clone();
        }
        let matches = Arc::new(compute());
        // A path is kept when it comes for the second time: a scan of many paths leaves the frequent ones, and costs no
        // allocation.
        if std::mem::replace(&mut slot.candidate, hash) == hash {
            slot.kept = Some(KeptMatches {
                patterns: patterns.clone(),
                path: path.into(),
                matches: matches.clone(),
            });
        }
        matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks up a path 1000 times; returns how often it was computed.
    fn computed(cache: &MatchCache<usize>, patterns: &PatternsIdentity, path: &[u8]) -> usize {
        let mut count = 0;
        for _ in 0..1000 {
            let matches = cache.find(patterns, path, || {
                count += 1;
                path.len()
            });
            assert_eq!(*matches, path.len());
        }
        count
    }

    #[test]
    fn frequent_path_is_computed_twice() {
        let (cache, patterns) = (MatchCache::default(), PatternsIdentity::default());
        assert_eq!(computed(&cache, &patterns, b"/a"), 2);
        assert_eq!(computed(&cache, &patterns, b"/a"), 0);
        let long = [b'/'; PATH_LEN_MAX + 1];
        assert_eq!(computed(&cache, &patterns, &long), 1000);
        assert_eq!(computed(&cache, &patterns, &long[1..]), 2);
    }

    #[test]
    fn equal_paths_of_many_sites_are_kept() {
        let (cache, rounds) = (MatchCache::default(), 1000);
        let sites: Vec<PatternsIdentity> = (0..16).map(|_| PatternsIdentity::default()).collect();
        let mut count = 0;
        for _ in 0..rounds {
            for (number, patterns) in sites.iter().enumerate() {
                let matches = cache.find(patterns, b"/", || {
                    count += 1;
                    number
                });
                assert_eq!(*matches, number);
            }
        }
        // Addresses are random: that seven pairs of sites share a slot happens once in a million runs.
        assert!(count < 14 * rounds, "{count}");
    }

    #[test]
    fn matches_of_other_patterns_are_not_used() {
        let cache = MatchCache::default();
        for number in 0..100 {
            // Each identity is dropped before the next one is created, as at reloads.
            let patterns = PatternsIdentity::default();
            for _ in 0..3 {
                assert_eq!(*cache.find(&patterns, b"/a", || number), number);
            }
        }
    }

    #[test]
    fn scan_of_many_paths_leaves_frequent_ones() {
        let (cache, patterns) = (MatchCache::default(), PatternsIdentity::default());
        computed(&cache, &patterns, b"/a");
        for number in 0..100 * SLOTS {
            cache.find(&patterns, number.to_string().as_bytes(), || number);
        }
        assert_eq!(computed(&cache, &patterns, b"/a"), 0);
        let slots = cache.slots.borrow();
        assert_eq!(slots.iter().filter(|slot| slot.kept.is_some()).count(), 1);
    }
}
