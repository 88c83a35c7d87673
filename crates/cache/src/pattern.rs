//! Purge patterns: match the requests with stored responses that a purge removes. A pattern is everything, one URL, all
//! URLs with a prefix, or a host.
//!
//! In doubt, a pattern matches: a needless purge costs a fetch, a missed one leaves a stale response. So targets are
//! compared with percent escapes decoded and repeated slashes of the path merged, as many origins interpret them,
//! although each form has its own cache key; a Host without a port matches both the default port and the port of
//! the connection; and a URL without a port matches every port, since clients send the port of a mapping (such as that
//! of a container) that the server does not know.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::query_rules::QueryRules;
use lowroad_http::refusal::RequestRefusal;
use lowroad_http::{host, target as request_target};

/// The port of an authority without one.
const PORT_DEFAULT: u16 = 80;
/// The schemes, each with its default port.
const SCHEMES: [(&str, u16); 2] = [("http://", 80), ("https://", 443)];

/// A pattern that matches requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestPattern {
    /// Every request.
    All,
    /// The requests for one URL (all variants), or for all URLs with a prefix.
    Url {
        /// The host in lower case, without port and final dot.
        host: Vec<u8>,
        /// The port; `None` matches every port.
        port: Option<u16>,
        /// Path and query in the form of [`decode_target`].
        target: Vec<u8>,
        /// Whether all targets that begin with `target` match.
        is_prefix: bool,
    },
    /// The requests for one host on any port. The host is in lower case, without final dot.
    Host(Vec<u8>),
}

/// Why a text is not a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPatternError {
    /// The text begins with neither `http://` nor `https://`.
    Scheme,
    /// The host is missing or malformed.
    Host,
    /// There is a `*` before the path.
    StarInHost,
    /// The target contains a space, a `#`, or a non-ASCII character.
    Target,
    /// Requests for this path are refused, so no response to them is stored.
    Path(RequestRefusal),
}

impl fmt::Display for RequestPatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestPatternError::Path(refusal) => {
                return write!(
                    f,
                    "{}, so requests for it are refused, and no response to them is stored",
                    refusal.as_str()
                );
            }
            RequestPatternError::Scheme => {
                "not `all`, host:NAME, tag:NAME, group:NAME, or a URL that begins with http:// or \
                 https:// and may end in *"
            }
            RequestPatternError::Host => {
                "the host is missing or invalid; write http://host[:port]/path, host:NAME, tag:NAME or group:NAME"
            }
            RequestPatternError::StarInHost => {
                "* is allowed only at the end of a path; write http://host/* for a whole host, or all"
            }
            RequestPatternError::Target => {
                "the URL contains a space, # or a character that is not ASCII; percent-encode it, \
                 and omit the fragment"
            }
        })
    }
}

impl core::error::Error for RequestPatternError {}

impl fmt::Display for RequestPattern {
    /// Writes the form that `parse` reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port, target, is_prefix) = match self {
            RequestPattern::All => return f.write_str("all"),
            RequestPattern::Host(host) => return write!(f, "host:{}", host.escape_ascii()),
            RequestPattern::Url {
                host,
                port,
                target,
                is_prefix,
            } => (host, port, target, is_prefix),
        };
        write!(f, "http://{}", host.escape_ascii())?;
        if let Some(port) = port {
            write!(f, ":{port}")?;
        }
        for byte in target {
            match byte {
                // `parse` would read these as syntax.
                b'#' | b'%' | b'*' => write!(f, "%{byte:02X}")?,
                byte if byte.is_ascii_graphic() => write!(f, "{}", char::from(*byte))?,
                byte => write!(f, "%{byte:02X}")?,
            }
        }
        f.write_str(if *is_prefix { "*" } else { "" })
    }
}

impl RequestPattern {
    /// Parses `all`, `host:NAME`, or `http://host[:port]/path?query`; a URL may have the scheme `https`, which makes no
    /// difference, and a `*` at its end for a prefix.
    ///
    /// # Errors
    /// The text is none of these.
    pub fn parse(text: &str) -> Result<RequestPattern, RequestPatternError> {
        if text == "all" {
            return Ok(RequestPattern::All);
        }
        // Checked before the schemes, since `host:` is not a scheme.
        if let Some(name) = text.strip_prefix("host:") {
            return RequestPattern::from_host(name.trim()).ok_or(RequestPatternError::Host);
        }
        let rest = without_scheme(text).ok_or(RequestPatternError::Scheme)?;
        let host_len = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(host_len);
        // `*` is a suffix of the target only.
        if authority.contains('*') {
            return Err(RequestPatternError::StarInHost);
        }
        let (host, port) = read_authority(authority.as_bytes()).ok_or(RequestPatternError::Host)?;
        let (target, is_prefix) = read_target(target)?;
        Ok(RequestPattern::Url {
            host,
            port,
            target,
            is_prefix,
        })
    }

    fn from_host(name: &str) -> Option<RequestPattern> {
        let (name, _) = read_authority(name.as_bytes()).filter(|_| !name.contains('*'))?;
        Some(RequestPattern::Host(name))
    }

    /// The pattern for one URL, or for a prefix, from the Host field and the target of a request.
    ///
    /// # Errors
    /// The host is invalid.
    pub fn from_url(
        authority: &[u8],
        target: &[u8],
        is_prefix: bool,
    ) -> Result<RequestPattern, RequestPatternError> {
        let (host, port) = read_authority(authority).ok_or(RequestPatternError::Host)?;
        Ok(RequestPattern::Url {
            host,
            port: Some(port.unwrap_or(PORT_DEFAULT)),
            target: decode_target(target),
            is_prefix,
        })
    }

    /// The pattern of the same URL in caches with keys by these rules; `None` if it is equal, or not a single URL.
    pub fn normalized(&self, rules: &QueryRules) -> Option<RequestPattern> {
        let RequestPattern::Url {
            host,
            port,
            target,
            is_prefix: false,
        } = self
        else {
            return None;
        };
        let normalized = rules.normalize_target(target);
        (normalized != *target).then(|| RequestPattern::Url {
            host: host.clone(),
            port: *port,
            target: normalized,
            is_prefix: false,
        })
    }

    /// Whether the pattern matches a request with this Host and target; `connection_port` is the port of its
    /// connection, if known.
    pub fn matches(
        &self,
        request_host: &[u8],
        connection_port: Option<u16>,
        request_target: &[u8],
    ) -> bool {
        match self {
            RequestPattern::All => true,
            RequestPattern::Host(host) => is_host(request_host, host),
            RequestPattern::Url {
                host,
                port,
                target,
                is_prefix,
            } => {
                let request_target = decode_target(request_target);
                let is_target_match =
                    request_target == *target || (*is_prefix && request_target.starts_with(target));
                is_target_match && is_authority(request_host, connection_port, host, *port)
            }
        }
    }
}

/// Whether a Host field, received on `connection_port`, may denote this host and port.
fn is_authority(
    host_field: &[u8],
    connection_port: Option<u16>,
    host: &[u8],
    port: Option<u16>,
) -> bool {
    let is_port_match = port.is_none_or(|port| match host::port(host_field) {
        Some(named_port) => named_port == port,
        // Without a port in Host, the scheme is unknown: any default port matches.
        None => {
            is_default(port)
                || connection_port.is_none_or(|connection_port| connection_port == port)
        }
    });
    is_host(host_field, host) && is_port_match
}

/// Whether a Host field may denote this host: an empty or invalid one may denote any host.
fn is_host(host_field: &[u8], host: &[u8]) -> bool {
    let mut out = [0; 256];
    // An invalid Host matches: a purge may remove too much, but never too little.
    host::normalize(host_field, &mut out).is_none_or(|name| name == host)
}

/// The URL after its scheme.
fn without_scheme(url: &str) -> Option<&str> {
    SCHEMES.into_iter().find_map(|(scheme, _)| {
        let (start, rest) = url.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

fn is_default(port: u16) -> bool {
    SCHEMES.iter().any(|(_, default)| *default == port)
}

fn read_authority(authority: &[u8]) -> Option<(Vec<u8>, Option<u16>)> {
    let mut out = [0; 256];
    let name = host::normalize(authority, &mut out)?.to_vec();
    Some((name, host::port(authority)))
}

/// Decodes a target, and determines whether it is a prefix.
fn read_target(target: &str) -> Result<(Vec<u8>, bool), RequestPatternError> {
    // Other bytes can't occur in a request target, so the pattern would match nothing.
    let is_allowed = |b: u8| b.is_ascii_graphic() && b != b'#';
    if !target.bytes().all(is_allowed) {
        return Err(RequestPatternError::Target);
    }
    let (target, is_prefix) = match target.strip_suffix('*') {
        Some(prefix) => (prefix, true),
        None => (target, false),
    };
    // `http://host?query` has an empty path, which means `/`.
    let root = if target.starts_with('/') { "" } else { "/" };
    let target = [root.as_bytes(), target.as_bytes()].concat();
    check_path(&target, is_prefix).map_err(RequestPatternError::Path)?;
    Ok((decode_target(&target), is_prefix))
}

/// Checks that a server would accept requests for the path of a target.
fn check_path(target: &[u8], is_prefix: bool) -> Result<(), RequestRefusal> {
    let query = target.iter().position(|byte| *byte == b'?');
    let end = match (query, is_prefix) {
        (Some(query), _) => query,
        (None, false) => target.len(),
        // The last segment of a prefix is incomplete: `/.` may be the start of `/.well-known`.
        (None, true) => target
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |at| at + 1),
    };
    let mut scratch = vec![0; end];
    request_target::decode_with_slashes(&target[..end], &mut scratch).map(drop)
}

/// A target in the form used for comparing purges: percent escapes decoded, and the slashes of the path merged. The
/// slashes of the query are not separators.
pub fn decode_target(target: &[u8]) -> Vec<u8> {
    let path_len = target.iter().position(|byte| *byte == b'?');
    let (path, query) = target.split_at(path_len.unwrap_or(target.len()));
    let mut decoded = decode_escapes(path);
    // Repeated slashes name the same file, so a purge of one form covers all.
    decoded.dedup_by(|byte, previous| (*byte, *previous) == (b'/', b'/'));
    decoded.extend(decode_escapes(query));
    decoded
}

/// Decodes each `%XX`; malformed escapes are unchanged.
pub fn decode_escapes(target: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(target.len());
    let mut rest = target;
    while let [byte, after @ ..] = rest {
        match parse_escape(rest) {
            Some((byte_value, after)) => {
                out.push(byte_value);
                rest = after;
            }
            None => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    out
}

fn parse_escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let [b'%', high, low, after @ ..] = text else {
        return None;
    };
    let digit = |b: u8| char::from(b).to_digit(16);
    let byte_value = digit(*high)? * 16 + digit(*low)?;
    Some((u8::try_from(byte_value).ok()?, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn matches(pattern: &str, host: &str, port: u16, target: &str) -> bool {
        let pattern = RequestPattern::parse(pattern).expect(pattern);
        pattern.matches(host.as_bytes(), Some(port), target.as_bytes())
    }

    #[test]
    fn all_matches_every_request() {
        assert!(matches("all", "a", 1, "/x"));
        assert!(matches("all", "", 1, "/x"));
    }

    #[test]
    fn url_pattern_matches_exactly_one_url() {
        assert!(matches("http://a.example/x?y", "a.example", 80, "/x?y"));
        assert!(!matches("http://a.example/x", "a.example", 80, "/x?y"));
        assert!(!matches("http://a.example/x", "b.example", 80, "/x"));
        assert!(!matches("http://a.example/x", "a.example", 80, "/xx"));
        assert!(matches("http://a.example", "a.example", 80, "/"));
        assert!(matches("http://a.example?q", "a.example", 80, "/?q"));
    }

    #[test]
    fn prefix_pattern_matches_all_urls_with_the_prefix() {
        assert!(matches("http://a/x*", "a", 80, "/x"));
        assert!(matches("http://a/x*", "a", 80, "/xyz?q"));
        assert!(!matches("http://a/x*", "a", 80, "/y"));
        assert!(matches("http://a/*", "a", 80, "/"));
    }

    #[test]
    fn paths_that_no_request_has_are_refused() {
        for (url, refusal) in [
            ("http://a/../x", RequestRefusal::PathDots),
            ("http://a/x/%2e%2e?q", RequestRefusal::PathDots),
            ("http://a/../x*", RequestRefusal::PathDots),
            ("http://a/%zz", RequestRefusal::PathEscape),
            ("http://a/%z/x*", RequestRefusal::PathEscape),
            ("http://a/%00", RequestRefusal::PathNul),
        ] {
            let error = RequestPattern::parse(url).err();
            assert_eq!(error, Some(RequestPatternError::Path(refusal)), "{url}");
        }
        // The last segment of a prefix is incomplete, and a query may contain anything.
        for url in [
            "http://a/.*",
            "http://a/x/%2*",
            "http://a/x?../%zz*",
            "http://a?%",
        ] {
            assert!(RequestPattern::parse(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn repeated_slashes_in_paths_are_merged() {
        // Many origins read all these forms as one path; but slashes in a query are data.
        let forms = [
            "/x/p/q",
            "/x//p/q",
            "//x/p//q",
            "/x/p%2Fq",
            "/x/%2fp/q",
            "/%78/p/q",
        ];
        for written in forms {
            for asked in forms {
                let exact = alloc::format!("http://a{written}");
                assert!(matches(&exact, "a", 80, asked), "{exact} {asked}");
            }
        }
        for prefix in ["/x/p/*", "/x//p/*", "/x/p//*", "/x%2Fp/*"] {
            let prefix = alloc::format!("http://a{prefix}");
            for asked in forms {
                assert!(matches(&prefix, "a", 80, asked), "{prefix} {asked}");
            }
            for asked in ["/x/p", "/x//p", "/x/pq", "/p/x/p/q"] {
                assert!(!matches(&prefix, "a", 80, asked), "{prefix} {asked}");
            }
        }
        assert!(!matches("http://a/x?u=http://b", "a", 80, "/x?u=http:/b"));
        assert!(matches("http://a//x?u=http://b", "a", 80, "/x?u=http://b"));
    }

    #[test]
    fn host_pattern_matches_any_port_and_target() {
        assert!(matches("host:A.example.", "a.example:81", 81, "/x?y"));
        assert!(matches("host:a", "", 80, "/"));
        assert!(!matches("host:a", "b", 80, "/"));
        assert!(matches("host:[::1]", "[::1]:8080", 8080, "/"));
    }

    #[test]
    fn from_url_equals_the_parsed_pattern() {
        for (authority, target, is_prefix, text) in [
            ("A", "/x?y", false, "http://a:80/x?y"),
            ("a:81", "/%78", true, "http://a:81/x*"),
            ("a:81", "/*", false, "http://a:81/%2A"),
        ] {
            let pattern =
                RequestPattern::from_url(authority.as_bytes(), target.as_bytes(), is_prefix);
            assert_eq!(pattern, RequestPattern::parse(text));
        }
        assert!(RequestPattern::from_url(b"", b"/", false).is_err());
    }

    #[test]
    fn displayed_patterns_parse_to_themselves() {
        for (text, written) in [
            ("all", "all"),
            ("host:A.b", "host:a.b"),
            ("http://A", "http://a/"),
            ("https://A:80/", "http://a:80/"),
            (
                "http://[::1]:81/%C3%A4%20%23%25?x*",
                "http://[::1]:81/%C3%A4%20%23%25?x*",
            ),
            ("http://a/%2a", "http://a/%2A"),
        ] {
            let pattern = RequestPattern::parse(text).expect(text);
            assert_eq!(pattern.to_string(), written);
            assert_eq!(RequestPattern::parse(written), Ok(pattern));
        }
    }

    #[test]
    fn host_case_final_dot_and_default_port_are_ignored() {
        for host in ["A.Example", "a.example:80", "a.EXAMPLE.", "a.example.:80"] {
            assert!(matches("http://a.example/", host, 80, "/"), "{host}");
            assert!(matches("HTTP://A.example:80/", host, 80, "/"), "{host}");
        }
        assert!(!matches(
            "http://a.example:80/",
            "a.example:8080",
            8080,
            "/"
        ));
        assert!(matches("http://a.example:8080/", "a.example:8080", 9, "/"));
        assert!(matches("http://[::1]:8080/", "[::1]:8080", 8080, "/"));
    }

    #[test]
    fn url_without_port_matches_every_port() {
        // The port in Host is that of the client's URL, which a port mapping makes different from the server's.
        assert!(matches("http://a/x", "a:8080", 80, "/x"));
        assert!(matches("http://a/x*", "a:8080", 8080, "/xy"));
        assert!(!matches("http://a:80/x", "a:8080", 80, "/x"));
        assert!(!matches("http://a/x", "b:8080", 80, "/x"));
        assert!(matches("https://a/x", "a", 443, "/x"));
        assert!(matches("HTTPS://a/x", "a:443", 443, "/x"));
        assert!(matches("https://a:8443/x", "a:8443", 8443, "/x"));
        assert!(matches("https://a/x", "a:8443", 8443, "/x"));
        assert!(!matches("https://a/x", "b", 443, "/x"));
        // The scheme is unknown.
        assert!(matches("https://a/x", "a", 8443, "/x"));
        assert!(matches("http://a/x", "a", 443, "/x"));
    }

    #[test]
    fn ambiguous_requests_match() {
        // A needless purge costs a fetch, a missed one a stale response.
        assert!(matches("http://a:8080/", "a", 8080, "/"));
        assert!(matches("http://a/", "a", 8080, "/"));
        assert!(!matches("http://a:81/", "a", 8080, "/"));
        assert!(matches("http://a:8080/", "", 8080, "/"));
        assert!(matches("http://a/", "not a name", 80, "/"));
        assert!(matches("http://a/%61b", "a", 80, "/a%62"));
        assert!(matches("http://a/?100%", "a", 80, "/?100%"));
        let pattern = RequestPattern::parse("http://a:81/x").expect("a URL");
        assert!(
            pattern.matches(b"a", None, b"/x"),
            "at a port that is not known"
        );
        assert!(!pattern.matches(b"a:80", None, b"/x"));
    }

    #[test]
    fn malformed_patterns_are_rejected() {
        for (text, error) in [
            ("", RequestPatternError::Scheme),
            ("ALL", RequestPatternError::Scheme),
            ("ftp://a/", RequestPatternError::Scheme),
            ("/x", RequestPatternError::Scheme),
            ("http://", RequestPatternError::Host),
            ("http:///x", RequestPatternError::Host),
            ("http://a b/x", RequestPatternError::Host),
            ("http://u@a/", RequestPatternError::Host),
            ("http://*", RequestPatternError::StarInHost),
            ("http://a*", RequestPatternError::StarInHost),
            ("host:", RequestPatternError::Host),
            ("host:a/b", RequestPatternError::Host),
            ("host:*", RequestPatternError::Host),
            ("http://a/x y", RequestPatternError::Target),
            ("http://a/x#y", RequestPatternError::Target),
            ("http://a/\u{e4}", RequestPatternError::Target),
        ] {
            assert_eq!(RequestPattern::parse(text), Err(error), "{text}");
        }
    }
}
