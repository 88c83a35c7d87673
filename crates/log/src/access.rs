//! Formats lines of the access log, without clock, file or request: the caller passes every value, including the time.
//! Since each request pays for its line, numbers, addresses and dates are formatted by hand, and only the buffer of the
//! line is allocated. Read first: RFC 8259 §7 for the JSON form.

use std::io::Write;
use std::net::IpAddr;

use crate::civil_date;
use crate::decimal::{decimal, thousandths};
use crate::escape::{escaped, escaped_word, json_escaped};
use crate::line_limit::{LineLimit, truncated};

/// A response to be logged. Byte fields are as received, with arbitrary content.
#[derive(Clone, Debug)]
pub struct AccessEntry<'a> {
    /// The client's address.
    pub peer: IpAddr,
    /// The authenticated user; empty if none.
    pub user: &'a [u8],
    /// When the response began, ms since 1970.
    pub unix_ms: u64,
    /// The request line.
    pub line: &'a [u8],
    /// The requested host; empty if none.
    pub host: &'a [u8],
    /// The response's status.
    pub status: u16,
    /// Bytes of the response's body that were sent.
    pub body_bytes: u64,
    /// Whether the response was sent completely.
    pub whole: bool,
    /// The Referer; empty if none.
    pub referer: &'a [u8],
    /// The User-Agent; empty if none.
    pub user_agent: &'a [u8],
    /// Time from the last byte of the request to the last byte of the response, µs.
    pub duration_us: u64,
    /// How the response was produced: hit, miss, …
    pub outcome: &'a str,
    /// The level that answered.
    pub level: &'a str,
    /// The version of TLS; empty without TLS.
    pub tls: &'a str,
}

impl<'a> AccessEntry<'a> {
    /// The entry with truncated texts.
    fn truncated(&self, text_len_max: usize) -> AccessEntry<'a> {
        AccessEntry {
            user: truncated(self.user, text_len_max),
            line: truncated(self.line, text_len_max),
            host: truncated(self.host, text_len_max),
            referer: truncated(self.referer, text_len_max),
            user_agent: truncated(self.user_agent, text_len_max),
            ..self.clone()
        }
    }
}

/// The format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// The combined format.
    Combined,
    /// The combined format, followed by the outcome, the duration in seconds, and the host.
    Extended,
    /// A JSON object per line: `time`, `peer`, `user` if known, `host`, `request`, `status`, `bytes`, `whole`,
    /// `referer`, `user_agent`, `duration_us`, `outcome`, `level`, and `tls` with TLS. Valid JSON for all input bytes:
    /// invalid UTF-8 becomes U+FFFD.
    Json,
}

/// Formats lines in one format. In the combined and the extended format, `"`, `\` and all bytes except printable ASCII
/// become `\xHH`, so that a client cannot forge a line.
pub struct LineFormatter {
    format: LineFormat,
    limit: LineLimit,
    date: DateText,
}

impl LineFormatter {
    /// Creates a formatter for this format.
    pub fn new(format: LineFormat) -> LineFormatter {
        LineFormatter {
            format,
            limit: LineLimit::NONE,
            date: DateText::default(),
        }
    }

    /// Limits the length of lines.
    pub fn with_limit(self, limit: LineLimit) -> LineFormatter {
        LineFormatter { limit, ..self }
    }

    /// Whether lines contain durations or fractions of a second.
    pub fn is_precise(&self) -> bool {
        self.format != LineFormat::Combined
    }

    /// Appends the line of a response.
    pub fn append(&mut self, entry: &AccessEntry<'_>, out: &mut Vec<u8>) {
        let form = match self.format {
            LineFormat::Combined | LineFormat::Extended => civil_date::common_log,
            LineFormat::Json => civil_date::rfc3339_seconds,
        };
        let date = self.date.format(entry.unix_ms / 1000, form).as_bytes();
        let format = self.format;
        let append = |entry: &AccessEntry<'_>, out: &mut Vec<u8>| match format {
            LineFormat::Combined => combined(entry, date, out),
            LineFormat::Extended => extended(entry, date, out),
            LineFormat::Json => json(entry, date, out),
        };
        self.limit
            .append(out, |text_len_max, out| match text_len_max {
                usize::MAX => append(entry, out),
                text_len_max => append(&entry.truncated(text_len_max), out),
            });
        out.push(b'\n');
    }
}

/// Caches the date of the last formatted second, since most lines have the same second as the previous one.
#[derive(Default)]
pub(crate) struct DateText {
    unix_s: u64,
    text: String,
}

impl DateText {
    pub(crate) fn format(&mut self, unix_s: u64, form: fn(u64) -> String) -> &str {
        if self.unix_s != unix_s || self.text.is_empty() {
            self.text = form(unix_s);
            self.unix_s = unix_s;
        }
        &self.text
    }
}

fn combined(entry: &AccessEntry<'_>, date: &[u8], out: &mut Vec<u8>) {
    address(entry.peer, out);
    // The dash stands for the client's identity (RFC 1413), which is never known.
    out.extend_from_slice(b" - ");
    match entry.user {
        b"" => out.push(b'-'),
        user => escaped_word(user, out),
    }
    out.extend_from_slice(b" [");
    out.extend_from_slice(date);
    out.extend_from_slice(b"] \"");
    escaped(entry.line, out);
    out.extend_from_slice(b"\" ");
    decimal(entry.status.into(), out);
    out.push(b' ');
    decimal(entry.body_bytes, out);
    out.extend_from_slice(b" \"");
    escaped_or_dash(entry.referer, out);
    out.extend_from_slice(b"\" \"");
    escaped_or_dash(entry.user_agent, out);
    out.push(b'"');
}

fn extended(entry: &AccessEntry<'_>, date: &[u8], out: &mut Vec<u8>) {
    combined(entry, date, out);
    out.push(b' ');
    out.extend_from_slice(entry.outcome.as_bytes());
    out.push(b' ');
    decimal(entry.duration_us / 1_000_000, out);
    out.push(b'.');
    thousandths(entry.duration_us / 1000, out);
    out.extend_from_slice(b" \"");
    escaped_or_dash(entry.host, out);
    out.push(b'"');
}

fn json(entry: &AccessEntry<'_>, date: &[u8], out: &mut Vec<u8>) {
    let string = |before: &str, value: &[u8], out: &mut Vec<u8>| {
        out.extend_from_slice(before.as_bytes());
        json_escaped(value, out);
    };
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(date);
    out.push(b'.');
    thousandths(entry.unix_ms, out);
    out.extend_from_slice(b"Z\",\"peer\":\"");
    address(entry.peer, out);
    if !entry.user.is_empty() {
        string("\",\"user\":\"", entry.user, out);
    }
    string("\",\"host\":\"", entry.host, out);
    string("\",\"request\":\"", entry.line, out);
    out.extend_from_slice(b"\",\"status\":");
    decimal(entry.status.into(), out);
    out.extend_from_slice(b",\"bytes\":");
    decimal(entry.body_bytes, out);
    out.extend_from_slice(match entry.whole {
        true => b",\"whole\":true",
        false => b",\"whole\":false",
    });
    string(",\"referer\":\"", entry.referer, out);
    string("\",\"user_agent\":\"", entry.user_agent, out);
    out.extend_from_slice(b"\",\"duration_us\":");
    decimal(entry.duration_us, out);
    string(",\"outcome\":\"", entry.outcome.as_bytes(), out);
    string("\",\"level\":\"", entry.level.as_bytes(), out);
    if !entry.tls.is_empty() {
        string("\",\"tls\":\"", entry.tls.as_bytes(), out);
    }
    out.extend_from_slice(b"\"}");
}

/// Appends an address; an IPv4-mapped address is shown as IPv4.
pub(crate) fn address(address: IpAddr, out: &mut Vec<u8>) {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            for (number, octet) in address.octets().into_iter().enumerate() {
                if number > 0 {
                    out.push(b'.');
                }
                decimal(octet.into(), out);
            }
        }
        // Writing into memory cannot fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

fn escaped_or_dash(field: &[u8], out: &mut Vec<u8>) {
    match field {
        b"" => out.push(b'-'),
        field => escaped(field, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(format: LineFormat, entry: &AccessEntry<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        LineFormatter::new(format).append(entry, &mut out);
        out
    }

    fn text(format: LineFormat, entry: &AccessEntry<'_>) -> String {
        String::from_utf8_lossy(&line(format, entry)).into_owned()
    }

    fn entry() -> AccessEntry<'static> {
        AccessEntry {
            peer: IpAddr::from([192, 0, 2, 7]),
            user: b"",
            unix_ms: 784_111_777_042,
            line: b"GET /a\"\\\n\xff HTTP/1.1",
            host: b"example.com",
            status: 200,
            body_bytes: 5,
            whole: true,
            referer: b"",
            user_agent: b"curl/8",
            duration_us: 17,
            outcome: "hit",
            level: "worker",
            tls: "",
        }
    }

    #[test]
    fn extended_line() {
        let entry = AccessEntry {
            duration_us: 12_034_567,
            ..entry()
        };
        let text = text(LineFormat::Extended, &entry);
        let want = "\"-\" \"curl/8\" hit 12.034 \"example.com\"\n";
        assert!(text.ends_with(want), "{text}");
    }

    #[test]
    fn combined_line() {
        let want = "192.0.2.7 - - [06/Nov/1994:08:49:37 +0000] \
                    \"GET /a\\x22\\x5C\\x0A\\xFF HTTP/1.1\" 200 5 \"-\" \"curl/8\"\n";
        assert_eq!(text(LineFormat::Combined, &entry()), want);
    }

    #[test]
    fn spaces_in_user_names_are_escaped() {
        // A space would shift the following fields for log analyzers.
        let entry = AccessEntry {
            user: b"Ann - [\"",
            ..entry()
        };
        let combined = text(LineFormat::Combined, &entry);
        let start = "192.0.2.7 - Ann\\x20-\\x20[\\x22 [06/Nov";
        assert!(combined.starts_with(start), "{combined}");
        let json = text(LineFormat::Json, &entry);
        let field = ",\"user\":\"Ann - [\\\"\",\"host\"";
        assert!(json.contains(field), "{json}");
    }

    #[test]
    fn json_line() {
        let want = "{\"time\":\"1994-11-06T08:49:37.042Z\",\"peer\":\"192.0.2.7\",\
                    \"host\":\"example.com\",\"request\":\"GET /a\\\"\\\\\\u000a\u{fffd} HTTP/1.1\",\
                    \"status\":200,\"bytes\":5,\"whole\":true,\"referer\":\"\",\
                    \"user_agent\":\"curl/8\",\"duration_us\":17,\"outcome\":\"hit\",\
                    \"level\":\"worker\"}\n";
        assert_eq!(text(LineFormat::Json, &entry()), want);
        let cut = AccessEntry {
            whole: false,
            tls: "TLSv1.3",
            ..entry()
        };
        let want = want
            .replace("true", "false")
            .replace("\"worker\"", "\"worker\",\"tls\":\"TLSv1.3\"");
        assert_eq!(text(LineFormat::Json, &cut), want);
    }

    #[test]
    fn line_of_a_message_is_valid_with_long_fields() {
        let tabs = [b'\t'; 20_000];
        let entry = AccessEntry {
            user_agent: &tabs,
            referer: &tabs,
            ..entry()
        };
        let mut out = Vec::new();
        let formatter = LineFormatter::new(LineFormat::Json);
        formatter
            .with_limit(LineLimit::MESSAGE)
            .append(&entry, &mut out);
        assert!(out.len() <= 65_001, "{}", out.len());
        let object = String::from_utf8(out).expect("UTF-8");
        let strings = strings(object.strip_suffix('\n').expect("one line"));
        assert_eq!(strings[14], "\t".repeat(2048));
        assert_eq!(strings.last().map(String::as_str), Some("worker"));
    }

    #[test]
    fn cached_date_matches_the_second_of_each_line() {
        // The date is cached, and the clock may be set back.
        let seconds = [784_111_777, 784_111_777, 784_111_778, 784_111_776, 0, 0];
        for (format, form) in [
            (
                LineFormat::Combined,
                civil_date::common_log as fn(u64) -> String,
            ),
            (LineFormat::Json, civil_date::rfc3339_seconds),
        ] {
            let mut formatter = LineFormatter::new(format);
            for unix_s in seconds {
                let mut out = Vec::new();
                let entry = AccessEntry {
                    unix_ms: unix_s * 1000 + 7,
                    ..entry()
                };
                formatter.append(&entry, &mut out);
                let line = String::from_utf8_lossy(&out).into_owned();
                assert!(line.contains(&form(unix_s)), "{unix_s}: {line}");
            }
        }
    }

    #[test]
    fn line_breaks_and_quotes_in_fields_are_escaped() {
        // Requests contain arbitrary bytes: an unescaped line break or quote could forge another entry.
        for byte in 0..=255 {
            let field = [b'a', byte, b'z'];
            let entry = AccessEntry {
                line: &field,
                referer: &field,
                ..entry()
            };
            let line = line(LineFormat::Combined, &entry);
            assert_eq!(line.iter().position(|b| *b == b'\n'), Some(line.len() - 1));
            let is_printable = |byte: &u8| matches!(byte, b' '..=b'~');
            assert!(line[..line.len() - 1].iter().all(is_printable));
            assert_eq!(line.iter().filter(|b| **b == b'"').count(), 6);
        }
    }

    #[test]
    fn json_is_valid_for_all_bytes() {
        // 0xC2 begins a character of two bytes, so the following byte decides whether the text is valid UTF-8.
        for byte in 0..=255 {
            let field = [b'a', byte, 0xC2, byte];
            let entry = AccessEntry {
                host: &field,
                user_agent: &field,
                ..entry()
            };
            let object = String::from_utf8(line(LineFormat::Json, &entry)).expect("UTF-8");
            let strings = strings(object.strip_suffix('\n').expect("one line"));
            let want = String::from_utf8_lossy(&field);
            assert_eq!(strings[5], want, "byte {byte}");
            assert_eq!(strings[14], want, "byte {byte}");
            assert_eq!(strings.last().map(String::as_str), Some("worker"));
        }
    }

    /// All strings of a JSON object, including its keys, unescaped. Panics on bytes that RFC 8259 does not allow in a
    /// string.
    fn strings(object: &str) -> Vec<String> {
        let (mut found, mut chars) = (Vec::new(), object.chars());
        while chars.by_ref().any(|c| c == '"') {
            let mut string = String::new();
            loop {
                match chars.next().expect("a closing quote") {
                    '"' => break,
                    '\\' => string.push(unescape(&mut chars)),
                    c => {
                        assert!(!c.is_control(), "raw {c:?}");
                        string.push(c);
                    }
                }
            }
            found.push(string);
        }
        found
    }

    fn unescape(chars: &mut std::str::Chars<'_>) -> char {
        match chars.next().expect("an escape") {
            c @ ('"' | '\\') => c,
            'u' => {
                let hex: String = chars.take(4).collect();
                let code = u32::from_str_radix(&hex, 16).expect("four digits");
                char::from_u32(code).expect("no surrogate")
            }
            c => panic!("unknown escape {c:?}"),
        }
    }

    #[test]
    fn addresses_are_formatted_in_standard_form() {
        for (peer, want) in [
            // Dual-stack listeners report IPv4 clients in this form.
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("0.10.255.100", "0.10.255.100"),
            ("2001:db8::1", "2001:db8::1"),
        ] {
            let entry = AccessEntry {
                peer: peer.parse().expect("an address"),
                ..entry()
            };
            let text = text(LineFormat::Combined, &entry);
            assert!(text.starts_with(&format!("{want} - - [")), "{text}");
        }
    }
}
