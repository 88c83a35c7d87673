//! The distinct patterns of rules or routes, so that a path is matched with each of them once.

use std::collections::HashMap;

use lowroad_config::{MatchScope, PathPattern, RouteConfig, RuleConfig};

/// The distinct patterns of a site's rules or routes, in the order of their first use.
pub struct DistinctPatterns<'r> {
    /// The distinct patterns, each with its scope.
    pub patterns: Vec<(&'r PathPattern, MatchScope)>,
    /// For each rule or route, the index of its pattern.
    pub index_of: Vec<usize>,
}

impl<'r> DistinctPatterns<'r> {
    /// The patterns of access rules. A rule that refuses requests also covers everything below its paths, so its
    /// pattern is distinct from an equal pattern of a rule that does not refuse requests.
    pub fn from_rules(rules: &'r [RuleConfig]) -> DistinctPatterns<'r> {
        // Equal patterns with the same scope are matched once, for all of their rules.
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
