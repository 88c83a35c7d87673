//! Redirects and rewrites of a location, confined to its paths: nginx applies them after it has selected the location, and
//! Lowroad before.

use lowroad_config::PathExpression;

use crate::document::ConfigTable;
use crate::nginx::condition_keys::{ConditionKeys, variable_table};
use crate::nginx::level::Translation;
use crate::nginx::locations::{Location, LocationRank};
use crate::nginx::servers::Server;
use crate::nginx::settings::PathChange;
use crate::path_overlap::{may_overlap, shares_paths};
use crate::request_selector::{exception_tables, path_condition};
use crate::toml_values::quoted;

/// The expression of all paths.
pub const ALL_PATHS: &str = "^/(.*)$";

/// A redirect or rewrite with its place.
#[derive(Clone, Copy)]
pub struct LocatedChange<'s> {
    /// The server.
    pub server: &'s Server,
    /// The location; none for a change of the server, which nginx applies before it selects a location.
    pub index: Option<usize>,
    /// The change.
    pub change: &'s PathChange,
}

impl<'s> LocatedChange<'s> {
    /// The location, if it has not all paths.
    fn confining_location(&self) -> Option<&'s Location> {
        let location = &self.server.locations[self.index?];
        let is_whole = location.text == "/" && location.rank != LocationRank::Exact;
        (!is_whole).then_some(location)
    }

    /// The expression of the paths.
    pub fn regex(&self) -> String {
        let location = self.confining_location().filter(|it| !it.is_regex());
        match location.filter(|_| self.change.regex == ALL_PATHS) {
            Some(location) => location.capturing_regex(),
            None => self.change.regex.clone(),
        }
    }

    /// Adds the conditions to a table. A difference is reported.
    pub fn write_conditions(
        &self,
        table: ConfigTable,
        translation: &mut Translation,
    ) -> ConfigTable {
        let mut keys = self.change.conditions.clone();
        if let Some(location) = self.confining_location().filter(|it| !self.is_inside(it)) {
            keys.extend(&location.path_keys());
            if location.globs.is_wider && location.own_expression().is_none() {
                let report = &mut translation.report;
                report.note_difference(self.change.entry, "also outside of its location");
            }
        }
        for table in self.tables_with_precedence() {
            keys.except(table);
        }
        keys.write(table)
    }

    /// Whether the expression finds paths of the location only.
    fn is_inside(&self, location: &Location) -> bool {
        // The expression is replaced by that of the location's globs then.
        if self.change.regex == ALL_PATHS {
            return !location.is_regex();
        }
        let path = location.text.trim_start_matches('^');
        let path = path.trim_end_matches(['/', '$']).replace('\\', "");
        let expression = self.change.regex.strip_prefix('^');
        let is_plain = !path.contains(|it: char| "()[]{}.*+?|".contains(it));
        is_plain && expression.is_some_and(|it| it.replace('\\', "").starts_with(&path))
    }

    /// Tables of the paths of locations with precedence.
    fn tables_with_precedence(&self) -> Vec<String> {
        let Some(index) = self.index else {
            return Vec::new();
        };
        match self.change.is_missing {
            true => paths_without_rewrite(self.server, index),
            // The location sends the file of the new path, which may be a script.
            false if self.change.stays => routed_paths(self.server, index),
            false => paths_with_precedence(self.server, index),
        }
    }
}

impl Location {
    /// Whether its paths are those of an expression.
    pub fn is_regex(&self) -> bool {
        let prefix = crate::path_globs::PathGlobs::prefix(&self.text);
        self.rank != LocationRank::Exact && self.globs.globs != prefix.globs
    }

    /// Its expression of nginx; `None` if its paths are others.
    fn expression(&self) -> Option<String> {
        let flags = match self.ignores_case && !self.text.starts_with("(?i)") {
            true => "(?i)",
            false => "",
        };
        // The expression of an inner location also finds paths outside of the outer one.
        let is_own = self.is_regex() && self.rank == LocationRank::Regex && self.outer.is_none();
        is_own.then(|| format!("{flags}{}", self.text))
    }

    /// The condition that its expression finds the path; `None` without one, or without an equal.
    pub fn own_expression(&self) -> Option<ConditionKeys> {
        ConditionKeys::from_match("$path", &self.expression()?)
    }

    /// Its expression, if that has an equal without exceptions.
    fn only_expression(&self) -> Option<String> {
        let regex = self.expression()?;
        PathExpression::parse(&regex).is_ok().then_some(regex)
    }

    /// The conditions that a path is one of the location, if its globs match other paths, too.
    pub fn exact_keys(&self) -> Option<ConditionKeys> {
        self.own_expression().filter(|_| self.globs.is_wider)
    }

    /// The conditions that a path is one of the location.
    pub fn path_keys(&self) -> ConditionKeys {
        self.own_expression().unwrap_or_else(|| {
            let mut keys = ConditionKeys::default();
            keys.require("variable", quoted(&path_condition(&self.patterns())));
            keys
        })
    }
}

/// Tables of the paths of locations with precedence, which redirects and rewrites must leave out: they come before routes and
/// files.
pub fn paths_with_precedence(server: &Server, index: usize) -> Vec<String> {
    let location = &server.locations[index];
    // `/a` also has `/a.php`.
    let has_names = !location.text.ends_with('/');
    let before = server.locations[..index].iter();
    let others = before.filter(|other| {
        // Rules refuse paths before redirects do anything.
        let is_refused = other.settings.access.is_closed() || other.content.is_other;
        let may_share = match has_names {
            true => may_overlap(&other.globs, &location.globs),
            false => shares_paths(&other.globs, &location.globs),
        };
        other.name.is_none() && other.content.redirect.is_none() && !is_refused && may_share
    });
    path_tables(others)
}

/// Tables of the paths of locations with precedence over the files of a location, also those of scripts in its folder.
pub fn routed_paths(server: &Server, index: usize) -> Vec<String> {
    let mut paths = paths_with_precedence(server, index);
    let scripts = server.locations[..index].iter().filter(|other| {
        let is_handled = other.content.fastcgi.is_some() || other.content.proxy.is_some();
        let globs = &server.locations[index].globs;
        other.name.is_none() && is_handled && may_overlap(&other.globs, globs)
    });
    for table in path_tables(scripts) {
        if !paths.contains(&table) {
            paths.push(table);
        }
    }
    paths
}

/// Tables of the paths of files in locations with precedence, for which a fallback to a file does not hold.
pub fn paths_without_fallback(server: &Server, index: usize) -> Vec<String> {
    let has_fallback = |last: &str| !last.starts_with('=');
    paths_of_files(server, index, has_fallback)
}

/// The same for a rewrite or a route for missing files. These come before fallbacks to files, also before those of locations
/// with precedence.
pub fn paths_without_rewrite(server: &Server, index: usize) -> Vec<String> {
    let is_rewrite =
        |last: &str| last.starts_with('@') || last.contains(".php") || last.contains('?');
    paths_of_files(server, index, is_rewrite)
}

/// The same for the files of `try_files`, which are those of one location only.
pub fn paths_of_other_files(server: &Server, index: usize) -> Vec<String> {
    paths_of_files(server, index, |_| false)
}

/// Tables of the paths of locations with precedence and perhaps missing files. `answers` returns whether the end of `try_files`
/// of such a location answers first.
fn paths_of_files(server: &Server, index: usize, answers: impl Fn(&str) -> bool) -> Vec<String> {
    let location = &server.locations[index];
    let others = server.locations[..index].iter().filter(|it| {
        let content = &it.content;
        let is_handled = content.proxy.is_some() || content.fastcgi.is_some();
        let last = content.try_files.as_ref().and_then(|it| it.value.last());
        // Their own fallback, handler or refusal answers.
        it.name.is_none()
            && !is_handled
            && !last.is_some_and(|it| answers(it))
            && content.redirect.is_none()
            && !it.settings.access.is_closed()
            && may_overlap(&it.globs, &location.globs)
    });
    path_tables(others)
}

/// Tables of conditions that hold for the paths of locations.
pub fn path_tables<'l>(locations: impl Iterator<Item = &'l Location>) -> Vec<String> {
    let mut patterns: Vec<String> = Vec::new();
    let mut tables = Vec::new();
    for location in locations {
        match location.only_expression() {
            Some(regex) => tables.push(variable_table("$path", &regex)),
            None => patterns.extend(location.patterns()),
        }
    }
    // One table for all globs is shorter.
    [exception_tables(&patterns), tables].concat()
}
