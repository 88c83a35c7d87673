//! Paths of aliases that nginx gives to a handler with precedence, which looks for them in another folder.

use super::closed_paths::{closed_part, has_route, is_covered};
use super::layout::{FilePlace, SiteLayout};
use crate::nginx::level::Translation;
use crate::nginx::locations::Location;
use crate::nginx::servers::Server;
use crate::path_globs::PathGlobs;

/// Refuses the paths that a handler has in the folder of an alias: a route would run the scripts there, and an internal alias
/// would send them.
pub fn close_handlers_of_aliases(server: &mut Server, translation: &mut Translation) {
    let layout = SiteLayout::new(server, &translation.root_path("html"), translation);
    let handlers: Vec<usize> = (0..server.locations.len())
        .filter(|it| has_route(server, &server.locations[*it]))
        .collect();
    let mut closed = Vec::new();
    for (index, place) in layout.places.iter().enumerate() {
        let Some(FilePlace::Alias { path, .. }) = place else {
            continue;
        };
        let before = handlers.iter().copied().take_while(|it| *it < index);
        for handler in before.filter(|it| takes_paths(server, index, *it)) {
            let part = part_below(server, index, handler, path);
            if !part.globs.globs.is_empty() {
                closed.push((handler, part));
            }
        }
    }
    // From the last one, so that the numbers of the others stay.
    closed.sort_by_key(|(handler, _)| std::cmp::Reverse(*handler));
    for (handler, part) in closed {
        let difference =
            "paths of the handler with precedence are refused: nginx has another folder for them";
        let report = &mut translation.report;
        report.note_difference(part.entry, difference);
        server.locations.insert(handler, part);
    }
}

/// Whether a handler in front of the files of a location is none for the folder of the alias.
fn takes_paths(server: &Server, index: usize, handler: usize) -> bool {
    let (location, handler) = (&server.locations[index], &server.locations[handler]);
    // No route takes the paths of an internal alias, and that of a longer prefix comes before other files.
    let is_concerned = handler.is_regex() || location.content.is_internal;
    let (own, other) = (&location.settings, &handler.settings);
    let is_same_folder = own.alias == other.alias && own.root == other.root;
    handler.name.is_none()
        && is_concerned
        && (!is_same_folder || location.content.is_internal)
        && !handler.settings.access.is_closed()
}

/// The common paths below the folder, without those that an inner handler has.
fn part_below(server: &Server, index: usize, handler: usize, path: &str) -> Location {
    let location = &server.locations[index];
    let folder = PathGlobs::prefix(&format!("{path}/"));
    let below = Location {
        globs: folder,
        ..location.clone()
    };
    let mut part = closed_part(&below, &server.locations[handler]);
    let before = server.locations[..handler].iter();
    let is_inner =
        |it: &&Location| it.settings.alias == location.settings.alias && has_route(server, it);
    let inner: Vec<&Location> = before.filter(is_inner).collect();
    part.globs.globs.retain(|glob| !is_covered(glob, &inner));
    part
}
