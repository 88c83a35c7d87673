//! The log: the newest requests in a ring of memory, kept as they came and written out when somebody asks.
//! Knows no connection and no clock.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::{Ipv4Addr, SocketAddrV4};

use lowroad_http::date;

/// More of a text is cut off.
const TEXT_LEN_MAX: usize = 512;
/// Numbers of a record: its length, time, address, port, status, bytes, microseconds, lengths of three texts.
const HEAD_LEN: usize = 2 + 8 + 4 + 2 + 2 + 8 + 4 + 3 * 2;

/// One request.
#[derive(Clone, Copy)]
pub struct Record<'r> {
    /// Seconds since 1970.
    pub unix_s: u64,
    /// Who asked.
    pub peer: SocketAddrV4,
    /// The answer's status.
    pub status: u16,
    /// Bytes of the answer's body.
    pub body_len: u64,
    /// From the request's arrival to the answer's departure.
    pub duration_us: u32,
    /// The request line.
    pub line: &'r [u8],
    /// Referer.
    pub referer: &'r [u8],
    /// User-Agent.
    pub user_agent: &'r [u8],
}

/// A ring of records: the oldest make room for the newest. Each is in one piece; what is left at the end of the
/// memory stays unused.
pub struct Journal {
    bytes: Vec<u8>,
    /// Where the next record goes.
    end: usize,
    /// Where the oldest begins.
    start: usize,
    /// Where the records behind `start` end, when `end` is before it.
    turn: usize,
    /// Records that were overwritten.
    pub dropped: u64,
}

impl Journal {
    /// A ring of so many bytes; at least a few records have to fit.
    pub fn new(len: usize) -> Journal {
        Journal {
            bytes: vec![0; len.max(4 * (HEAD_LEN + 3 * TEXT_LEN_MAX))],
            end: 0,
            start: 0,
            turn: 0,
            dropped: 0,
        }
    }

    /// Keeps a record.
    #[inline]
    pub fn put(&mut self, record: &Record<'_>) {
        let cut = |text: &'_ [u8]| text.len().min(TEXT_LEN_MAX);
        let texts = [record.line, record.referer, record.user_agent];
        let [line, referer, user_agent] = texts.map(|text| &text[..cut(text)]);
        let len = HEAD_LEN + line.len() + referer.len() + user_agent.len();
        self.make_room(len);
        let Some(place) = self.bytes.get_mut(self.end..self.end + len) else {
            return;
        };
        let Some((head, rest)) = place.split_first_chunk_mut::<HEAD_LEN>() else {
            return;
        };
        head[0..2].copy_from_slice(&(len as u16).to_le_bytes());
        head[2..10].copy_from_slice(&record.unix_s.to_le_bytes());
        head[10..14].copy_from_slice(&record.peer.ip().octets());
        head[14..16].copy_from_slice(&record.peer.port().to_le_bytes());
        head[16..18].copy_from_slice(&record.status.to_le_bytes());
        head[18..26].copy_from_slice(&record.body_len.to_le_bytes());
        head[26..30].copy_from_slice(&record.duration_us.to_le_bytes());
        head[30..32].copy_from_slice(&(line.len() as u16).to_le_bytes());
        head[32..34].copy_from_slice(&(referer.len() as u16).to_le_bytes());
        head[34..36].copy_from_slice(&(user_agent.len() as u16).to_le_bytes());
        let (first, rest) = rest.split_at_mut(line.len());
        first.copy_from_slice(line);
        let (second, third) = rest.split_at_mut(referer.len());
        second.copy_from_slice(referer);
        third.copy_from_slice(user_agent);
        self.end += len;
    }

    /// Makes `len` bytes from `end` on free.
    #[inline]
    fn make_room(&mut self, len: usize) {
        let is_turned = self.end < self.start || self.turn > 0;
        if !is_turned && self.end + len <= self.bytes.len() {
            return;
        }
        self.make_room_behind(len);
    }

    #[cold]
    fn make_room_behind(&mut self, len: usize) {
        loop {
            if self.turn == 0 {
                if self.end + len <= self.bytes.len() {
                    return;
                }
                // Around: from here on the oldest are in the way.
                self.turn = self.end;
                self.end = 0;
            }
            while self.start < self.turn && self.start < self.end + len {
                let len = usize::from(self.u16_at(self.start));
                self.start += len.max(HEAD_LEN);
                self.dropped += 1;
            }
            if self.start < self.turn {
                return;
            }
            // All behind are gone: the oldest is the first again.
            self.start = 0;
            self.turn = 0;
        }
    }

    fn u16_at(&self, at: usize) -> u16 {
        let bytes = self.bytes.get(at..at + 2).and_then(|two| two.first_chunk());
        bytes.map_or(0, |two| u16::from_le_bytes(*two))
    }

    /// The newest lines, oldest of them first, in the combined format with the duration in microseconds after
    /// it; at most `len_max` bytes.
    pub fn text(&self, len_max: usize) -> String {
        let mut starts = Vec::new();
        let mut walk = |mut at: usize, end: usize| {
            while at < end {
                starts.push(at);
                at += usize::from(self.u16_at(at)).max(HEAD_LEN);
            }
        };
        match self.turn {
            0 => walk(self.start, self.end),
            turn => {
                walk(self.start, turn);
                walk(0, self.end);
            }
        }
        let mut lines = Vec::new();
        let mut len = 0;
        for start in starts.into_iter().rev() {
            let line = self.line(start);
            len += line.len();
            if len > len_max {
                break;
            }
            lines.push(line);
        }
        lines.reverse();
        lines.concat()
    }

    fn line(&self, start: usize) -> String {
        let mut rest = self.bytes.get(start + 2..).unwrap_or_default();
        let mut take = |count: usize| {
            let (taken, left) = rest.split_at_checked(count).unwrap_or_default();
            rest = left;
            taken
        };
        let number = |bytes: &[u8]| {
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
        // Writing to a string can't fail.
        let _ = writeln!(
            out,
            "{} - - [{}] \"{}\" {status} {body_len} \"{}\" \"{}\" {duration_us}",
            Ipv4Addr::from(ip),
            common_date(date),
            shown(line),
            or_dash(referer),
            or_dash(user_agent),
        );
        out
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` as `06/Nov/1994:08:49:37 +0000`.
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
        text => shown(text),
    }
}

/// What a line can hold: quotes, backslashes and what is not ASCII are escaped.
fn shown(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text {
        match byte {
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

    fn record(line: &[u8]) -> Record<'_> {
        Record {
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

    #[test]
    fn a_line_is_in_the_combined_format() {
        let mut journal = Journal::new(0);
        journal.put(&record(b"GET / HTTP/1.1"));
        assert_eq!(
            journal.text(1000),
            "192.0.2.7 - - [06/Nov/1994:08:49:37 +0000] \"GET / HTTP/1.1\" 200 12 \"-\" \
             \"a \\x22b\\x22\" 34\n"
        );
    }

    #[test]
    fn the_oldest_make_room_and_the_newest_are_whole() {
        let mut journal = Journal::new(0);
        for number in 0..5000 {
            let mut line = String::new();
            write!(line, "GET /{number} HTTP/1.1").expect("a string");
            journal.put(&record(line.as_bytes()));
        }
        let text = journal.text(usize::MAX);
        let lines: Vec<&str> = text.lines().collect();
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
            let asked = alloc::format!("\"GET /{} HTTP/1.1\" 200", first + at);
            assert!(line.contains(&asked), "{line}");
        }
        assert!(journal.text(200).lines().count() <= 2);
    }

    #[test]
    fn long_texts_are_cut() {
        let mut journal = Journal::new(0);
        journal.put(&record(&[b'x'; 5000]));
        assert!(journal.text(usize::MAX).len() < 700);
    }
}
