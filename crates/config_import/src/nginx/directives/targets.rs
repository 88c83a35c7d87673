//! Targets of redirects and rewrites in the notation of Lowroad.

use crate::nginx::maps::request_text;
use crate::request_text::{RequestText, TextPart};

/// The target of `rewrite`: nginx appends the query of the request to it, unless it ends in a question mark.
pub fn with_query(to: &str) -> String {
    match to.split_once('?') {
        Some((_, "")) => to.to_string(),
        // Lowroad appends no query to a target with one.
        Some(_) if to.ends_with('?') => to.trim_end_matches('?').to_string(),
        Some((_, query)) if !query.contains("$query") => format!("{to}&$query"),
        _ => to.to_string(),
    }
}

/// The target `to` of `return` with this text: it has no query of the request, unless a variable of the text contains it.
pub fn returned(text: &str, to: String) -> String {
    if text.contains("$request_uri") || to.contains('?') {
        return to;
    }
    match to.split_once('#') {
        Some((path, fragment)) => format!("{path}?#{fragment}"),
        None => format!("{to}?"),
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
    } else if to.starts_with("$1") && regex.find('(') == regex.find("(/.*)") {
        // The capture begins with the slash of the target.
        regex = regex.replacen("(/.*)", "/(.*)", 1);
        to = with_slash(&to);
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

/// Whether an expression of nginx finds all paths.
pub fn is_everything(regex: &str) -> bool {
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

/// Splits a URL with the requested host in its host (`https://www.$host:8443`) from its path. Other targets are a path.
pub fn own_host(target: &str) -> (String, &str) {
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

/// The destination of `return` with a URL or a path, for all paths; `None` without an equal.
pub fn returned_url(text: &str) -> Option<String> {
    let target = strip_own_host(text);
    let (front, path) = own_host(&target);
    let to = match path {
        // Unlike a capture, the variable has the query of the request.
        "$request_uri" => path.to_string(),
        path => change_of("^/(.*)$", path)?.1,
    };
    Some(returned(text, format!("{front}{to}")))
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
            ("^/a(/.*)$", "$1", Some(("^/a/(.*)$", "/$1"))),
            ("^/(a)(/.*)$", "$1", None),
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
    fn queries_of_targets_are_those_of_nginx() {
        for (to, expected) in [
            ("/x", "/x"),
            ("/x?", "/x?"),
            ("/x?y=1", "/x?y=1&$query"),
            ("/x?y=1?", "/x?y=1"),
            ("/x?$query", "/x?$query"),
        ] {
            assert_eq!(with_query(to), expected);
        }
        for (text, to, expected) in [
            ("/x", "/x", "/x?"),
            ("/x?y=1", "/x?y=1", "/x?y=1"),
            ("https://a$request_uri", "https://a/$1", "https://a/$1"),
            ("https://a$uri", "https://a/$1", "https://a/$1?"),
            ("/x#top", "/x#top", "/x?#top"),
        ] {
            assert_eq!(returned(text, to.to_string()), expected);
        }
    }

    #[test]
    fn redirects_to_https_are_recognised() {
        assert!(is_to_https("https://$host$request_uri"));
        assert!(!is_to_https("https://www.example.com$request_uri"));
        assert!(!is_to_https("http://$host$request_uri"));
    }

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
