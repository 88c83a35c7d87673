//! Placeholders of Caddy as variables of requests.

use std::collections::BTreeMap;

use crate::request_text::{RequestText, TextPart};

/// Placeholders with another name; those that end in a dot are families.
const PLACEHOLDERS: [(&str, &str); 36] = [
    ("host", "host"),
    ("http.request.host", "host"),
    ("hostport", "authority"),
    ("http.request.hostport", "authority"),
    ("scheme", "scheme"),
    ("http.request.scheme", "scheme"),
    ("method", "method"),
    ("http.request.method", "method"),
    ("path", "path"),
    ("http.request.uri.path", "path"),
    ("uri", "request_uri"),
    ("http.request.uri", "request_uri"),
    ("http.request.orig_uri", "request_uri"),
    ("orig_uri", "request_uri"),
    ("query", "query"),
    ("http.request.uri.query", "query"),
    ("remote_host", "client"),
    ("http.request.remote.host", "client"),
    ("client_ip", "client"),
    ("http.vars.client_ip", "client"),
    ("remote_port", "client_port"),
    ("http.request.remote.port", "client_port"),
    ("http.request.uuid", "request_id"),
    ("tls_version", "tls_version"),
    ("http.request.tls.version", "tls_version"),
    ("tls_cipher", "tls_cipher"),
    ("http.request.tls.server_name", "tls_server_name"),
    ("tls_client_subject", "client_certificate_subject"),
    ("tls_client_issuer", "client_certificate_issuer"),
    ("tls_client_serial", "client_certificate_serial"),
    ("tls_client_fingerprint", "client_certificate_fingerprint"),
    ("header.", "header_"),
    ("http.request.header.", "header_"),
    ("cookie.", "cookie_"),
    ("query.", "arg_"),
    ("http.request.uri.query.", "arg_"),
];

/// The names that a site defines.
#[derive(Clone, Debug, Default)]
pub struct PlaceholderNames {
    /// `vars` with a fixed value.
    pub values: BTreeMap<String, String>,
    /// The destinations of `map`, and the names of their tables.
    pub maps: BTreeMap<String, String>,
}

/// A text with variables; `None` if a placeholder has no equal.
pub fn request_text(text: &str, names: &PlaceholderNames) -> Option<RequestText> {
    let mut parsed = RequestText::default();
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        parsed.push(TextPart::Literal(rest[..start].to_string()));
        let after = &rest[start + 1..];
        let end = after.find('}').filter(|end| is_name(&after[..*end]));
        let Some(end) = end else {
            // A brace of another language, such as JSON.
            parsed.push(TextPart::Literal("{".to_string()));
            rest = after;
            continue;
        };
        push_placeholder(&mut parsed, &after[..end], names)?;
        rest = &after[end + 1..];
    }
    parsed.push(TextPart::Literal(rest.to_string()));
    Some(parsed)
}

fn is_name(text: &str) -> bool {
    let is_part = |it: char| it.is_ascii_alphanumeric() || "_.-?[]%".contains(it);
    !text.is_empty() && text.chars().all(is_part) && !text.chars().all(|it| it.is_ascii_digit())
}

fn push_placeholder(parsed: &mut RequestText, name: &str, names: &PlaceholderNames) -> Option<()> {
    // The destinations of maps have precedence over Caddy's own names.
    if let Some(map) = names.maps.get(name) {
        parsed.push(TextPart::Map(map.clone()));
        return Some(());
    }
    let variable = name
        .strip_prefix("vars.")
        .or_else(|| name.strip_prefix("http.vars."));
    if let Some(value) = variable.and_then(|name| names.values.get(name)) {
        // A value may have placeholders, but not those of other variables: they could refer to each other.
        for part in request_text(value, &PlaceholderNames::default())?.parts() {
            parsed.push(part.clone());
        }
        return Some(());
    }
    if matches!(name, "?query" | "http.request.uri.prefixed_query") {
        parsed.push(TextPart::Literal("?".to_string()));
        parsed.push(TextPart::Variable("query".to_string()));
        return Some(());
    }
    parsed.push(match own_variable(name) {
        Some(variable) => TextPart::Variable(variable),
        // Caddy reads these when it runs; the import reads them now.
        None => TextPart::Literal(std::env::var(name.strip_prefix("env.")?).ok()?),
    });
    Some(())
}

fn own_variable(name: &str) -> Option<String> {
    let capture = name
        .strip_prefix("re.")
        .or_else(|| name.strip_prefix("http.regexp."));
    if let Some(capture) = capture {
        // `{re.NAME.1}`, and with a single expression `{re.1}`.
        let number = capture.rsplit('.').next()?;
        let is_number = number.len() == 1 && number.bytes().all(|it| matches!(it, b'1'..=b'9'));
        return is_number.then(|| number.to_string());
    }
    if let Some((_, own)) = PLACEHOLDERS.iter().find(|(caddy, _)| *caddy == name) {
        return Some((*own).to_string());
    }
    PLACEHOLDERS.iter().find_map(|(prefix, own)| {
        let rest = name.strip_prefix(prefix).filter(|it| !it.is_empty())?;
        let is_family = prefix.ends_with('.');
        // Only names of variables can follow the prefix.
        let name = rest.to_ascii_lowercase().replace('-', "_");
        let name = if *own == "header_" {
            name
        } else {
            rest.to_string()
        };
        let is_plain = name
            .chars()
            .all(|it| it.is_ascii_alphanumeric() || it == '_');
        (is_family && is_plain).then(|| format!("{own}{name}"))
    })
}

/// Whether a target in the notation of Lowroad has captures of an expression.
pub fn has_captures(target: &str) -> bool {
    (1..=9).any(|number| target.contains(&format!("${number}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_become_variables() {
        let mut names = PlaceholderNames::default();
        names.values.insert("region".into(), "eu".into());
        names.maps.insert("backend".into(), "backend".into());
        for (text, expected) in [
            ("https://{host}{uri}", Some("https://$host$request_uri")),
            ("{header.User-Agent}x", Some("${header_user_agent}x")),
            (
                "{http.request.header.X-A} {cookie.a}",
                Some("$header_x_a $cookie_a"),
            ),
            ("/{re.old.1}", Some("/$1")),
            ("{vars.region}-{backend}", Some("eu-$map_backend")),
            ("{path}{?query}", Some("$path?$query")),
            ("{\"a\": 1}", Some("{\"a\": 1}")),
            ("cost $5", Some("cost $$5")),
            ("{system.hostname}", None),
            ("{http.auth.user.id}", None),
        ] {
            let found = request_text(text, &names).map(|it| it.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
