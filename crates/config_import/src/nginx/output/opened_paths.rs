//! The paths that a location opens: those of its expression, and no others that its globs match.

use crate::nginx::condition_keys::ConditionKeys;
use crate::nginx::locations::{Location, LocationRank};
use crate::nginx::servers::Server;
use crate::path_globs::PathGlobs;

/// The conditions of a rule that admits the paths of a location; `None` without an equal.
pub fn opening_keys(server: &Server, location: &Location) -> Option<ConditionKeys> {
    if is_before_longer_prefix(server, location) {
        return None;
    }
    let is_exact = exact_globs(location).is_some_and(|it| it.globs == location.globs.globs);
    match is_exact {
        true => Some(ConditionKeys::default()),
        false => expression_keys(server, location),
    }
}

/// Whether a protected prefix is longer than the one around an expression: nginx doesn't look for the expression there.
fn is_before_longer_prefix(server: &Server, location: &Location) -> bool {
    let is_nested = location.is_regex() && location.rank == LocationRank::Nested;
    let Some(outer) = location.outer.as_ref().filter(|_| is_nested) else {
        return false;
    };
    let mut others = server.locations.iter();
    others.any(|it| {
        let is_longer = it.text.starts_with(&**outer) && it.text != *outer;
        is_longer && !it.is_regex() && !it.settings.access.is_open()
    })
}

/// The conditions of a route to the handler of a location; `None` without an equal.
pub fn handler_keys(server: &Server, location: &Location) -> Option<ConditionKeys> {
    match exact_globs(location) {
        Some(_) => Some(ConditionKeys::default()),
        None => expression_keys(server, location),
    }
}

/// The patterns of routes to the handler of a location. They may be fewer than those of its rules.
pub fn handler_patterns(location: &Location) -> Vec<String> {
    let globs = exact_globs(location).unwrap_or_else(|| location.globs.clone());
    globs.globs.iter().map(|it| location.pattern(it)).collect()
}

/// Globs that match no path which the expression does not find, apart from the length of a name; `None` without any.
pub fn exact_globs(location: &Location) -> Option<PathGlobs> {
    let is_exact = !location.globs.is_wider && !location.text.contains('+');
    if is_exact || !location.is_regex() {
        return Some(location.globs.clone());
    }
    // `[^/]\.php` is for `.php`, and the dot of `index.php` is rarely meant to be any character.
    let text = location.text.replace(".+", ".*").replace("[^/]+", "[^/]*");
    let text = text.replace("[^/]\\.", ".*\\.");
    let inner = || location.globs.clone();
    let globs = match location.outer {
        Some(_) => Some(inner()),
        None => PathGlobs::from_regex(&with_literal_dots(&text)),
    };
    globs.filter(|it| !it.is_wider && !text.contains('+'))
}

/// An expression in which dots without a repetition are literal.
fn with_literal_dots(regex: &str) -> String {
    let mut text = String::new();
    let mut characters = regex.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                text.push('\\');
                text.extend(characters.next());
            }
            '.' if !matches!(characters.peek(), Some('*' | '+' | '?' | '{')) => {
                text.push_str("\\.")
            }
            _ => text.push(character),
        }
    }
    text
}

fn expression_keys(server: &Server, location: &Location) -> Option<ConditionKeys> {
    // A condition sees the requested path, so a rewrite could lead around it.
    location.own_expression().filter(|_| !has_rewrites(server))
}

/// Whether a rewrite of a server leads to another path.
fn has_rewrites(server: &Server) -> bool {
    let locations = server.locations.iter().map(|it| &it.content);
    let contents = std::iter::once(&server.content).chain(locations);
    let mut changes = contents.flat_map(|it| &it.changes);
    changes.any(|it| it.status.is_none())
}
