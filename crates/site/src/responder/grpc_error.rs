//! Errors of the server itself for gRPC: a status in the fields of a response without a body ("Trailers-Only" in gRPC's
//! protocol over HTTP/2), since clients can't read an error page.

use lowroad_http::fields::FieldLines;
use lowroad_http::status::StatusCode;
use lowroad_variables::percent_encode;

/// The error of a call.
pub struct GrpcError {
    /// The value of `grpc-status`.
    pub code: &'static str,
    /// The value of `grpc-message`: other bytes than printable ASCII, and the percent sign, are percent-encoded.
    pub message: Vec<u8>,
}

/// Whether a request with these fields is a call of gRPC. `application/grpc-web` is another protocol.
pub fn is_call(mut fields: FieldLines<'_>) -> bool {
    fields.any(|(name, value)| {
        let rest = value.strip_prefix(b"application/grpc");
        name.eq_ignore_ascii_case(b"content-type")
            && rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
    })
}

impl GrpcError {
    /// The error for a status of HTTP, as clients of gRPC translate it themselves.
    pub fn new(status: StatusCode, explanation: &str) -> GrpcError {
        let is_plain = |byte| matches!(byte, b' '..=b'~') && byte != b'%';
        let mut message = Vec::with_capacity(explanation.len());
        percent_encode(explanation.as_bytes(), is_plain, &mut message);
        let code = match status.code() {
            400 => "13",
            401 => "16",
            403 => "7",
            404 => "12",
            // RESOURCE_EXHAUSTED; the message is longer than the limit.
            413 => "8",
            429 | 502..=504 => "14",
            _ => "2",
        };
        GrpcError { code, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_a_content_type_of_grpc() {
        for (content_type, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            let lines = format!("te: trailers\r\nContent-Type: {content_type}\r\n");
            let fields = FieldLines::new(lines.as_bytes());
            assert_eq!(is_call(fields), expected, "{content_type}");
        }
    }

    #[test]
    fn message_is_percent_encoded() {
        let error = GrpcError::new(StatusCode::BAD_GATEWAY, "100 % é\n");
        assert_eq!(error.code, "14");
        assert_eq!(error.message, b"100 %25 %C3%A9%0A");
    }
}
