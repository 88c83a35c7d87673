//! The requests to which a directive applies, as patterns and conditions.

use std::collections::BTreeMap;

use crate::document::ConfigTable;
use crate::path_globs::PathGlobs;
use crate::path_overlap::may_overlap;
use crate::toml_values::{list, quoted};

/// Conditions by their key, with their values. All keys must hold; of the values of a header, cookie, argument or
/// variable all, of others one.
pub type Conditions = BTreeMap<&'static str, Vec<String>>;

/// Requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSelector {
    /// Patterns of the path, of which one must match; an empty list means all paths.
    pub patterns: Vec<String>,
    /// Further conditions.
    pub conditions: Conditions,
    /// Conditions that must not hold together.
    pub exceptions: Vec<Conditions>,
}

impl RequestSelector {
    /// The requests for these patterns.
    pub fn paths(patterns: Vec<String>) -> RequestSelector {
        RequestSelector {
            patterns,
            ..RequestSelector::default()
        }
    }

    /// Whether it selects all requests.
    pub fn is_everything(&self) -> bool {
        self.patterns.is_empty() && self.is_by_path()
    }

    /// Whether the path alone decides.
    pub fn is_by_path(&self) -> bool {
        self.conditions.is_empty() && self.exceptions.is_empty()
    }

    /// Whether some request may be selected by both, as far as paths show.
    pub fn overlaps(&self, other: &RequestSelector) -> bool {
        may_overlap(&self.globs(), &other.globs())
    }

    fn globs(&self) -> PathGlobs {
        let globs = self.patterns_or_all().into_iter();
        PathGlobs {
            globs: globs
                .map(|it| it.trim_start_matches("(?i)").to_string())
                .collect(),
            ..PathGlobs::default()
        }
    }

    /// The patterns; `/**` for all paths.
    pub fn patterns_or_all(&self) -> Vec<String> {
        match self.patterns.is_empty() {
            true => vec!["/**".to_string()],
            false => self.patterns.clone(),
        }
    }

    /// The requests that both select; `None` if conditions can't express them.
    pub fn and(&self, other: &RequestSelector) -> Option<RequestSelector> {
        let mut both = self.clone();
        // If one list of patterns is inside of the other, it selects the same as both.
        if both.patterns.is_empty() || other.is_inside(&both.patterns) {
            both.patterns = match other.patterns.is_empty() {
                true => both.patterns,
                false => other.patterns.clone(),
            };
        } else if !other.patterns.is_empty() && !self.is_inside(&other.patterns) {
            let value = path_condition(&other.patterns);
            both.conditions.entry("variable").or_default().push(value);
        }
        merge(&mut both.conditions, &other.conditions)?;
        both.exceptions.extend(other.exceptions.iter().cloned());
        Some(both)
    }

    /// Whether all patterns are below one of these.
    fn is_inside(&self, outer: &[String]) -> bool {
        let is_below = |pattern: &String, folder: &String| {
            let front = folder.strip_suffix("**");
            let front = front.filter(|it| it.starts_with('/') && !it.contains('*'));
            front.is_some_and(|front| pattern.starts_with(front)) || pattern == folder
        };
        let mut patterns = self.patterns.iter();
        !self.patterns.is_empty()
            && patterns.all(|pattern| outer.iter().any(|folder| is_below(pattern, folder)))
    }

    /// The requests that another selector does not select; `None` if conditions can't express them.
    pub fn without(&self, other: &RequestSelector) -> Option<RequestSelector> {
        // Nothing is left out, and the table stays short.
        if !self.overlaps(other) {
            return Some(self.clone());
        }
        let mut rest = self.clone();
        match &other.exceptions[..] {
            [] if other.is_everything() => return None,
            [] if other.patterns.is_empty() => rest.exceptions.push(other.as_conditions()),
            // Each exception leaves out some of the paths, so no expression is too long.
            [] => rest
                .exceptions
                .extend(pattern_groups(&other.patterns).map(|patterns| {
                    let part = RequestSelector {
                        patterns,
                        ..other.clone()
                    };
                    part.as_conditions()
                })),
            // Not (everything but these) is these.
            [exception] if other.patterns.is_empty() && other.conditions.is_empty() => {
                merge(&mut rest.conditions, exception)?;
            }
            _ => return None,
        }
        Some(rest)
    }

    /// The conditions, with the patterns as one of them; without exceptions.
    pub fn as_conditions(&self) -> Conditions {
        let mut conditions = self.conditions.clone();
        if !self.patterns.is_empty() {
            let value = path_condition(&self.patterns);
            conditions.entry("variable").or_default().push(value);
        }
        conditions
    }

    /// Adds the conditions to a table.
    pub fn write_conditions(&self, mut table: ConfigTable) -> ConfigTable {
        for (key, values) in &self.conditions {
            table = table.key(key, condition_value(key, values));
        }
        let exceptions = self.exceptions.iter().map(|conditions| {
            let keys = conditions.iter();
            let keys =
                keys.map(|(key, values)| format!("{key} = {}", condition_value(key, values)));
            format!("{{ {} }}", keys.collect::<Vec<_>>().join(", "))
        });
        table.optional_key("not", one_or_list(exceptions.collect()))
    }

    /// Adds patterns and conditions to a table whose `key` is a list of patterns.
    pub fn write(&self, key: &str, table: ConfigTable) -> ConfigTable {
        let patterns = (!self.patterns.is_empty()).then(|| list(&self.patterns));
        self.write_conditions(table.optional_key(key, patterns))
    }
}

fn condition_value(key: &str, values: &[String]) -> String {
    match (key, values) {
        ("client_certificate", [value]) => value.clone(),
        ("scheme" | "file_exists", [value]) => quoted(value),
        _ => list(values),
    }
}

/// Adds conditions; `None` if a key can't hold both.
fn merge(conditions: &mut Conditions, others: &Conditions) -> Option<()> {
    for (key, values) in others {
        let is_conjunction = matches!(*key, "header" | "cookie" | "argument" | "variable");
        match conditions.get_mut(key) {
            None => {
                conditions.insert(key, values.clone());
            }
            Some(present) if is_conjunction => present.extend(values.iter().cloned()),
            Some(present) if present == values => {}
            // Of alternatives, those in both lists remain.
            Some(present) => {
                present.retain(|it| values.contains(it));
                if present.is_empty() {
                    return None;
                }
            }
        }
    }
    Some(())
}

/// The condition that a path matches one of the patterns.
pub fn path_condition(patterns: &[String]) -> String {
    let expressions: Vec<String> = patterns.iter().map(|it| pattern_regex(it)).collect();
    match &expressions[..] {
        [expression] => format!("$path=~{expression}"),
        _ => format!("$path=~(?:{})", expressions.join("|")),
    }
}

/// The longest expression of one condition, with room for the text around the patterns; the parser accepts 1024 bytes.
const EXPRESSION_LEN_MAX: usize = 800;

/// The tables of conditions that hold for the paths of patterns.
pub fn exception_tables(patterns: &[String]) -> Vec<String> {
    let groups = pattern_groups(patterns);
    groups
        .map(|group| format!("{{ variable = {} }}", quoted(&path_condition(&group))))
        .collect()
}

/// Patterns in groups, each short enough for one condition.
fn pattern_groups(patterns: &[String]) -> impl Iterator<Item = Vec<String>> {
    let mut groups: Vec<Vec<String>> = Vec::new();
    let mut len = 0;
    for pattern in patterns {
        let own = pattern_regex(pattern).len() + 1;
        // Each group is a separate exception, so their number is not limited.
        match groups
            .last_mut()
            .filter(|_| len + own <= EXPRESSION_LEN_MAX)
        {
            Some(group) => {
                group.push(pattern.clone());
                len += own;
            }
            None => {
                groups.push(vec![pattern.clone()]);
                len = own;
            }
        }
    }
    groups.into_iter()
}

/// The value of `not` for exceptions, written as tables; none without any.
pub fn one_or_list(mut tables: Vec<String>) -> Option<String> {
    match tables.len() {
        0 | 1 => tables.pop(),
        _ => Some(format!("[{}]", tables.join(", "))),
    }
}

/// The flag of a pattern or an expression that ignores case, or an empty text, and the rest.
pub fn split_flag(pattern: &str) -> (&str, &str) {
    match pattern.strip_prefix("(?i)") {
        Some(rest) => ("(?i)", rest),
        None => ("", pattern),
    }
}

/// An expression for the paths of a pattern.
pub fn pattern_regex(pattern: &str) -> String {
    if let Some(glob) = pattern.strip_prefix("(?i)") {
        // Alternatives after it keep their case.
        return format!("(?i:{})", pattern_regex(glob));
    }
    let escaped = glob_regex(pattern);
    match pattern.starts_with('/') {
        true => format!("^{escaped}$").replace(".*$", ""),
        false => format!("(?:^|/){escaped}$"),
    }
}

/// An expression for the paths of a pattern, with the path after `front` and a slash as capture.
pub fn path_capture(pattern: &str, front: &str) -> String {
    let rest = pattern.strip_prefix(front).unwrap_or(pattern);
    format!("^{}/({})$", glob_regex(front), inner_regex(rest))
}

/// An expression for the paths of globs, with the path without its first slash as capture.
pub fn globs_regex(globs: &[String]) -> String {
    let expressions: Vec<String> = globs.iter().map(|it| inner_regex(it)).collect();
    match &expressions[..] {
        [expression] => format!("^/({expression})$"),
        _ => format!("^/((?:{}))$", expressions.join("|")),
    }
}

/// The expression of a glob without its first slash; a pattern of names is one of all folders.
fn inner_regex(glob: &str) -> String {
    match glob.strip_prefix('/') {
        Some(path) => glob_regex(path),
        None => glob_regex(&format!("**{}", glob.trim_start_matches('*'))),
    }
}

/// The expression of a glob, without anchors.
fn glob_regex(glob: &str) -> String {
    // The double asterisk comes first: a single one would take its halves.
    regex_syntax::escape(glob)
        .replace("\\*\\*", ".*")
        .replace("\\*", "[^/]*")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(patterns: &[&str]) -> RequestSelector {
        RequestSelector::paths(patterns.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn patterns_below_others_replace_them() {
        let both = |one: &[&str], other: &[&str]| paths(one).and(&paths(other)).expect("both");
        assert_eq!(both(&["/a/**"], &["/a/b"]), paths(&["/a/b"]));
        assert_eq!(both(&["/a/b"], &["/a/**"]), paths(&["/a/b"]));
        assert_eq!(both(&[], &["*.css"]), paths(&["*.css"]));
        let mixed = both(&["/a/**"], &["*.css"]);
        assert_eq!(mixed.patterns, ["/a/**"]);
        assert_eq!(mixed.conditions["variable"], ["$path=~(?:^|/)[^/]*\\.css$"]);
    }

    #[test]
    fn exceptions_are_conditions_on_the_path() {
        let rest = paths(&[]).without(&paths(&["/api/**"])).expect("the rest");
        assert_eq!(rest.exceptions[0]["variable"], ["$path=~^/api/"]);
        assert_eq!(
            paths(&["/x"]).without(&paths(&["/y"])),
            Some(paths(&["/x"]))
        );
        assert_eq!(paths(&["/x"]).without(&paths(&[])), None);
        // An exception of an exception is selected again.
        let again = paths(&[]).without(&rest).expect("the paths");
        assert_eq!(again.conditions["variable"], ["$path=~^/api/"]);
    }

    #[test]
    fn long_lists_are_several_exceptions() {
        let patterns: Vec<String> = (0..200).map(|it| format!("/folder-{it}/**")).collect();
        let value = one_or_list(exception_tables(&patterns)).expect("exceptions");
        assert!(value.matches("variable").count() > 2, "{value}");
        assert!(value.split("variable").all(|it| it.len() < 1000), "{value}");
        assert_eq!(one_or_list(exception_tables(&[])), None);
        // The selector of all others has as many, each with the further conditions.
        let mut other = RequestSelector::paths(patterns);
        other.conditions.insert("methods", vec!["GET".to_string()]);
        let rest = RequestSelector::default()
            .without(&other)
            .expect("the rest");
        assert!(rest.exceptions.len() > 2, "{rest:?}");
        for exception in &rest.exceptions {
            assert!(exception["variable"][0].len() < 1000 && exception["methods"] == ["GET"]);
        }
    }

    #[test]
    fn lists_of_alternatives_are_intersected() {
        let methods = |names: &[&str]| RequestSelector {
            conditions: Conditions::from([(
                "methods",
                names.iter().map(ToString::to_string).collect(),
            )]),
            ..RequestSelector::default()
        };
        let both = methods(&["GET", "POST"])
            .and(&methods(&["POST"]))
            .expect("both");
        assert_eq!(both.conditions["methods"], ["POST"]);
        assert_eq!(methods(&["GET"]).and(&methods(&["POST"])), None);
    }
}
