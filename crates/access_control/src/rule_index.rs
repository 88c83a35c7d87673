//! Finds the access rules that may apply to a request. Rules with the same pattern are matched together, and rules with
//! addresses are found by the client's address. So rules for other paths or other clients cost nothing.

use std::collections::HashMap;

use lowroad_config as config;
use lowroad_config::PrefixMap;
use lowroad_http::method::Method;
use lowroad_request_conditions::ConditionInput;
use lowroad_site_rules::{DistinctPatterns, FormSet, PathMatches};

/// Access rules, by pattern and by client address.
pub(super) struct RuleIndex {
    /// The index of each rule's pattern.
    pattern_of: Vec<usize>,
    by_pattern: Vec<PatternRules>,
    /// The rules with addresses.
    by_address: PrefixMap<usize>,
}

/// The rules that may apply to a request.
#[derive(Default)]
pub struct CandidateRules {
    /// Their numbers, in ascending order.
    pub numbers: Vec<usize>,
    /// Whether a rule other than a fallback may apply to the path for some client. If so, a level that does not know the
    /// rules must not answer.
    pub is_for_some_client: bool,
}

/// The rules without addresses that have one pattern.
#[derive(Clone, Default)]
struct PatternRules {
    /// Rules without methods.
    for_any_method: Vec<usize>,
    /// Rules with methods, by method.
    by_method: HashMap<String, Vec<usize>>,
    /// Whether the pattern has any rule other than a fallback.
    has_access_rule: bool,
    /// Whether the pattern has rules with addresses, which are found by them.
    has_addresses: bool,
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

    /// The rules with a method. For HEAD this includes the rules for GET; a rule for both occurs twice.
    fn for_method(&self, method: Method) -> impl Iterator<Item = &usize> {
        let is_head = method == Method::Head;
        let get_rules = is_head.then(|| self.by_method.get("GET")).flatten();
        let method_rules = self.by_method.get(method.as_str()).into_iter();
        method_rules.chain(get_rules).flatten()
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
            // A rule with addresses is found only by its addresses, which are more selective than its pattern.
            let conditions = &rule.conditions;
            match conditions.addresses.is_empty() {
                true => pattern_rules.insert(number, &conditions.methods),
                false => pattern_rules.has_addresses = true,
            }
            for prefix in &conditions.addresses {
                index.by_address.insert(prefix, number);
            }
        }
        index
    }

    /// Whether a path matches the pattern of rule `number`.
    pub(super) fn has_pattern(&self, number: usize, matches: &PathMatches<'_>) -> bool {
        let pattern = self.pattern_of.get(number);
        matches
            .access_patterns()
            .any(|found| Some(&found) == pattern)
    }

    /// The forms of a path that match the pattern of rule `number`.
    pub(super) fn matched_forms(&self, number: usize, matches: &PathMatches<'_>) -> FormSet {
        let pattern = self.pattern_of.get(number);
        pattern.map_or(FormSet::default(), |index| matches.access_forms(*index))
    }

    /// The rules for a path, and for the method or the client's address. Other conditions are not considered.
    pub(super) fn candidates(
        &self,
        matches: &PathMatches<'_>,
        facts: &ConditionInput<'_>,
    ) -> CandidateRules {
        let mut found = CandidateRules::default();
        let mut has_addresses = false;
        for pattern in matches.access_patterns() {
            let of_pattern = &self.by_pattern[pattern];
            found.is_for_some_client |= of_pattern.has_access_rule;
            has_addresses |= of_pattern.has_addresses;
            found.numbers.extend_from_slice(&of_pattern.for_any_method);
            if !of_pattern.by_method.is_empty() {
                let for_method = of_pattern.for_method(facts.request.method);
                found.numbers.extend(for_method);
            }
        }
        // No look-up by address for the many sites that have no such rules.
        if has_addresses {
            for number in self.by_address.get(facts.client) {
                if self.has_pattern(*number, matches) {
                    found.numbers.push(*number);
                }
            }
        }
        if found.numbers.len() > 1 {
            // Rules are applied in the configured order.
            found.numbers.sort_unstable();
            // A rule occurs repeatedly if several of its address prefixes or methods match.
            found.numbers.dedup();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lowroad_http::h1::parse;
    use lowroad_http::limits::RequestLimits;
    use lowroad_site_rules::SitePatterns;

    use super::*;

    #[test]
    fn rule_index_skips_rules_for_other_methods() {
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
        let rules = |method: &str| {
            let head = format!("{method} /a/b HTTP/1.1\r\nHost: h\r\n\r\n");
            let head = parse(head.as_bytes(), &RequestLimits::default());
            let facts = ConditionInput {
                request: &head.expect("a request").expect("a whole one").request,
                client: [127, 0, 0, 1].into(),
                is_https: false,
                has_certificate: false,
                unix_s: 0,
            };
            index
                .candidates(&patterns.match_path(b"/a/b", None), &facts)
                .numbers
        };
        assert_eq!(rules("GET"), [1000, 1001, 1002]);
        assert_eq!(rules("HEAD"), [1000, 1001, 1002]);
        assert_eq!(rules("POST"), [1001]);
        assert_eq!(rules("PUT").len(), 1001);
    }
}
