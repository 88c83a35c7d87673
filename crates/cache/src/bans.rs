//! Purges as rules: what was stored before a rule was made, and is meant by it, is gone or stale. It knows neither the
//! objects nor how a URL is written: the caller says what a rule means.
//!
//! A rule costs nothing when it is made, however much is stored. An object remembers the generation up to which it was
//! checked, and is compared only with the rules that are younger.

use alloc::collections::VecDeque;

/// Rules in the order in which they were made.
#[derive(Debug)]
pub struct Bans<R> {
    rules: VecDeque<Rule<R>>,
    /// Generation of the youngest rule; 0 before the first.
    generation: u64,
    /// Objects that were last checked before this generation are gone: their rules were dropped.
    floor: u64,
    rules_max: usize,
}

#[derive(Debug)]
struct Rule<R> {
    means: R,
    is_soft: bool,
    generation: u64,
}

/// What the rules do to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ban {
    /// Nothing.
    None,
    /// It is stale.
    Soft,
    /// It is gone.
    Hard,
}

impl<R> Bans<R> {
    /// No rules, and room for `rules_max`.
    #[must_use]
    pub fn new(rules_max: usize) -> Bans<R> {
        Bans {
            rules: VecDeque::new(),
            generation: 0,
            floor: 0,
            rules_max,
        }
    }

    /// What an object remembers that is fetched from now on. Take it before the origin is asked.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Adds a rule. Where there is no room, the oldest one goes, and with it what was not checked since.
    pub fn add(&mut self, means: R, is_soft: bool) {
        self.generation += 1;
        self.rules.push_back(Rule {
            means,
            is_soft,
            generation: self.generation,
        });
        while self.rules.len() > self.rules_max {
            if let Some(oldest) = self.rules.pop_front() {
                self.floor = oldest.generation;
            }
        }
    }

    /// Drops the rules that all objects have been checked against; `oldest` is the least generation that any remembers.
    pub fn forget_before(&mut self, oldest: u64) {
        while self
            .rules
            .front()
            .is_some_and(|rule| rule.generation <= oldest)
        {
            self.rules.pop_front();
        }
    }

    /// Checks an object that was last checked at generation `since`; it then remembers [`Bans::generation`]. The youngest
    /// rules come first, and a hard one decides.
    pub fn check(&self, since: u64, is_meant: impl Fn(&R) -> bool) -> Ban {
        if since < self.floor {
            return Ban::Hard;
        }
        let mut found = Ban::None;
        let younger = self
            .rules
            .iter()
            .rev()
            .take_while(|rule| rule.generation > since);
        for rule in younger.filter(|rule| is_meant(&rule.means)) {
            match rule.is_soft {
                true => found = Ban::Soft,
                false => return Ban::Hard,
            }
        }
        found
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_older_than_a_rule_is_meant() {
        let mut bans = Bans::new(8);
        let old = bans.generation();
        bans.add('a', false);
        bans.add('b', true);
        assert_eq!(bans.check(old, |rule| *rule == 'a'), Ban::Hard);
        assert_eq!(bans.check(old, |rule| *rule == 'b'), Ban::Soft);
        assert_eq!(bans.check(old, |_| true), Ban::Hard);
        assert_eq!(bans.check(old, |_| false), Ban::None);
        assert_eq!(bans.check(1, |_| true), Ban::Soft);
        assert_eq!(bans.check(bans.generation(), |_| true), Ban::None);
    }

    #[test]
    fn what_was_not_checked_for_too_long_is_gone() {
        let mut bans = Bans::new(2);
        (0..3).for_each(|rule| bans.add(rule, true));
        assert_eq!(bans.len(), 2);
        assert_eq!(bans.check(0, |_| false), Ban::Hard);
        assert_eq!(bans.check(1, |_| false), Ban::None);
        bans.forget_before(3);
        assert!(bans.is_empty() && bans.check(3, |_| true) == Ban::None);
    }
}
