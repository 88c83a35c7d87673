//! The access log as text: the newest records of one or more journals, ordered by time (in seconds).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::Ipv4Addr;

use lowroad_http::date;

use crate::journal::split_record;

/// Formatted lines with their times in seconds, the oldest first.
pub struct LogRing {
    lines: Vec<(u64, String)>,
    len_max: usize,
}

impl LogRing {
    /// An empty log. Its text has at most `len_max` bytes; the same limit applies to the text of each journal.
    pub fn new(len_max: usize) -> LogRing {
        LogRing {
            lines: Vec::new(),
            len_max,
        }
    }

    /// Adds the records of a journal, as returned by `journal::RequestJournal::newest`. Of lines with the same second,
    /// those added earlier come first.
    pub fn add(&mut self, parts: [&[u8]; 2]) {
        let mut records = Vec::new();
        for mut rest in parts {
            while let Some((record, remaining)) = split_record(rest) {
                records.push(record);
                rest = remaining;
            }
        }
        let first = self.lines.len();
        let mut len = 0;
        // Records are added in reverse order, so that the oldest ones are left out.
        for record in records.into_iter().rev() {
            let line = format_record(record);
            len += line.1.len();
            if len > self.len_max {
                break;
            }
            self.lines.push(line);
        }
        self.lines[first..].reverse();
        // The sort is stable: lines with the same second keep their order.
        self.lines.sort_by_key(|line| line.0);
        self.drop_excess();
    }

    /// Drops the oldest lines until the log is within the limit.
    fn drop_excess(&mut self) {
        let len: usize = self.lines.iter().map(|line| line.1.len()).sum();
        let mut excess = len.saturating_sub(self.len_max);
        let old = self.lines.iter().take_while(|line| {
            let is_dropped = excess > 0;
            excess = excess.saturating_sub(line.1.len());
            is_dropped
        });
        let old = old.count();
        self.lines.drain(..old);
    }

    /// All lines: requests in the combined log format, extended by the duration in microseconds, and the reasons of
    /// failed pages.
    pub fn text(&self) -> String {
        self.lines.iter().map(|line| line.1.as_str()).collect()
    }
}

/// Formats a record. Returns its time in seconds and its line.
fn format_record(record: &[u8]) -> (u64, String) {
    // The first two bytes are the length of the record.
    let mut rest = record.get(2..).unwrap_or_default();
    let mut take = |count: usize| {
        let (field, after) = rest.split_at_checked(count).unwrap_or_default();
        rest = after;
        field
    };
    let number = |bytes: &[u8]| {
        // The journal stores numbers in little endian.
        let high_first = bytes.iter().rev();
        high_first.fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let unix_s = number(take(8));
    let ip: [u8; 4] = take(4).first_chunk().copied().unwrap_or_default();
    let _port = take(2);
    let (status, body_len) = (number(take(2)), number(take(8)));
    let duration_us = number(take(4));
    let lens = [(); 3].map(|()| number(take(2)) as usize);
    let [line, referer, user_agent] = lens.map(take);
    let mut out = String::new();
    let date = date::format(unix_s);
    let date = core::str::from_utf8(&date).unwrap_or_default();
    // Status 0 marks the reason of a failed page.
    if status == 0 {
        let date = common_date(date);
        // Writing to a string can't fail.
        let _ = writeln!(
            out,
            "{} - - [{date}] error: {}",
            Ipv4Addr::from(ip),
            escape(line)
        );
        return (unix_s, out);
    }
    // Writing to a string can't fail.
    let _ = writeln!(
        out,
        "{} - - [{}] \"{}\" {status} {body_len} \"{}\" \"{}\" {duration_us}",
        Ipv4Addr::from(ip),
        common_date(date),
        escape(line),
        or_dash(referer),
        or_dash(user_agent),
    );
    (unix_s, out)
}

/// Converts `Sun, 06 Nov 1994 08:49:37 GMT` to `06/Nov/1994:08:49:37 +0000`.
fn common_date(date: &str) -> String {
    let part = |from: usize, to: usize| date.get(from..to).unwrap_or_default();
    let mut out = String::new();
    let (day, month, year, time) = (part(5, 7), part(8, 11), part(12, 16), part(17, 25));
    // Writing to a string can't fail.
    let _ = write!(out, "{day}/{month}/{year}:{time} +0000");
    out
}

fn or_dash(text: &[u8]) -> String {
    match text {
        [] => "-".into(),
        text => escape(text),
    }
}

/// Escapes quotes, backslashes, control characters and non-ASCII bytes.
fn escape(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text {
        match byte {
            // Escaped as by nginx, so that clients can't forge lines or fields.
            b'"' | b'\\' | 0..=31 | 127.. => {
                // Writing to a string can't fail.
                let _ = write!(out, "\\x{byte:02x}");
            }
            byte => out.push(char::from(*byte)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{JournalRecord, RequestJournal};
    use core::net::SocketAddrV4;

    fn record(line: &[u8]) -> JournalRecord<'_> {
        JournalRecord {
            unix_s: 784_111_777,
            peer: SocketAddrV4::new([192, 0, 2, 7].into(), 999),
            status: 200,
            body_len: 12,
            duration_us: 34,
            line,
            referer: b"",
            user_agent: b"a \"b\"",
        }
    }

    fn text(journal: &RequestJournal, len_max: usize) -> String {
        let mut log = LogRing::new(len_max);
        log.add(journal.newest(len_max));
        log.text()
    }

    #[test]
    fn request_is_logged_in_combined_format() {
        let mut journal = RequestJournal::new(0);
        journal.append(&record(b"GET / HTTP/1.1"));
        assert_eq!(
            text(&journal, 1000),
            "192.0.2.7 - - [06/Nov/1994:08:49:37 +0000] \"GET / HTTP/1.1\" 200 12 \"-\" \
             \"a \\x22b\\x22\" 34\n"
        );
    }

    #[test]
    fn full_journal_drops_oldest_and_keeps_newest_complete() {
        let mut journal = RequestJournal::new(0);
        for number in 0..5000 {
            let mut line = String::new();
            write!(line, "GET /{number} HTTP/1.1").expect("a string");
            journal.append(&record(line.as_bytes()));
        }
        let all = text(&journal, usize::MAX);
        let lines: Vec<&str> = all.lines().collect();
        assert_eq!(lines.len() as u64 + journal.dropped, 5000);
        assert!(
            lines
                .last()
                .expect("some")
                .contains("\"GET /4999 HTTP/1.1\"")
        );
        assert!(lines.len() > 50);
        let first = 5000 - lines.len();
        for (at, line) in lines.iter().enumerate() {
            let expected = alloc::format!("\"GET /{} HTTP/1.1\" 200", first + at);
            assert!(line.contains(&expected), "{line}");
        }
        // Lines of about 90 bytes.
        assert!((1..=2).contains(&text(&journal, 200).lines().count()));
    }

    #[test]
    fn long_texts_are_truncated() {
        let mut journal = RequestJournal::new(0);
        journal.append(&record(&[b'x'; 5000]));
        assert!(text(&journal, usize::MAX).len() < 700);
    }

    #[test]
    fn lines_of_several_journals_are_ordered_by_time() {
        let mut journals = [0, 1, 2].map(|_| RequestJournal::new(0));
        for second in 0..100 {
            for (at, journal) in journals.iter_mut().enumerate() {
                let line = alloc::format!("GET /{second}/{at}");
                journal.append(&JournalRecord {
                    unix_s: 784_111_777 + second,
                    ..record(line.as_bytes())
                });
            }
        }
        for len_max in [0, 500, 4000, usize::MAX] {
            let mut log = LogRing::new(len_max);
            for journal in &journals {
                log.add(journal.newest(len_max));
            }
            let text = log.text();
            assert!(text.len() <= len_max);
            let count = text.lines().count();
            let expected_count = if len_max > 50_000 { 300 } else { len_max / 100 };
            assert!(
                count.abs_diff(expected_count) <= expected_count / 5 + 1,
                "{count}, {expected_count}"
            );
            for (line, number) in text.lines().zip(300 - count..) {
                let expected = alloc::format!("\"GET /{}/{}\"", number / 3, number % 3);
                assert!(line.contains(&expected), "{line} {expected}");
            }
        }
    }

    #[test]
    fn malformed_records_do_not_panic() {
        let mut log = LogRing::new(1000);
        for bytes in [&[0; 5][..], &[1], &[0xff; 300], &[36; 36], &[0; 100]] {
            log.add([bytes, bytes]);
        }
        assert!(log.text().len() <= 1000);
    }
}
