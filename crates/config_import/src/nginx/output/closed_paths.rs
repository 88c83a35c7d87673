//! Paths that are refused, since the site would open more than nginx does.

use super::access::has_path;
use super::closed_aliases::close_handlers_of_aliases;
use super::closed_pages::drop_protected_pages;
use super::conditional_routes::close_conditional_passes;
use super::layout::{site_root, takes_all};
use super::opened_paths::{exact_globs, handler_keys};
use super::origins::PassUrl;
use super::routes::named_handler;
use crate::common_globs::common_globs;
use crate::nginx::level::Translation;
use crate::nginx::locations::{Location, LocationRank};
use crate::nginx::servers::Server;
use crate::nginx::settings::{LevelSettings, LocationContent};
use crate::path_overlap::shares_paths;
use crate::report::DirectiveOutcome;

/// Refuses the paths of locations if their translation would send or run files that nginx does not.
pub fn close_unsafe_paths(server: &mut Server, translation: &mut Translation) {
    drop_protected_pages(server, translation);
    let default_root = translation.root_path("html");
    let roots = ScriptRoots {
        site: site_root(server, &default_root),
        default: default_root,
    };
    for index in 0..server.locations.len() {
        if let Some(way) = unsafe_translation(server, index, &roots) {
            let location = &mut server.locations[index];
            location.settings.access.has_unknown_guard = true;
            let outcome =
                DirectiveOutcome::ByHand(format!("the paths are refused until then: {way}"));
            translation.report.change(location.entry, outcome);
        }
    }
    close_conditional_passes(server, translation);
    close_files_of_handlers(server, translation);
    close_handlers_of_aliases(server, translation);
    drop_protected_fallbacks(server, translation);
}

/// The folders in which scripts may be.
struct ScriptRoots {
    /// The root of the site.
    site: Option<String>,
    /// The root of a location without one.
    default: String,
}

/// The way to translate a location by hand, if its paths must be refused until then.
fn unsafe_translation(server: &Server, index: usize, roots: &ScriptRoots) -> Option<&'static str> {
    let location = &server.locations[index];
    if location.name.is_some() {
        return None;
    }
    if has_unknown_origin(location) {
        return Some("an origin is an http or https URL");
    }
    if has_unknown_clients(&location.settings) {
        return Some("the address of a client is that of its proxy, see real_ip_header");
    }
    if location.settings.access.is_closed() || !has_route(server, location) {
        return None;
    }
    if has_other_scripts(location, roots) {
        return Some("scripts of a route are below the root of the site, see script_root");
    }
    let is_wider = handler_keys(server, location).is_none();
    is_wider.then_some("write a route for exactly these paths")
}

/// Removes fallbacks to a file of another location that protects it: a fallback has the access of the requested path.
fn drop_protected_fallbacks(server: &mut Server, translation: &mut Translation) {
    for index in 0..server.locations.len() {
        if !is_fallback_protected(server, &server.locations[index]) {
            continue;
        }
        if let Some(try_files) = server.locations[index].content.try_files.as_mut() {
            try_files.value.pop();
            try_files.value.push("=404".to_string());
            let way = "missing files are 404 until then: another location protects the last file";
            let outcome = DirectiveOutcome::ByHand(way.to_string());
            translation.report.change(try_files.entry, outcome);
        }
    }
}

fn is_fallback_protected(server: &Server, location: &Location) -> bool {
    let last = location
        .content
        .try_files
        .as_ref()
        .and_then(|it| it.value.last());
    let path = last.and_then(|it| it.split(['?', '$']).next());
    let Some(path) = path.filter(|it| it.starts_with('/')) else {
        return false;
    };
    let mut locations = server.locations.iter();
    let target = locations.find(|it| it.name.is_none() && has_path(it, path));
    // The rules of a script apply after the rewrite to it.
    let target = target.filter(|it| it.content.fastcgi.is_none());
    let access = target.map(|it| &it.settings.access);
    access.is_some_and(|it| !it.is_open() && *it != location.settings.access)
}

/// Refuses the paths that a handler would take from a location with precedence, which only sends their files.
fn close_files_of_handlers(server: &mut Server, translation: &mut Translation) {
    let mut closed: Vec<Location> = Vec::new();
    let handlers = regex_handlers(server);
    for index in 0..server.locations.len() {
        let parts = closed_parts(server, index, &handlers);
        if !parts.is_empty() {
            let difference = "paths of the scripts or of the other handler there are refused: nginx sends the files";
            let report = &mut translation.report;
            report.note_difference(server.locations[index].entry, difference);
        }
        closed.extend(parts);
    }
    // Before all locations, since an inner one with a handler comes before a longer prefix.
    server.locations.splice(0..0, closed);
}

/// The numbers of the locations with an expression and a handler.
fn regex_handlers(server: &Server) -> Vec<usize> {
    let is_handler = |index: &usize| {
        let location = &server.locations[*index];
        location.name.is_none() && location.is_regex() && has_route(server, location)
    };
    (0..server.locations.len()).filter(is_handler).collect()
}

/// The refused locations in place of the paths that handlers would take from the files of a location.
fn closed_parts(server: &Server, index: usize, handlers: &[usize]) -> Vec<Location> {
    let location = &server.locations[index];
    let taking = handlers
        .iter()
        .filter(|it| takes_files(server, index, **it));
    let parts = taking.map(|handler| {
        let mut part = closed_part(location, &server.locations[*handler]);
        let globs = &mut part.globs.globs;
        globs.retain(|glob| !has_other_handler(server, index, glob));
        part
    });
    parts.filter(|it| !it.globs.globs.is_empty()).collect()
}

/// Whether the paths of a glob have a handler with precedence over a location, or one inside of it.
fn has_other_handler(server: &Server, index: usize, glob: &str) -> bool {
    let location = &server.locations[index];
    let others = server.locations.iter().enumerate();
    let handlers: Vec<&Location> = others
        .filter(|(other, it)| {
            let is_before = *other < index && it.outer == location.outer;
            is_before || it.outer.as_ref() == Some(&location.text)
        })
        .map(|(_, it)| it)
        .filter(|it| it.name.is_none() && has_route(server, it))
        .collect();
    is_covered(glob, &handlers)
}

/// Whether locations have the paths of a glob, by samples.
pub fn is_covered(glob: &str, locations: &[&Location]) -> bool {
    let samples = ["x", "x/y"].map(|text| glob.replace("**", text).replace('*', "x"));
    let is_covered = |sample: &String| locations.iter().any(|it| has_path(it, sample));
    samples.iter().all(is_covered)
}

/// Whether the route of the location `taking`, which has an expression, would answer paths that nginx takes from the files of
/// the location `index`.
fn takes_files(server: &Server, index: usize, taking: usize) -> bool {
    let (location, handler) = (&server.locations[index], &server.locations[taking]);
    let content = &location.content;
    let is_answered = content.redirect.is_some() || content.respond.is_some();
    // A named handler answers for missing files only.
    let is_handled = content.proxy.is_some() || content.fastcgi.is_some();
    let sends_files = location.name.is_none()
        && (!is_handled || content.is_missing)
        && !is_answered
        && !location.settings.access.is_closed();
    // A prefix without precedence has a rewrite to its files, and one with it is a longer one.
    let is_outer = |it: &String| location.text.starts_with(&**it) && location.text != *it;
    let is_nested = handler.rank == LocationRank::Nested && !location.is_regex();
    let has_precedence = match is_nested {
        true => handler.outer.as_ref().is_some_and(is_outer),
        // A rewrite leads to files in front of a route that is not for scripts only.
        false => {
            index < taking && !(takes_all(handler) && shares_paths(&location.globs, &handler.globs))
        }
    };
    sends_files && has_precedence
}

/// A refused location with the paths that two locations have in common.
pub fn closed_part(location: &Location, handler: &Location) -> Location {
    let ignores_case = location.ignores_case || handler.ignores_case;
    let handler_globs = exact_globs(handler).unwrap_or_else(|| handler.globs.clone());
    let common = match ignores_case {
        true => common_globs(
            &handler_globs.to_lowercase(),
            &location.globs.to_lowercase(),
        ),
        false => common_globs(&handler_globs, &location.globs),
    };
    let mut settings = LevelSettings::default();
    settings.access.has_unknown_guard = true;
    Location {
        globs: common,
        ignores_case,
        settings,
        content: LocationContent::default(),
        rank: LocationRank::Nested,
        ..location.clone()
    }
}

/// Whether the scripts of a location are in another root than that of the site.
fn has_other_scripts(location: &Location, roots: &ScriptRoots) -> bool {
    let content = &location.content;
    let own = location.settings.root.as_ref().unwrap_or(&roots.default);
    // Without a root, all files of the site are those of handlers.
    let is_other = roots.site.as_ref().is_some_and(|site| site != own);
    content.fastcgi.is_some() && (is_other || content.alias.is_some())
}

/// Whether a handler answers, perhaps for missing files.
pub fn has_route(server: &Server, location: &Location) -> bool {
    let content = &location.content;
    content.proxy.is_some()
        || content.fastcgi.is_some()
        || named_handler(server, location).is_some()
}

/// Whether rules of addresses would concern the proxies of clients.
fn has_unknown_clients(settings: &LevelSettings) -> bool {
    let is_reported = settings.is_proxy_protocol || settings.trusts_forwarded;
    let mut entries = settings.access.addresses.iter();
    !settings.trusted_proxies.is_empty() && !is_reported && entries.any(|it| it.address.is_some())
}

/// Whether no route can have the origin of a location.
fn has_unknown_origin(location: &Location) -> bool {
    let pass = location.content.proxy.as_ref();
    pass.is_some_and(|it| PassUrl::parse(&it.value).is_none())
}
