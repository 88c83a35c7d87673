//! Redirects: `[[site.redirect]]`.

use super::overlap::shares_paths;
use super::routes::{confined_regex, globs_regex};
use crate::document::{ConfigDocument, ConfigTable};
use crate::nginx::blocks::{Location, LocationRank, Server};
use crate::nginx::directives::{change_of, strip_own_host};
use crate::nginx::level::Translation;
use crate::nginx::settings::PathChange;
use crate::nginx::values::quoted;
use crate::path_globs::PathGlobs;
use crate::report::DirectiveOutcome;

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
        let Some(redirect) = &location.content.redirect else {
            continue;
        };
        let (status, target) = &redirect.value;
        match location_redirect(location, target) {
            Some(pairs) => {
                for (key, from, to) in pairs {
                    document.push(redirect_table(&key, &from, &to, *status, redirect.entry));
                }
                report_taken(server, index, translation);
            }
            None => translation.report.change(
                redirect.entry,
                DirectiveOutcome::ByHand(
                    "targets contain $1 to $9 and $query only, after the host".to_string(),
                ),
            ),
        }
    }
    if let Some(redirect) = &server.content.redirect {
        let (status, target) = &redirect.value;
        let whole = own_url(target).or_else(|| {
            let (_, to) = change_of("^/(.*)$", &strip_own_host(target))?;
            Some(to)
        });
        match whole {
            Some(to) => document.push(redirect_table("from", "/**", &to, *status, redirect.entry)),
            None => translation.report.change(
                redirect.entry,
                DirectiveOutcome::ByHand(
                    "a redirect leads to a path, or to a host by its name".to_string(),
                ),
            ),
        }
    }
}

/// The target if it is the requested URL with another scheme or port: `https://$host:8443$request_uri`.
fn own_url(target: &str) -> Option<String> {
    let (scheme, rest) = target.split_once("://")?;
    let is_scheme = matches!(scheme, "http" | "https");
    let hosts = ["$host", "$server_name"];
    let after = hosts.iter().find_map(|host| rest.strip_prefix(host))?;
    let port = after.strip_suffix("$request_uri")?;
    let digits = port.strip_prefix(':').unwrap_or(port);
    let is_port = port.is_empty() || digits.len() < port.len() && digits.parse::<u16>().is_ok();
    (is_scheme && is_port).then(|| format!("{scheme}://$host{port}$request_uri"))
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
            document.push(redirect_table(
                "regex",
                &regex,
                &change.to,
                status,
                change.entry,
            ));
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

/// Kind, paths and target of the redirects of a location.
fn location_redirect(location: &Location, target: &str) -> Option<Vec<(String, String, String)>> {
    let is_regex =
        location.globs != PathGlobs::prefix(&location.text) && location.rank != LocationRank::Exact;
    let target = strip_own_host(target);
    let has_whole_path = ["$request_uri", "$uri", "$document_uri"]
        .iter()
        .any(|name| target.contains(name));
    if is_regex && !has_whole_path && target.contains('$') {
        let (regex, to) = change_of(&location.text, &target)?;
        return Some(vec![("regex".to_string(), regex, to)]);
    }
    if !target.contains('$') {
        let (_, to) = change_of("^/$", &target)?;
        let globs = location.globs.globs.iter();
        return Some(
            globs
                .map(|glob| ("from".to_string(), glob.clone(), to.clone()))
                .collect(),
        );
    }
    let (_, to) = change_of("^/(.*)$", &target)?;
    if location.text == "/" && location.rank != LocationRank::Exact {
        return Some(vec![("from".to_string(), "/**".to_string(), to)]);
    }
    Some(vec![(
        "regex".to_string(),
        globs_regex(&location.globs.globs),
        to,
    )])
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

/// Redirects come before routes and files, so they also take the paths of locations with precedence.
fn report_taken(server: &Server, index: usize, translation: &mut Translation) {
    let redirect = &server.locations[index];
    for location in server.locations[..index]
        .iter()
        .filter(|it| it.name.is_none())
    {
        let is_refused = location.settings.access.is_closed() || location.content.is_other;
        if location.content.redirect.is_none()
            && !is_refused
            && shares_paths(&location.globs, &redirect.globs)
        {
            let way = format!(
                "the redirect of {} takes its paths: write redirects for single paths",
                redirect.comment
            );
            translation
                .report
                .change(location.entry, DirectiveOutcome::ByHand(way));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::own_url;

    #[test]
    fn target_with_the_requested_host_and_path_is_kept() {
        for (target, expected) in [
            (
                "https://$host$request_uri",
                Some("https://$host$request_uri"),
            ),
            (
                "https://$server_name$request_uri",
                Some("https://$host$request_uri"),
            ),
            (
                "https://$host:8443$request_uri",
                Some("https://$host:8443$request_uri"),
            ),
            ("https://$host:x$request_uri", None),
            ("https://$hostile$request_uri", None),
            ("https://www.a.example$request_uri", None),
            ("/x", None),
        ] {
            assert_eq!(own_url(target).as_deref(), expected, "{target}");
        }
    }
}
