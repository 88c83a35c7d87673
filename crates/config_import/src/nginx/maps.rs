//! Maps: nginx' `map` blocks as tables `[map.NAME]`, and the variables of requests that have an equal.

use crate::document::ConfigTable;
use crate::request_text::{RequestText, TextPart};
use crate::toml_values::{key, quoted};

/// The variables with other names. Those that end in `_` are families.
const VARIABLES: [(&str, &str); 22] = [
    ("host", "host"),
    ("http_host", "authority"),
    ("scheme", "scheme"),
    ("uri", "path"),
    ("document_uri", "path"),
    ("request_uri", "request_uri"),
    ("args", "query"),
    ("query_string", "query"),
    ("request_method", "method"),
    ("remote_addr", "client"),
    ("remote_port", "client_port"),
    ("server_name", "site"),
    ("ssl_client_s_dn", "client_certificate_subject"),
    ("ssl_client_i_dn", "client_certificate_issuer"),
    ("ssl_client_serial", "client_certificate_serial"),
    ("request_id", "request_id"),
    ("ssl_protocol", "tls_version"),
    ("ssl_cipher", "tls_cipher"),
    ("ssl_server_name", "tls_server_name"),
    ("arg_", "arg_"),
    ("cookie_", "cookie_"),
    ("http_", "header_"),
];

/// A text with variables; `None` if one has no equivalent. `is_map` returns whether a name is that of a translated map.
pub fn request_text(text: &str, is_map: &dyn Fn(&str) -> bool) -> Option<RequestText> {
    let mut parsed = RequestText::default();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        parsed.push(TextPart::Literal(rest[..dollar].to_string()));
        let after = &rest[dollar + 1..];
        let (name, len) = match after.strip_prefix('{') {
            Some(braced) => {
                let end = braced.find('}')?;
                (&braced[..end], end + 2)
            }
            None => {
                let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
                let len = after.find(|it: char| !is_name(it)).unwrap_or(after.len());
                (&after[..len], len)
            }
        };
        parsed.push(match is_map(name) {
            true => TextPart::Map(name.to_string()),
            false => TextPart::Variable(request_variable(name)?),
        });
        rest = &after[len..];
    }
    parsed.push(TextPart::Literal(rest.to_string()));
    Some(parsed)
}

fn request_variable(name: &str) -> Option<String> {
    let exact = VARIABLES.iter().find(|(nginx, _)| *nginx == name);
    if let Some((_, own)) = exact.filter(|(nginx, _)| !nginx.ends_with('_')) {
        return Some((*own).to_string());
    }
    VARIABLES.iter().find_map(|(prefix, own)| {
        let rest = name.strip_prefix(prefix).filter(|rest| !rest.is_empty())?;
        prefix.ends_with('_').then(|| format!("{own}{rest}"))
    })
}

/// A map as a table.
pub struct MapTable {
    /// The table.
    pub table: ConfigTable,
    /// Its entries without an equal, which the table does not have.
    pub omitted: Vec<String>,
    /// Whether expressions with different values are tried in another order than in nginx.
    pub is_reordered: bool,
}

/// The table of a map; `None` if its source or its default has no equivalent, or none of its entries.
pub fn map_table(name: &str, source: &str, pairs: &[(String, String)]) -> Option<MapTable> {
    // The variables of logs describe responses.
    let from = request_text(source, &|_| false).filter(RequestText::has_variables)?;
    let mut table =
        ConfigTable::new(&format!("[map.{name}]")).key("from", quoted(&from.to_string()));
    let mut entries: Vec<(String, &str)> = Vec::new();
    let mut omitted = Vec::new();
    // `hostnames` is a flag, not an entry.
    let is_hostnames = pairs
        .iter()
        .any(|(key, value)| key == "hostnames" && value.is_empty());
    for (text, value) in pairs {
        match text.as_str() {
            "hostnames" | "volatile" if value.is_empty() => {}
            // Without its default, a map would have another value for most requests.
            "default" if value.contains('$') => return None,
            "default" => table = table.key("default", quoted(value)),
            // Values with variables or captures would be another language. An included file was not read.
            text => match entry_keys(text, is_hostnames) {
                Some(keys) if !value.contains('$') && text != "include" => {
                    entries.extend(keys.into_iter().map(|key| (key, value.as_str())));
                }
                _ => omitted.push(format!("{text} {value}")),
            },
        }
    }
    if entries.is_empty() {
        return None;
    }
    let is_reordered = is_reordered(&entries);
    // One line, as a person would write a short table.
    let entries: Vec<String> = entries
        .iter()
        .map(|(text, value)| format!("{} = {}", key(text), quoted(value)))
        .collect();
    if !omitted.is_empty() {
        table = table.comment(&format!("By hand: {}", omitted.join("; ")));
    }
    // nginx compares without regard to case.
    let table = table
        .key("ignore_case", "true")
        .key("entries", format!("{{ {} }}", entries.join(", ")));
    Some(MapTable {
        table,
        omitted,
        is_reordered,
    })
}

/// Whether expressions with different values are not in the order of their texts, in which Lowroad tries them.
fn is_reordered(entries: &[(String, &str)]) -> bool {
    let expressions = || entries.iter().filter(|(key, _)| key.starts_with('~'));
    let mut pairs = expressions().zip(expressions().skip(1));
    pairs.any(|((one, value), (next, other))| one > next && value != other)
}

/// The keys of an entry; `None` if it has no equal.
fn entry_keys(text: &str, is_hostnames: bool) -> Option<Vec<String>> {
    if let Some(expression) = text.strip_prefix('~') {
        let (flags, expression) = match expression.strip_prefix('*') {
            Some(expression) => ("", expression),
            // `ignore_case` would ignore it here, too.
            None => ("(?-i)", expression),
        };
        // Look-around and backreferences of PCRE have no equal.
        regex_syntax::parse(expression).ok()?;
        return Some(vec![format!("~{flags}{expression}")]);
    }
    match text.strip_prefix('.') {
        Some(host) if is_hostnames => Some(vec![host.to_string(), format!("*.{host}")]),
        // A wildcard at the end of a host has no equal.
        _ if is_hostnames && text.ends_with(".*") => None,
        // The only wildcard of nginx that Lowroad has, too.
        _ if is_hostnames && text.starts_with("*.") => Some(vec![text.to_string()]),
        // A backslash in front marks a text that looks like a parameter or an expression.
        _ => Some(vec![literal_key(text.strip_prefix('\\').unwrap_or(text))]),
    }
}

/// A key that is compared as a text.
fn literal_key(text: &str) -> String {
    match text.starts_with(['~', '*']) {
        true => format!("~^{}$", regex_syntax::escape(text)),
        false => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_meaning() {
        for (text, expected) in [
            ("a", Some("a")),
            ("\\~a.b", Some("~^\\~a\\.b$")),
            ("\\default", Some("default")),
            ("*.a", Some("~^\\*\\.a$")),
            ("~*bot", Some("~bot")),
            ("~Bot", Some("~(?-i)Bot")),
            ("~(?!a)", None),
        ] {
            let expected = expected.map(|key| vec![key.to_string()]);
            assert_eq!(entry_keys(text, false), expected, "{text}");
        }
        assert!(is_reordered(&[("~b".into(), "1"), ("~a".into(), "2")]));
        assert!(!is_reordered(&[("~b".into(), "1"), ("~a".into(), "1")]));
    }

    #[test]
    fn variables_of_requests_have_other_names() {
        for (text, expected) in [
            ("$http_user_agent", Some("$header_user_agent")),
            (
                "$scheme://$host$request_uri",
                Some("$scheme://$host$request_uri"),
            ),
            ("${host}_a$uri", Some("${host}_a$path")),
            ("$arg_x $cookie_y", Some("$arg_x $cookie_y")),
            ("$new", Some("$map_new")),
            ("$upstream_addr", None),
            ("$http_", None),
            ("plain", Some("plain")),
        ] {
            let found = request_text(text, &|name| name == "new");
            assert_eq!(
                found.map(|it| it.to_string()).as_deref(),
                expected,
                "{text}"
            );
        }
    }
}
