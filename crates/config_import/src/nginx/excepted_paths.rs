//! Paths that the look-ahead of a location excludes: other locations have them.
//!
//! A route can't leave paths out, since files have no precedence over it. So the locations that answer the excluded paths
//! come before the one with the look-ahead.

use super::level::Translation;
use super::locations::{Location, LocationRank};
use super::servers::Server;
use crate::common_globs::common_globs;
use crate::path_globs::PathGlobs;
use crate::report::DirectiveOutcome;

/// Gives excluded paths to the locations that answer them, and refuses a location if Lowroad can't express that.
pub fn resolve_excepted_paths(server: &mut Server, translation: &mut Translation) {
    let mut index = 0;
    while index < server.locations.len() {
        let location = &server.locations[index];
        let globs = &location.globs;
        let has_exceptions = !globs.exceptions.is_empty() || globs.excepted_paths.is_some();
        // The rule of a refusal has the exceptions as conditions.
        if location.name.is_some() || location.settings.access.is_closed() || !has_exceptions {
            index += 1;
            continue;
        }
        match answering_locations(server, index) {
            Some(answering) => {
                let count = answering.len();
                remove_inner(server, index);
                server.locations[index].globs.exceptions.clear();
                server.locations.splice(index..index, answering);
                index += count + 1;
            }
            None => {
                let way = "its paths are refused until then: write the paths that its look-ahead excludes as locations of their own";
                let outcome = DirectiveOutcome::ByHand(way.to_string());
                translation.report.change(location.entry, outcome);
                server.locations[index].settings.access.has_unknown_guard = true;
                index += 1;
            }
        }
    }
}

/// The locations of the paths that a location excludes, by precedence; `None` if globs can't express their paths.
fn answering_locations(server: &Server, index: usize) -> Option<Vec<Location>> {
    let excluding = &server.locations[index].globs;
    if excluding.excepted_paths.is_some() {
        return None;
    }
    let lower = server.locations[index + 1..].iter();
    let lower = lower.filter(|it| it.name.is_none());
    let mut answering = Vec::new();
    for location in lower {
        let mut globs = Vec::new();
        for exception in &excluding.exceptions {
            globs.extend(excepted_globs(&location.globs, exception)?);
        }
        if globs.is_empty() {
            continue;
        }
        // A location with other paths, too, is needed in both places.
        if is_inner(location, excluding) {
            answering.push(location.clone());
        } else {
            let mut part = part(location, globs)?;
            part.ignores_case |= server.locations[index].ignores_case;
            answering.push(part);
        }
    }
    Some(answering)
}

/// Whether a location has excluded paths only.
fn is_inner(location: &Location, excluding: &PathGlobs) -> bool {
    let is_below = |glob: &String| {
        let mut folders = excluding.exceptions.iter();
        folders.any(|folder| glob == folder || front(folder).is_some_and(|it| glob.starts_with(it)))
    };
    location.globs.globs.iter().all(is_below)
}

/// Removes the locations that have moved before another one.
fn remove_inner(server: &mut Server, index: usize) {
    let excluding = server.locations[index].globs.clone();
    // Locations in front of the index have precedence already.
    let mut position = 0;
    server.locations.retain(|location| {
        position += 1;
        let is_lower = position > index + 1 && location.name.is_none();
        !(is_lower && is_inner(location, &excluding))
    });
}

/// The text of a glob that ends in its only wildcard.
fn front(glob: &str) -> Option<&str> {
    let front = glob.strip_suffix("**");
    front.filter(|it| it.starts_with('/') && !it.contains('*'))
}

/// Globs for the paths of `globs` that `exception` matches, too; `None` without an equal.
fn excepted_globs(globs: &PathGlobs, exception: &str) -> Option<Vec<String>> {
    let own = PathGlobs {
        globs: globs.globs.clone(),
        ..PathGlobs::default()
    };
    let common = common_globs(&own, &PathGlobs::literal(exception));
    (!common.is_wider).then_some(common.globs)
}

/// A location for a part of its paths.
fn part(location: &Location, globs: Vec<String>) -> Option<Location> {
    let content = &location.content;
    let pass = content.proxy.as_ref().map_or("", |it| it.value.as_str());
    let has_path = pass
        .split_once("://")
        .is_some_and(|(_, it)| it.contains('/'));
    let redirect = content.redirect.as_ref();
    let has_capture = |it: &str| it.contains('$') && it.contains(|it: char| it.is_ascii_digit());
    // The text of the location is replaced in the path, so another text would change the new one.
    let depends_on_text = has_path
        || content.alias.is_some()
        || !content.changes.is_empty()
        || redirect.is_some_and(|it| has_capture(&it.value.1));
    (!depends_on_text && location.rank != LocationRank::Exact).then(|| {
        let text = match &globs[..] {
            [glob] => front(glob).unwrap_or(glob).to_string(),
            _ => globs.join(" "),
        };
        Location {
            rank: LocationRank::Nested,
            text,
            globs: PathGlobs {
                globs,
                is_wider: location.globs.is_wider,
                ..PathGlobs::default()
            },
            ..location.clone()
        }
    })
}
