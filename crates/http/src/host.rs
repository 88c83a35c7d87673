//! Validates and normalizes hosts in Host fields and request targets.
//!
//! Accepts a subset of RFC 3986 §3.2.2: names of letters, digits, `-`, `_` and single dots (no percent-encoding, which
//! would give a name two spellings), IPv4 addresses, which match the syntax of names, and IPv6 addresses in brackets
//! (no zone identifier, no IPvFuture); each with an optional port. Internationalized names are expected as A-labels and
//! are not converted. Read also RFC 9110 §7.2.

use core::net::Ipv6Addr;

use crate::byte_scan::{self, DIGIT, HOST};
use crate::list_values;

/// The longest name without the port, both before and after [`normalize`].
pub const NAME_LEN_MAX: usize = 255;

/// Whether `raw` is `host` or `host:port`. If so, [`normalize`] succeeds. An empty Host is invalid: it means that the
/// URI has no authority (RFC 9110 §7.2), but an `http` URI always has one.
#[inline]
pub fn is_valid(raw: &[u8]) -> bool {
    split(raw).is_some()
}

/// The name by which a site is looked up: in lower case, without the port and without a trailing dot. An IPv6 address
/// keeps its brackets. `None` if `raw` is empty or invalid.
pub fn normalize<'a>(raw: &[u8], out: &'a mut [u8; 256]) -> Option<&'a [u8]> {
    let (host, _) = split(raw)?;
    // A fully qualified name with the final root dot denotes the same site.
    let host = host.strip_suffix(b".").unwrap_or(host);
    let name = out.get_mut(..host.len())?;
    name.copy_from_slice(host);
    name.make_ascii_lowercase();
    Some(name)
}

/// The port; `None` if `raw` has none or is invalid.
pub fn port(raw: &[u8]) -> Option<u16> {
    let (_, digits) = split(raw)?;
    list_values::decimal(digits)?.try_into().ok()
}

/// Whether both are the same host and port; `default_port` is used where the port is missing (RFC 3986 §6.2.3).
#[inline]
pub fn is_same(a: &[u8], b: &[u8], default_port: u16) -> bool {
    a.eq_ignore_ascii_case(b) || is_equivalent(a, b, default_port)
}

#[cold]
fn is_equivalent(a: &[u8], b: &[u8], default_port: u16) -> bool {
    let (Some(a), Some(b)) = (split(a), split(b)) else {
        return false;
    };
    let port = |digits: &[u8]| match digits {
        [] => Some(u64::from(default_port)),
        digits => list_values::decimal(digits),
    };
    a.0.eq_ignore_ascii_case(b.0) && port(a.1) == port(b.1)
}

/// Splits `raw` into the host and the digits of the port (empty if there are none). Both are validated.
#[inline(always)]
fn split(raw: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = match raw.first()? {
        b'[' => address_end(raw)?,
        _ => name_end(raw)?,
    };
    let (host, rest) = raw.split_at_checked(end)?;
    match rest {
        [] => Some((host, &[])),
        [b':', digits @ ..] if is_port(digits) => Some((host, digits)),
        _ => None,
    }
}

/// The offset after the dot-separated labels at the start of `raw`. One final dot belongs to the labels.
#[inline(always)]
fn name_end(raw: &[u8]) -> Option<usize> {
    let mut rest = raw;
    loop {
        // If the label is empty, the name is empty, has a double dot, or ends with a dot.
        let label_end = byte_scan::skip(rest, HOST);
        if label_end.len() == rest.len() {
            break;
        }
        rest = label_end;
        match rest {
            [b'.', after @ ..] => rest = after,
            _ => break,
        }
    }
    let end = raw.len() - rest.len();
    (1..=NAME_LEN_MAX).contains(&end).then_some(end)
}

/// The offset after the bracketed IPv6 address at the start of `raw`.
fn address_end(raw: &[u8]) -> Option<usize> {
    let close = raw.iter().position(|b| *b == b']')?;
    let address = core::str::from_utf8(raw.get(1..close)?).ok()?;
    // The parser of the standard library rejects zone identifiers.
    address.parse::<Ipv6Addr>().ok()?;
    Some(close + 1)
}

/// Whether `digits` is a port of at most 65535 in up to five digits, or empty (allowed by RFC 3986 §3.2.3).
#[inline(always)]
fn is_port(digits: &[u8]) -> bool {
    let all_digits = byte_scan::run_len(digits, DIGIT) == digits.len();
    // `None < Some`: `decimal` cannot return `None` here, since all bytes are digits.
    all_digits
        && (digits.len() < 5 || digits.len() == 5 && list_values::decimal(digits) <= Some(0xffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(raw: &str) -> Option<alloc::string::String> {
        let mut out = [0; 256];
        let name = normalize(raw.as_bytes(), &mut out)?;
        Some(core::str::from_utf8(name).expect("ASCII").into())
    }

    #[test]
    fn missing_port_equals_default_port() {
        // RFC 3986 §6.2.3; a final dot, however, makes another authority.
        let same = |one: &str, other: &str, port| is_same(one.as_bytes(), other.as_bytes(), port);
        for (one, other, port) in [
            ("a", "A", 80),
            ("a", "a:80", 80),
            ("a:", "a", 80),
            ("a:0443", "A", 443),
            ("[::1]", "[::1]:443", 443),
        ] {
            assert!(
                same(one, other, port) && same(other, one, port),
                "{one} {other}"
            );
        }
        for (one, other, port) in [
            ("a", "b", 80),
            ("a", "a:80", 443),
            ("a:8080", "a", 80),
            ("a", "a:80:80", 80),
            ("a", "a.", 80),
        ] {
            assert!(
                !same(one, other, port) && !same(other, one, port),
                "{one} {other}"
            );
        }
    }

    #[test]
    fn valid_hosts_are_normalized() {
        // Several spellings must select the same site.
        for (raw, name, port_expected) in [
            ("localhost", "localhost", None),
            ("LocalHost:8080", "localhost", Some(8080)),
            ("example.com.", "example.com", None),
            ("example.com.:", "example.com", None),
            ("EXAMPLE.com.:443", "example.com", Some(443)),
            ("xn--BCHER-kva.example", "xn--bcher-kva.example", None),
            ("a_b.example", "a_b.example", None),
            ("127.0.0.1:0", "127.0.0.1", Some(0)),
            ("1:65535", "1", Some(65535)),
            ("a:00080", "a", Some(80)),
            ("[::1]", "[::1]", None),
            ("[2001:DB8::A]:80", "[2001:db8::a]", Some(80)),
            ("[::ffff:1.2.3.4]:", "[::ffff:1.2.3.4]", None),
        ] {
            assert!(is_valid(raw.as_bytes()), "{raw}");
            assert_eq!(normalized(raw).as_deref(), Some(name), "{raw}");
            assert_eq!(port(raw.as_bytes()), port_expected, "{raw}");
        }
    }

    #[test]
    fn an_empty_host_is_invalid() {
        assert!(!is_valid(b""));
        assert_eq!(normalized(""), None);
    }

    #[test]
    fn invalid_hosts_are_rejected() {
        // A lenient parser could read most of these as another host; others would break a log line or a file name.
        for raw in [
            ".",
            "..",
            ".a",
            "a..",
            "a..b",
            ":",
            ":80",
            "a:65536",
            // More than five digits.
            "a:000080",
            "a:8o",
            "a:-1",
            "a:1:2",
            "a b",
            " a",
            "a ",
            "a/b",
            // Escapes would give a name two spellings.
            "a%41",
            "user@a",
            "a,b",
            "a\\b",
            "é",
            "[::1",
            // Without brackets, the port would be ambiguous.
            "::1",
            "[]",
            "[::1]x",
            "[::1]:x",
            // A zone identifier (RFC 6874).
            "[::1%25eth0]",
            // IPvFuture (RFC 3986 §3.2.2).
            "[v1.a]",
            "[1.2.3.4]",
            "a\0",
            "a\r\n",
            "a?b",
            "a#b",
            "<a>",
        ] {
            assert!(!is_valid(raw.as_bytes()), "{raw:?}");
            assert_eq!(normalized(raw), None, "{raw:?}");
            assert_eq!(port(raw.as_bytes()), None, "{raw:?}");
        }
    }

    #[test]
    fn name_of_maximum_length_is_valid() {
        let name = "a".repeat(NAME_LEN_MAX);
        assert_eq!(normalized(&name).as_deref(), Some(name.as_str()));
        assert!(is_valid((name.clone() + ":80").as_bytes()));
        assert!(!is_valid((name + "a").as_bytes()));
    }
}
