//! Header rules of a site (`[[site.header]]`, `hsts`). They apply to all responses: files, programs and origins (also
//! interim responses), redirects and refusals.

use lowroad_config::{
    self as config, HeaderRule, MatchScope, PatternSet, PatternSetBuilder, SiteConfig,
};
use lowroad_http::fields::ResponseFields;
use lowroad_http::status::StatusCode;
use lowroad_variables::{RequestFacts, Template, TemplateInput};

use crate::SiteRules;
use crate::request_fields::RequestFields;

/// The header rules for one response, combined.
#[derive(Default)]
pub struct SiteFields<'a> {
    removed: Vec<&'a str>,
    /// Lines that replace all fields of their name.
    set: Vec<HeaderPair<'a>>,
    /// Lines that are added to the fields of their name.
    appended: Vec<HeaderPair<'a>>,
    /// Lines that are added if there is no field of their name.
    defaults: Vec<HeaderPair<'a>>,
    /// Changes that depend on the request. They are never stored: they apply to each response when it is sent.
    request_changes: Vec<RequestChange<'a>>,
}

/// A change to a field that depends on the request.
struct RequestChange<'a> {
    name: &'a str,
    change: FieldChange<'a>,
    /// The number of the rule, if it has conditions.
    condition: Option<usize>,
    rule: &'a HeaderRule,
}

/// A kind of change to a field.
enum FieldChange<'a> {
    Remove,
    Set(&'a Template),
    Append(&'a Template),
}

/// The patterns of the rules that set fields of responses.
pub struct HeaderPatterns {
    set: PatternSet,
    /// The number of patterns of `cache_control`, which come first.
    cache_control_count: usize,
    /// Whether a rule has conditions, or a value with variables.
    depends_on_request: bool,
}

/// A field name and a value.
type HeaderPair<'a> = (&'a str, &'a str);

impl<'a> SiteFields<'a> {
    /// The rules for a response at a path. In an error response no rule sets a lifetime: the lifetime of a file does
    /// not apply to its absence.
    pub fn new(rules: &'a SiteRules, path: &[u8], status: StatusCode) -> SiteFields<'a> {
        let site = &rules.config;
        // In the common case there are no rules, so no pattern is matched.
        if site.headers.is_empty() {
            return SiteFields::default();
        }
        let (_, numbers) = rules.header_patterns.match_path(path);
        let mut fields = SiteFields::from_rules(site, &numbers);
        if status.code() >= 400 {
            fields.discard_earlier("Cache-Control");
            fields.discard_earlier("Expires");
        }
        fields
    }

    /// The rules for a file, and the value of the first `[[site.cache_control]]` that matches.
    pub fn for_file(
        site: &'a SiteConfig,
        patterns: &HeaderPatterns,
        path: &[u8],
    ) -> (SiteFields<'a>, Option<&'a str>) {
        let (cache_control, numbers) = patterns.match_path(path);
        let cache_control = cache_control.and_then(|number| site.cache_control.get(number));
        let fields = SiteFields::from_rules(site, &numbers);
        (fields, cache_control.map(|rule| rule.value.as_str()))
    }

    fn from_rules(site: &'a SiteConfig, numbers: &[usize]) -> SiteFields<'a> {
        let mut fields = SiteFields::default();
        // Several patterns of one table are several rules, of which the first that matches applies.
        let mut applied_table = None;
        for number in numbers {
            let Some(rule) = site.headers.get(*number) else {
                continue;
            };
            if applied_table.replace(rule.table) == Some(rule.table) {
                continue;
            }
            match rule.conditions.is_empty() {
                true => fields.add_rule(rule),
                false => fields.add_conditional_rule(*number, rule),
            }
        }
        fields
    }

    fn add_rule(&mut self, rule: &'a HeaderRule) {
        for name in &rule.remove {
            // A later rule for a field name replaces earlier ones.
            self.discard_earlier(name);
            self.removed.push(name);
        }
        for (name, value) in &rule.set {
            self.discard_earlier(name);
            match value.constant() {
                Some(value) => self.set.push((name, value)),
                None => {
                    // The response's own field is removed, also from the stored head.
                    self.removed.push(name);
                    self.add_change(name, FieldChange::Append(value), None, rule);
                }
            }
        }
        for (name, value) in &rule.append {
            match value.constant() {
                Some(value) => self.appended.push((name, value)),
                None => self.add_change(name, FieldChange::Append(value), None, rule),
            }
        }
        let lines = |(name, value): &'a (String, String)| (name.as_str(), value.as_str());
        self.defaults.extend(rule.default.iter().map(lines));
    }

    /// Adds a rule that applies to some requests only, so its fields must not be stored.
    fn add_conditional_rule(&mut self, number: usize, rule: &'a HeaderRule) {
        // In the order in which a rule without conditions is applied.
        for name in &rule.remove {
            self.add_change(name, FieldChange::Remove, Some(number), rule);
        }
        for (name, value) in &rule.set {
            self.add_change(name, FieldChange::Set(value), Some(number), rule);
        }
        for (name, value) in &rule.append {
            self.add_change(name, FieldChange::Append(value), Some(number), rule);
        }
    }

    fn add_change(
        &mut self,
        name: &'a str,
        change: FieldChange<'a>,
        condition: Option<usize>,
        rule: &'a HeaderRule,
    ) {
        self.request_changes.push(RequestChange {
            name,
            change,
            condition,
            rule,
        });
    }

    /// Whether the fields depend on the request.
    pub fn depends_on_request(&self) -> bool {
        !self.request_changes.is_empty()
    }

    /// The changes to the fields of the response to a request. Lines with empty values are omitted. Vary names the
    /// request fields on which the changes depend. `is_met` returns whether the conditions of a header rule hold.
    pub fn request_fields(
        &self,
        path: &[u8],
        facts: &dyn RequestFacts,
        is_met: &dyn Fn(usize) -> bool,
    ) -> RequestFields<'a> {
        let mut fields = RequestFields::default();
        for change in &self.request_changes {
            // Also if the conditions don't hold: for other requests they may.
            fields.vary_by_conditions(change.rule);
            if change.condition.is_some_and(|number| !is_met(number)) {
                continue;
            }
            let value = match change.change {
                FieldChange::Remove => {
                    fields.remove(change.name);
                    continue;
                }
                FieldChange::Set(value) => {
                    fields.remove(change.name);
                    value
                }
                FieldChange::Append(value) => value,
            };
            let input = TemplateInput {
                facts,
                captures: &[change.rule.pattern.capture(path).unwrap_or_default()],
            };
            let text = value.field_value(input);
            if !text.is_empty() {
                fields.lines.push((change.name, text));
            }
            fields.vary_by(value.dependences());
        }
        fields
    }

    /// Applies the rules to the fields of a program's response. The rules add a field to an interim response only if
    /// the response already has a field of that name: `set` and `default` describe the final response.
    pub fn apply(&self, original: &ResponseFields, status: StatusCode) -> ResponseFields {
        let is_interim = status.code() < 200 && status != StatusCode::SWITCHING_PROTOCOLS;
        let has = |name: &str| original.values(name).next().is_some();
        let mut fields = ResponseFields::new();
        for (name, value) in original.for_clients() {
            if self.keeps(name.as_str(), value) {
                fields.push(name.as_str(), value);
            }
        }
        let added = self.added(has).filter(|(name, _)| !is_interim || has(name));
        for (name, value) in added {
            fields.push(name, value.as_bytes());
        }
        fields
    }

    /// Whether the rules change nothing.
    pub fn is_empty(&self) -> bool {
        let lines = [&self.set, &self.appended, &self.defaults];
        self.removed.is_empty() && lines.iter().all(|lines| lines.is_empty())
    }

    /// Whether a field of the response is kept: the rules neither remove nor replace it. A line equal to an appended
    /// one is not kept, so that applying the rules twice does not duplicate it.
    pub fn keeps(&self, name: &str, value: &[u8]) -> bool {
        !self.removed.iter().any(|it| it.eq_ignore_ascii_case(name))
            && !contains_name(&self.set, name)
            && !(self.appended.iter())
                .any(|line| has_name(line, name) && line.1.as_bytes() == value)
    }

    /// The lines to add to a response; `response_has` returns whether the response has a field.
    pub fn added(
        &self,
        response_has: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = HeaderPair<'a>> {
        let is_present = |name: &str| {
            // A removed field counts as missing, so that a default can replace it.
            let is_retained = !self.removed.iter().any(|it| it.eq_ignore_ascii_case(name));
            is_retained && response_has(name)
                || contains_name(&self.set, name)
                || contains_name(&self.appended, name)
        };
        let mut defaults: Vec<HeaderPair<'a>> = Vec::new();
        for line in &self.defaults {
            if !is_present(line.0) && !contains_name(&defaults, line.0) {
                defaults.push(*line);
            }
        }
        let mut lines = self.set.clone();
        lines.extend_from_slice(&self.appended);
        lines.extend(defaults);
        lines.into_iter()
    }

    /// The names of fields that the rules set or remove; trailers with these names are omitted.
    pub fn omitted_trailers(&self) -> impl Iterator<Item = &'a str> {
        let set = self.set.iter().map(|(name, _)| *name);
        self.removed.iter().copied().chain(set)
    }

    /// Whether the rules change the freshness lifetime that clients see.
    pub fn changes_lifetime(&self) -> bool {
        !self.keeps("Cache-Control", b"") || !self.keeps("Expires", b"")
    }

    /// Discards the effect of earlier rules for a field name.
    fn discard_earlier(&mut self, name: &str) {
        self.removed.retain(|it| !it.eq_ignore_ascii_case(name));
        for lines in [&mut self.set, &mut self.appended, &mut self.defaults] {
            lines.retain(|line| !has_name(line, name));
        }
        self.request_changes
            .retain(|change| !change.name.eq_ignore_ascii_case(name));
    }
}

impl HeaderPatterns {
    /// Collects the patterns of a site.
    pub fn new(site: &config::SiteConfig) -> HeaderPatterns {
        let mut patterns = PatternSetBuilder::default();
        for rule in &site.cache_control {
            patterns.add(&rule.pattern, MatchScope::Path);
        }
        for rule in &site.headers {
            patterns.add(&rule.pattern, MatchScope::Path);
        }
        HeaderPatterns {
            set: patterns.build([]),
            cache_control_count: site.cache_control.len(),
            depends_on_request: request_dependent_patterns(site).next().is_some(),
        }
    }

    /// Whether a rule has conditions, or a value with variables.
    #[inline]
    pub fn depend_on_request(&self) -> bool {
        self.depends_on_request
    }

    /// The number of the first `cache_control`, and the numbers of all header rules, that match a decoded path.
    pub fn match_path(&self, path: &[u8]) -> (Option<usize>, Vec<usize>) {
        let mut found = self.set.matches(path);
        // Some handlers take a backslash for a slash, so the rules of that form of the path apply, too.
        if path.contains(&b'\\') {
            found.extend(self.set.matches(&config::with_slashes(path)));
            found.sort_unstable();
            found.dedup();
        }
        let numbers = found.iter().map(|number| *number as usize);
        // The patterns of `cache_control` were added first.
        let (cache_control, headers): (Vec<usize>, Vec<usize>) =
            numbers.partition(|number| *number < self.cache_control_count);
        let headers = headers.into_iter().map(|it| it - self.cache_control_count);
        (cache_control.first().copied(), headers.collect())
    }
}

/// The patterns of rules for response fields that depend on the request: header rules with conditions or variables, and
/// CORS rules.
pub(crate) fn request_dependent_patterns(
    site: &config::SiteConfig,
) -> impl Iterator<Item = &config::PathPattern> {
    // With several rules, an earlier one may apply to a part of the paths of a later one.
    let cors = match &site.cors[..] {
        // The fields of a single rule that permits all origins are equal for all requests.
        [rule] if rule.is_for_all() => &[],
        rules => rules,
    };
    let is_dependent = |rule: &&HeaderRule| {
        let mut values = rule.set.iter().chain(&rule.append);
        !rule.conditions.is_empty() || values.any(|(_, value)| value.constant().is_none())
    };
    let headers = site.headers.iter().filter(is_dependent);
    let headers = headers.map(|rule| &rule.pattern);
    headers.chain(cors.iter().map(|rule| &rule.pattern))
}

fn contains_name(lines: &[HeaderPair<'_>], name: &str) -> bool {
    lines.iter().any(|line| has_name(line, name))
}

fn has_name(line: &HeaderPair<'_>, name: &str) -> bool {
    line.0.eq_ignore_ascii_case(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_variables::TemplateScope;

    use crate::SitePatterns;

    fn rule(kind: &str, name: &str, value: &str) -> HeaderRule {
        let lines = |of: &str| match kind == of {
            true => vec![(name.to_string(), Template::literal(value))],
            false => Vec::new(),
        };
        let default = match kind {
            "default" => vec![(name.to_string(), value.to_string())],
            _ => Vec::new(),
        };
        HeaderRule {
            pattern: config::PathPattern::everything(),
            table: 0,
            conditions: config::RequestConditions::default(),
            set: lines("set"),
            append: lines("append"),
            default,
            remove: match kind {
                "remove" => vec![name.to_ascii_lowercase()],
                _ => Vec::new(),
            },
        }
    }

    /// A table for each kind.
    fn rules(kinds: &[&str]) -> Vec<HeaderRule> {
        let rules = kinds.iter().enumerate();
        let rules = rules.map(|(table, kind)| HeaderRule {
            table,
            ..rule(kind, "X", kind)
        });
        rules.collect()
    }

    #[test]
    fn rules_apply_to_backslash_forms_and_once_for_each_table() {
        let mut site = config::site_for_folder("/".into());
        let append = rule("append", "X", "a");
        site.headers = ["/o/**", "/**"]
            .map(|pattern| HeaderRule {
                pattern: config::PathPattern::parse(pattern).expect(pattern),
                ..append.clone()
            })
            .to_vec();
        let patterns = HeaderPatterns::new(&site);
        for (path, count) in [("/o/x", 2), ("/o\\x", 2), ("/o\\/x", 2), ("/ox", 1)] {
            assert_eq!(
                patterns.match_path(path.as_bytes()).1.len(),
                count,
                "{path}"
            );
            let (fields, _) = SiteFields::for_file(&site, &patterns, path.as_bytes());
            // Both rules are of one table.
            assert_eq!(fields.added(|_| false).count(), 1, "{path}");
        }
    }

    #[test]
    fn request_patterns_match_all_forms_of_paths_to_which_rules_apply() {
        let mut site = config::site_for_folder("/".into());
        let value = Template::parse("$host", TemplateScope::fields(0)).expect("a variable");
        site.headers = vec![HeaderRule {
            pattern: config::PathPattern::parse("/o/*.x").expect("a pattern"),
            set: vec![("X".into(), value)],
            ..rule("set", "X", "a")
        }];
        let rules = HeaderPatterns::new(&site);
        assert!(rules.depend_on_request());
        let patterns = SitePatterns::new(&site);
        for (raw, decoded, applies) in [
            ("/o/a.x", "/o/a.x", true),
            ("/o\\a.x", "/o\\a.x", true),
            ("/o%5Ca.x", "/o\\a.x", true),
            ("/o\\/a.x", "/o\\/a.x", true),
            ("/o%2Fa.x", "/o/a.x", true),
            ("/o/a.xx", "/o/a.xx", false),
            ("/a.x", "/a.x", false),
        ] {
            let (_, numbers) = rules.match_path(decoded.as_bytes());
            assert_eq!(!numbers.is_empty(), applies, "{raw}");
            let raw_path = (raw != decoded || raw.contains('\\')).then_some(raw.as_bytes());
            let matches = patterns.match_path(decoded.as_bytes(), raw_path);
            assert_eq!(matches.may_have_request_fields(), applies, "{raw}");
        }
    }

    /// The values of `X` in a response that has `X: own`, after one rule of each kind for `X`, with the kind as the
    /// value.
    fn applied(kinds: &[&str]) -> Vec<String> {
        let mut site = config::site_for_folder("/".into());
        site.headers = rules(kinds);
        let (fields, _) = SiteFields::for_file(&site, &HeaderPatterns::new(&site), b"/");
        let apply = |own: Vec<String>| {
            let kept = own
                .iter()
                .filter(|value| fields.keeps("x", value.as_bytes()));
            let added = fields.added(|name| name.eq_ignore_ascii_case("x") && !own.is_empty());
            let added = added.map(|(_, value)| value.to_string());
            kept.cloned().chain(added).collect::<Vec<String>>()
        };
        let once = apply(vec!["own".into()]);
        assert_eq!(apply(once.clone()), once, "{kinds:?} again");
        once
    }

    #[test]
    fn removed_and_set_fields_are_omitted_from_trailers() {
        for (kinds, is_omitted) in [
            (&[][..], false),
            (&["append"], false),
            (&["default"], false),
            (&["append", "default"], false),
            (&["set"], true),
            (&["remove"], true),
            (&["remove", "append"], true),
            (&["set", "append"], true),
            (&["set", "remove"], true),
            (&["append", "remove"], true),
        ] {
            let mut site = config::site_for_folder("/".into());
            site.headers = rules(kinds);
            let (fields, _) = SiteFields::for_file(&site, &HeaderPatterns::new(&site), b"/");
            let is_x = |name: &str| name.eq_ignore_ascii_case("X");
            assert_eq!(fields.omitted_trailers().any(is_x), is_omitted, "{kinds:?}");
        }
    }

    #[test]
    fn later_header_rules_apply_to_result_of_earlier_ones() {
        for (kinds, expected) in [
            (&[][..], &["own"][..]),
            (&["set"], &["set"]),
            (&["append"], &["own", "append"]),
            (&["default"], &["own"]),
            (&["remove"], &[]),
            (&["remove", "default"], &["default"]),
            (&["remove", "append"], &["append"]),
            (&["set", "append"], &["set", "append"]),
            (&["set", "default"], &["set"]),
            (&["append", "set"], &["set"]),
            (&["append", "remove"], &[]),
            (&["remove", "set"], &["set"]),
            (&["set", "remove"], &[]),
            (&["remove", "append", "default"], &["append"]),
        ] {
            assert_eq!(applied(kinds), expected, "{kinds:?}");
        }
    }
}
