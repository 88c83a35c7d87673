//! Writes records as text. All that a client can choose is escaped, so that no value ends its field or its line, and no
//! control character reaches a terminal.

mod csv;
pub mod invisible;
mod w3c;

use lowroad_log::{AccessEntry, LineFormat, LineFormatter};

/// The form of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// The combined format of Apache.
    Combined,
    /// The combined format, followed by the outcome, the duration and the host.
    Extended,
    /// A JSON object a line.
    Json,
    /// Comma-separated values with a line of names (RFC 4180).
    Csv,
    /// The Extended Log File Format of the W3C.
    W3c,
}

/// Writes records in one format.
pub struct RecordExporter {
    format: ExportFormat,
    lines: Option<LineFormatter>,
}

impl RecordExporter {
    /// Creates an exporter.
    pub fn new(format: ExportFormat) -> RecordExporter {
        let lines = match format {
            ExportFormat::Combined => Some(LineFormat::Combined),
            ExportFormat::Extended => Some(LineFormat::Extended),
            ExportFormat::Json => Some(LineFormat::Json),
            ExportFormat::Csv | ExportFormat::W3c => None,
        };
        RecordExporter {
            format,
            lines: lines.map(LineFormatter::new),
        }
    }

    /// Appends the lines before the first record.
    pub fn begin(&self, out: &mut Vec<u8>) {
        match self.format {
            ExportFormat::Csv => csv::begin(out),
            ExportFormat::W3c => w3c::begin(out),
            ExportFormat::Combined | ExportFormat::Extended | ExportFormat::Json => {}
        }
    }

    /// Appends the line of a record.
    pub fn append(&mut self, entry: &AccessEntry<'_>, out: &mut Vec<u8>) {
        match (&mut self.lines, self.format) {
            (Some(lines), ExportFormat::Json) => {
                let mut line = Vec::new();
                lines.append(entry, &mut line);
                invisible::escape_json(&String::from_utf8_lossy(&line), out);
            }
            (Some(lines), _) => lines.append(entry, out),
            (None, ExportFormat::W3c) => w3c::append(entry, out),
            // Without a formatter the format is CSV or W3C (see `new`), and the arm before has taken W3C.
            (None, _) => csv::append(entry, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_no_invisible_characters() {
        let entry = AccessEntry {
            peer: [192, 0, 2, 7].into(),
            user: b"",
            unix_ms: 0,
            line: b"GET / HTTP/1.1",
            host: b"",
            status: 200,
            body_bytes: 5,
            whole: true,
            referer: b"",
            user_agent: "a\u{202e}b\u{e4}".as_bytes(),
            duration_us: 17,
            outcome: "hit",
            level: "worker",
            tls: "",
        };
        let mut out = Vec::new();
        RecordExporter::new(ExportFormat::Json).append(&entry, &mut out);
        let line = String::from_utf8(out).expect("UTF-8");
        assert!(line.contains("\"a\\u202eb\u{e4}\""), "{line}");
    }

    #[test]
    fn control_characters_are_escaped_in_each_format() {
        let formats = [
            ExportFormat::Combined,
            ExportFormat::Extended,
            ExportFormat::Json,
            ExportFormat::Csv,
            ExportFormat::W3c,
        ];
        for format in formats {
            for byte in 0..=u8::MAX {
                let text = [b'=', byte, b'"', b',', b' ', byte, 0xC2, byte];
                let entry = AccessEntry {
                    peer: [192, 0, 2, 7].into(),
                    user: &text,
                    unix_ms: 784_111_777_042,
                    line: &text,
                    host: &text,
                    status: 200,
                    body_bytes: 5,
                    whole: true,
                    referer: &text,
                    user_agent: &text,
                    duration_us: 17,
                    outcome: "hit",
                    level: "worker",
                    tls: "",
                };
                let mut out = Vec::new();
                RecordExporter::new(format).append(&entry, &mut out);
                let line = String::from_utf8(out).expect("UTF-8");
                let line = line.strip_suffix('\n').expect("a line");
                assert!(!line.chars().any(char::is_control), "{format:?}: {line}");
            }
        }
    }
}
