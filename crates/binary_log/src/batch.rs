//! The form in which workers pass records to the log's thread: a header of fixed length, then the texts. The worker
//! encodes it for each request, so it is a plain copy; the log's thread makes the columns, dictionaries and compressed
//! blocks. The layout is not part of the file format, since one program writes and reads it.
//!
//! ```text
//! length 4 | time 8 | duration 8 | body 8 | address 16 | status 2 | flags 1 | words 3 × 1 | texts 5 × 2 | words, texts
//! ```

use std::net::{IpAddr, Ipv6Addr};

use lowroad_log::AccessEntry;

use crate::limits::{TEXT_LEN_MAX, WORD_LEN_MAX};

/// The length of a record's header.
pub const HEADER_LEN: usize = 60;
/// The offset of the body's length in the header. Length, time and duration are before it.
const BODY_BYTES: usize = 20;
/// The offset of the words' lengths in the header.
const WORD_LENS: usize = 47;
/// The offset of the texts' lengths in the header.
const TEXT_LENS: usize = 50;
/// The flag of a response that was sent completely.
const WHOLE: u8 = 1;

/// The header of a record.
#[derive(Clone, Copy, Debug)]
pub struct RecordHeader {
    /// As in [`AccessEntry`].
    pub unix_ms: u64,
    /// As in [`AccessEntry`].
    pub duration_us: u64,
    /// As in [`AccessEntry`].
    pub body_bytes: u64,
    /// As in [`AccessEntry`].
    pub peer: IpAddr,
    /// As in [`AccessEntry`].
    pub status: u16,
    /// As in [`AccessEntry`].
    pub whole: bool,
    /// The lengths of outcome, level and version of TLS.
    pub word_lens: [u8; 3],
    /// The lengths of user, request line, host, Referer and User-Agent.
    pub text_lens: [u16; 5],
}

impl RecordHeader {
    /// Encodes the header of a record with this length.
    #[inline]
    fn encode(&self, record_len: usize, header: &mut [u8; HEADER_LEN]) {
        // The length comes first and counts itself, so that a reader finds the next record without reading this one.
        header[..4].copy_from_slice(&(record_len as u32).to_le_bytes());
        header[4..12].copy_from_slice(&self.unix_ms.to_le_bytes());
        header[12..20].copy_from_slice(&self.duration_us.to_le_bytes());
        header[20..28].copy_from_slice(&self.body_bytes.to_le_bytes());
        header[28..44].copy_from_slice(&mapped(self.peer));
        header[44..46].copy_from_slice(&self.status.to_le_bytes());
        header[46] = if self.whole { WHOLE } else { 0 };
        header[WORD_LENS..TEXT_LENS].copy_from_slice(&self.word_lens);
        for (number, len) in self.text_lens.iter().enumerate() {
            let at = TEXT_LENS + 2 * number;
            header[at..at + 2].copy_from_slice(&len.to_le_bytes());
        }
    }
}

/// Appends a record to a batch.
pub fn append_record(entry: &AccessEntry<'_>, out: &mut Vec<u8>) {
    // Truncated here, so that each length fits into its field: one byte for a word, two for a text.
    let words = [entry.outcome, entry.level, entry.tls]
        .map(|word| truncated(word.as_bytes(), WORD_LEN_MAX));
    let texts = [
        entry.user,
        entry.line,
        entry.host,
        entry.referer,
        entry.user_agent,
    ]
    .map(|text| truncated(text, TEXT_LEN_MAX));
    let header = RecordHeader {
        unix_ms: entry.unix_ms,
        duration_us: entry.duration_us,
        body_bytes: entry.body_bytes,
        peer: entry.peer,
        status: entry.status,
        whole: entry.whole,
        word_lens: words.map(|word| word.len() as u8),
        text_lens: texts.map(|text| text.len() as u16),
    };
    let parts_len: usize = words.iter().chain(&texts).map(|part| part.len()).sum();
    let mut encoded = [0; HEADER_LEN];
    header.encode(HEADER_LEN + parts_len, &mut encoded);
    // One reservation for all parts: growing for each of them could move the batch several times.
    out.reserve(HEADER_LEN + parts_len);
    out.extend_from_slice(&encoded);
    for part in words.into_iter().chain(texts) {
        out.extend_from_slice(part);
    }
}

/// Appends a record that is already assembled, by one copy. `record` has [`HEADER_LEN`] bytes of any content for the
/// header; outcome, level, version of TLS, user, request line, host, Referer and User-Agent follow, adjacent. The
/// lengths of the header must be theirs.
#[inline]
pub fn append_assembled(header: &RecordHeader, record: &mut [u8], out: &mut Vec<u8>) {
    let len = record.len();
    if let Some(encoded) = record.first_chunk_mut() {
        header.encode(len, encoded);
        out.extend_from_slice(record);
    }
}

/// The records of a batch. Ends at an incomplete record.
pub fn records(batch: &[u8]) -> BatchRecords<'_> {
    BatchRecords { rest: batch }
}

/// The number of records in a batch.
pub fn record_count(batch: &[u8]) -> u64 {
    records(batch).map(|_| 1).sum()
}

/// An iterator over the records of a batch.
pub struct BatchRecords<'b> {
    rest: &'b [u8],
}

impl<'b> BatchRecords<'b> {
    /// The bytes after the last record that was read.
    pub fn rest(&self) -> &'b [u8] {
        self.rest
    }
}

impl<'b> Iterator for BatchRecords<'b> {
    type Item = BatchRecord<'b>;

    #[inline]
    fn next(&mut self) -> Option<BatchRecord<'b>> {
        let len = u32::from_le_bytes(*self.rest.first_chunk()?) as usize;
        // With a length of 0 the iteration would never end.
        let (record, rest) = self.rest.split_at_checked(len.max(HEADER_LEN))?;
        self.rest = rest;
        Some(BatchRecord(record))
    }
}

/// An encoded record: a header and its texts.
#[derive(Clone, Copy)]
pub struct BatchRecord<'b>(&'b [u8]);

impl<'b> BatchRecord<'b> {
    /// The encoded record.
    pub fn bytes(self) -> &'b [u8] {
        self.0
    }

    /// As in [`AccessEntry`].
    #[inline]
    pub fn unix_ms(self) -> u64 {
        self.number(4)
    }

    /// As in [`AccessEntry`].
    #[inline]
    pub fn duration_us(self) -> u64 {
        self.number(12)
    }

    /// Whether two records differ at most in time and duration.
    #[inline]
    pub fn repeats(self, other: BatchRecord<'_>) -> bool {
        self.0[BODY_BYTES..] == other.0[BODY_BYTES..]
    }

    /// The record; None if its lengths contradict each other.
    pub fn entry(self) -> Option<AccessEntry<'b>> {
        let (header, mut rest) = self.0.split_first_chunk::<HEADER_LEN>()?;
        let mut take = |len: usize| -> Option<&[u8]> {
            let (part, after) = rest.split_at_checked(len)?;
            rest = after;
            Some(part)
        };
        // The parts have no separators: each begins where the one before ends, in the order of `append_record`.
        let word_lens = [0, 1, 2].map(|number| usize::from(header[WORD_LENS + number]));
        // One check for all words.
        let words = std::str::from_utf8(take(word_lens.iter().sum())?).ok()?;
        let (outcome, words) = words.split_at_checked(word_lens[0])?;
        let (level, tls) = words.split_at_checked(word_lens[1])?;
        let mut texts = [&b""[..]; 5];
        for (number, text) in texts.iter_mut().enumerate() {
            let at = TEXT_LENS + 2 * number;
            *text = take(u16::from_le_bytes([header[at], header[at + 1]]).into())?;
        }
        let [user, line, host, referer, user_agent] = texts;
        let address: [u8; 16] = *header[28..].first_chunk()?;
        Some(AccessEntry {
            // The field has room for IPv6, so IPv4 addresses were mapped and return to four bytes here.
            peer: Ipv6Addr::from(address).to_canonical(),
            user,
            unix_ms: self.unix_ms(),
            line,
            host,
            status: u16::from_le_bytes([header[44], header[45]]),
            body_bytes: self.number(BODY_BYTES),
            whole: header[46] & WHOLE != 0,
            referer,
            user_agent,
            duration_us: self.duration_us(),
            outcome,
            level,
            tls,
        })
    }

    #[inline]
    fn number(self, at: usize) -> u64 {
        let bytes = self.0[at..].first_chunk().expect("8 bytes follow");
        u64::from_le_bytes(*bytes)
    }
}

fn truncated(text: &[u8], len_max: usize) -> &[u8] {
    text.get(..len_max).unwrap_or(text)
}

/// The 16 bytes of an address; an IPv4 address is mapped.
fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(line: &[u8]) -> AccessEntry<'_> {
        AccessEntry {
            peer: IpAddr::from([192, 0, 2, 7]),
            user: b"ann",
            unix_ms: 784_111_777_042,
            line,
            host: b"example.com",
            status: 200,
            body_bytes: 5,
            whole: true,
            referer: b"http://x/",
            user_agent: b"curl/8",
            duration_us: 17,
            outcome: "hit",
            level: "worker",
            tls: "TLSv1.3",
        }
    }

    #[test]
    fn decoded_records_encode_to_the_same_batch() {
        let (mut batch, mut again) = (Vec::new(), Vec::new());
        for line in [&b"GET / HTTP/1.1"[..], b"", b"\n\xFF\0"] {
            append_record(&entry(line), &mut batch);
        }
        assert_eq!(record_count(&batch), 3);
        for record in records(&batch) {
            append_record(&record.entry().expect("an entry"), &mut again);
        }
        assert_eq!(again, batch);
        // An incomplete record is not read.
        assert_eq!(records(&batch[..batch.len() - 1]).count(), 2);
    }

    #[test]
    fn assembled_record_equals_a_record_of_single_parts() {
        let entry = entry(b"GET / HTTP/1.1");
        let header = RecordHeader {
            unix_ms: entry.unix_ms,
            duration_us: entry.duration_us,
            body_bytes: entry.body_bytes,
            peer: entry.peer,
            status: entry.status,
            whole: entry.whole,
            word_lens: [3, 6, 7],
            text_lens: [3, 14, 11, 9, 6],
        };
        let mut record = vec![b'x'; HEADER_LEN];
        record.extend_from_slice(b"hitworkerTLSv1.3annGET / HTTP/1.1example.comhttp://x/curl/8");
        let (mut single, mut assembled) = (vec![1], vec![1]);
        append_record(&entry, &mut single);
        append_assembled(&header, &mut record, &mut assembled);
        assert_eq!(assembled, single);
    }

    #[test]
    fn repetition_ignores_time_and_duration_only() {
        let first = entry(b"GET / HTTP/1.1");
        let later = AccessEntry {
            unix_ms: 1,
            duration_us: 2,
            ..first.clone()
        };
        let others = [
            AccessEntry {
                body_bytes: 6,
                ..first.clone()
            },
            AccessEntry {
                whole: false,
                ..first.clone()
            },
            // The texts together are equal, but not the lengths.
            AccessEntry {
                line: b"GET / HTTP/1.1e",
                host: b"xample.com",
                ..first.clone()
            },
        ];
        let repeats = |entry: &AccessEntry<'_>| {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            append_record(&first, &mut one);
            append_record(entry, &mut other);
            BatchRecord(&other).repeats(BatchRecord(&one))
        };
        assert!(repeats(&later));
        assert_eq!(others.each_ref().map(repeats), [false; 3]);
    }

    #[test]
    fn long_texts_are_truncated() {
        let (line, mut batch) = (vec![b'x'; 2 * TEXT_LEN_MAX], Vec::new());
        append_record(&entry(&line), &mut batch);
        let record = records(&batch).next().and_then(BatchRecord::entry);
        let record = record.expect("a record");
        assert_eq!(record.line.len(), TEXT_LEN_MAX);
        assert_eq!(record.user_agent, b"curl/8");
    }
}
