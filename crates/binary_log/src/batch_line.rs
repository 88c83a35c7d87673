//! The line form of records, for a pipe that carries other lines as well: a `*`, the record with escaped line feeds,
//! and a line feed.

use lowroad_log::AccessEntry;

use crate::batch::{self, BatchRecord};

/// The first byte of a line with a record.
const MARK: u8 = b'*';

/// Appends a record as a line.
pub fn append_line(entry: &AccessEntry<'_>, out: &mut Vec<u8>) {
    let mut record = Vec::new();
    batch::append_record(entry, &mut record);
    out.push(MARK);
    for byte in record {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            byte => out.push(byte),
        }
    }
    out.push(b'\n');
}

/// Appends the record of a line to a batch. Returns false if the line does not contain a complete record.
pub fn append_record_of_line(line: &[u8], batch: &mut Vec<u8>) -> bool {
    let Some(text) = line
        .strip_prefix(&[MARK])
        .and_then(|rest| rest.strip_suffix(b"\n"))
    else {
        return false;
    };
    let before = batch.len();
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        batch.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => b'\n',
                _ => b'\\',
            },
            byte => byte,
        });
    }
    let mut records = batch::records(&batch[before..]);
    let entry = records.next().and_then(BatchRecord::entry);
    let is_whole = entry.is_some() && records.rest().is_empty();
    if !is_whole {
        batch.truncate(before);
    }
    is_whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_of_any_bytes_survives_the_line_form() {
        let line = b"GET /\n\\\\n\r\0 HTTP/1.1";
        let entry = AccessEntry {
            peer: [10, 10, 10, 10].into(),
            user: b"",
            unix_ms: 10,
            line,
            host: b"\n",
            status: 0x0A0A,
            body_bytes: 0x5C0A,
            whole: true,
            referer: b"",
            user_agent: b"\\",
            duration_us: 0,
            outcome: "hit",
            level: "softirq",
            tls: "",
        };
        let (mut text, mut batch, mut expected) = (Vec::new(), vec![1], vec![1]);
        append_line(&entry, &mut text);
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert!(append_record_of_line(&text, &mut batch));
        batch::append_record(&entry, &mut expected);
        assert_eq!(batch, expected);
        // A killed writer may leave an incomplete last line.
        for len in 0..text.len() {
            assert!(
                !append_record_of_line(&text[..len], &mut batch),
                "{len} bytes"
            );
        }
        assert_eq!(batch, expected);
    }
}
