//! The treatment of a field by its name, determined once: entries of the tables keep it for the next use. Read RFC
//! 9113 §8.2 and §8.3.

use crate::byte_scan::{self, TOKEN};
use crate::fields::StandardHeader;
use crate::host;
use crate::request::IndexedField;

/// How a field is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::h2) enum IndexingMode {
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
    Indexed(IndexedField),
    /// Its presence is recorded.
    Mark(IndexedField),
    ContentLength,
    Cookie,
    Expect,
    Host,
    /// Host with a value that is not a host.
    OddHost,
    Priority,
    Te,
}

impl IndexingMode {
    /// The treatment of a field by its name.
    pub(in crate::h2) fn for_name(name: &[u8]) -> IndexingMode {
        match name {
            b":authority" => IndexingMode::Authority,
            b":method" => IndexingMode::Method,
            b":path" => IndexingMode::Path,
            b":protocol" => IndexingMode::Protocol,
            b":scheme" => IndexingMode::Scheme,
            b":status" => IndexingMode::Status,
            other if !is_name(other) => IndexingMode::Bad,
            other => {
                StandardHeader::find(other).map_or(IndexingMode::Plain, IndexingMode::from_header)
            }
        }
    }

    fn from_header(name: StandardHeader) -> IndexingMode {
        match name {
            StandardHeader::Connection
            | StandardHeader::KeepAlive
            | StandardHeader::ProxyConnection
            | StandardHeader::TransferEncoding
            | StandardHeader::Upgrade => IndexingMode::OfConnection,
            StandardHeader::ContentLength => IndexingMode::ContentLength,
            StandardHeader::Cookie => IndexingMode::Cookie,
            StandardHeader::Expect => IndexingMode::Expect,
            StandardHeader::Host => IndexingMode::Host,
            StandardHeader::Priority => IndexingMode::Priority,
            StandardHeader::Te => IndexingMode::Te,
            other => match IndexedField::from_header(other) {
                Some(field) if field.has_position() => IndexingMode::Indexed(field),
                Some(field) => IndexingMode::Mark(field),
                None => IndexingMode::Plain,
            },
        }
    }

    /// The treatment with this value: whether it is a valid host is determined once, too.
    pub(in crate::h2) fn with_value(self, value: &[u8]) -> IndexingMode {
        match self {
            IndexingMode::Authority | IndexingMode::OddAuthority if host::is_valid(value) => {
                IndexingMode::Authority
            }
            IndexingMode::Authority => IndexingMode::OddAuthority,
            IndexingMode::Host | IndexingMode::OddHost if host::is_valid(value) => {
                IndexingMode::Host
            }
            IndexingMode::Host => IndexingMode::OddHost,
            other => other,
        }
    }

    /// Whether it is a pseudo-header field.
    pub(in crate::h2) fn is_pseudo(self) -> bool {
        matches!(
            self,
            IndexingMode::Authority
                | IndexingMode::OddAuthority
                | IndexingMode::Method
                | IndexingMode::Path
                | IndexingMode::Protocol
                | IndexingMode::Scheme
                | IndexingMode::Status
        )
    }
}

/// Whether a name is a token without upper case.
fn is_name(name: &[u8]) -> bool {
    let is_valid = |byte: &u8| byte_scan::is_in_class(*byte, TOKEN) && !byte.is_ascii_uppercase();
    !name.is_empty() && name.iter().all(is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_tokens() {
        // RFC 9113 §8.2.1.
        assert_eq!(IndexingMode::for_name(b"x-a!"), IndexingMode::Plain);
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
            assert_eq!(IndexingMode::for_name(bad), IndexingMode::Bad, "{bad:?}");
        }
    }
}
