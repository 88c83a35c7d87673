//! Trailer fields (RFC 9110 §6.5). Fields for framing, routing, authentication or content format must be known before
//! the content, so they are dropped from trailers: a recipient that merges trailers into the header section must not
//! act on them.

use super::{FieldLines, ResponseFields};

/// Fields that may not be trailers, in addition to those that `ResponseFields` always drops: framing, routing,
/// authentication, content format, and cache control.
const HEAD_ONLY: [&[u8]; 23] = [
    b"age",
    b"authentication-info",
    b"authorization",
    b"cache-control",
    b"content-encoding",
    b"content-location",
    b"content-range",
    b"content-type",
    b"cookie",
    b"expect",
    b"expires",
    b"forwarded",
    b"host",
    b"location",
    b"max-forwards",
    b"pragma",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"range",
    b"set-cookie",
    b"trailer",
    b"vary",
    b"www-authenticate",
];

impl ResponseFields {
    /// The permitted fields of a trailer section. They are forwarded as trailers, never in a header section.
    #[must_use]
    pub fn from_trailers(lines: FieldLines<'_>) -> ResponseFields {
        let mut fields = ResponseFields::new();
        for (name, value) in lines {
            if !HEAD_ONLY
                .iter()
                .any(|forbidden| name.eq_ignore_ascii_case(forbidden))
            {
                fields.try_push(name, value);
            }
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h1::put_fields;
    use alloc::vec::Vec;

    #[test]
    fn header_only_fields_are_dropped_from_trailers() {
        let lines = b"X-Sum: 1\r\nhost: evil\r\nContent-Length: 5\r\nSet-Cookie: a=b\r\nserver-timing: t\r\n\
            Transfer-Encoding: chunked\r\nConnection: close\r\n";
        let fields = ResponseFields::from_trailers(FieldLines::new(lines));
        let mut out = Vec::new();
        put_fields(&fields, &mut out);
        assert_eq!(out, b"X-Sum: 1\r\nserver-timing: t\r\n");
        assert!(FieldLines::NONE.is_empty() && !FieldLines::new(lines).is_empty());
    }
}
