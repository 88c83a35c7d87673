//! Writes response heads at the end of a buffer; the caller selects the fields.
//!
//! The start of a head has a fixed layout, so that the date of a prebuilt head can be overwritten in place. Its end is
//! open, so that fields that depend on the connection can be appended:
//!
//! ```text
//! HTTP/1.1 200 OK\r\n
//! Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n      29 bytes at date_offset(status)
//! …: …\r\n                                     other fields
//! [Connection: close\r\n]                      depends on the connection
//! \r\n
//! ```
//!
//! Read RFC 9112 §4 and §5, RFC 9110 §6.6.1 (Date) and §14.4 (Content-Range).

use alloc::vec::Vec;

use crate::byte_scan::{self, VALUE};
use crate::status::StatusCode;

/// The offset of the date's 29 bytes in a head with this status.
pub const fn date_offset(status: StatusCode) -> usize {
    "HTTP/1.1 200 ".len() + status.reason().len() + "\r\nDate: ".len()
}

/// Writes one response head.
#[derive(Debug)]
pub struct HeadWriter<'v>(&'v mut Vec<u8>);

impl<'v> HeadWriter<'v> {
    /// Begins a head at the end of `out` with the status line and the date, see
    /// [`crate::date::format`].
    pub fn start(out: &'v mut Vec<u8>, status: StatusCode, date: &[u8; 29]) -> HeadWriter<'v> {
        if status == StatusCode::OK {
            // Most responses are 200, for which one copy suffices.
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\nDate: ");
        } else {
            put_status_line(out, status);
            out.extend_from_slice(b"Date: ");
        }
        out.extend_from_slice(date);
        out.extend_from_slice(b"\r\n");
        HeadWriter(out)
    }

    /// Begins the head of an interim response, which needs no date (RFC 9110 §6.6.1).
    pub fn interim(out: &'v mut Vec<u8>, status: StatusCode) -> HeadWriter<'v> {
        put_status_line(out, status);
        HeadWriter(out)
    }

    /// Continues the head at the end of `out`.
    pub fn resume(out: &'v mut Vec<u8>) -> HeadWriter<'v> {
        HeadWriter(out)
    }

    /// Adds a field. `name` must be a token; bytes that a value cannot have, such as those of a line end, become
    /// spaces.
    pub fn field(&mut self, name: &str, value: &[u8]) -> &mut Self {
        self.name(name);
        let start = self.0.len();
        self.0.extend_from_slice(value);
        // Against response splitting: a value from a request or a handler must not end the line.
        let written = self.0.get_mut(start..).unwrap_or_default();
        for byte in written
            .iter_mut()
            .filter(|b| !byte_scan::is_in_class(**b, VALUE))
        {
            *byte = b' ';
        }
        self.end()
    }

    /// Adds a field with a value that `write` appends. `write` must write only bytes that are valid in a value.
    pub fn field_by(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        self.name(name);
        write(self.0);
        self.end()
    }

    /// Adds fields given as lines, `name: value\r\n` each.
    pub fn lines(&mut self, lines: &[u8]) {
        self.0.extend_from_slice(lines);
    }

    /// Adds a field with a decimal number as its value.
    pub fn field_u64(&mut self, name: &str, value: u64) -> &mut Self {
        self.name(name);
        put_number(self.0, value);
        self.end()
    }

    /// Adds `Content-Range: bytes first-last/len` for the bytes `start..end`, which must not be empty.
    pub fn content_range(&mut self, start: u64, end: u64, len: u64) -> &mut Self {
        self.name("Content-Range");
        put_content_range(self.0, start, end, len);
        self.end()
    }

    /// Adds `Content-Range: bytes */len`, for a 416 response.
    pub fn content_range_unsatisfied(&mut self, len: u64) -> &mut Self {
        self.name("Content-Range");
        self.0.extend_from_slice(b"bytes */");
        put_number(self.0, len);
        self.end()
    }

    /// Ends the head with the empty line.
    pub fn finish(self) {
        self.0.extend_from_slice(b"\r\n");
    }

    /// Ends the head with `Connection: close` and the empty line.
    pub fn finish_close(self) {
        self.0.extend_from_slice(b"Connection: close\r\n\r\n");
    }

    /// Ends the head with `Connection: keep-alive`, which an HTTP/1.0 client requires, and the empty line.
    pub fn finish_keep_alive(self) {
        self.0.extend_from_slice(b"Connection: keep-alive\r\n\r\n");
    }

    /// Leaves the head open: the sender appends the connection-specific fields and the empty line.
    pub fn finish_open(self) {}

    fn name(&mut self, name: &str) {
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b": ");
    }

    fn end(&mut self) -> &mut Self {
        self.0.extend_from_slice(b"\r\n");
        self
    }
}

/// Appends `bytes first-last/len` for the bytes `start..end`, which must not be empty: the value of Content-Range in a
/// head or in a part of `multipart/byteranges`.
pub fn put_content_range(out: &mut Vec<u8>, start: u64, end: u64, len: u64) {
    out.extend_from_slice(b"bytes ");
    put_number(out, start);
    out.push(b'-');
    put_number(out, end.saturating_sub(1));
    out.push(b'/');
    put_number(out, len);
}

fn put_status_line(out: &mut Vec<u8>, status: StatusCode) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&three_digits(status.code()));
    out.push(b' ');
    out.extend_from_slice(status.reason().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The three digits of a status code.
pub(crate) fn three_digits(code: u16) -> [u8; 3] {
    [code / 100, code / 10 % 10, code % 10].map(|digit| b'0' | (digit % 10) as u8)
}

/// Appends a number in decimal digits.
pub fn put_number(out: &mut Vec<u8>, mut number: u64) {
    // u64::MAX has twenty digits.
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b"0123456789"[usize::try_from(number % 10).unwrap_or_default()];
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::date;
    use alloc::string::String;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn head(status: StatusCode, write: impl FnOnce(HeadWriter<'_>)) -> String {
        let mut out = Vec::new();
        write(HeadWriter::start(
            &mut out,
            status,
            &date::format(784_111_777),
        ));
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn head_has_status_line_date_and_fields_in_order() {
        let text = head(StatusCode::OK, |mut head| {
            head.field("Content-Type", b"text/html")
                .field_u64("Content-Length", 1024)
                .field("X", b"");
            head.finish();
        });
        let expected = String::from("HTTP/1.1 200 OK\r\nDate: ")
            + DATE
            + "\r\nContent-Type: text/html\r\nContent-Length: 1024\r\nX: \r\n\r\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn date_offset_points_to_the_date() {
        // Prebuilt heads are patched at this offset.
        for status in StatusCode::ALL.iter().copied().chain(StatusCode::new(299)) {
            let text = head(status, |head| head.finish_open());
            assert_eq!(&text[date_offset(status)..][..29], DATE, "{status:?}");
            assert_eq!(text.len(), date_offset(status) + 31);
        }
    }

    #[test]
    fn finish_variants_write_connection_field() {
        let start = head(StatusCode::OK, |head| head.finish_open());
        let end = |text: String| text.strip_prefix(&start).map(String::from);
        let plain = end(head(StatusCode::OK, |head| head.finish()));
        assert_eq!(plain.as_deref(), Some("\r\n"));
        let close = end(head(StatusCode::OK, |head| head.finish_close()));
        assert_eq!(close.as_deref(), Some("Connection: close\r\n\r\n"));
        let keep = end(head(StatusCode::OK, |head| head.finish_keep_alive()));
        assert_eq!(keep.as_deref(), Some("Connection: keep-alive\r\n\r\n"));
    }

    #[test]
    fn line_ends_in_field_values_become_spaces() {
        // Response splitting.
        let text = head(StatusCode::FOUND, |mut head| {
            head.field("Location", b"/a\r\nSet-Cookie: b\0\x7f");
            head.finish_open();
        });
        assert!(
            text.ends_with("\r\nLocation: /a  Set-Cookie: b  \r\n"),
            "{text}"
        );
    }

    #[test]
    fn content_ranges() {
        let text = head(StatusCode::PARTIAL_CONTENT, |mut head| {
            head.content_range(0, 500, 1234)
                .content_range_unsatisfied(47);
            head.finish_open();
        });
        let expected = "\r\nContent-Range: bytes 0-499/1234\r\nContent-Range: bytes */47\r\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn put_number_writes_decimal_digits() {
        for number in [0, 1, 9, 10, 99, 100, 12345, u64::MAX] {
            let mut out = Vec::from("x");
            put_number(&mut out, number);
            assert_eq!(out, alloc::format!("x{number}").into_bytes());
        }
    }
}
