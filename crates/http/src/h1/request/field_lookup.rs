//! Looks up the names of the fields that the parser acts on: by length, then eight bytes at a time. This costs less
//! than `StandardHeader::find`, which covers more names.

use crate::ascii_case::equals_lower;
use crate::fields::StandardHeader;

/// The field with this name in any case. A name that is found needs no further validation as a token, since all its
/// bytes were compared.
#[inline(always)]
pub(super) fn find(name: &[u8]) -> Option<StandardHeader> {
    match name.len() {
        4 if equals_lower(name, b"host") => Some(StandardHeader::Host),
        5 if equals_lower(name, b"range") => Some(StandardHeader::Range),
        6 if equals_lower(name, b"expect") => Some(StandardHeader::Expect),
        6 if equals_lower(name, b"pragma") => Some(StandardHeader::Pragma),
        7 if equals_lower(name, b"referer") => Some(StandardHeader::Referer),
        8 if equals_lower(name, b"if-match") => Some(StandardHeader::IfMatch),
        8 if equals_lower(name, b"if-range") => Some(StandardHeader::IfRange),
        10 if equals_lower(name, b"user-agent") => Some(StandardHeader::UserAgent),
        10 if equals_lower(name, b"connection") => Some(StandardHeader::Connection),
        13 if equals_lower(name, b"if-none-match") => Some(StandardHeader::IfNoneMatch),
        13 if equals_lower(name, b"cache-control") => Some(StandardHeader::CacheControl),
        13 if equals_lower(name, b"x-http-method") => Some(StandardHeader::XHttpMethod),
        13 if equals_lower(name, b"authorization") => Some(StandardHeader::Authorization),
        14 if equals_lower(name, b"content-length") => Some(StandardHeader::ContentLength),
        15 if equals_lower(name, b"accept-encoding") => Some(StandardHeader::AcceptEncoding),
        17 if equals_lower(name, b"transfer-encoding") => Some(StandardHeader::TransferEncoding),
        17 if equals_lower(name, b"x-method-override") => Some(StandardHeader::XMethodOverride),
        17 if equals_lower(name, b"if-modified-since") => Some(StandardHeader::IfModifiedSince),
        19 if equals_lower(name, b"if-unmodified-since") => Some(StandardHeader::IfUnmodifiedSince),
        22 if equals_lower(name, b"x-http-method-override") => {
            Some(StandardHeader::XHttpMethodOverride)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{StandardHeader, find};

    #[test]
    fn field_lookup_agrees_with_standard_header_find() {
        let mut count = 0;
        for known in StandardHeader::ALL {
            let name = known.as_str();
            for name in [
                name.into(),
                name.to_ascii_lowercase(),
                name.to_ascii_uppercase(),
            ] {
                let found = find(name.as_bytes());
                assert!(found.is_none() || found == Some(*known), "{name}");
                count += usize::from(found.is_some());
            }
        }
        assert_eq!(count, 3 * 20);
    }
}
