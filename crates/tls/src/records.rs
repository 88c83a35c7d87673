//! Dynamic record sizing: chooses the number of application bytes in each record. Pure: time is an argument.
//!
//! A client can decrypt a record only after all of it has arrived. Therefore the first bytes after a pause are sent in
//! a record that fits one segment; later records are full, which costs the least.

/// Bytes in the first record after a pause: fits one segment, even with TCP options and a reduced path MTU.
pub const SMALL_LEN: usize = 1300;
/// Bytes in a full record (RFC 8446, section 5.1).
pub const FULL_LEN: usize = 16 * 1024;
/// After this long without sending, the next record is small.
const PAUSE_MS: u64 = 1000;

/// Chooses the size of records.
#[derive(Debug, Default)]
pub(crate) struct RecordSizer {
    /// The time of the last send; `None`: never.
    sent_ms: Option<u64>,
}

impl RecordSizer {
    /// Records the time of a send; returns whether its first record must be small.
    pub fn record_send(&mut self, now_ms: u64) -> bool {
        let previous_ms = self.sent_ms.replace(now_ms);
        previous_ms.is_none_or(|previous_ms| now_ms.saturating_sub(previous_ms) >= PAUSE_MS)
    }

    /// Application bytes in the next record if `pending_len` bytes are available.
    pub fn len(small: bool, pending_len: usize) -> usize {
        pending_len.min(if small { SMALL_LEN } else { FULL_LEN })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_record_after_pause_is_small() {
        let mut records = RecordSizer::default();
        assert!(records.record_send(5_000));
        assert!(!records.record_send(5_999));
        assert!(!records.record_send(6_998));
        assert!(records.record_send(7_998));
        // A clock that goes backward is no pause.
        assert!(!records.record_send(1_000));
    }

    #[test]
    fn record_length_is_bounded_by_limit_and_available_bytes() {
        assert_eq!(RecordSizer::len(true, 5000), SMALL_LEN);
        assert_eq!(RecordSizer::len(true, 10), 10);
        assert_eq!(RecordSizer::len(false, 50_000), FULL_LEN);
        assert_eq!(RecordSizer::len(false, 9), 9);
    }
}
