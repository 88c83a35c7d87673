//! Status codes and their reason phrases. Read RFC 9110 §15; 103 is RFC 8297; 428, 429 and 431 are RFC 6585, 451 is RFC
//! 7725, 507 is RFC 4918.

/// A status code, 100 to 999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StatusCode(u16);

/// Each line of the table below defines a constant and its reason phrase.
macro_rules! statuses {
    ($($name:ident = $code:literal $reason:literal;)*) => {
        impl StatusCode {
            $(#[doc = concat!(stringify!($code), " ", $reason)]
            pub const $name: StatusCode = StatusCode($code);)*

            /// Every status that has a constant, ascending.
            pub const ALL: &[StatusCode] = &[$(StatusCode::$name),*];

            /// The reason phrase, empty for a code without a constant (the phrase may be empty
            /// by RFC 9112 §4).
            pub const fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $reason,)*
                    _ => "",
                }
            }
        }
    };
}

statuses! {
    CONTINUE = 100 "Continue";
    SWITCHING_PROTOCOLS = 101 "Switching Protocols";
    EARLY_HINTS = 103 "Early Hints";
    OK = 200 "OK";
    CREATED = 201 "Created";
    ACCEPTED = 202 "Accepted";
    NO_CONTENT = 204 "No Content";
    PARTIAL_CONTENT = 206 "Partial Content";
    MULTIPLE_CHOICES = 300 "Multiple Choices";
    MOVED_PERMANENTLY = 301 "Moved Permanently";
    FOUND = 302 "Found";
    SEE_OTHER = 303 "See Other";
    NOT_MODIFIED = 304 "Not Modified";
    TEMPORARY_REDIRECT = 307 "Temporary Redirect";
    PERMANENT_REDIRECT = 308 "Permanent Redirect";
    BAD_REQUEST = 400 "Bad Request";
    UNAUTHORIZED = 401 "Unauthorized";
    FORBIDDEN = 403 "Forbidden";
    NOT_FOUND = 404 "Not Found";
    METHOD_NOT_ALLOWED = 405 "Method Not Allowed";
    NOT_ACCEPTABLE = 406 "Not Acceptable";
    REQUEST_TIMEOUT = 408 "Request Timeout";
    CONFLICT = 409 "Conflict";
    GONE = 410 "Gone";
    LENGTH_REQUIRED = 411 "Length Required";
    PRECONDITION_FAILED = 412 "Precondition Failed";
    CONTENT_TOO_LARGE = 413 "Content Too Large";
    URI_TOO_LONG = 414 "URI Too Long";
    UNSUPPORTED_MEDIA_TYPE = 415 "Unsupported Media Type";
    RANGE_NOT_SATISFIABLE = 416 "Range Not Satisfiable";
    EXPECTATION_FAILED = 417 "Expectation Failed";
    MISDIRECTED_REQUEST = 421 "Misdirected Request";
    TOO_EARLY = 425 "Too Early";
    UPGRADE_REQUIRED = 426 "Upgrade Required";
    PRECONDITION_REQUIRED = 428 "Precondition Required";
    TOO_MANY_REQUESTS = 429 "Too Many Requests";
    FIELDS_TOO_LARGE = 431 "Request Header Fields Too Large";
    UNAVAILABLE_FOR_LEGAL_REASONS = 451 "Unavailable For Legal Reasons";
    INTERNAL_ERROR = 500 "Internal Server Error";
    NOT_IMPLEMENTED = 501 "Not Implemented";
    BAD_GATEWAY = 502 "Bad Gateway";
    SERVICE_UNAVAILABLE = 503 "Service Unavailable";
    GATEWAY_TIMEOUT = 504 "Gateway Timeout";
    VERSION_NOT_SUPPORTED = 505 "HTTP Version Not Supported";
    INSUFFICIENT_STORAGE = 507 "Insufficient Storage";
}

impl StatusCode {
    /// A status from its code, `None` outside 100 to 999.
    pub const fn new(code: u16) -> Option<StatusCode> {
        if code >= 100 && code <= 999 {
            Some(StatusCode(code))
        } else {
            None
        }
    }

    /// The code as a number.
    pub const fn code(self) -> u16 {
        self.0
    }

    /// Whether a response with this status never has content (RFC 9110 §6.4.1).
    pub const fn is_bodiless(self) -> bool {
        self.0 < 200 || self.0 == 204 || self.0 == 304
    }
}

#[cfg(test)]
mod tests {
    use super::StatusCode;

    #[test]
    fn status_codes_are_limited_to_three_digits() {
        assert_eq!(StatusCode::new(99), None);
        assert_eq!(StatusCode::new(100), Some(StatusCode::CONTINUE));
        assert_eq!(StatusCode::new(999).map(StatusCode::code), Some(999));
        assert_eq!(StatusCode::new(1000), None);
    }

    #[test]
    fn status_table_is_ascending_with_reason_phrases() {
        assert!(StatusCode::ALL.is_sorted_by(|a, b| a < b));
        assert!(StatusCode::ALL.iter().all(|s| !s.reason().is_empty()));
        assert_eq!(StatusCode::new(299).map(StatusCode::reason), Some(""));
    }

    #[test]
    fn informational_no_content_and_not_modified_have_no_body() {
        let bodiless: alloc::vec::Vec<u16> = StatusCode::ALL
            .iter()
            .filter(|s| s.is_bodiless())
            .map(|s| s.code())
            .collect();
        assert_eq!(bodiless, [100, 101, 103, 204, 304]);
    }
}
