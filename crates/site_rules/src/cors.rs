//! Cross-origin resource sharing (CORS, WHATWG Fetch §3.3): the origins that may read responses, and the fields of responses
//! and preflights.

use lowroad_config::{CorsConfig, CorsHeaders, CorsOrigin};

use crate::request_fields::RequestFields;

/// The field with the origin of a request.
const ORIGIN: &str = "Origin";
const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";
const ALLOW_CREDENTIALS: &str = "Access-Control-Allow-Credentials";
const ALLOW_METHODS: &str = "Access-Control-Allow-Methods";
const ALLOW_HEADERS: &str = "Access-Control-Allow-Headers";
const EXPOSE_HEADERS: &str = "Access-Control-Expose-Headers";
const MAX_AGE: &str = "Access-Control-Max-Age";
/// The fields of a preflight on which its response depends.
const PREFLIGHT_VARY: &str =
    "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";

/// A preflight request (WHATWG Fetch §3.3.3).
#[derive(Clone, Copy, Debug)]
pub struct CorsPreflight<'r> {
    /// The origin.
    pub origin: &'r [u8],
    /// The names of the fields that the request will have.
    pub headers: &'r [u8],
}

/// Changes the fields of a response: the rule decides in place of the response's own fields.
pub fn add_cors_fields<'a>(
    rule: &'a CorsConfig,
    origin: Option<&[u8]>,
    fields: &mut RequestFields<'a>,
) {
    // Otherwise an application's own fields might allow more than the table.
    let own = [
        ALLOW_ORIGIN,
        ALLOW_CREDENTIALS,
        ALLOW_METHODS,
        ALLOW_HEADERS,
        EXPOSE_HEADERS,
        MAX_AGE,
    ];
    own.into_iter().for_each(|name| fields.remove(name));
    if !rule.is_for_all() {
        // Also without an origin: a cache must not reuse this response for a script.
        fields.vary_by_field(ORIGIN);
    }
    let Some(origin) = allowed_origin(rule, origin) else {
        return;
    };
    fields.lines.push((ALLOW_ORIGIN, origin));
    if rule.credentials {
        fields.lines.push((ALLOW_CREDENTIALS, b"true".to_vec()));
    }
    if !rule.expose.is_empty() {
        fields
            .lines
            .push((EXPOSE_HEADERS, rule.expose.join(", ").into_bytes()));
    }
}

/// The fields of the response to a preflight; `None` if the origin is not allowed.
pub fn preflight_fields(
    rule: &CorsConfig,
    preflight: CorsPreflight<'_>,
) -> Option<Vec<(&'static str, Vec<u8>)>> {
    // The refusal reveals no other field to an unknown origin.
    let origin = allowed_origin(rule, Some(preflight.origin))?;
    let mut fields = vec![
        (ALLOW_ORIGIN, origin),
        (ALLOW_METHODS, rule.methods.join(", ").into_bytes()),
        ("Vary", PREFLIGHT_VARY.as_bytes().to_vec()),
    ];
    let headers = match &rule.headers {
        CorsHeaders::All => requested_names(preflight.headers),
        CorsHeaders::Names(names) => names.join(", ").into_bytes(),
    };
    if !headers.is_empty() {
        fields.push((ALLOW_HEADERS, headers));
    }
    if rule.credentials {
        fields.push((ALLOW_CREDENTIALS, b"true".to_vec()));
    }
    if let Some(max_age_s) = rule.max_age_s {
        fields.push((MAX_AGE, max_age_s.to_string().into_bytes()));
    }
    Some(fields)
}

/// The value of Access-Control-Allow-Origin; `None` if the origin is not allowed.
fn allowed_origin(rule: &CorsConfig, origin: Option<&[u8]>) -> Option<Vec<u8>> {
    if rule.is_for_all() {
        return Some(b"*".to_vec());
    }
    let origin = origin?;
    // The list is short, and most requests have no origin.
    let mut origins = rule.origins.iter();
    origins
        .any(|it| matches(it, origin))
        .then(|| origin.to_vec())
}

/// Origins are compared as browsers serialize them: in lower case, without the default port.
fn matches(allowed: &CorsOrigin, origin: &[u8]) -> bool {
    match allowed {
        CorsOrigin::All => true,
        CorsOrigin::Exact(text) => text.as_bytes() == origin,
        CorsOrigin::Subdomains { scheme, suffix } => {
            let labels = origin
                .strip_prefix(scheme.as_bytes())
                .and_then(|rest| rest.strip_suffix(suffix.as_bytes()));
            // The text before the suffix must be labels: `https://evil/.example.com` has no host below example.com.
            let is_label_byte = |byte: &u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(byte)
            };
            labels.is_some_and(|labels| {
                !labels.is_empty() && !labels.starts_with(b".") && labels.iter().all(is_label_byte)
            })
        }
    }
}

/// The requested names that are tokens, as a list.
fn requested_names(headers: &[u8]) -> Vec<u8> {
    let is_token = |name: &&[u8]| {
        let mut bytes = name.iter();
        !name.is_empty() && bytes.all(|it| it.is_ascii_alphanumeric() || b"-_".contains(it))
    };
    let names = headers.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    // The names are sent back, so a name must not end the field.
    let names: Vec<&[u8]> = names.filter(is_token).collect();
    names.join(&b", "[..])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn rule(lines: &str) -> CorsConfig {
        let text = format!("[[site]]\nroot = \"r\"\n[[site.cors]]\n{lines}\n");
        let config = lowroad_config::parse(&text, Path::new("f"));
        config.expect(lines).sites.remove(0).cors.remove(0)
    }

    #[test]
    fn only_listed_origins_are_allowed() {
        let rule = rule("origins = [\"https://a.example\", \"https://*.b.example:8443\"]");
        for (origin, is_allowed) in [
            ("https://a.example", true),
            ("http://a.example", false),
            ("https://a.example:8443", false),
            ("https://a.example.evil", false),
            ("https://evil-a.example", false),
            ("https://A.example", false),
            ("https://x.b.example:8443", true),
            ("https://y.x.b.example:8443", true),
            ("https://b.example:8443", false),
            ("https://.b.example:8443", false),
            ("https://x.b.example", false),
            ("https://xb.example:8443", false),
            ("https://evil/.b.example:8443", false),
            ("https://evil#.b.example:8443", false),
            ("https://evil@.b.example:8443", false),
            ("null", false),
            ("", false),
        ] {
            let found = allowed_origin(&rule, Some(origin.as_bytes()));
            assert_eq!(found.is_some(), is_allowed, "{origin}");
        }
        assert_eq!(allowed_origin(&rule, None), None);
    }

    #[test]
    fn preflight_lists_requested_names_only_if_all_are_allowed() {
        let preflight = CorsPreflight {
            origin: b"https://a.example",
            headers: b"X-A, x-b,bad name,\x01",
        };
        let field = |rule: &CorsConfig, name: &str| {
            let fields = preflight_fields(rule, preflight).expect("allowed");
            let found = fields.into_iter().find(|(it, _)| *it == name);
            found.map(|(_, value)| String::from_utf8_lossy(&value).into_owned())
        };
        let all = rule("origins = \"https://a.example\"\nheaders = \"*\"");
        assert_eq!(field(&all, ALLOW_HEADERS).as_deref(), Some("X-A, x-b"));
        let some = rule("origins = \"*\"\nheaders = [\"X-C\"]\nmethods = [\"GET\", \"PUT\"]");
        assert_eq!(field(&some, ALLOW_HEADERS).as_deref(), Some("X-C"));
        assert_eq!(field(&some, ALLOW_METHODS).as_deref(), Some("GET, PUT"));
        assert_eq!(field(&some, ALLOW_ORIGIN).as_deref(), Some("*"));
    }
}
