//! The Extended Log File Format (W3C working draft WD-logfile-960323): directives, then words separated by spaces.

use lowroad_log::AccessEntry;
use lowroad_log::civil_date;
use lowroad_log::decimal::{decimal, thousandths};

use crate::line::RequestWords;

const BEGIN: &str = "#Version: 1.0\n#Software: Lowroad\n\
    #Fields: date time c-ip cs-username cs-method cs-uri-stem cs-uri-query cs-version cs-host sc-status sc-bytes \
    time-taken cs(User-Agent) cs(Referer) x-cache x-level x-tls\n";

/// Appends the directives.
pub fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(BEGIN.as_bytes());
}

/// Appends a record.
pub fn append(entry: &AccessEntry<'_>, out: &mut Vec<u8>) {
    let words = RequestWords::from_line(entry.line);
    let path = words.path();
    // The question mark separates both fields and belongs to neither of them.
    let query = words.target.get(path.len() + 1..).unwrap_or_default();
    let date = civil_date::rfc3339_seconds(entry.unix_ms / 1000).replace('T', " ");
    out.extend_from_slice(format!("{date} {}", entry.peer.to_canonical()).as_bytes());
    for text in [
        entry.user,
        words.method,
        path,
        query,
        words.protocol,
        entry.host,
    ] {
        word(text, out);
    }
    for number in [entry.status.into(), entry.body_bytes] {
        out.push(b' ');
        decimal(number, out);
    }
    // Seconds, as the draft has them.
    out.push(b' ');
    decimal(entry.duration_us / 1_000_000, out);
    out.push(b'.');
    thousandths(entry.duration_us / 1000, out);
    thousandths(entry.duration_us, out);
    let texts = [entry.user_agent, entry.referer];
    for text in texts
        .into_iter()
        .chain([entry.outcome, entry.level, entry.tls].map(str::as_bytes))
    {
        word(text, out);
    }
    out.push(b'\n');
}

/// Appends a space and a value: `+` for a space, as servers of this format write it, `%HH` for all that is not printable
/// ASCII, and for `+` and `%` themselves, so that decoding a value once gives its bytes.
fn word(text: &[u8], out: &mut Vec<u8>) {
    out.push(b' ');
    if text.is_empty() {
        out.push(b'-');
    }
    for byte in text {
        match byte {
            b' ' => out.push(b'+'),
            // In the draft a quote begins a string that may contain spaces.
            b'!'..=b'~' if !b"\"+%".contains(byte) => out.push(*byte),
            byte => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_a_word_for_each_field() {
        let entry = AccessEntry {
            peer: [192, 0, 2, 7].into(),
            user: b"",
            unix_ms: 784_111_777_042,
            line: b"GET /a%20+?b=\"c HTTP/1.1",
            host: b"example.com",
            status: 200,
            body_bytes: 5,
            whole: true,
            referer: b"",
            user_agent: b"Mozilla/5.0 (X11)",
            duration_us: 1_000_017,
            outcome: "hit",
            level: "worker",
            tls: "",
        };
        let mut out = Vec::new();
        append(&entry, &mut out);
        let expected = "1994-11-06 08:49:37 192.0.2.7 - GET /a%2520%2B b=%22c HTTP/1.1 example.com 200 5 1.000017 \
                        Mozilla/5.0+(X11) - hit worker -\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
        let fields = BEGIN
            .lines()
            .find_map(|line| line.strip_prefix("#Fields: "));
        let fields = fields.expect("a directive").split(' ').count();
        assert_eq!(expected.split(' ').count(), fields);
    }
}
