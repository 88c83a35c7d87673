//! Host names of sites, normalized for comparison with the hosts of requests.
//!
//! No name is resolved. RFC 9110 §4.2.3 and RFC 3986 §3.2.2 define which spellings are equivalent.

use crate::SiteName;
use crate::value::InvalidValue;
use std::net::Ipv6Addr;

/// The maximum length of a DNS name in text form (RFC 1035 §3.1).
const HOST_LEN_MAX: usize = 253;
/// The maximum length of a label (RFC 1035 §2.3.4).
const LABEL_LEN_MAX: usize = 63;

const REFUSED: InvalidValue = InvalidValue {
    expected: "a host name",
    allowed: "example.com, *.example.com (one or more labels in front), an address (192.0.2.1, \
              [2001:db8::1]), or _ for every other host; no port; letters beyond ASCII as A-labels (xn--…)",
};

impl SiteName {
    /// Reads a name: converts it to lower case and removes one trailing dot.
    ///
    /// # Errors
    /// Refuses a label that is empty, is longer than 63, begins or ends with `-`, or has characters other than letters,
    /// digits, `-` and `_`; a name longer than 253 characters; a name with a port.
    pub fn parse(text: &str) -> Result<SiteName, InvalidValue> {
        // Host names are compared without case (RFC 4343).
        let lower = text.to_ascii_lowercase();
        // The final dot (the DNS root) is optional.
        let host = lower.strip_suffix('.').unwrap_or(&lower);
        match host.strip_prefix("*.") {
            // `_` is the name of the default site, as in nginx.
            _ if text == "_" => Ok(SiteName::Default),
            Some(suffix) if is_host(suffix) => Ok(SiteName::Wildcard(suffix.to_string())),
            None if is_host(host) || is_ipv6_text(&lower) => Ok(SiteName::Exact(host.to_string())),
            _ => Err(REFUSED),
        }
    }

    /// Whether a host has this name. The host is in lower case and without a port, an IPv6 address in brackets.
    #[must_use]
    pub fn includes(&self, host: &[u8]) -> bool {
        match self {
            SiteName::Exact(name) => host == name.as_bytes(),
            // The dot separates whole labels: `badexample.com` is not below `example.com`.
            SiteName::Wildcard(suffix) => host
                .strip_suffix(suffix.as_bytes())
                .is_some_and(|front| front.ends_with(b".") && front.len() > 1),
            SiteName::Default => true,
        }
    }
}

fn is_host(host: &str) -> bool {
    host.len() <= HOST_LEN_MAX && host.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    (1..=LABEL_LEN_MAX).contains(&label.len())
        && label
            .bytes()
            // RFC 952 does not allow underscores, but some hosts use them.
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Whether a text is an IPv6 address in brackets. It is not normalized: it is compared with `Host` as text.
fn is_ipv6_text(text: &str) -> bool {
    let inner = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    inner.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_name_spellings_are_normalized() {
        for text in ["example.com", "EXAMPLE.com", "example.com.", "Example.Com."] {
            assert_eq!(
                SiteName::parse(text),
                Ok(SiteName::Exact("example.com".into())),
                "{text}"
            );
        }
        assert_eq!(
            SiteName::parse("*.Example.com."),
            Ok(SiteName::Wildcard("example.com".into()))
        );
        assert_eq!(SiteName::parse("_"), Ok(SiteName::Default));
    }

    #[test]
    fn valid_host_names_and_addresses_are_accepted() {
        let longest = "a".repeat(63);
        for text in [
            "localhost",
            "192.0.2.1",
            "[2001:db8::1]",
            "xn--bcher-kva.example",
            "_x.a",
            &longest,
        ] {
            assert_eq!(SiteName::parse(text), Ok(SiteName::Exact(text.to_string())));
        }
        let host = format!("{longest}.{longest}.{longest}.{}", "a".repeat(61));
        assert_eq!(
            SiteName::parse(&host),
            Ok(SiteName::Exact(host.clone())),
            "253 characters"
        );
        assert_eq!(
            SiteName::parse(&format!("{host}a")),
            Err(REFUSED),
            "254 characters"
        );
    }

    #[test]
    fn invalid_host_names_are_refused() {
        let label = "a".repeat(64);
        for text in [
            "",
            ".",
            "..",
            "a..b",
            "a b",
            "a/b",
            "example.com:80",
            "*",
            "*.",
            "a.*.b",
            "*.*.a",
            "-a",
            "a-",
            "bücher.example",
            "[::1",
            "::1",
            "[::1].",
            "[fe80::1%eth0]",
            "[1.2.3.4]",
            "*.[::1]",
            "a\0b",
            &label,
        ] {
            assert_eq!(SiteName::parse(text), Err(REFUSED), "{text:?}");
        }
    }
}
