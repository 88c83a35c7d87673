//! The bytes of requests: builds and validates the parts that workloads combine. Independent of workloads.

use std::fmt::Display;

use super::WorkloadVersion;

/// Date of every file that the lab creates (its `mtime`), in seconds since 1970. It is earlier than any run, because
/// servers ignore conditions with a date in the future (RFC 9110 section 13.1.3).
pub(crate) const FILES_DATE_UNIX_S: u64 = 1_767_225_600;

/// The field of conditional requests. Its date is exactly that of the files, since servers may compare for equality.
pub(crate) const FILES_CONDITION: &str = "If-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT\r\n";

/// The HTTP version at the end of a request line.
pub(crate) fn version(version: WorkloadVersion) -> &'static str {
    match version {
        WorkloadVersion::Http10 | WorkloadVersion::Http10KeepAlive => " HTTP/1.0\r\n",
        WorkloadVersion::Http11 | WorkloadVersion::Http2 | WorkloadVersion::Http3 => {
            " HTTP/1.1\r\n"
        }
    }
}

/// The `Connection` field, if the version needs one.
pub(crate) fn connection(version: WorkloadVersion, last: bool) -> &'static str {
    // HTTP/1.0 closes and HTTP/1.1 persists by default (RFC 9112 section 9.3); only the opposite needs a field.
    match (version, last) {
        (WorkloadVersion::Http10KeepAlive, false) => "Connection: keep-alive\r\n",
        (WorkloadVersion::Http11, true) => "Connection: close\r\n",
        _ => "",
    }
}

/// Appends a number, padded with zeros to `width` digits.
pub(crate) fn decimal(out: &mut Vec<u8>, number: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let mut rest = number;
    let mut start = digits.len();
    // The second condition ensures that 0 has one digit.
    while rest > 0 || start == digits.len() {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let start = start.min(digits.len() - width.min(digits.len()));
    out.extend_from_slice(&digits[start..]);
}

/// Checks a request target.
pub(crate) fn check_target(target: &str) -> Result<(), String> {
    if !target.starts_with('/') && target != "*" {
        return Err("a path begins with /".to_string());
    }
    if target.bytes().any(|byte| byte <= b' ' || byte >= 0x7f) {
        return Err(
            "spaces, control characters and letters beyond ASCII are written %XX".to_string(),
        );
    }
    Ok(())
}

/// Whether a text is a token: a valid method or field name.
pub(crate) fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

/// Whether a text is a valid field value.
pub(crate) fn is_value(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
}

/// Fields that determine the framing of the request or the persistence of the connection. If a user set them, the load
/// generator would wait for responses that never arrive.
const OURS: &[(&str, &str)] = &[
    (
        "connection",
        "the version and the number of requests per connection determine it",
    ),
    (
        "keep-alive",
        "the version and the number of requests per connection determine it",
    ),
    ("content-length", "it follows from the body"),
    ("transfer-encoding", "bodies are sent with Content-Length"),
    ("expect", "bodies are sent at once"),
    ("upgrade", "only HTTP/1.0 and HTTP/1.1 are supported"),
];

/// The reason why a user may not set this field; `None` if it is allowed.
pub(crate) fn reserved_reason(name: &str) -> Option<&'static str> {
    let reserved = OURS
        .iter()
        .find(|(reserved_name, _)| name.eq_ignore_ascii_case(reserved_name));
    reserved.map(|(_, reason)| *reason)
}

/// Whether a method is allowed. CONNECT would turn the connection into a tunnel.
pub(crate) fn is_method(text: &str) -> bool {
    is_token(text) && text != "CONNECT"
}

/// The request line (RFC 9112 section 3).
#[derive(Clone, Copy)]
pub(crate) struct RequestLine<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) version: WorkloadVersion,
}

/// Builds the head of a request without the final empty line; `last` means that it is the last request of its
/// connection.
pub(crate) fn head<'n, V: Display>(
    line: RequestLine<'_>,
    fields: impl Iterator<Item = (&'n str, V)>,
    body_len: usize,
    last: bool,
) -> String {
    let RequestLine {
        method,
        target,
        version,
    } = line;
    let mut text = format!("{method} {target}{}", self::version(version));
    for (name, value) in fields {
        text += &format!("{name}: {value}\r\n");
    }
    // These methods need Content-Length even if it is 0, since servers expect a body (RFC 9110 section 8.6).
    if body_len > 0 || matches!(method, "POST" | "PUT" | "PATCH") {
        text += &format!("Content-Length: {body_len}\r\n");
    }
    text + connection(version, last)
}

/// Checks the value of `Host`.
pub(crate) fn check_host(host: &str) -> Result<(), String> {
    if host.is_empty() || host.bytes().any(|byte| byte <= b' ' || byte >= 0x7f) {
        return Err(format!(
            "{host:?} is not a host; give a name or address, and a port if needed"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_zero_padded() {
        let text = |number, width| {
            let mut out = Vec::new();
            decimal(&mut out, number, width);
            String::from_utf8(out).expect("digits")
        };
        assert_eq!(text(0, 0), "0");
        assert_eq!(text(0, 5), "00000");
        assert_eq!(text(12, 5), "00012");
        assert_eq!(text(123_456, 5), "123456");
        assert_eq!(text(u64::MAX, 30), u64::MAX.to_string());
    }

    #[test]
    fn syntax_of_target_token_value_and_host_is_checked() {
        assert!(check_target("/a?b=c").is_ok() && check_target("*").is_ok());
        assert!(check_target("a").is_err() && check_target("/a b").is_err());
        assert!(is_token("X-Y") && !is_token("") && !is_token("a:b"));
        assert!(is_value("a b") && !is_value("a\r\nb"));
        assert!(check_host("a:80").is_ok() && check_host("a\r\n").is_err());
    }

    #[test]
    fn condition_date_matches_file_date() {
        let date = lowroad_http::date::format(FILES_DATE_UNIX_S);
        let date = std::str::from_utf8(&date).expect("ASCII");
        assert_eq!(FILES_CONDITION, format!("If-Modified-Since: {date}\r\n"));
    }
}
