//! Invalidation of stored responses by unsafe requests: determines which targets on the request's origin are
//! invalidated. Read RFC 9111 §4.4 and RFC 3986 §5.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Whether a method is unsafe, so that it may change the response to a GET. Unknown methods count as unsafe.
#[must_use]
pub fn is_unsafe(method: &[u8]) -> bool {
    ![
        &b"GET"[..],
        b"HEAD",
        b"OPTIONS",
        b"TRACE",
        b"PRI",
        b"QUERY",
        b"SEARCH",
        b"PROPFIND",
        b"REPORT",
    ]
    .contains(&method)
}

/// The targets to invalidate after a response to an unsafe request: the request's target, and those that Location and
/// Content-Location name on the same origin. Empty after an error response.
pub fn invalidated<'f>(
    status: u16,
    base: &BaseUri<'_>,
    fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
) -> Vec<Vec<u8>> {
    // RFC 9111 §4.4: only a non-error response invalidates.
    if !(200..400).contains(&status) {
        return Vec::new();
    }
    let mut targets = Vec::from([base.target.to_vec()]);
    let mut distinct = BTreeSet::from([base.target.to_vec()]);
    for (name, value) in fields {
        let name_is = |expected: &[u8]| name.eq_ignore_ascii_case(expected);
        if !name_is(b"location") && !name_is(b"content-location") {
            continue;
        }
        if let Some(target) = base
            .resolve(value.trim_ascii())
            .filter(|target| distinct.insert(target.clone()))
        {
            targets.push(target);
        }
    }
    targets
}

/// The base URI of relative references.
#[derive(Clone, Copy, Debug)]
pub struct BaseUri<'b> {
    /// `http` or `https`.
    pub scheme: &'b [u8],
    /// Host and port of the request.
    pub authority: &'b [u8],
    /// Path and query; begins with `/`.
    pub target: &'b [u8],
}

impl BaseUri<'_> {
    /// Resolves a reference to path and query; `None` if it refers to another origin.
    // The fragment is not part of a request target.
    #[must_use]
    pub fn resolve(&self, reference: &[u8]) -> Option<Vec<u8>> {
        let reference = text_before(reference, b"#");
        // A URI reference contains no spaces, control characters or bytes beyond ASCII.
        if !reference.iter().all(|b| (0x21..=0x7e).contains(b)) {
            return None;
        }
        let relative = self.same_origin_part(reference)?;
        let (path, query) = relative.split_at(text_before(relative, b"?").len());
        let base_path = text_before(self.target, b"?");
        let resolved_path = match path {
            [] if relative.len() == reference.len() && query.is_empty() => {
                return Some(self.target.to_vec());
            }
            [] if relative.len() == reference.len() => base_path.to_vec(),
            // After an authority, an empty path means `/`.
            [] => b"/".to_vec(),
            [b'/', ..] => without_dots(path),
            _ => {
                let dir = base_path
                    .iter()
                    .rposition(|b| *b == b'/')
                    .map_or(0, |at| at + 1);
                without_dots(&[&base_path[..dir], path].concat())
            }
        };
        Some([&resolved_path[..], query].concat())
    }

    /// The reference without scheme and authority; `None` if these denote another origin.
    fn same_origin_part<'r>(&self, reference: &'r [u8]) -> Option<&'r [u8]> {
        // A colon after a slash or question mark does not end a scheme.
        let scheme_len = text_before(reference, b":/?").len();
        let rest = match reference.get(scheme_len) {
            Some(b':') => {
                let is_same_scheme = reference[..scheme_len].eq_ignore_ascii_case(self.scheme);
                let rest = &reference[scheme_len + 1..];
                // RFC 3986 §5.2.2 deprecates `http:path`.
                (is_same_scheme && rest.starts_with(b"//")).then_some(rest)?
            }
            _ => reference,
        };
        let Some(after) = rest.strip_prefix(b"//") else {
            return Some(rest);
        };
        let authority = text_before(after, b"/?");
        let is_https = self.scheme.eq_ignore_ascii_case(b"https");
        let own = without_default_port(self.authority, is_https);
        let is_same_origin = without_default_port(authority, is_https).eq_ignore_ascii_case(own);
        is_same_origin.then(|| &after[authority.len()..])
    }
}

/// The authority without the scheme's default port (RFC 9110 §4.2.3).
#[must_use]
pub fn without_default_port(authority: &[u8], is_https: bool) -> &[u8] {
    let port: &[u8] = match is_https {
        true => b":443",
        false => b":80",
    };
    let authority = authority.strip_suffix(port).unwrap_or(authority);
    authority.strip_suffix(b":").unwrap_or(authority)
}

fn text_before<'t>(text: &'t [u8], delimiters: &[u8]) -> &'t [u8] {
    let end = text.iter().position(|b| delimiters.contains(b));
    &text[..end.unwrap_or(text.len())]
}

/// Removes dot segments (RFC 3986 §5.2.4).
fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut retained: Vec<&[u8]> = Vec::new();
    let segments: Vec<&[u8]> = path.split(|b| *b == b'/').skip(1).collect();
    for (at, segment) in segments.iter().enumerate() {
        let is_last = at + 1 == segments.len();
        match *segment {
            b"." => {}
            b".." => {
                retained.pop();
            }
            segment => {
                retained.push(segment);
                continue;
            }
        }
        // A final dot segment leaves a trailing slash.
        if is_last {
            retained.push(b"");
        }
    }
    [&b"/"[..], &retained.join(&b'/')].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: BaseUri<'_> = BaseUri {
        scheme: b"http",
        authority: b"a.test",
        target: b"/b/c?q",
    };

    fn resolved(reference: &str) -> Option<Vec<u8>> {
        BASE.resolve(reference.as_bytes())
    }

    #[test]
    fn default_port_is_left_out() {
        for (authority, is_https, expected) in [
            ("a:80", false, "a"),
            ("a:80", true, "a:80"),
            ("a:", true, "a"),
            ("[::1]:443", true, "[::1]"),
            ("[::80]", false, "[::80]"),
            ("a:8080", false, "a:8080"),
        ] {
            let without = without_default_port(authority.as_bytes(), is_https);
            assert_eq!(without, expected.as_bytes(), "{authority}");
        }
    }

    #[test]
    fn same_origin_references_are_resolved() {
        // RFC 3986 §5.
        for (reference, expected) in [
            ("", "/b/c?q"),
            ("?x", "/b/c?x"),
            ("d", "/b/d"),
            ("../d?e#f", "/d?e"),
            ("/x/./y/..", "/x/"),
            ("http://A.test:80/p", "/p"),
            ("HTTP://a.test?x", "/?x"),
            ("//a.test", "/"),
            ("/../../x", "/x"),
            // An unknown scheme.
            ("d:e/f", ""),
            // RFC 3986 §4.2: a first segment with a colon needs `./`.
            ("./d:e", "/b/d:e"),
            ("/a//b", "/a//b"),
        ] {
            let expected = (!expected.is_empty()).then(|| expected.as_bytes().to_vec());
            assert_eq!(resolved(reference), expected, "{reference}");
        }
    }

    #[test]
    fn references_to_other_origins_are_ignored() {
        // RFC 9111 §4.4: otherwise one site could purge the responses of another.
        for reference in [
            "https://a.test/",
            "http://b.test/",
            "//a.test:81/",
            // Without an authority.
            "http:/x",
            "/a b",
            // Userinfo makes another authority.
            "http://u@a.test/",
        ] {
            assert_eq!(resolved(reference), None, "{reference}");
        }
    }

    #[test]
    fn error_responses_invalidate_nothing() {
        let fields = [
            (&b"Location"[..], &b"/new"[..]),
            (b"content-location", b"http://b.test/"),
        ];
        let expected = [b"/b/c?q".to_vec(), b"/new".to_vec()];
        assert_eq!(invalidated(201, &BASE, fields), expected);
        assert!(
            invalidated(404, &BASE, fields).is_empty()
                && invalidated(500, &BASE, fields).is_empty()
        );
        assert!(is_unsafe(b"POST") && is_unsafe(b"M-SEARCH") && !is_unsafe(b"HEAD"));
    }
}
