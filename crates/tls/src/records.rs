//! Dynamic record sizing: the number of application bytes in each record. Pure: time is an argument.
//!
//! A client can decrypt a record only when all of it has arrived. So the first bytes after a pause travel in a record
//! that fits one segment; later ones fill records, which costs the least.

/// Bytes in the first record after a pause: fits one segment, with TCP options and a smaller path MTU.
pub const SMALL_LEN: usize = 1300;
/// Bytes in a full record (RFC 8446, section 5.1).
pub const FULL_LEN: usize = 16 * 1024;
/// Without sending for this long, the next record is small.
const PAUSE_MS: u64 = 1000;

/// Chooses the size of records.
#[derive(Debug, Default)]
pub(crate) struct RecordParser {
    /// The time of the last send; `None`: never.
    sent_ms: Option<u64>,
}

impl RecordParser {
    /// Notes a send by the application; returns whether it begins with a small record.
    pub fn begin(&mut self, now_ms: u64) -> bool {
        let previous_ms = self.sent_ms.replace(now_ms);
        previous_ms.is_none_or(|previous_ms| now_ms.saturating_sub(previous_ms) >= PAUSE_MS)
    }

    /// Bytes of the next record if `pending_len` bytes are available.
    pub fn len(small: bool, pending_len: usize) -> usize {
        pending_len.min(if small { SMALL_LEN } else { FULL_LEN })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_record_is_small_and_so_is_one_after_a_pause() {
        let mut records = RecordParser::default();
        assert!(records.begin(5_000));
        assert!(!records.begin(5_999));
        assert!(!records.begin(6_998));
        assert!(records.begin(7_998));
        // A clock that goes backward is no pause.
        assert!(!records.begin(1_000));
    }

    #[test]
    fn no_record_is_longer_than_allowed_or_than_what_waits() {
        assert_eq!(RecordParser::len(true, 5000), SMALL_LEN);
        assert_eq!(RecordParser::len(true, 10), 10);
        assert_eq!(RecordParser::len(false, 50_000), FULL_LEN);
        assert_eq!(RecordParser::len(false, 9), 9);
    }
}
