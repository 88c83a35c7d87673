//! Redirects, rewrites and variables: `return`, `rewrite`, `set`.

use super::process::not_a_value;
use super::{Handling::NotNeeded, Handling::Translate, TableLine};
use crate::nginx::level::Level;
use crate::nginx::settings::{PathChange, Sourced};
use crate::nginx::tree::Directive;
use crate::report::DirectiveOutcome;

/// Directives of redirects and rewrites.
pub const TABLE: &[TableLine] = &[
    ("return", Translate(return_)),
    ("rewrite", Translate(rewrite)),
    ("set", Translate(set)),
    ("break", NotNeeded("a request is rewritten once")),
];

fn return_(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let (status, text) = match directive.arg(0).parse::<u16>() {
        Ok(status) => (status, directive.arg(1)),
        // `return URL` without a status is a 302 in nginx.
        Err(_) => (302, directive.arg(0)),
    };
    let text = level.substitute(text);
    match status {
        301 | 302 | 303 | 307 | 308 if !text.is_empty() => {
            level.content.redirect = Some(Sourced {
                value: (status, text),
                entry: directive.id,
            });
            DirectiveOutcome::translated()
        }
        401 | 407 | 426 => refuse(level, 403, "403: the status needs further fields"),
        400..=599 if status != 499 => refuse(level, status, ""),
        _ => {
            level.content.is_other = true;
            level.content.respond = Some(Sourced {
                value: (status, text),
                entry: directive.id,
            });
            DirectiveOutcome::ByHand("write a [[site.rule]] with `respond`".to_string())
        }
    }
}

fn refuse(level: &mut Level<'_>, status: u16, difference: &str) -> DirectiveOutcome {
    level.settings.access.refusal = Some(status);
    DirectiveOutcome::Translated(difference.to_string())
}

fn rewrite(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    match path_change(level, directive, false) {
        Ok(change) => {
            level.content.changes.push(change);
            DirectiveOutcome::translated()
        }
        Err(outcome) => outcome,
    }
}

/// Reads `rewrite`; `is_missing` if it applies to missing files only.
pub fn path_change(
    level: &Level<'_>,
    directive: &Directive,
    is_missing: bool,
) -> Result<PathChange, DirectiveOutcome> {
    let target = level.substitute(directive.arg(1));
    let status = match directive.arg(2) {
        "permanent" => Some(301),
        "redirect" => Some(302),
        // nginx redirects to a URL even with the flag `last` or `break`.
        _ if target.starts_with("http://")
            || target.starts_with("https://")
            || target.starts_with("$scheme") =>
        {
            Some(302)
        }
        "" | "last" | "break" => None,
        _ => return Err(not_a_value()),
    };
    let (regex, to) = change_of(directive.arg(0), &target).ok_or_else(|| {
        DirectiveOutcome::ByHand(
            "targets contain $1 to $9 and $query only, after the host".to_string(),
        )
    })?;
    Ok(PathChange {
        regex,
        to: if status.is_none() {
            with_query(&to)
        } else {
            to
        },
        status,
        is_missing,
        condition: None,
        entry: directive.id,
        comment: directive.to_text(),
    })
}

/// nginx appends the query of the request to that of a rewrite, unless the target ends in a question mark.
fn with_query(to: &str) -> String {
    match to.split_once('?') {
        Some((_, query)) if !query.is_empty() && !query.contains("$query") => {
            format!("{to}&$query")
        }
        _ => to.to_string(),
    }
}

/// Expression and target in the notation of Lowroad; none if the target has other variables.
pub fn change_of(regex: &str, target: &str) -> Option<(String, String)> {
    let target = strip_own_host(target);
    let mut regex = regex.replace("\\/", "/");
    // `$args` is also the end of `$is_args$args`, so the longer text is replaced first.
    let mut to = target
        .replace("$is_args$args", "?$query")
        .replace("$is_args$query_string", "?$query")
        .replace("$args", "$query")
        .replace("$query_string", "$query");
    let whole_path = ["$request_uri", "$document_uri", "$uri"]
        .into_iter()
        .find(|name| to.contains(name));
    if let Some(name) = whole_path {
        // `$1` takes the place of the path, so it must capture all of it.
        if !is_everything(&regex) {
            return None;
        }
        regex = "^/(.*)$".to_string();
        to = to.replace(name, "/$1");
    } else if regex.starts_with("^(.") || regex.starts_with("(.") {
        // The target begins with a slash, so the capture must not.
        let is_whole = is_everything(&regex);
        // The slash outside of the capture is the character that `.+` requires.
        let rest = regex.trim_start_matches('^').replacen("(.+)", "(.*)", 1);
        regex = if is_whole {
            "^/(.*)$".to_string()
        } else {
            format!("^/{rest}")
        };
        to = with_slash(&to);
    } else if is_everything(&regex) {
        regex = "^/(.*)$".to_string();
    }
    let has_unknown = to.split('$').skip(1).any(|rest| {
        !(rest.starts_with("query") || rest.starts_with(|it: char| it.is_ascii_digit()))
    });
    let is_complete = to.starts_with('/') || to.contains("://");
    // `//host` would be a URL of another host (RFC 3986 §4.2).
    (!has_unknown && is_complete && !to.starts_with("//")).then_some((regex, to))
}

/// Adds the slash to `$1` that the capture has lost.
fn with_slash(to: &str) -> String {
    let to = to.replace("$1", "/$1");
    match to.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", rest.replace("//", "/")),
        None => to.replace("//", "/"),
    }
}

fn is_everything(regex: &str) -> bool {
    matches!(
        regex,
        "^" | "^/"
            | ".*"
            | "^.*"
            | "^.*$"
            | "^/.*"
            | "^/.*$"
            | "^(.*)"
            | "^(.*)$"
            | "^(.+)$"
            | "^/(.*)"
            | "^/(.*)$"
            | "^/?(.*)$"
            | "(.*)"
            | "^/(.+)$"
            | "/"
            | "^.+$"
    )
}

/// Removes the scheme and host of the request: a redirect to a path keeps them.
pub fn strip_own_host(target: &str) -> String {
    let Some(rest) = target.strip_prefix("$scheme://") else {
        return target.to_string();
    };
    let hosts = ["$host:$server_port", "$http_host", "$host", "$server_name"];
    match hosts.iter().find_map(|host| rest.strip_prefix(host)) {
        Some("") => "/".to_string(),
        // `$hostname` also begins with `$host`, so a path must follow.
        Some(path) if path.starts_with(['/', '$']) => path.to_string(),
        _ => target.to_string(),
    }
}

/// Whether a redirect leads to the same URL over TLS.
pub fn is_to_https(target: &str) -> bool {
    let hosts = ["$host", "$server_name", "$http_host"];
    let paths = ["$request_uri", "$uri", "$uri$is_args$args", "/$1", "$1"];
    let Some(rest) = target.strip_prefix("https://") else {
        return false;
    };
    hosts.iter().any(|host| {
        rest.strip_prefix(host)
            .is_some_and(|path| paths.contains(&path))
    })
}

fn set(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let name = directive.arg(0).trim_start_matches('$').to_string();
    let value = level.substitute(directive.arg(1));
    // A variable of a fixed value is replaced where it is used. One with a variable is replaced, too, unless that
    // depends on captures.
    let depends_on_captures = value
        .split('$')
        .skip(1)
        .any(|it| it.starts_with(|it: char| it.is_ascii_digit()));
    if depends_on_captures || value.contains(&format!("${name}")) {
        return DirectiveOutcome::ByHand("there are no variables of requests".to_string());
    }
    level.settings.variables.insert(name, value);
    DirectiveOutcome::translated()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_written_in_our_notation() {
        let cases = [
            (
                "^/(.*)$",
                "/index.php?q=$1",
                Some(("^/(.*)$", "/index.php?q=$1")),
            ),
            (
                "^(.*)$",
                "https://a.example$1",
                Some(("^/(.*)$", "https://a.example/$1")),
            ),
            (
                "^",
                "https://a.example$request_uri",
                Some(("^/(.*)$", "https://a.example/$1")),
            ),
            ("^", "/index.php", Some(("^/(.*)$", "/index.php"))),
            ("(.*)", "/a$1", Some(("^/(.*)$", "/a/$1"))),
            ("^(.*)\\.html$", "$1", Some(("^/(.*)\\.html$", "/$1"))),
            ("^/x$", "$scheme://$host/y", Some(("^/x$", "/y"))),
            ("^/x$", "/y?$args", Some(("^/x$", "/y?$query"))),
            ("^/x$", "/y$cookie_a", None),
            ("^/x$", "https://$http_x/", None),
        ];
        for (regex, target, expected) in cases {
            let expected = expected.map(|(regex, to)| (regex.to_string(), to.to_string()));
            assert_eq!(change_of(regex, target), expected, "{target}");
        }
    }

    #[test]
    fn redirects_to_https_are_recognised() {
        assert!(is_to_https("https://$host$request_uri"));
        assert!(!is_to_https("https://www.example.com$request_uri"));
        assert!(!is_to_https("http://$host$request_uri"));
    }
}
