//! Lines of the access log. Pure formatting: knows no clock, no file and no request; everything, the
//! time too, is given. To read first: RFC 8259 §7 for the JSON form.

use std::io::Write;
use std::net::IpAddr;

use crate::civil;

/// What is said of one answer. Byte fields are as received and may hold anything.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The client's address.
    pub peer: IpAddr,
    /// The user who has shown the right password; empty if none.
    pub user: &'a [u8],
    /// When the answer began, ms since 1970.
    pub unix_ms: u64,
    /// The request line.
    pub line: &'a [u8],
    /// The host asked for; empty if none.
    pub host: &'a [u8],
    /// The answer's status.
    pub status: u16,
    /// Bytes of the answer's body that were sent.
    pub body_bytes: u64,
    /// Whether the answer was sent to its end.
    pub whole: bool,
    /// The Referer; empty if none.
    pub referer: &'a [u8],
    /// The User-Agent; empty if none.
    pub user_agent: &'a [u8],
    /// From the request's last byte to the answer's, µs.
    pub duration_us: u64,
    /// How the answer came about: hit, miss, …
    pub outcome: &'a str,
    /// Which level answered.
    pub level: &'a str,
    /// The version of TLS; empty if it was not spoken.
    pub tls: &'a str,
}

/// Appends a line in the combined format. What is not printable ASCII, and `"` and `\`, becomes
/// `\xHH`, so that no client can forge a line.
pub fn combined(entry: &Entry<'_>, out: &mut Vec<u8>) {
    combined_fields(entry, out);
    out.push(b'\n');
}

/// Appends a line in the combined format, and behind it how the answer came about, how long it took in seconds, and the host.
pub fn extended(entry: &Entry<'_>, out: &mut Vec<u8>) {
    combined_fields(entry, out);
    let (s, ms) = (
        entry.duration_us / 1_000_000,
        entry.duration_us / 1000 % 1000,
    );
    let _ = write!(out, " {} {s}.{ms:03} \"", entry.outcome);
    escaped(or_dash(entry.host), out);
    out.extend_from_slice(b"\"\n");
}

fn combined_fields(entry: &Entry<'_>, out: &mut Vec<u8>) {
    let time = civil::common_log(entry.unix_ms / 1000);
    // Writing into memory does not fail.
    let _ = write!(out, "{} - ", entry.peer.to_canonical());
    word(or_dash(entry.user), out);
    let _ = write!(out, " [{time}] \"");
    escaped(entry.line, out);
    let _ = write!(out, "\" {} {} \"", entry.status, entry.body_bytes);
    escaped(or_dash(entry.referer), out);
    out.extend_from_slice(b"\" \"");
    escaped(or_dash(entry.user_agent), out);
    out.push(b'"');
}

/// Appends an object on a line of its own: `time`, `peer`, `user` where there is one, `host`, `request`, `status`, `bytes`,
/// `whole`, `referer`, `user_agent`, `duration_us`, `outcome`, `level`, and `tls` where it was spoken. Valid JSON whatever was
/// received: what is not UTF-8 becomes U+FFFD.
pub fn json(entry: &Entry<'_>, out: &mut Vec<u8>) {
    let time = civil::rfc3339(entry.unix_ms);
    let peer = entry.peer.to_canonical();
    let _ = write!(out, "{{\"time\":\"{time}\",\"peer\":\"{peer}\"");
    if !entry.user.is_empty() {
        text("user", entry.user, out);
    }
    text("host", entry.host, out);
    text("request", entry.line, out);
    let (status, bytes, whole) = (entry.status, entry.body_bytes, entry.whole);
    let _ = write!(
        out,
        ",\"status\":{status},\"bytes\":{bytes},\"whole\":{whole}"
    );
    text("referer", entry.referer, out);
    text("user_agent", entry.user_agent, out);
    let _ = write!(out, ",\"duration_us\":{}", entry.duration_us);
    text("outcome", entry.outcome.as_bytes(), out);
    text("level", entry.level.as_bytes(), out);
    if !entry.tls.is_empty() {
        text("tls", entry.tls.as_bytes(), out);
    }
    out.extend_from_slice(b"}\n");
}

/// The same of what ends at a space.
fn word(bytes: &[u8], out: &mut Vec<u8>) {
    for (number, part) in bytes.split(|byte| *byte == b' ').enumerate() {
        if number > 0 {
            out.extend_from_slice(b"\\x20");
        }
        escaped(part, out);
    }
}

fn or_dash(field: &[u8]) -> &[u8] {
    if field.is_empty() { b"-" } else { field }
}

/// What needs no escape goes over in runs: most fields are one run.
fn escaped(mut bytes: &[u8], out: &mut Vec<u8>) {
    let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    loop {
        let run = bytes
            .iter()
            .position(|byte| !plain(byte))
            .unwrap_or(bytes.len());
        let (before, rest) = bytes.split_at(run);
        out.extend_from_slice(before);
        let Some((byte, rest)) = rest.split_first() else {
            return;
        };
        let _ = write!(out, "\\x{byte:02X}");
        bytes = rest;
    }
}

/// Another key, and a string as its value.
fn text(key: &str, value: &[u8], out: &mut Vec<u8>) {
    let _ = write!(out, ",\"{key}\":\"");
    for c in String::from_utf8_lossy(value).chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            // C1 and DEL too: JSON would allow them, a terminal would act on them.
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry<'static> {
        Entry {
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
        let mut out = Vec::new();
        let entry = Entry {
            duration_us: 12_034_567,
            ..entry()
        };
        extended(&entry, &mut out);
        let want = "\"-\" \"curl/8\" hit 12.034 \"example.com\"\n";
        assert!(String::from_utf8_lossy(&out).ends_with(want));
    }

    #[test]
    fn combined_line() {
        let mut out = Vec::new();
        combined(&entry(), &mut out);
        let want = "192.0.2.7 - - [06/Nov/1994:08:49:37 +0000] \
                    \"GET /a\\x22\\x5C\\x0A\\xFF HTTP/1.1\" 200 5 \"-\" \"curl/8\"\n";
        assert_eq!(String::from_utf8_lossy(&out), want);
    }

    #[test]
    fn a_user_is_one_word() {
        let entry = Entry {
            user: b"Ann - [\"",
            ..entry()
        };
        let mut out = Vec::new();
        combined(&entry, &mut out);
        let line = String::from_utf8_lossy(&out).into_owned();
        assert!(
            line.starts_with("192.0.2.7 - Ann\\x20-\\x20[\\x22 [06/Nov"),
            "{line}"
        );
        out.clear();
        json(&entry, &mut out);
        let line = String::from_utf8_lossy(&out).into_owned();
        assert!(
            line.contains(",\"user\":\"Ann - [\\\"\",\"host\""),
            "{line}"
        );
    }

    #[test]
    fn json_line() {
        let mut out = Vec::new();
        json(&entry(), &mut out);
        let want = "{\"time\":\"1994-11-06T08:49:37.042Z\",\"peer\":\"192.0.2.7\",\
                    \"host\":\"example.com\",\"request\":\"GET /a\\\"\\\\\\u000a\u{fffd} HTTP/1.1\",\
                    \"status\":200,\"bytes\":5,\"whole\":true,\"referer\":\"\",\
                    \"user_agent\":\"curl/8\",\"duration_us\":17,\"outcome\":\"hit\",\
                    \"level\":\"worker\"}\n";
        assert_eq!(String::from_utf8_lossy(&out), want);
    }

    #[test]
    fn no_byte_forges_a_line() {
        for byte in 0..=255 {
            let line = [b'a', byte, b'z'];
            let mut out = Vec::new();
            combined(
                &Entry {
                    line: &line,
                    referer: &line,
                    ..entry()
                },
                &mut out,
            );
            assert_eq!(out.iter().position(|b| *b == b'\n'), Some(out.len() - 1));
            assert!(
                out[..out.len() - 1]
                    .iter()
                    .all(|b| matches!(b, b' '..=b'~'))
            );
            assert_eq!(out.iter().filter(|b| **b == b'"').count(), 6);
        }
    }

    #[test]
    fn json_is_valid_whatever_came() {
        for byte in 0..=255 {
            let field = [b'a', byte, 0xC2, byte];
            let mut out = Vec::new();
            json(
                &Entry {
                    host: &field,
                    user_agent: &field,
                    ..entry()
                },
                &mut out,
            );
            let object = String::from_utf8(out).expect("UTF-8");
            let strings = strings(object.strip_suffix('\n').expect("one line"));
            let want = String::from_utf8_lossy(&field);
            assert_eq!(strings[5], want, "byte {byte}");
            assert_eq!(strings[14], want, "byte {byte}");
            assert_eq!(strings.last().map(String::as_str), Some("worker"));
        }
    }

    /// All strings of a JSON object, keys too, unescaped. Panics on what RFC 8259 does not allow
    /// in a string.
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
    fn a_mapped_address_is_shown_as_what_it_is() {
        let mut out = Vec::new();
        combined(
            &Entry {
                peer: "::ffff:192.0.2.7".parse().expect("ip"),
                ..entry()
            },
            &mut out,
        );
        assert!(out.starts_with(b"192.0.2.7 - - ["));
        out.clear();
        combined(
            &Entry {
                peer: "2001:db8::1".parse().expect("ip"),
                ..entry()
            },
            &mut out,
        );
        assert!(out.starts_with(b"2001:db8::1 - - ["));
    }
}
