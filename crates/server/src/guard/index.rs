//! Finds the access rules of a request. Rules with one pattern are matched together, and those for certain addresses are
//! found by the client's address: a rule for other paths or other clients costs nothing.

use std::collections::HashMap;

use lowroad_config as config;
use lowroad_config::{MatchScope, Pattern, PrefixMap};

use super::RuleInput;
use crate::sites::PathMatches;

/// The different patterns of access rules, in the order of their first rules. A rule that refuses is also for what lies
/// below its paths, so its pattern differs from the same one of another rule.
pub struct RulePatterns<'r> {
    /// The patterns, with their scopes.
    pub patterns: Vec<(&'r Pattern, MatchScope)>,
    /// The index of each rule's pattern.
    pattern_of: Vec<usize>,
}

/// Access rules by pattern and by client address.
pub(super) struct RuleIndex {
    /// The pattern of each rule.
    pattern_of: Vec<usize>,
    by_pattern: Vec<PatternRules>,
    /// Rules for certain addresses only.
    by_address: PrefixMap<usize>,
}

/// The rules of one pattern.
#[derive(Clone, Default)]
struct PatternRules {
    /// Rules for clients of all addresses, apart from exceptions.
    for_any_address: Vec<usize>,
    /// Whether a rule of the pattern is no fallback.
    has_access_rule: bool,
}

impl<'r> RulePatterns<'r> {
    /// The patterns of these rules.
    pub fn new(rules: &'r [config::Rule]) -> RulePatterns<'r> {
        let mut indexes: HashMap<(String, bool), usize> = HashMap::new();
        let mut patterns = Vec::new();
        let pattern_of = rules.iter().map(|rule| {
            let refuses = rule.action.refuses();
            let scope = match refuses {
                true => MatchScope::Access,
                false => MatchScope::Path,
            };
            let key = (rule.pattern.to_string(), refuses);
            *indexes.entry(key).or_insert_with(|| {
                patterns.push((&rule.pattern, scope));
                patterns.len() - 1
            })
        });
        let pattern_of = pattern_of.collect();
        RulePatterns {
            patterns,
            pattern_of,
        }
    }

    /// The indexes of the patterns of rules that allow, in ascending order.
    pub fn allowing(&self, rules: &[config::Rule]) -> Vec<u32> {
        let patterns = self.pattern_of.iter().zip(rules);
        let allowing = patterns.filter(|(_, rule)| matches!(rule.action, config::Action::Allow));
        let mut indexes: Vec<u32> = allowing.map(|(index, _)| *index as u32).collect();
        // A later rule may have an earlier pattern.
        indexes.sort_unstable();
        indexes
    }
}

impl RuleIndex {
    /// For rules in their order.
    pub(super) fn new(rules: &[config::Rule]) -> RuleIndex {
        let patterns = RulePatterns::new(rules);
        let mut index = RuleIndex {
            by_pattern: vec![PatternRules::default(); patterns.patterns.len()],
            pattern_of: patterns.pattern_of,
            by_address: PrefixMap::default(),
        };
        for (number, rule) in rules.iter().enumerate() {
            let of_pattern = &mut index.by_pattern[index.pattern_of[number]];
            of_pattern.has_access_rule |= !matches!(rule.action, config::Action::Fallback(_));
            if rule.addresses.is_empty() {
                of_pattern.for_any_address.push(number);
            }
            for prefix in &rule.addresses {
                index.by_address.insert(prefix, number);
            }
        }
        index
    }

    /// Whether a path matches the pattern of a rule.
    pub(super) fn has_pattern(&self, number: usize, matches: &PathMatches<'_>) -> bool {
        let pattern = self.pattern_of.get(number);
        matches
            .access_patterns()
            .any(|found| Some(&found) == pattern)
    }

    /// Whether a rule other than a fallback matches a path, for any client.
    pub(super) fn has_access_rule(&self, matches: &PathMatches<'_>) -> bool {
        let mut found = matches.access_patterns();
        found.any(|pattern| self.by_pattern[pattern].has_access_rule)
    }

    /// The rules for a path and the client's address, exceptions aside, in their order.
    pub(super) fn rules(&self, matches: &PathMatches<'_>, input: RuleInput) -> Vec<usize> {
        let mut rules = Vec::new();
        let mut found = matches.access_patterns().peekable();
        if found.peek().is_none() {
            return rules;
        }
        for pattern in found {
            rules.extend(&self.by_pattern[pattern].for_any_address);
        }
        let for_address = self.by_address.get(input.peer).copied();
        rules.extend(for_address.filter(|number| self.has_pattern(*number, matches)));
        rules.sort_unstable();
        // Several prefixes of a rule may contain the address.
        rules.dedup();
        rules
    }
}
