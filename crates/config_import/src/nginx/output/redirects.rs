//! Redirects: `[[site.redirect]]`.

use super::located_change::{LocatedChange, paths_with_precedence};
use crate::document::{ConfigDocument, ConfigTable};
use crate::nginx::directives::{
    change_of, own_host, returned, returned_url, selected_paths, strip_own_host,
};
use crate::nginx::level::Translation;
use crate::nginx::locations::{Location, LocationRank};
use crate::nginx::servers::Server;
use crate::nginx::settings::Sourced;
use crate::path_globs::PathGlobs;
use crate::report::DirectiveOutcome;
use crate::request_selector::one_or_list;
use crate::toml_values::quoted;

/// Writes the redirects of a site: those of the server, then those of locations by precedence.
pub fn write_redirects(
    server: &Server,
    translation: &mut Translation,
    document: &mut ConfigDocument,
) {
    // nginx applies rewrites of a server before it selects a location.
    write_changes(server, None, translation, document);
    for (index, location) in server.locations.iter().enumerate() {
        if location.name.is_some() {
            continue;
        }
        write_changes(server, Some(index), translation, document);
        write_slash_redirect(server, location, document);
        if let Some(redirect) = &location.content.redirect {
            let except = one_or_list(paths_with_precedence(server, index));
            let redirects = location_redirects(server, location, redirect);
            push_redirects(redirect, redirects, except.as_deref(), document);
        }
    }
    if let Some(redirect) = &server.content.redirect {
        push_redirects(redirect, server_redirects(server, redirect), None, document);
    }
}

/// Refuses the paths of redirects that have no equal: they must not lead to files or handlers instead.
pub fn close_untranslated_redirects(server: &mut Server, translation: &mut Translation) {
    let way =
        "its paths are refused until then: targets contain $1 to $9, $query, and $host as host";
    let mut by_hand = |entry: usize| {
        let outcome = DirectiveOutcome::ByHand(way.to_string());
        translation.report.change(entry, outcome);
    };
    let untranslated = |server: &Server, index: usize| {
        let location = &server.locations[index];
        let redirect = location.content.redirect.as_ref()?;
        let is_lost = location_redirects(server, location, redirect).is_empty();
        // Other locations may have taken the redirect of a named one.
        let is_lost = is_lost && (location.name.is_none() || is_named_by_any(server, location));
        is_lost.then_some(redirect.entry)
    };
    for index in 0..server.locations.len() {
        if let Some(entry) = untranslated(server, index) {
            let location = &mut server.locations[index];
            location.content.redirect = None;
            location.settings.access.refusal = Some(503);
            by_hand(entry);
        }
    }
    let of_server = server.content.redirect.as_ref();
    if let Some(redirect) = of_server.filter(|it| server_redirects(server, it).is_empty()) {
        by_hand(redirect.entry);
        server.content.redirect = None;
        server.settings.access.refusal = Some(503);
        // The redirect takes the paths of all locations.
        server.locations.clear();
    }
}

/// Whether a list of files ends with the name of a location.
fn is_named_by_any(server: &Server, named: &Location) -> bool {
    let lists = server
        .locations
        .iter()
        .filter_map(|it| it.content.try_files.as_ref());
    let mut names = lists.filter_map(|it| it.value.last());
    names.any(|it| named.name.as_ref() == Some(it))
}

/// One redirect of a `return`.
struct ReturnRedirect {
    /// `from` or `regex`.
    key: &'static str,
    paths: String,
    to: String,
    /// The scheme of the requests, if the target depends on it.
    scheme: Option<&'static str>,
}

fn push_redirects(
    redirect: &Sourced<(u16, String)>,
    redirects: Vec<ReturnRedirect>,
    except: Option<&str>,
    document: &mut ConfigDocument,
) {
    let status = redirect.value.0;
    for it in redirects {
        let table = redirect_table(it.key, &it.paths, &it.to, status, redirect.entry);
        let table = table.optional_key("scheme", it.scheme.map(quoted));
        document.push(table.optional_key("not", except));
    }
}

/// The redirects of `return` in a server, for all paths; empty without an equal.
fn server_redirects(server: &Server, redirect: &Sourced<(u16, String)>) -> Vec<ReturnRedirect> {
    let redirects = targets(server, &redirect.value.1)
        .into_iter()
        .map(|(scheme, target)| {
            Some(ReturnRedirect {
                key: "from",
                paths: "/**".to_string(),
                to: returned_url(&target)?,
                scheme,
            })
        });
    redirects.collect::<Option<_>>().unwrap_or_default()
}

/// The redirects of `return` in a location; empty without an equal.
fn location_redirects(
    server: &Server,
    location: &Location,
    redirect: &Sourced<(u16, String)>,
) -> Vec<ReturnRedirect> {
    let mut redirects = Vec::new();
    for (scheme, target) in targets(server, &redirect.value.1) {
        let (front, path) = own_host(&target);
        let Some(pairs) = location_redirect(location, path, !front.is_empty()) else {
            return Vec::new();
        };
        redirects.extend(pairs.into_iter().map(|(key, paths, to)| ReturnRedirect {
            key,
            paths,
            to: returned(&target, format!("{front}{to}")),
            scheme,
        }));
    }
    redirects
}

/// A target with the scheme of the request, as one for each scheme that the server has.
pub fn targets(server: &Server, target: &str) -> Vec<(Option<&'static str>, String)> {
    let target = strip_own_host(target);
    let Some(rest) = target.strip_prefix("$scheme://") else {
        return vec![(None, target)];
    };
    let has = |is_tls: bool| server.listens.iter().any(|it| it.is_tls == is_tls);
    let schemes: &[&'static str] = match (has(false), has(true)) {
        (true, true) => &["http", "https"],
        (_, true) => &["https"],
        _ => &["http"],
    };
    let condition = |scheme| (schemes.len() > 1).then_some(scheme);
    let targets = schemes.iter();
    targets
        .map(|scheme| (condition(*scheme), format!("{scheme}://{rest}")))
        .collect()
}

fn write_changes(
    server: &Server,
    index: Option<usize>,
    translation: &mut Translation,
    document: &mut ConfigDocument,
) {
    let content = index.map_or(&server.content, |index| &server.locations[index].content);
    for change in &content.changes {
        let Some(status) = change.status else {
            continue;
        };
        let located = LocatedChange {
            server,
            index,
            change,
        };
        let regex = located.regex();
        let table = redirect_table("regex", &regex, &change.to, status, change.entry);
        document.push(located.write_conditions(table, translation));
    }
}

/// The table of a redirect.
pub fn redirect_table(key: &str, from: &str, to: &str, status: u16, entry: usize) -> ConfigTable {
    let table = ConfigTable::new("[[site.redirect]]")
        .entry(entry)
        .key(key, quoted(from))
        .key("to", quoted(to));
    match status {
        301 => table,
        status => table.key("status", status.to_string()),
    }
}

/// Kind, paths and target of the redirects of a location. `has_host` if the target is the path of a URL.
fn location_redirect(
    location: &Location,
    target: &str,
    has_host: bool,
) -> Option<Vec<(&'static str, String, String)>> {
    let is_regex =
        location.globs != PathGlobs::prefix(&location.text) && location.rank != LocationRank::Exact;
    let has_whole_path = ["$request_uri", "$uri", "$document_uri"]
        .iter()
        .any(|name| target.contains(name));
    let of_globs = |to: &str| {
        let patterns = location.patterns().into_iter();
        patterns
            .map(|pattern| ("from", pattern, to.to_string()))
            .collect()
    };
    if has_host && target == "$request_uri" {
        return Some(of_globs(target));
    }
    if is_regex && !has_whole_path && target.contains('$') {
        // Locations with precedence have the paths that a look-ahead excludes.
        let selected = selected_paths(&location.text)?;
        let (regex, to) = change_of(&selected.expression, target)?;
        let regex = match location.ignores_case && !regex.starts_with("(?i)") {
            true => format!("(?i){regex}"),
            false => regex,
        };
        return Some(vec![("regex", regex, to)]);
    }
    if !target.contains('$') {
        let (_, to) = change_of("^/$", target)?;
        return Some(of_globs(&to));
    }
    let (_, to) = change_of("^/(.*)$", target)?;
    if location.text == "/" && location.rank != LocationRank::Exact {
        return Some(vec![("from", "/**".to_string(), to)]);
    }
    Some(vec![("regex", location.capturing_regex(), to)])
}

/// nginx redirects `/app` to `/app/` if a location with a handler is `/app/`.
fn write_slash_redirect(server: &Server, location: &Location, document: &mut ConfigDocument) {
    let is_handled = location.content.proxy.is_some() || location.content.fastcgi.is_some();
    let is_folder = location.text.len() > 1
        && location.text.ends_with('/')
        && location.globs == PathGlobs::prefix(&location.text);
    let path = location.text.trim_end_matches('/');
    // An exact location for the path turns nginx' redirect off.
    let has_own = server
        .locations
        .iter()
        .any(|it| it.text == path && it.rank == LocationRank::Exact);
    if is_handled && is_folder && !has_own {
        document.push(redirect_table(
            "from",
            path,
            &location.text,
            301,
            location.entry,
        ));
    }
}
