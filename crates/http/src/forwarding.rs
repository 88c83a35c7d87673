//! Request fields in which a proxy reports the client's original request: its scheme, host, path or method
//! (`X-Forwarded-Proto` and the like). The response may depend on them, though most are not part of the cache key.
//! `bpf/request.h` of the softirq level repeats `NAME_PREFIXES` and `NAMES`.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::head_writer::put_number;
use crate::host;

/// The client's request as reported by a trusted proxy. All parts are `None` if there is no usable report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardedRequest {
    /// Whether the client's scheme was https; `None` if not reported.
    pub is_https: Option<bool>,
    /// The client's authority, for which [`host::is_valid`] holds.
    pub authority: Option<Box<[u8]>>,
    /// The port to which the client connected.
    pub port: Option<u16>,
}

impl ForwardedRequest {
    /// The port of the client's URL, for a request with this authority: the reported port, else the port of the
    /// authority, else the default port of the reported scheme. `None` if all are missing.
    #[must_use]
    pub fn client_port(&self, authority: &[u8]) -> Option<u16> {
        let authority_port = || host::port(authority).or(self.is_https.map(default_port));
        self.port.or_else(authority_port)
    }

    /// The authority with the reported port appended, if the port is neither in the authority nor the default of its
    /// scheme. A response may depend on this port, so it is part of the cache key.
    #[must_use]
    pub fn authority_with_port(&self, authority: &[u8], is_https: bool) -> Option<Vec<u8>> {
        let port = self.port.filter(|port| *port != default_port(is_https))?;
        let is_complete = authority.is_empty() || host::port(authority).is_some();
        (!is_complete).then(|| {
            let mut complete = [authority, b":"].concat();
            put_number(&mut complete, port.into());
            complete
        })
    }
}

/// Whether the client used https: as reported by a trusted proxy, else as on this connection.
#[must_use]
pub fn is_https(forwarded: Option<&ForwardedRequest>, is_tls: bool) -> bool {
    let reported = forwarded.and_then(|forwarded| forwarded.is_https);
    reported.unwrap_or(is_tls)
}

/// The default port of a scheme.
#[must_use]
pub const fn default_port(is_https: bool) -> u16 {
    if is_https { 443 } else { 80 }
}

/// Fields other than `X-Forwarded-…` in which proxies report the client's address or request. Applications trust them,
/// so they are removed from requests of untrusted clients.
pub const FORWARDING_FIELDS: [&str; 10] = [
    "Forwarded",
    "Front-End-Https",
    "X-Host",
    "X-HTTP-Host-Override",
    "X-Original-Host",
    "X-Original-URL",
    "X-Real-IP",
    "X-Rewrite-URL",
    "X-Scheme",
    "X-URL-Scheme",
];

/// Fields of two CDNs (Cloudflare, CloudFront) that report the client's scheme.
const CDN_SCHEME_FIELDS: [&str; 2] = ["CF-Visitor", "CloudFront-Forwarded-Proto"];

/// Whether proxies report a client or its request in this field, so that clients must not forge it.
#[must_use]
pub fn is_report(name: &[u8]) -> bool {
    let name_is = |expected: &str| name.eq_ignore_ascii_case(expected.as_bytes());
    is_x_forwarded(name) || FORWARDING_FIELDS.into_iter().any(name_is) || is_network_report(name)
}

fn is_network_report(name: &[u8]) -> bool {
    let name_is = |expected: &str| name.eq_ignore_ascii_case(expected.as_bytes());
    CDN_SCHEME_FIELDS.into_iter().any(name_is)
}

/// Whether a name begins with `X-Forwarded`.
#[must_use]
pub fn is_x_forwarded(name: &[u8]) -> bool {
    starts_with(name, X_FORWARDED)
}

/// Whether this field of a trusted proxy is forwarded unchanged: `X-Forwarded-Prefix`, `X-Forwarded-User`, `CF-Visitor`
/// and similar fields, but none of the usual fields for address, scheme, host or port.
#[must_use]
pub fn is_forwarded_report(name: &[u8]) -> bool {
    let name_is = |rest: &&str| name[X_FORWARDED.len()..].eq_ignore_ascii_case(rest.as_bytes());
    is_x_forwarded(name) && !REWRITTEN.iter().any(name_is) || is_network_report(name)
}

/// Whether applications receive this field with a value that is not part of a cache key: the client's
/// address; `X-Forwarded-Port`, unless it is the port of the authority; fields that only trusted proxies may send.
/// All other reported values are part of the key, or the fields are removed from each request.
#[must_use]
pub fn is_client_report(name: &[u8]) -> bool {
    let name_is = |expected: &str| name.eq_ignore_ascii_case(expected.as_bytes());
    let unkeyed = ["X-Forwarded-For", "X-Forwarded-Port", "X-Real-IP"];
    unkeyed.into_iter().any(name_is) || is_forwarded_report(name)
}

const X_FORWARDED: &str = "X-Forwarded";

/// The names, after `X-Forwarded`, of fields that this server writes itself, and of their synonyms.
const REWRITTEN: [&str; 11] = [
    "",
    "-By",
    "-For",
    "-Host",
    "-Path",
    "-Port",
    "-Proto",
    "-Protocol",
    "-Scheme",
    "-Server",
    "-SSL",
];

fn starts_with(name: &[u8], start: &str) -> bool {
    let prefix = name.get(..start.len());
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(start.as_bytes()))
}

/// Prefixes of fields that describe another original request. Each has eight bytes, as in `bpf/request.h`.
const NAME_PREFIXES: [&str; 7] = [
    "X-Forwar", "X-HTTP-M", "X-Method", "X-Origin", "X-Rewrit", "X-Scheme", "X-URL-Sc",
];

/// An exception to the prefixes: this field only identifies the client.
const CLIENT_ADDRESS_FIELD: &str = "X-Forwarded-For";

/// Further fields that describe another original request.
const NAMES: [&str; 5] = [
    "CF-Visitor",
    "CloudFront-Forwarded-Proto",
    "Forwarded",
    "Front-End-Https",
    "X-Host",
];

/// Whether a field of this name describes another original request.
#[must_use]
pub fn describes_other_request(name: &[u8]) -> bool {
    let name_is = |expected: &str| name.eq_ignore_ascii_case(expected.as_bytes());
    let has_prefix = |start: &str| starts_with(name, start);
    NAME_PREFIXES.into_iter().any(has_prefix) && !name_is(CLIENT_ADDRESS_FIELD)
        || NAMES.into_iter().any(name_is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_report_fields_match_case_insensitively() {
        // A client could otherwise forge a report by its spelling.
        for name in [
            "X-Forwarded-For",
            "x-forwarded-user",
            "X-FORWARDED",
            "Forwarded",
            "x-real-ip",
            "X-Url-Scheme",
        ] {
            assert!(is_report(name.as_bytes()), "{name}");
        }
        for name in [
            "X-Forward",
            "Host",
            "",
            "X-HTTP-Method-Override",
            "Forwarded-For",
        ] {
            assert!(!is_report(name.as_bytes()), "{name}");
        }
        assert!(
            is_forwarded_report(b"x-forwarded-prefix") && is_forwarded_report(b"X-Forwarded-User")
        );
        assert!(is_report(b"cf-visitor") && is_forwarded_report(b"cf-visitor"));
        for name in [
            "X-Forwarded-For",
            "x-forwarded-port",
            "x-real-ip",
            "X-Forwarded-User",
            "CF-Visitor",
        ] {
            assert!(is_client_report(name.as_bytes()), "{name}");
        }
        for name in [
            "X-Forwarded-Proto",
            "X-Forwarded-Host",
            "Forwarded",
            "X-Real-IPs",
        ] {
            assert!(!is_client_report(name.as_bytes()), "{name}");
        }
        for name in [
            "X-Forwarded-For",
            "x-forwarded-ssl",
            "X-Forwarded",
            "Forwarded",
            "X-Real-IP",
        ] {
            assert!(!is_forwarded_report(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn client_port_prefers_reported_port_then_authority_then_scheme() {
        let port = |is_https, port, authority: &[u8]| {
            let report = ForwardedRequest {
                is_https,
                authority: None,
                port,
            };
            report.client_port(authority)
        };
        assert_eq!(port(Some(true), None, b"a"), Some(443));
        assert_eq!(port(Some(false), None, b"a:81"), Some(81));
        assert_eq!(port(Some(true), Some(8443), b"a:81"), Some(8443));
        assert_eq!(port(None, None, b"a:81"), Some(81));
        assert_eq!(port(None, None, b"a"), None);
        let complete = |port, authority: &[u8]| {
            let report = ForwardedRequest {
                port: Some(port),
                ..ForwardedRequest::default()
            };
            report.authority_with_port(authority, true)
        };
        assert_eq!(complete(8443, b"a"), Some(b"a:8443".to_vec()));
        for (port, authority) in [(443, &b"a"[..]), (8443, b"a:443"), (8443, b"")] {
            assert_eq!(complete(port, authority), None);
        }
    }

    #[test]
    fn original_request_fields_match_case_insensitively() {
        // An unrecognized field would let a cache store the response to another request under this key.
        for name in [
            "X-Forwarded-Proto",
            "x-forwarded-host",
            "X-HTTP-Method-Override",
            "X-Original-URL",
            "x-rewrite-url",
            "cf-visitor",
            "FORWARDED",
            "X-Host",
        ] {
            assert!(describes_other_request(name.as_bytes()), "{name}");
        }
        for name in [
            "X-Forwarded-For",
            "x-forwarded-for",
            "Host",
            "X-",
            "",
            "Cookie",
        ] {
            assert!(!describes_other_request(name.as_bytes()), "{name}");
        }
    }
}
