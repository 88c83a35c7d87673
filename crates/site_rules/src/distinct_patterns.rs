//! The patterns of rules and routes without repetition: a path is matched with each once.

use std::collections::HashMap;

use lowroad_config::{MatchScope, PathPattern, RouteConfig, RuleConfig};

/// The different patterns of a site's rules or routes, in the order of the first that has them.
pub struct DistinctPatterns<'r> {
    /// Each pattern once, with its scope.
    pub patterns: Vec<(&'r PathPattern, MatchScope)>,
    /// For each rule or route: the index of its pattern.
    pub index_of: Vec<usize>,
}

impl<'r> DistinctPatterns<'r> {
    /// The patterns of access rules. A refusing rule also covers everything below its paths, so its pattern differs
    /// from an equal one of another rule.
    pub fn from_rules(rules: &'r [RuleConfig]) -> DistinctPatterns<'r> {
        // Equal patterns are matched once, for all their rules.
        let scoped = rules.iter().map(|rule| match rule.action.refuses() {
            true => (&rule.pattern, MatchScope::Access),
            false => (&rule.pattern, MatchScope::Path),
        });
        DistinctPatterns::new(scoped)
    }

    /// The patterns of routes.
    pub fn from_routes(routes: &'r [RouteConfig]) -> DistinctPatterns<'r> {
        let scoped = routes.iter();
        DistinctPatterns::new(scoped.map(|route| (&route.pattern, MatchScope::Script)))
    }

    fn new(all: impl Iterator<Item = (&'r PathPattern, MatchScope)>) -> DistinctPatterns<'r> {
        let mut indexes = HashMap::new();
        let mut patterns = Vec::new();
        let index_of = all.map(|(pattern, scope)| {
            *indexes
                .entry((pattern.to_string(), scope))
                .or_insert_with(|| {
                    patterns.push((pattern, scope));
                    patterns.len() - 1
                })
        });
        let index_of = index_of.collect();
        DistinctPatterns { patterns, index_of }
    }
}
