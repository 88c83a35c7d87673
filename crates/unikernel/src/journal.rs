//! The request journal: a ring buffer of the newest requests in binary form. [`crate::log`] formats them on demand.

use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddrV4;

/// Maximum length of a text; longer ones are truncated.
const TEXT_LEN_MAX: usize = 512;
/// Length of the header of a record: length, time, address, port, status, body length, duration in microseconds,
/// lengths of three texts.
const HEAD_LEN: usize = 2 + 8 + 4 + 2 + 2 + 8 + 4 + 3 * 2;

/// One request, or the reason of a failed page.
#[derive(Clone, Copy)]
pub struct JournalRecord<'r> {
    /// Seconds since 1970.
    pub unix_s: u64,
    /// The address of the client.
    pub peer: SocketAddrV4,
    /// The status code of the response; 0 in a record of a failure.
    pub status: u16,
    /// Length of the response's body.
    pub body_len: u64,
    /// Time in microseconds from the arrival of the request until the response is sent.
    pub duration_us: u32,
    /// The request line; in a record of a failure, the reason.
    pub line: &'r [u8],
    /// The value of Referer.
    pub referer: &'r [u8],
    /// The value of User-Agent.
    pub user_agent: &'r [u8],
}

impl<'r> JournalRecord<'r> {
    /// A record of the reason that a page failed. It has no status and is not counted as a request.
    pub fn failure(unix_s: u64, peer: SocketAddrV4, reason: &'r str) -> JournalRecord<'r> {
        JournalRecord {
            unix_s,
            peer,
            status: 0,
            body_len: 0,
            duration_us: 0,
            line: reason.as_bytes(),
            referer: b"",
            user_agent: b"",
        }
    }
}

/// A ring of records. New records overwrite the oldest. Each record is contiguous, so some bytes at the end of the
/// memory may be unused.
pub struct RequestJournal {
    bytes: Vec<u8>,
    /// The offset of the next record.
    end: usize,
    /// The offset of the oldest record.
    start: usize,
    /// After a wrap: the end of the older records, which begin at `start`. Otherwise 0.
    wrap_end: usize,
    /// Number of overwritten records.
    pub dropped: u64,
}

impl RequestJournal {
    /// A ring of `len` bytes; it has room for at least four records.
    pub fn new(len: usize) -> RequestJournal {
        RequestJournal {
            bytes: vec![0; len.max(4 * (HEAD_LEN + 3 * TEXT_LEN_MAX))],
            end: 0,
            start: 0,
            wrap_end: 0,
            dropped: 0,
        }
    }

    /// Adds a record.
    #[inline]
    pub fn append(&mut self, record: &JournalRecord<'_>) {
        // A long text would overwrite many records.
        let capped_len = |text: &'_ [u8]| text.len().min(TEXT_LEN_MAX);
        let texts = [record.line, record.referer, record.user_agent];
        let [line, referer, user_agent] = texts.map(|text| &text[..capped_len(text)]);
        let len = HEAD_LEN + line.len() + referer.len() + user_agent.len();
        self.make_room(len);
        let Some(target) = self.bytes.get_mut(self.end..self.end + len) else {
            return;
        };
        let Some((head, rest)) = target.split_first_chunk_mut::<HEAD_LEN>() else {
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

    /// Overwrites old records until `len` bytes from `end` on are free.
    #[inline]
    fn make_room(&mut self, len: usize) {
        // Before the first wrap there are no old records to overwrite.
        let has_wrapped = self.end < self.start || self.wrap_end > 0;
        if !has_wrapped && self.end + len <= self.bytes.len() {
            return;
        }
        self.evict_oldest(len);
    }

    #[cold]
    fn evict_oldest(&mut self, len: usize) {
        loop {
            if self.wrap_end == 0 {
                if self.end + len <= self.bytes.len() {
                    return;
                }
                // Wraps around: from now on old records must be overwritten.
                self.wrap_end = self.end;
                self.end = 0;
            }
            while self.start < self.wrap_end && self.start < self.end + len {
                let len = usize::from(self.u16_at(self.start));
                // Advances at least by the length of a header, so that the loop ends.
                self.start += len.max(HEAD_LEN);
                self.dropped += 1;
            }
            if self.start < self.wrap_end {
                return;
            }
            // All older records are overwritten, so the record at 0 is the oldest.
            self.start = 0;
            self.wrap_end = 0;
        }
    }

    fn u16_at(&self, at: usize) -> u16 {
        let bytes = self.bytes.get(at..at + 2).and_then(|two| two.first_chunk());
        bytes.map_or(0, |two| u16::from_le_bytes(*two))
    }

    /// The newest records, in total at most `len_max` bytes: those before the wrap, then those after it.
    pub fn newest(&self, len_max: usize) -> [&[u8]; 2] {
        let part = |from: usize, to: usize| self.bytes.get(from..to).unwrap_or_default();
        let [mut old, mut new] = match self.wrap_end {
            0 => [part(0, 0), part(self.start, self.end)],
            turn => [part(self.start, turn), part(0, self.end)],
        };
        while old.len() + new.len() > len_max {
            // The oldest records are left out first.
            let oldest_part = if old.is_empty() { &mut new } else { &mut old };
            let Some((_, rest)) = split_record(oldest_part) else {
                break;
            };
            *oldest_part = rest;
        }
        [old, new]
    }

    /// A value that changes with each new record.
    pub fn mark(&self) -> [u64; 3] {
        [self.start as u64, self.end as u64, self.dropped]
    }
}

/// Splits off the first record.
pub fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = u16::from_le_bytes(*bytes.first_chunk()?);
    bytes.split_at_checked(usize::from(len).max(HEAD_LEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_returns_complete_records_within_limit() {
        let mut journal = RequestJournal::new(0);
        let mut marks = Vec::new();
        for number in 0..500_u64 {
            journal.append(&JournalRecord {
                unix_s: number,
                peer: SocketAddrV4::new([192, 0, 2, 7].into(), 999),
                status: 200,
                body_len: 0,
                duration_us: 0,
                line: &[b'x'; 100][..number as usize % 100],
                referer: b"",
                user_agent: b"",
            });
            assert!(!marks.contains(&journal.mark()));
            marks.push(journal.mark());
            for len_max in [0, 300, 3000, usize::MAX] {
                let mut count = 0;
                for mut rest in journal.newest(len_max) {
                    while let Some((record, others)) = split_record(rest) {
                        count += record.len();
                        rest = others;
                    }
                    assert!(rest.is_empty());
                }
                let all: usize = journal
                    .newest(usize::MAX)
                    .iter()
                    .map(|part| part.len())
                    .sum();
                // Uses all of `len_max` except for less than one record.
                assert!(count <= len_max && (count == all || count + 140 > len_max));
            }
            let last = journal.newest(200).concat();
            assert!(last.windows(8).any(|eight| eight == number.to_le_bytes()));
        }
        assert!(journal.dropped > 0);
    }
}
