//! Comma-separated values.

use lowroad_log::AccessEntry;
use lowroad_log::civil_date;
use lowroad_log::decimal::decimal;
use lowroad_log::escape::escaped;

use crate::line::RequestWords;

const NAMES: &str = "time,peer,user,host,method,target,protocol,status,bytes,whole,referer,user_agent,duration_us,outcome,level,tls\n";

/// Appends the names of the columns.
pub fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(NAMES.as_bytes());
}

/// Appends a record.
pub fn append(entry: &AccessEntry<'_>, out: &mut Vec<u8>) {
    let words = RequestWords::from_line(entry.line);
    out.extend_from_slice(civil_date::rfc3339(entry.unix_ms).as_bytes());
    out.extend_from_slice(format!(",{},", entry.peer.to_canonical()).as_bytes());
    for text in [
        entry.user,
        entry.host,
        words.method,
        words.target,
        words.protocol,
    ] {
        field(text, out);
        out.push(b',');
    }
    decimal(entry.status.into(), out);
    out.push(b',');
    decimal(entry.body_bytes, out);
    out.extend_from_slice(if entry.whole { b",true," } else { b",false," });
    for text in [entry.referer, entry.user_agent] {
        field(text, out);
        out.push(b',');
    }
    decimal(entry.duration_us, out);
    for word in [entry.outcome, entry.level, entry.tls] {
        out.push(b',');
        field(word.as_bytes(), out);
    }
    out.push(b'\n');
}

/// Appends an escaped value in quotes.
fn field(text: &[u8], out: &mut Vec<u8>) {
    if text.is_empty() {
        return;
    }
    out.push(b'"');
    // Spreadsheets would take such a value as a formula.
    if matches!(text[0], b'=' | b'+' | b'-' | b'@') {
        out.push(b'\'');
    }
    // Escaping replaces quotes and line breaks, so that a value needs no doubled quotes (RFC 4180 §2).
    escaped(text, out);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_a_value_for_each_name() {
        let entry = AccessEntry {
            peer: [192, 0, 2, 7].into(),
            user: b"",
            unix_ms: 784_111_777_042,
            line: b"GET /a,\"b HTTP/1.1",
            host: b"example.com",
            status: 200,
            body_bytes: 5,
            whole: true,
            referer: b"=cmd()",
            user_agent: b"curl/8",
            duration_us: 17,
            outcome: "hit",
            level: "worker",
            tls: "",
        };
        let mut out = Vec::new();
        append(&entry, &mut out);
        let expected = "1994-11-06T08:49:37.042Z,192.0.2.7,,\"example.com\",\"GET\",\"/a,\\x22b\",\"HTTP/1.1\",200,5,true,\
                        \"'=cmd()\",\"curl/8\",17,\"hit\",\"worker\",\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
        let names = NAMES.split(',').count();
        // One comma is within quotes and separates no values.
        assert_eq!(expected.split(',').count(), names + 1);
    }
}
