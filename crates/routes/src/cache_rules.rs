//! The rules of a route's cache about lifetimes and storage.
//!
//! The conditions on the request are evaluated when the handler is called, and the statuses when it has responded.

use lowroad_cache::storage_policy::{
    StoragePolicy, StorageRefusal, TtlScope, is_heuristically_cacheable,
};
use lowroad_config::{CACHE_RULES_MAX, CacheRule, CacheRuleAction, PathPattern, StatusRange};
use lowroad_request_conditions::{ConditionInput, ConditionSet, FindSwitch, condition_text};

/// The rules of a route, in the configured order.
pub struct CacheRules {
    all: Vec<PreparedRule>,
}

struct PreparedRule {
    patterns: Vec<PathPattern>,
    statuses: Vec<StatusRange>,
    conditions: ConditionSet,
    action: CacheRuleAction,
    /// The rule as text.
    text: String,
}

/// The rules that may apply to the response to a request, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRuleSet(u64);

const _: () = assert!(CACHE_RULES_MAX <= u64::BITS as usize);

impl PreparedRule {
    /// Whether the rule applies to responses with this status. A lifetime for errors and redirects is only meant by a rule
    /// that names them: otherwise the refusal of one client's request would be stored for all.
    fn applies_to(&self, status: u16) -> bool {
        match self.statuses.is_empty() {
            true => self.action == CacheRuleAction::NoStore || is_heuristically_cacheable(status),
            false => self.statuses.iter().any(|it| it.contains(status)),
        }
    }
}

impl CacheRuleSet {
    /// No rules.
    pub const EMPTY: CacheRuleSet = CacheRuleSet(0);
}

impl CacheRules {
    /// No rules.
    pub const NONE: CacheRules = CacheRules { all: Vec::new() };

    /// Prepares rules. `find_switch` finds the switch of a file in a condition.
    pub fn new(rules: &[CacheRule], find_switch: FindSwitch<'_>) -> CacheRules {
        let all = rules.iter().map(|rule| PreparedRule {
            patterns: rule.patterns.clone(),
            statuses: rule.statuses.clone(),
            conditions: ConditionSet::new(&rule.conditions, find_switch),
            action: rule.action,
            text: text(rule),
        });
        CacheRules { all: all.collect() }
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a rule sets a lifetime.
    pub fn has_lifetime(&self) -> bool {
        let mut rules = self.all.iter();
        rules.any(|rule| rule.action != CacheRuleAction::NoStore)
    }

    /// The rules that match a request by path and conditions.
    pub fn matching(&self, path: &[u8], input: &ConditionInput<'_>) -> CacheRuleSet {
        // The first rule that matches can't be chosen yet: the status is unknown.
        let mut set = 0;
        for (number, rule) in self.all.iter().enumerate().take(CACHE_RULES_MAX) {
            let is_path =
                rule.patterns.is_empty() || rule.patterns.iter().any(|it| it.matches(path));
            set |= u64::from(is_path && rule.conditions.is_met(input)) << number;
        }
        CacheRuleSet(set)
    }

    /// The policy for a response with this status: that of the route, as changed by the first rule that applies.
    ///
    /// # Errors
    /// The rule excludes the response from storage.
    pub fn policy(
        &self,
        set: CacheRuleSet,
        status: u16,
        policy: StoragePolicy,
    ) -> Result<StoragePolicy, StorageRefusal> {
        let mut matching = self.in_set(set);
        let found = matching.find(|rule| rule.applies_to(status));
        // A rule replaces the whole `ttl` of the route, also with a shorter one.
        match found.map(|rule| rule.action) {
            None => Ok(policy),
            Some(CacheRuleAction::NoStore) => Err(StorageRefusal::Rule),
            Some(CacheRuleAction::Lifetime { ttl_s, overrides }) => Ok(StoragePolicy {
                ttl_secs: Some(ttl_s),
                ttl_scope: match overrides {
                    true => TtlScope::Override,
                    false => TtlScope::AnyStatus,
                },
                ..policy
            }),
        }
    }

    /// The rules of a set as texts.
    pub fn texts(&self, set: CacheRuleSet) -> impl Iterator<Item = &str> {
        self.in_set(set).map(|rule| rule.text.as_str())
    }

    fn in_set(&self, set: CacheRuleSet) -> impl Iterator<Item = &PreparedRule> {
        let rules = self.all.iter().enumerate().take(CACHE_RULES_MAX);
        rules
            .filter(move |(number, _)| set.0 >> number & 1 == 1)
            .map(|(_, rule)| rule)
    }
}

fn text(rule: &CacheRule) -> String {
    let mut parts: Vec<String> = rule.patterns.iter().map(ToString::to_string).collect();
    if !rule.statuses.is_empty() {
        let statuses: Vec<String> = rule.statuses.iter().map(ToString::to_string).collect();
        parts.push(format!("status {}", statuses.join(", ")));
    }
    let conditions = condition_text(&rule.conditions);
    parts.extend((!conditions.is_empty()).then_some(conditions));
    let action = match rule.action {
        CacheRuleAction::NoStore => "no_store".to_owned(),
        CacheRuleAction::Lifetime { ttl_s, overrides } => {
            let overrides = if overrides { ", override" } else { "" };
            format!("ttl {ttl_s} s{overrides}")
        }
    };
    match parts.is_empty() {
        true => action,
        false => format!("{}: {action}", parts.join(", ")),
    }
}
