//! Redirects: `[[site.redirect]]`.

use super::access::with_condition;
use super::rewrites::confined_regex;
use crate::document::{ConfigDocument, ConfigTable};
use crate::nginx::directives::{change_of, strip_own_host};
use crate::nginx::level::Translation;
use crate::nginx::locations::{Location, LocationRank};
use crate::nginx::maps::request_text;
use crate::nginx::servers::Server;
use crate::nginx::settings::{PathChange, Sourced};
use crate::path_globs::PathGlobs;
use crate::path_overlap::shares_paths;
use crate::report::DirectiveOutcome;
use crate::request_selector::{exception, globs_regex};
use crate::request_text::{RequestText, TextPart};
use crate::toml_values::quoted;

/// Writes the redirects of a site: those of the server, then those of locations by precedence.
pub fn write_redirects(
    server: &Server,
    translation: &mut Translation,
    document: &mut ConfigDocument,
) {
    // nginx applies rewrites of a server before it selects a location.
    write_changes(&server.content.changes, None, translation, document);
    for (index, location) in server.locations.iter().enumerate() {
        if location.name.is_some() {
            continue;
        }
        write_changes(
            &location.content.changes,
            Some(location),
            translation,
            document,
        );
        write_slash_redirect(server, location, document);
        if let Some(redirect) = &location.content.redirect {
            let except = paths_with_precedence(server, index);
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
            let (front, path) = own_host(&target);
            let to = match path {
                "$request_uri" => path.to_string(),
                path => change_of("^/(.*)$", path)?.1,
            };
            Some(ReturnRedirect {
                key: "from",
                paths: "/**".to_string(),
                to: format!("{front}{to}"),
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
            to: format!("{front}{to}"),
            scheme,
        }));
    }
    redirects
}

/// A target with the scheme of the request, as one for each scheme that the server has.
fn targets(server: &Server, target: &str) -> Vec<(Option<&'static str>, String)> {
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

/// Splits a URL with the requested host in its host (`https://www.$host:8443`) from its path. Other targets are a path.
fn own_host(target: &str) -> (String, &str) {
    let other = (String::new(), target);
    let Some((scheme, rest)) = target.split_once("://") else {
        return other;
    };
    let ends = ["/", "$request_uri", "$uri", "$document_uri"];
    let end = ends.iter().filter_map(|end| rest.find(end)).min();
    // The host ends where the path begins, which may be a variable.
    let (host, path) = rest.split_at(end.unwrap_or(rest.len()));
    let Some(host) = request_text(host, &|_| false).filter(RequestText::has_variables) else {
        return other;
    };
    let mut text = String::new();
    for part in host.parts() {
        match part {
            TextPart::Literal(part) => text.push_str(part),
            TextPart::Variable(name) if name == "authority" => text.push_str("$authority"),
            // nginx' server_name is the requested host, unless that has no site.
            TextPart::Variable(name) if name == "host" || name == "site" => text.push_str("$host"),
            _ => return other,
        }
    }
    let port = text.split_once(':').map_or("80", |(_, port)| port);
    match port.parse::<u16>() {
        Ok(_) if path.is_empty() => (format!("{scheme}://{text}"), "/"),
        Ok(_) => (format!("{scheme}://{text}"), path),
        Err(_) => other,
    }
}

fn write_changes(
    changes: &[PathChange],
    location: Option<&Location>,
    translation: &mut Translation,
    document: &mut ConfigDocument,
) {
    for change in changes {
        if let Some(status) = change.status {
            let regex = confined_regex(change, location, translation);
            let table = redirect_table("regex", &regex, &change.to, status, change.entry);
            document.push(with_condition(table, change.condition.as_ref()));
        }
    }
}

fn redirect_table(key: &str, from: &str, to: &str, status: u16, entry: usize) -> ConfigTable {
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
        let globs = location.globs.globs.iter();
        globs
            .map(|glob| ("from", glob.clone(), to.to_string()))
            .collect()
    };
    if has_host && target == "$request_uri" {
        return Some(of_globs(target));
    }
    if is_regex && !has_whole_path && target.contains('$') {
        let (regex, to) = change_of(&location.text, target)?;
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
    Some(vec![("regex", globs_regex(&location.globs.globs), to)])
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

/// Redirects come before routes and files, so they would take the paths of locations with precedence: the condition that
/// leaves these out.
fn paths_with_precedence(server: &Server, index: usize) -> Option<String> {
    let redirect = &server.locations[index];
    let before = server.locations[..index].iter();
    let others = before.filter(|location| {
        // Rules refuse paths before redirects do anything.
        let is_refused = location.settings.access.is_closed() || location.content.is_other;
        location.name.is_none()
            && location.content.redirect.is_none()
            && !is_refused
            && shares_paths(&location.globs, &redirect.globs)
    });
    let globs: Vec<String> = others
        .flat_map(|it| it.globs.globs.iter().cloned())
        .collect();
    exception(&globs)
}

#[cfg(test)]
mod tests {
    use super::own_host;

    #[test]
    fn requested_host_is_split_from_the_path() {
        for (target, expected) in [
            (
                "https://$host$request_uri",
                ("https://$host", "$request_uri"),
            ),
            ("https://$server_name/x", ("https://$host", "/x")),
            ("https://www.$http_host", ("https://www.$authority", "/")),
            ("https://$host:8443$uri", ("https://$host:8443", "$uri")),
            (
                "https://$host:x$request_uri",
                ("", "https://$host:x$request_uri"),
            ),
            (
                "https://$hostile$request_uri",
                ("", "https://$hostile$request_uri"),
            ),
            ("https://a.example/$host", ("", "https://a.example/$host")),
            ("/x", ("", "/x")),
        ] {
            let (front, path) = own_host(target);
            assert_eq!((front.as_str(), path), expected, "{target}");
        }
    }
}
