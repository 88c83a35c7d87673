//! The treatment of a field by its name, determined once: entries of the tables keep it for the next use. Read RFC
//! 9113 §8.2 and §8.3.

use crate::fields::Known;
use crate::host;
use crate::request::Indexed;
use crate::scan::{self, TOKEN};

/// How a field is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::h2) enum Kind {
    Authority,
    /// `:authority` with a value that is not a host.
    OddAuthority,
    Method,
    Path,
    Protocol,
    Scheme,
    Status,
    /// An invalid name: upper case, not a token, or an unknown pseudo-header field.
    Bad,
    /// A connection-specific field of HTTP/1.
    OfConnection,
    /// A field without special treatment.
    Plain,
    /// The positions of its values are indexed.
    Indexed(Indexed),
    /// Its presence is recorded.
    Mark(Indexed),
    ContentLength,
    Cookie,
    Expect,
    Host,
    /// Host with a value that is not a host.
    OddHost,
    Priority,
    Te,
}

impl Kind {
    /// The treatment of a field by its name.
    pub(in crate::h2) fn of(name: &[u8]) -> Kind {
        match name {
            b":authority" => Kind::Authority,
            b":method" => Kind::Method,
            b":path" => Kind::Path,
            b":protocol" => Kind::Protocol,
            b":scheme" => Kind::Scheme,
            b":status" => Kind::Status,
            other if !is_name(other) => Kind::Bad,
            other => Known::find(other).map_or(Kind::Plain, Kind::of_known),
        }
    }

    fn of_known(name: Known) -> Kind {
        match name {
            Known::Connection
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::TransferEncoding
            | Known::Upgrade => Kind::OfConnection,
            Known::ContentLength => Kind::ContentLength,
            Known::Cookie => Kind::Cookie,
            Known::Expect => Kind::Expect,
            Known::Host => Kind::Host,
            Known::Priority => Kind::Priority,
            Known::Te => Kind::Te,
            other => match Indexed::of(other) {
                Some(field) if field.has_place() => Kind::Indexed(field),
                Some(field) => Kind::Mark(field),
                None => Kind::Plain,
            },
        }
    }

    /// The treatment with this value: whether it is a valid host is determined once, too.
    pub(in crate::h2) fn with(self, value: &[u8]) -> Kind {
        match self {
            Kind::Authority | Kind::OddAuthority if host::is_valid(value) => Kind::Authority,
            Kind::Authority => Kind::OddAuthority,
            Kind::Host | Kind::OddHost if host::is_valid(value) => Kind::Host,
            Kind::Host => Kind::OddHost,
            other => other,
        }
    }

    /// Whether it is a pseudo-header field.
    pub(in crate::h2) fn is_pseudo(self) -> bool {
        matches!(
            self,
            Kind::Authority
                | Kind::OddAuthority
                | Kind::Method
                | Kind::Path
                | Kind::Protocol
                | Kind::Scheme
                | Kind::Status
        )
    }
}

/// Whether a name is a token without upper case.
fn is_name(name: &[u8]) -> bool {
    let is_good = |byte: &u8| scan::is(*byte, TOKEN) && !byte.is_ascii_uppercase();
    !name.is_empty() && name.iter().all(is_good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_tokens() {
        // RFC 9113 §8.2.1.
        assert_eq!(Kind::of(b"x-a!"), Kind::Plain);
        for bad in [
            &b""[..],
            b"X-a",
            b"Host",
            b"a b",
            b"a:",
            b":x",
            b":Path",
            b"\xe9",
            b"a\0",
        ] {
            assert_eq!(Kind::of(bad), Kind::Bad, "{bad:?}");
        }
    }
}
