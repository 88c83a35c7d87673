//! The answer for a file that is missing: that of `try_files`, or of an inherited `error_page 404`.

use std::collections::BTreeSet;

use super::level::Translation;
use super::locations::{Location, LocationRank};
use super::output::PassUrl;
use super::servers::Server;
use super::settings::{MissingFallback, Sourced};
use crate::report::DirectiveOutcome;

/// Decides for each location of a server. A handler answers for missing files itself: an error page must not take its
/// place, and files must not be sent where a handler would answer.
pub fn resolve_missing_files(server: &mut Server, translation: &mut Translation) {
    resolve_missing_to_slash(server);
    let mut idle: Vec<(usize, DirectiveOutcome)> = Vec::new();
    let mut used = BTreeSet::new();
    for location in server.locations.iter_mut().filter(|it| it.name.is_none()) {
        let is_origin = location.content.proxy.is_some();
        let is_handled = is_origin || location.content.fastcgi.is_some();
        // A handler of missing files has the files in front of it, as in static locations.
        if is_handled && !location.content.is_missing {
            drop_tried_files(location, translation);
            if let Some(fallback) = location.settings.missing_fallback.take() {
                idle.push((fallback.entry, handler_outcome(location)));
            }
        } else if let Some(fallback) = location.settings.missing_fallback.take() {
            used.insert(fallback.entry);
            if location.settings.access.refusal == Some(404) {
                let difference = "not for paths that a rule refuses with 404";
                let report = &mut translation.report;
                report.note_difference(fallback.entry, difference);
            }
            use_fallback(location, fallback);
        }
    }
    for (entry, outcome) in idle {
        let is_by_hand = matches!(outcome, DirectiveOutcome::ByHand(_));
        // One location that needs work counts more than others that do not.
        if is_by_hand || !used.contains(&entry) {
            translation.report.change(entry, outcome);
            used.insert(entry);
        }
    }
}

/// Gives locations the handler of the location `/` for missing files, if it admits the same clients.
fn resolve_missing_to_slash(server: &mut Server) {
    let is_slash = |it: &&Location| it.text == "/" && it.rank >= LocationRank::FinalPrefix;
    let Some(slash) = server.locations.iter().find(is_slash).cloned() else {
        return;
    };
    let last = slash
        .content
        .try_files
        .as_ref()
        .and_then(|it| it.value.last());
    let named = last.filter(|it| it.starts_with('@'));
    for location in &mut server.locations {
        let Some(entry) = location.content.missing_to_slash else {
            continue;
        };
        let access = &slash.settings.access;
        if !access.is_open() && *access != location.settings.access {
            continue;
        }
        if let Some(name) = named {
            let value = vec!["$uri".to_string(), name.clone()];
            location.content.try_files = Some(Sourced { value, entry });
        } else if slash.content.proxy.as_ref().is_some_and(is_without_path) {
            location.content.proxy.clone_from(&slash.content.proxy);
            location.settings.proxy = slash.settings.proxy.clone();
            location.content.is_missing = true;
        }
    }
}

/// Whether an origin gets the client's path.
fn is_without_path(pass: &Sourced<String>) -> bool {
    PassUrl::parse(&pass.value).is_some_and(|it| it.path.is_none())
}

fn use_fallback(location: &mut Location, fallback: MissingFallback) {
    location.content.try_files.get_or_insert_with(|| Sourced {
        value: vec!["$uri".to_string(), fallback.target],
        entry: fallback.entry,
    });
}

/// The outcome of an error page with a handler beside the handler of the location.
fn handler_outcome(location: &Location) -> DirectiveOutcome {
    let settings = match location.content.proxy {
        Some(_) => &location.settings.proxy,
        None => &location.settings.fastcgi,
    };
    match settings.intercepts_errors {
        true => DirectiveOutcome::ByHand(
            "an error of an origin or a program is answered by a page, not by another handler"
                .to_string(),
        ),
        false => DirectiveOutcome::NotNeeded(
            "errors of origins and programs are sent unchanged".to_string(),
        ),
    }
}

/// `try_files` beside a handler. With `@name`, files that exist would go to the one handler, other paths to the other; with
/// `=404`, an origin would get the paths of files only. Scripts are looked for in any case.
fn drop_tried_files(location: &mut Location, translation: &mut Translation) {
    let try_files = location.content.try_files.as_ref();
    let last = try_files.and_then(|it| it.value.last());
    let way = match last.map(String::as_bytes) {
        Some([b'@', ..]) => {
            "the location's own handler answers all its paths: write a route with missing for the other"
        }
        Some([b'=', ..]) if location.content.proxy.is_some() => {
            "the origin gets the paths of missing files, too: write a route for the paths of the files"
        }
        _ => return,
    };
    if let Some(try_files) = location.content.try_files.take() {
        let outcome = DirectiveOutcome::ByHand(way.to_string());
        translation.report.change(try_files.entry, outcome);
    }
}
