//! The ban list: purges as rules. A response that was stored before a matching rule is invalid (hard purge) or stale
//! (soft purge). There are two kinds of entries: rules, with a meaning that the caller defines, and marks for names
//! (hashes) by which an object can be purged.
//!
//! Adding an entry has a constant cost, however many responses are stored. Entries are numbered by generations. An
//! object stores the generation up to which it was checked, and is compared only with younger entries: the marks of the
//! object's names, and the few rules.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Purges by rule and by name.
#[derive(Debug)]
pub struct BanList<R> {
    rules: VecDeque<BanRule<R>>,
    /// The last hard and soft purge of each name.
    marks: BTreeMap<u64, BanMark>,
    /// The generation of the youngest entry; 0 before the first.
    generation: u64,
    /// Objects last checked before this generation are invalid, since entries after their check were dropped.
    floor: u64,
    /// The number of rules and marks that were dropped for space.
    dropped: u64,
    rules_max: usize,
    marks_max: usize,
}

#[derive(Debug)]
struct BanRule<R> {
    matcher: R,
    kind: PurgeMode,
    generation: u64,
}

/// The generations of the last hard and soft purge; 0: never.
#[derive(Debug, Default)]
struct BanMark {
    hard: u64,
    soft: u64,
    soft_at_ms: u64,
}

/// The effect of a purge on the matching objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeMode {
    /// Objects are invalid.
    Hard,
    /// Objects are stale from this time on.
    Soft {
        /// The time of the purge.
        at_ms: u64,
    },
}

/// The combined effect of all entries on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BanVerdict {
    /// No entry matches.
    None,
    /// The object is stale.
    Soft {
        /// The time since which it is stale.
        at_ms: u64,
    },
    /// The object is invalid.
    Hard,
}

impl<R: PartialEq> BanList<R> {
    /// An empty list with room for `rules_max` rules and the marks of `marks_max` names.
    #[must_use]
    pub fn new(rules_max: usize, marks_max: usize) -> BanList<R> {
        BanList {
            rules: VecDeque::new(),
            marks: BTreeMap::new(),
            generation: 0,
            floor: 0,
            dropped: 0,
            rules_max,
            marks_max,
        }
    }

    /// The generation of an object that is fetched from now on. Must be read before the request is sent to the origin,
    /// so that later purges apply to the object.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Makes all later generations greater than `generation`, which a previous process reached.
    pub fn skip_to(&mut self, generation: u64) {
        self.generation = self.generation.max(generation);
    }

    /// Adds a rule. An older rule with the same matcher is removed, unless it is hard and the new one is soft. If the
    /// list is full, the oldest rule is dropped, and objects that were not compared with that rule become invalid.
    pub fn add(&mut self, matcher: R, kind: PurgeMode) {
        self.generation += 1;
        let is_needed = |rule: &BanRule<R>| {
            // A soft purge does not replace a hard one with the same matcher.
            let is_covered = kind == PurgeMode::Hard || rule.kind != PurgeMode::Hard;
            rule.matcher != matcher || !is_covered
        };
        self.rules.retain(is_needed);
        self.rules.push_back(BanRule {
            matcher,
            kind,
            generation: self.generation,
        });
        while self.rules.len() > self.rules_max {
            if let Some(oldest) = self.rules.pop_front() {
                self.floor = self.floor.max(oldest.generation);
                self.dropped += 1;
            }
        }
    }

    /// Purges by names, with one generation for all of them. If there are too many marks, the older half is dropped,
    /// and objects that were not compared with a dropped mark become invalid. A soft purge of a name replaces the
    /// name's earlier soft purge.
    pub fn mark(&mut self, names: impl IntoIterator<Item = u64>, kind: PurgeMode) {
        self.generation += 1;
        for name in names {
            let mark = self.marks.entry(name).or_default();
            match kind {
                PurgeMode::Hard => mark.hard = self.generation,
                PurgeMode::Soft { at_ms } => {
                    mark.soft = self.generation;
                    mark.soft_at_ms = at_ms;
                }
            }
        }
        if self.marks.len() > self.marks_max {
            self.drop_old_marks();
        }
    }

    fn drop_old_marks(&mut self) {
        let mut ages: Vec<u64> = self.marks.values().map(BanMark::youngest).collect();
        let half = ages.len() / 2;
        // Dropping half of the marks in one pass amortizes the cost.
        let (_, median, _) = ages.select_nth_unstable(half);
        let floor = self.floor.max(*median);
        self.floor = floor;
        let len_before = self.marks.len();
        self.marks.retain(|_, mark| mark.youngest() > floor);
        self.dropped += (len_before - self.marks.len()) as u64;
    }

    /// The number of rules and marks that were dropped for space. Objects that were not compared with them became
    /// invalid.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Checks an object with these names that was last checked at generation `since`. The caller must then store
    /// [`generation`](Self::generation) for the object. If any matching entry is hard, the verdict is hard; otherwise
    /// the earliest soft purge decides.
    pub fn check(
        &self,
        since: u64,
        names: impl IntoIterator<Item = u64>,
        is_match: impl Fn(&R) -> bool,
    ) -> BanVerdict {
        // A dropped entry may have matched: in doubt the object is invalid.
        if since < self.floor {
            return BanVerdict::Hard;
        }
        let mut verdict = BanVerdict::None;
        for mark in names.into_iter().filter_map(|name| self.marks.get(&name)) {
            if mark.hard > since {
                return BanVerdict::Hard;
            }
            if mark.soft > since {
                verdict = verdict.or_soft(mark.soft_at_ms);
            }
        }
        let younger = self
            .rules
            .iter()
            .rev()
            // Iterated from the youngest rule: the rules are sorted by generation.
            .take_while(|rule| rule.generation > since);
        for rule in younger.filter(|rule| is_match(&rule.matcher)) {
            match rule.kind {
                PurgeMode::Soft { at_ms } => verdict = verdict.or_soft(at_ms),
                PurgeMode::Hard => return BanVerdict::Hard,
            }
        }
        verdict
    }

    /// The number of rules and marks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len() + self.marks.len()
    }

    /// Whether there are no rules and marks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl BanMark {
    fn youngest(&self) -> u64 {
        self.hard.max(self.soft)
    }
}

impl BanVerdict {
    fn or_soft(self, at_ms: u64) -> BanVerdict {
        match self {
            BanVerdict::Soft { at_ms: previous_ms } => BanVerdict::Soft {
                at_ms: at_ms.min(previous_ms),
            },
            _ => BanVerdict::Soft { at_ms },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOFT: PurgeMode = PurgeMode::Soft { at_ms: 7 };
    const STALE: BanVerdict = BanVerdict::Soft { at_ms: 7 };

    #[test]
    fn rule_applies_only_to_older_objects() {
        let mut bans = BanList::new(8, 8);
        let old = bans.generation();
        bans.add('a', PurgeMode::Hard);
        bans.add('b', SOFT);
        let check = |since, meant: &dyn Fn(&char) -> bool| bans.check(since, [], meant);
        assert_eq!(check(old, &|rule| *rule == 'a'), BanVerdict::Hard);
        assert_eq!(check(old, &|rule| *rule == 'b'), STALE);
        assert_eq!(check(old, &|_| true), BanVerdict::Hard);
        assert_eq!(check(old, &|_| false), BanVerdict::None);
        assert_eq!(check(1, &|_| true), STALE);
        assert_eq!(check(bans.generation(), &|_| true), BanVerdict::None);
    }

    #[test]
    fn generations_continue_after_a_restart() {
        // Rules on disk outlive the process.
        let mut bans = BanList::new(8, 8);
        bans.skip_to(10);
        bans.add('a', PurgeMode::Hard);
        bans.skip_to(3);
        assert_eq!(bans.generation(), 11);
        assert_eq!(bans.check(10, [], |_| true), BanVerdict::Hard);
        assert_eq!(bans.check(11, [], |_| true), BanVerdict::None);
    }

    #[test]
    fn purge_by_name_matches_objects_with_the_name() {
        let mut bans = BanList::<char>::new(8, 8);
        bans.mark([1, 2], PurgeMode::Hard);
        bans.mark([2, 3], SOFT);
        let check = |since, names: &[u64]| bans.check(since, names.iter().copied(), |_| true);
        assert_eq!(check(0, &[4, 1]), BanVerdict::Hard);
        assert_eq!(check(0, &[3]), STALE);
        assert_eq!(check(0, &[3, 2]), BanVerdict::Hard);
        assert_eq!(check(1, &[1, 2]), STALE);
        assert_eq!(
            (check(2, &[1, 2, 3]), check(0, &[5])),
            (BanVerdict::None, BanVerdict::None)
        );
    }

    #[test]
    fn equal_rule_replaces_the_older_one() {
        let mut bans = BanList::new(8, 8);
        for kind in [SOFT, PurgeMode::Hard, SOFT, SOFT] {
            bans.add('a', kind);
        }
        assert_eq!(bans.len(), 2);
        assert_eq!(bans.check(0, [], |_| true), BanVerdict::Hard);
        assert_eq!(bans.check(2, [], |_| true), STALE);
    }

    #[test]
    fn objects_unchecked_since_a_dropped_rule_are_invalid() {
        // With limited memory, objects are dropped rather than purges.
        let mut bans = BanList::new(2, 4);
        (0..3).for_each(|rule| bans.add(rule, SOFT));
        assert_eq!((bans.len(), bans.dropped()), (2, 1));
        assert_eq!(bans.check(0, [], |_| false), BanVerdict::Hard);
        assert_eq!(bans.check(1, [], |_| false), BanVerdict::None);
        (0..5).for_each(|name| bans.mark([name], PurgeMode::Hard));
        // The marks of generations 4 to 6 were dropped.
        assert_eq!((bans.len(), bans.dropped()), (4, 4));
        assert_eq!(bans.check(5, [], |_| false), BanVerdict::Hard);
        assert_eq!(bans.check(6, [0], |_| false), BanVerdict::None);
        assert_eq!(bans.check(6, [3], |_| false), BanVerdict::Hard);
    }
}
