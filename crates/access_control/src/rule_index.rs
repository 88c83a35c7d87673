//! Finds the access rules of a request. Rules with one pattern are matched together, and those for certain addresses are
//! found by the client's address: a rule for other paths or other clients costs nothing.

use std::collections::HashMap;

use lowroad_config as config;
use lowroad_config::PrefixMap;
use lowroad_http::method::Method;
use lowroad_site_rules::{DistinctPatterns, FormSet, PathMatches};

use super::RuleInput;

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
    /// Rules for clients of all addresses, apart from exceptions, and all methods.
    for_any_method: Vec<usize>,
    /// Rules for clients of all addresses, apart from exceptions, and certain methods.
    by_method: HashMap<String, Vec<usize>>,
    /// Whether a rule of the pattern is no fallback.
    has_access_rule: bool,
}

impl PatternRules {
    fn insert(&mut self, number: usize, methods: &[String]) {
        if methods.is_empty() {
            self.for_any_method.push(number);
        }
        for method in methods {
            let rules = self.by_method.entry(method.clone()).or_default();
            rules.push(number);
        }
    }

    /// The rules for a method. HEAD is a GET without the body; a rule for both is listed twice.
    fn for_method(&self, method: Method) -> impl Iterator<Item = &usize> {
        let is_head = method == Method::Head;
        let get_rules = is_head.then(|| self.by_method.get("GET")).flatten();
        let method_rules = self.by_method.get(method.as_str()).into_iter();
        let method_rules = method_rules.chain(get_rules).flatten();
        self.for_any_method.iter().chain(method_rules)
    }
}

impl RuleIndex {
    /// Indexes rules, which are in the configured order.
    pub(super) fn new(rules: &[config::RuleConfig]) -> RuleIndex {
        let patterns = DistinctPatterns::from_rules(rules);
        let mut index = RuleIndex {
            by_pattern: vec![PatternRules::default(); patterns.patterns.len()],
            pattern_of: patterns.index_of,
            by_address: PrefixMap::default(),
        };
        for (number, rule) in rules.iter().enumerate() {
            let pattern_rules = &mut index.by_pattern[index.pattern_of[number]];
            pattern_rules.has_access_rule |=
                !matches!(rule.action, config::RuleAction::Fallback(_));
            // A rule for certain addresses is found by them only: they are more selective than its pattern.
            if rule.addresses.is_empty() {
                pattern_rules.insert(number, &rule.methods);
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

    /// The forms of a path that match the pattern of one of its rules.
    pub(super) fn matched_forms(&self, number: usize, matches: &PathMatches<'_>) -> FormSet {
        let pattern = self.pattern_of.get(number);
        pattern.map_or(FormSet::default(), |index| matches.access_forms(*index))
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
        // The common case of a path without rules: no look-up by address.
        if found.peek().is_none() {
            return rules;
        }
        for pattern in found {
            rules.extend(self.by_pattern[pattern].for_method(input.method));
        }
        let for_address = self.by_address.get(input.peer).copied();
        rules.extend(for_address.filter(|number| self.has_pattern(*number, matches)));
        // The first rule that matches decides, so the configured order is restored.
        rules.sort_unstable();
        // A rule is found several times if several of its prefixes contain the address or several of its methods match.
        rules.dedup();
        rules
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use lowroad_site_rules::SitePatterns;

    #[test]
    fn rules_for_other_methods_are_not_looked_at() {
        let mut text = "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"/srv\"\n".to_owned();
        let mut rule = |methods: &str| {
            text += &format!("[[site.rule]]\npattern = \"/a/**\"\n{methods}\ndeny = 403\n");
        };
        for _ in 0..1000 {
            rule("methods = [\"PUT\"]");
        }
        rule("methods = [\"HEAD\", \"GET\"]");
        rule("");
        rule("methods = [\"GET\"]");
        let config = config::parse(&text, Path::new("lowroad.toml")).expect("a configuration");
        let site = &config.sites[0];
        let patterns = SitePatterns::new(site);
        let index = RuleIndex::new(&site.access);
        let rules = |method: Method| {
            let peer = [127, 0, 0, 1].into();
            index.rules(
                &patterns.match_path(b"/a/b", None),
                RuleInput { method, peer },
            )
        };
        assert_eq!(rules(Method::Get), [1000, 1001, 1002]);
        assert_eq!(rules(Method::Head), [1000, 1001, 1002]);
        assert_eq!(rules(Method::Post), [1001]);
        assert_eq!(rules(Method::Put).len(), 1001);
    }
}
