//! The reasons for refusing a request, each with its status and a phrase. After a refusal over HTTP/1 the start of the
//! next request is unknown or cannot be trusted, so the connection closes. Read RFC 9112 §2.2, §3.2, §5, §6.3, §7.1 and
//! §11.2.

use lowroad_limits::RefusalReason;

use crate::status::StatusCode;

/// Each line of the table below defines a variant, its status and its phrase.
macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident => $status:ident $text:literal;)*) => {
        /// Why a request is refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum RequestRefusal {
            $($(#[$doc])* $name,)*
        }

        impl RequestRefusal {
            /// Every refusal, in the order of declaration: `ALL[r as usize] == r`.
            pub const ALL: &[RequestRefusal] = &[$(RequestRefusal::$name),*];

            /// Whether lines of a response with this fault have one interpretation only, so that
            /// [`crate::h1::repair_head`] can remove the fault.
            pub(crate) const fn is_mendable(self) -> bool {
                matches!(
                    self,
                    RequestRefusal::SpaceBeforeColon | RequestRefusal::ObsFold | RequestRefusal::BareLf
                )
            }

            /// The status of the response.
            pub const fn status(self) -> StatusCode {
                match self {
                    $(RequestRefusal::$name => StatusCode::$status,)*
                }
            }

            /// The phrase for the log and the error page: plain ASCII without markup, no full stop.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(RequestRefusal::$name => $text,)*
                }
            }
        }
    };
}

impl RequestRefusal {
    /// The limit that the request exceeds, if that is the reason.
    pub const fn reason(self) -> Option<RefusalReason> {
        match self {
            RequestRefusal::HeadTooLarge
            | RequestRefusal::TooManyFields
            | RequestRefusal::TrailersTooLarge => Some(RefusalReason::HeadLen),
            RequestRefusal::TargetTooLong => Some(RefusalReason::TargetLen),
            RequestRefusal::BodyTooLarge => Some(RefusalReason::BodyLen),
            _ => None,
        }
    }
}

refusals! {
    /// The line is not `method SP target SP HTTP/d.d`.
    RequestLine => BAD_REQUEST "the request line is malformed";
    /// A CR without an LF after it.
    BareCr => BAD_REQUEST "a carriage return without a line feed";
    /// An LF without a CR before it.
    BareLf => BAD_REQUEST "a line feed without a carriage return";
    /// A NUL byte in the head.
    Nul => BAD_REQUEST "a NUL byte in the request head";
    /// A field line that begins with whitespace (RFC 9112 §5.2).
    ObsFold => BAD_REQUEST "a folded field line";
    /// Whitespace between field name and colon (RFC 9112 §5.1).
    SpaceBeforeColon => BAD_REQUEST "whitespace before the colon of a field";
    /// A field line without a colon, or with a name that is not a token.
    FieldName => BAD_REQUEST "a field name is not a token";
    /// A control character in a field value.
    FieldValue => BAD_REQUEST "a control character in a field value";
    /// HTTP/1.1 without Host.
    HostMissing => BAD_REQUEST "the Host field is missing";
    /// More than one Host line, even if they are equal.
    HostRepeated => BAD_REQUEST "the Host field is repeated";
    /// Host or the authority of the target is not `host[:port]`.
    HostInvalid => BAD_REQUEST "the host name is invalid";
    /// Content-Length is not a decimal number below 2^64.
    LengthInvalid => BAD_REQUEST "Content-Length is not a number";
    /// Content-Length as several lines or as a list, even if the values are equal.
    LengthRepeated => BAD_REQUEST "Content-Length is repeated";
    /// Both Content-Length and Transfer-Encoding.
    LengthAndCoding => BAD_REQUEST "both Content-Length and Transfer-Encoding";
    /// Transfer-Encoding in an HTTP/1.0 request.
    TransferCodingInHttp10 => BAD_REQUEST "Transfer-Encoding in an HTTP/1.0 request";
    /// A transfer coding other than `chunked`.
    CodingUnknown => NOT_IMPLEMENTED "the transfer coding is not implemented";
    /// `chunked` twice or not last, or an empty member in the list of codings.
    CodingNotLast => BAD_REQUEST "the transfer codings do not end in one chunked";
    /// A chunk size that is not 1 to 16 hexadecimal digits.
    ChunkSize => BAD_REQUEST "a chunk size is malformed";
    /// A chunk extension that does not match the grammar of RFC 9112 §7.1.1.
    ChunkExtension => BAD_REQUEST "a chunk extension is malformed";
    /// A chunk's extensions are longer than the limit.
    ChunkExtensionTooLong => BAD_REQUEST "a chunk extension is too long";
    /// A chunk's data is not followed by CRLF.
    ChunkEnd => BAD_REQUEST "a chunk does not end where its size says";
    /// A trailer line is not a field line.
    TrailerInvalid => BAD_REQUEST "a trailer field is malformed";
    /// The trailer section is longer than the limit.
    TrailersTooLarge => FIELDS_TOO_LARGE "the trailer section is too large";
    /// The head is longer than the limit.
    HeadTooLarge => FIELDS_TOO_LARGE "the request head is too large";
    /// The head has more field lines than the limit.
    TooManyFields => FIELDS_TOO_LARGE "too many fields in the request head";
    /// The request target is longer than the limit.
    TargetTooLong => URI_TOO_LONG "the request target is too long";
    /// The body is longer than the limit.
    BodyTooLarge => CONTENT_TOO_LARGE "the request body is too large";
    /// A well-formed method that is not supported.
    MethodUnknown => NOT_IMPLEMENTED "the method is not implemented";
    /// A well-formed version other than HTTP/1.x.
    Version => VERSION_NOT_SUPPORTED "the HTTP version is not supported";
    /// The target has none of the four forms of RFC 9112 §3.2, or not the form that its method requires.
    TargetInvalid => BAD_REQUEST "the request target is invalid";
    /// A `%` without two hexadecimal digits in the path.
    PathEscape => BAD_REQUEST "a percent escape in the path is malformed";
    /// An encoded NUL in the path.
    PathNul => BAD_REQUEST "the path contains a NUL";
    /// An encoded slash, or a backslash in any form, in the path.
    PathSlash => BAD_REQUEST "the path contains a backslash or an encoded slash";
    /// A `.` or `..` segment in the path, in any encoding.
    PathDots => BAD_REQUEST "the path contains a dot segment";
    /// An expectation other than `100-continue`.
    ExpectationUnknown => EXPECTATION_FAILED "the expectation is not supported";
}

#[cfg(test)]
mod tests {
    use super::RequestRefusal;

    #[test]
    fn all_is_indexed_by_discriminant() {
        for (i, refusal) in RequestRefusal::ALL.iter().enumerate() {
            assert_eq!(*refusal as usize, i);
        }
    }

    #[test]
    fn refusals_are_4xx_or_5xx_with_distinct_phrases() {
        for (i, refusal) in RequestRefusal::ALL.iter().enumerate() {
            assert!((400..600).contains(&refusal.status().code()), "{refusal:?}");
            let text = refusal.as_str();
            assert!(!text.contains(['<', '>', '&', '"']) && text.is_ascii());
            assert!(
                RequestRefusal::ALL[..i].iter().all(|r| r.as_str() != text),
                "{text}"
            );
        }
    }

    #[test]
    fn refusals_with_a_status_other_than_400() {
        let codes: alloc::vec::Vec<(RequestRefusal, u16)> = RequestRefusal::ALL
            .iter()
            .map(|r| (*r, r.status().code()))
            .filter(|(_, code)| *code != 400)
            .collect();
        assert_eq!(
            codes,
            [
                (RequestRefusal::CodingUnknown, 501),
                (RequestRefusal::TrailersTooLarge, 431),
                (RequestRefusal::HeadTooLarge, 431),
                (RequestRefusal::TooManyFields, 431),
                (RequestRefusal::TargetTooLong, 414),
                (RequestRefusal::BodyTooLarge, 413),
                (RequestRefusal::MethodUnknown, 501),
                (RequestRefusal::Version, 505),
                (RequestRefusal::ExpectationUnknown, 417),
            ]
        );
    }
}
