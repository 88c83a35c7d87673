//! Classifies a field by its name. Table entries store the result, so that it is determined once. Read RFC 9113 §8.2
//! and §8.3, RFC 9114 §4.2 and §4.3.

use crate::byte_scan::{self, TOKEN};
use crate::fields::StandardHeader;
use crate::host;
use crate::request::IndexedField;

/// The class of a field, by which the decoder's sink handles it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldClass {
    Authority,
    /// `:authority` with a value that is not a host.
    InvalidAuthority,
    Method,
    Path,
    Protocol,
    Scheme,
    Status,
    /// An invalid name: upper case, not a token, or an unknown pseudo-header field.
    InvalidName,
    /// A connection-specific field of HTTP/1, which HTTP/2 and HTTP/3 forbid.
    ConnectionSpecific,
    /// A field without special treatment.
    Plain,
    /// `FieldIndex` records the position of the value.
    Indexed(IndexedField),
    /// `FieldIndex` records only that the field is present.
    Presence(IndexedField),
    ContentLength,
    Cookie,
    Expect,
    Host,
    /// Host with a value that is not a host.
    InvalidHost,
    Priority,
    Te,
}

impl FieldClass {
    /// The class of a field with this name.
    pub(crate) fn for_name(name: &[u8]) -> FieldClass {
        match name {
            b":authority" => FieldClass::Authority,
            b":method" => FieldClass::Method,
            b":path" => FieldClass::Path,
            b":protocol" => FieldClass::Protocol,
            b":scheme" => FieldClass::Scheme,
            b":status" => FieldClass::Status,
            other if !is_name(other) => FieldClass::InvalidName,
            other => StandardHeader::find(other).map_or(FieldClass::Plain, FieldClass::from_header),
        }
    }

    fn from_header(name: StandardHeader) -> FieldClass {
        match name {
            StandardHeader::Connection
            | StandardHeader::KeepAlive
            | StandardHeader::ProxyConnection
            | StandardHeader::TransferEncoding
            | StandardHeader::Upgrade => FieldClass::ConnectionSpecific,
            StandardHeader::ContentLength => FieldClass::ContentLength,
            StandardHeader::Cookie => FieldClass::Cookie,
            StandardHeader::Expect => FieldClass::Expect,
            StandardHeader::Host => FieldClass::Host,
            StandardHeader::Priority => FieldClass::Priority,
            StandardHeader::Te => FieldClass::Te,
            other => match IndexedField::from_header(other) {
                Some(field) if field.has_position() => FieldClass::Indexed(field),
                Some(field) => FieldClass::Presence(field),
                None => FieldClass::Plain,
            },
        }
    }

    /// Refines the class by the value: the host check of `:authority` and Host is also done once per table entry.
    pub(crate) fn with_value(self, value: &[u8]) -> FieldClass {
        match self {
            FieldClass::Authority | FieldClass::InvalidAuthority if host::is_valid(value) => {
                FieldClass::Authority
            }
            FieldClass::Authority => FieldClass::InvalidAuthority,
            FieldClass::Host | FieldClass::InvalidHost if host::is_valid(value) => FieldClass::Host,
            FieldClass::Host => FieldClass::InvalidHost,
            other => other,
        }
    }

    /// Whether the field is a pseudo-header field.
    pub(crate) fn is_pseudo(self) -> bool {
        matches!(
            self,
            FieldClass::Authority
                | FieldClass::InvalidAuthority
                | FieldClass::Method
                | FieldClass::Path
                | FieldClass::Protocol
                | FieldClass::Scheme
                | FieldClass::Status
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
        assert_eq!(FieldClass::for_name(b"x-a!"), FieldClass::Plain);
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
            assert_eq!(
                FieldClass::for_name(bad),
                FieldClass::InvalidName,
                "{bad:?}"
            );
        }
    }
}
