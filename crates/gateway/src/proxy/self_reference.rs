//! References to the origin server's own address, which clients may be unable to reach, are made relative: scheme and
//! host are removed. A relative reference is valid for every client, so a stored response does not depend on the Host
//! of a request.

use lowroad_http::fields::{ResponseFields, StandardHeader};

use super::servers::OriginEndpoint;

/// Makes Location and Content-Location relative if they refer to the origin server itself.
///
/// Both fields contain a reference (RFC 9110 §8.7, §10.2.2). Refresh is not an HTTP field.
pub fn make_references_relative(fields: &mut ResponseFields, endpoint: &OriginEndpoint) {
    for name in [StandardHeader::Location, StandardHeader::ContentLocation] {
        fields.replace(name, |value| {
            relative_reference(value, endpoint.scheme, &endpoint.host)
        });
    }
}

/// `reference` without its authority if that equals `authority`; otherwise `None`.
fn relative_reference(reference: &[u8], scheme: &str, authority: &[u8]) -> Option<Vec<u8>> {
    let (reference_scheme, rest) = reference.split_at_checked(scheme.len())?;
    // Only an absolute reference contains an authority.
    let rest = rest.strip_prefix(b"://")?;
    let end = rest.iter().position(|byte| b"/?#".contains(byte));
    let (named_authority, rest) = rest.split_at(end.unwrap_or(rest.len()));
    let is_same_origin = reference_scheme.eq_ignore_ascii_case(scheme.as_bytes())
        // Scheme and host are case-insensitive (RFC 3986 §6.2.2.1); the default port may be omitted (§6.2.3).
        && without_port(named_authority, scheme).eq_ignore_ascii_case(without_port(authority, scheme));
    let starts_like_authority = |rest: &[u8]| {
        let second = rest.get(1).copied().unwrap_or(b'a');
        rest.first() == Some(&b'/') && (matches!(second, b'/' | b'\\') || second <= b' ')
    };
    let prefix: &[u8] = match rest.first() {
        // A reference that begins with `//` would name a host (RFC 3986 §4.2). Browsers also skip tabs, and treat `\`
        // as `/`.
        Some(b'/') if starts_like_authority(rest) => b"/.",
        Some(b'/') => b"",
        // An empty path is equivalent to `/` (RFC 3986 §6.2.3).
        _ => b"/",
    };
    is_same_origin.then(|| [prefix, rest].concat())
}

/// An authority without the default port of the scheme.
fn without_port<'a>(authority: &'a [u8], scheme: &str) -> &'a [u8] {
    let port: &[u8] = match scheme {
        "https" => b":443",
        _ => b":80",
    };
    let authority = authority.strip_suffix(port).unwrap_or(authority);
    authority.strip_suffix(b":").unwrap_or(authority)
}

#[cfg(test)]
mod tests {
    use super::relative_reference;

    fn of(reference: &str) -> Option<String> {
        let local = relative_reference(reference.as_bytes(), "http", b"127.0.0.1:3000")?;
        Some(String::from_utf8(local).expect("text"))
    }

    #[test]
    fn reference_to_origin_itself_becomes_relative() {
        for (reference, path) in [
            ("http://127.0.0.1:3000/a?b#c", "/a?b#c"),
            ("HTTP://127.0.0.1:3000", "/"),
            ("http://127.0.0.1:3000?a", "/?a"),
            ("http://127.0.0.1:3000#a", "/#a"),
        ] {
            assert_eq!(of(reference).as_deref(), Some(path), "{reference}");
        }
        for reference in [
            "/a",
            "",
            "//127.0.0.1:3000/a",
            "https://127.0.0.1:3000/a",
            "http://127.0.0.1:30000/a",
            "http://127.0.0.1/a",
            "http://u@127.0.0.1:3000/a",
            "http://127.0.0.1:3000\\a",
            "http:/127.0.0.1:3000/a",
        ] {
            assert_eq!(of(reference), None, "{reference}");
        }
    }

    #[test]
    fn path_with_double_slash_does_not_become_host() {
        for (reference, path) in [
            ("http://127.0.0.1:3000//evil/", "/.//evil/"),
            ("http://127.0.0.1:3000/\\evil/", "/.\\evil/"),
            ("http://127.0.0.1:3000/\t/evil/", "/.\t/evil/"),
        ] {
            let path = path.replace("/.\\", "/./\\").replace("/.\t", "/./\t");
            assert_eq!(of(reference).as_deref(), Some(&*path), "{reference:?}");
        }
    }

    #[test]
    fn default_port_is_ignored_in_comparison() {
        let of = |reference: &str, authority: &str| {
            relative_reference(reference.as_bytes(), "https", authority.as_bytes()).is_some()
        };
        assert!(of("https://app.internal:443/a", "app.internal"));
        assert!(of("https://App.internal/a", "app.internal:443"));
        assert!(!of("https://app.internal:80/a", "app.internal"));
    }
}
