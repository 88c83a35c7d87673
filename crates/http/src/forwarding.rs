//! Request fields in which a proxy describes the client's original request: its scheme, host, path or method. The
//! server may choose its response by them, though none of them is part of a cache key. `bpf/request.h` of the
//! soft-interrupt level has the same list.

/// Prefixes of their names.
const BEGINNINGS: [&str; 7] = [
    "X-Forwar", "X-HTTP-M", "X-Method", "X-Origin", "X-Rewrit", "X-Scheme", "X-URL-Sc",
];

/// Exceptions: fields that only identify the client.
const OF_CLIENTS: &str = "X-Forwarded-For";

/// Other names.
const NAMES: [&str; 5] = [
    "CF-Visitor",
    "CloudFront-Forwarded-Proto",
    "Forwarded",
    "Front-End-Https",
    "X-Host",
];

/// Whether a field of this name describes another original request.
#[must_use]
pub fn tells_other_request(name: &[u8]) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    let begins = |known: &str| {
        let start = name.get(..known.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(known.as_bytes()))
    };
    BEGINNINGS.into_iter().any(begins) && !is(OF_CLIENTS) || NAMES.into_iter().any(is)
}

#[cfg(test)]
mod tests {
    use super::tells_other_request;

    #[test]
    fn what_stood_in_front_is_known_in_any_case() {
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
            assert!(tells_other_request(name.as_bytes()), "{name}");
        }
        for name in [
            "X-Forwarded-For",
            "x-forwarded-for",
            "Host",
            "X-",
            "",
            "Cookie",
        ] {
            assert!(!tells_other_request(name.as_bytes()), "{name}");
        }
    }
}
