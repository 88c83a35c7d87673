//! Maps: nginx' `map` blocks as tables `[map.NAME]`, and the variables of requests that have an equal.

use crate::document::ConfigTable;
use crate::nginx::values::{key, quoted};

/// The variables with other names. Those that end in `_` are families.
const VARIABLES: [(&str, &str); 17] = [
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
    ("request_id", "request_id"),
    ("ssl_protocol", "tls_version"),
    ("ssl_cipher", "tls_cipher"),
    ("ssl_server_name", "tls_server_name"),
    ("arg_", "arg_"),
    ("cookie_", "cookie_"),
    ("http_", "header_"),
];

/// A text with variables in the notation of Lowroad; `None` if a variable has no equivalent. `is_map` returns whether a
/// name is that of a translated map.
pub fn request_text(text: &str, is_map: &dyn Fn(&str) -> bool) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        out.push_str(&rest[..dollar]);
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
        out.push_str(&format!("${{{}}}", request_variable(name, is_map)?));
        rest = &after[len..];
    }
    out.push_str(rest);
    Some(simplified(&out))
}

fn request_variable(name: &str, is_map: &dyn Fn(&str) -> bool) -> Option<String> {
    if is_map(name) {
        return Some(format!("map_{name}"));
    }
    let exact = VARIABLES.iter().find(|(nginx, _)| *nginx == name);
    if let Some((_, own)) = exact.filter(|(nginx, _)| !nginx.ends_with('_')) {
        return Some((*own).to_string());
    }
    VARIABLES.iter().find_map(|(prefix, own)| {
        let rest = name.strip_prefix(prefix).filter(|rest| !rest.is_empty())?;
        prefix.ends_with('_').then(|| format!("{own}{rest}"))
    })
}

/// A text without braces, where they are not needed.
fn simplified(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let Some(len) = rest[start..].find('}') else {
            break;
        };
        let name = &rest[start + 2..start + len];
        let after = &rest[start + len + 1..];
        let continues = after.starts_with(|it: char| it.is_ascii_alphanumeric() || it == '_');
        out.push_str(&rest[..start]);
        match continues {
            true => out.push_str(&rest[start..=start + len]),
            false => out.push_str(&format!("${name}")),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// The table of a map; `None` if its source, a key or a value has no equivalent.
pub fn map_table(name: &str, source: &str, pairs: &[(String, String)]) -> Option<ConfigTable> {
    // The variables of logs describe responses.
    let from = request_text(source, &|_| false).filter(|from| from.contains('$'))?;
    let mut table = ConfigTable::new(&format!("[map.{name}]")).key("from", quoted(&from));
    let mut entries: Vec<(String, &str)> = Vec::new();
    // `hostnames` is a flag, not an entry.
    let is_hostnames = pairs
        .iter()
        .any(|(key, value)| key == "hostnames" && value.is_empty());
    for (text, value) in pairs {
        // Values with variables or captures would be another language.
        if value.contains('$') {
            return None;
        }
        match text.as_str() {
            "hostnames" | "volatile" if value.is_empty() => {}
            "default" => table = table.key("default", quoted(value)),
            // The included file would have to be translated, too.
            "include" => return None,
            text => {
                let keys = entry_keys(text, is_hostnames)?;
                entries.extend(keys.into_iter().map(|key| (key, value.as_str())));
            }
        }
    }
    // One line, as a person would write a short table.
    let entries: Vec<String> = entries
        .iter()
        .map(|(text, value)| format!("{} = {}", key(text), quoted(value)))
        .collect();
    if entries.is_empty() {
        return None;
    }
    // nginx compares without regard to case.
    Some(
        table
            .key("ignore_case", "true")
            .key("entries", format!("{{ {} }}", entries.join(", "))),
    )
}

/// The keys of an entry.
fn entry_keys(text: &str, is_hostnames: bool) -> Option<Vec<String>> {
    if let Some(expression) = text.strip_prefix("~*") {
        return Some(vec![format!("~{expression}")]);
    }
    if let Some(expression) = text.strip_prefix('~') {
        // `ignore_case` would ignore it here, too.
        return Some(vec![format!("~(?-i){expression}")]);
    }
    // A backslash in front marks a text that looks like a parameter.
    let text = text.strip_prefix('\\').unwrap_or(text);
    match text.strip_prefix('.') {
        Some(host) if is_hostnames => Some(vec![host.to_string(), format!("*.{host}")]),
        // A wildcard at the end of a host has no equal.
        _ if is_hostnames && text.ends_with(".*") => None,
        _ => Some(vec![text.to_string()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
