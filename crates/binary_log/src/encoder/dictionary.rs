//! The dictionary: recent records. The following blocks refer to their values and combinations of values by number. The
//! dictionary has the form of a block of records. It is replaced after a while, since damage to it makes the blocks
//! that use it unreadable.

use std::collections::HashMap;
use std::net::IpAddr;

use foldhash::fast::RandomState;
use lowroad_log::AccessEntry;

use crate::batch::{self, BatchRecord};
use crate::limits::DICTIONARY_RECORDS_MAX;
use crate::line::RequestWords;

/// Maximum length of the gathered records.
const HISTORY_LEN_MAX: usize = 8 << 20;
/// The first dictionary is due after this many records.
const FIRST_COUNT: usize = 32;
/// A dictionary is replaced when the blocks that used it have this many times its length, so that dictionaries take 3 %
/// of a file.
const REPLACE_FACTOR: usize = 32;
/// The history takes this many records of a block, and of those that follow a half, then a quarter, and so on: values
/// that repeat in a large block are among them.
const BLOCK_HISTORY_LEN: usize = 1024;
/// Targets and clients with at least this many records are taken into a dictionary.
const FREQUENT: u32 = 2;

/// Recent records, and how much the current dictionary was used.
#[derive(Default)]
pub struct DictionaryHistory {
    /// Records in the form of a batch. The first half is removed when it is full.
    records: Vec<u8>,
    record_count: usize,
    /// The number of records of the open block so far.
    block_count: usize,
    /// The number of records that were added since the current dictionary.
    added_count: usize,
    /// The length of the current dictionary in the file; 0: none.
    written_len: usize,
    /// The length of the blocks that used it.
    used_len: usize,
}

impl DictionaryHistory {
    /// Adds a record of the open block, unless the block has many. `append` appends it to a batch.
    #[inline]
    pub fn add(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        let step = (self.block_count / BLOCK_HISTORY_LEN + 1).next_power_of_two();
        // `step` is a power of two, so this is its remainder without a division.
        if self.block_count & (step - 1) == 0 {
            self.add_sample(append);
        }
        self.block_count += 1;
    }

    fn add_sample(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        if self.records.len() >= HISTORY_LEN_MAX {
            // Half of it, not one record for each: a batch can only be shortened by moving the rest.
            self.remove_half();
        }
        append(&mut self.records);
        self.record_count += 1;
        self.added_count += 1;
    }

    /// Whether a new dictionary should be written.
    pub fn is_due(&self) -> bool {
        match self.written_len {
            // From a few records a dictionary would cost more bytes than it saves.
            0 => self.record_count >= FIRST_COUNT,
            // A dictionary is made of the whole history, so its cost is spread over half as many new records.
            len => {
                self.used_len >= REPLACE_FACTOR * len
                    && self.added_count >= self.record_count.div_ceil(2)
            }
        }
    }

    /// Calls a function with the records of a new dictionary.
    pub fn for_each_record(&self, mut call: impl FnMut(&AccessEntry<'_>)) {
        let mut targets = HashMap::<&[u8], u32, RandomState>::default();
        let mut peers = HashMap::<IpAddr, u32, RandomState>::default();
        let entries = || batch::records(&self.records).filter_map(BatchRecord::entry);
        for entry in entries() {
            *targets
                .entry(RequestWords::from_line(entry.line).target)
                .or_default() += 1;
            *peers.entry(entry.peer).or_default() += 1;
        }
        // A count of 0 marks a value that is in the dictionary.
        let take = |count: Option<&mut u32>| match count {
            Some(count) if *count >= FREQUENT => std::mem::take(count) > 0,
            _ => false,
        };
        let mut entries = entries();
        let Some(first) = entries.next() else { return };
        // The latest records of a frequent target, and of a frequent client. A rare one beside would only cost bytes.
        let (mut of_target, mut of_peer) = (first.clone(), first.clone());
        let mut left = DICTIONARY_RECORDS_MAX;
        for entry in std::iter::once(first).chain(entries) {
            let is_target = take(targets.get_mut(RequestWords::from_line(entry.line).target));
            let is_peer = take(peers.get_mut(&entry.peer));
            if left == 0 || !(is_target || is_peer) {
                continue;
            }
            left -= 1;
            if is_target {
                of_target = entry.clone();
            }
            if is_peer {
                of_peer = entry;
            }
            call(&joined(&of_target, &of_peer));
        }
    }

    /// Resets the state for a file without a dictionary.
    pub fn begin_file(&mut self) {
        self.written_len = 0;
    }

    /// Notes that a dictionary of this length was written.
    pub fn record_written(&mut self, len: usize) {
        self.written_len = len;
        self.used_len = 0;
        self.added_count = 0;
    }

    /// Notes the length of a finished block, which used the dictionary.
    pub fn record_use(&mut self, len: usize) {
        self.used_len += len;
        self.block_count = 0;
    }

    fn remove_half(&mut self) {
        let mut records = batch::records(&self.records);
        let mut removed = 0;
        while records.rest().len() > HISTORY_LEN_MAX / 2 && records.next().is_some() {
            removed += 1;
        }
        let len = self.records.len() - records.rest().len();
        self.records.drain(..len);
        self.record_count -= removed;
    }
}

/// A record with the target of one and the client of another.
fn joined<'a>(of_target: &AccessEntry<'a>, of_peer: &AccessEntry<'a>) -> AccessEntry<'a> {
    AccessEntry {
        // No context predicts these two, so a dictionary has no use for them, and zeros compress best.
        unix_ms: 0,
        duration_us: 0,
        line: of_target.line,
        status: of_target.status,
        body_bytes: of_target.body_bytes,
        whole: of_target.whole,
        outcome: of_target.outcome,
        level: of_target.level,
        ..of_peer.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(history: &mut DictionaryHistory, count: usize) {
        for _ in 0..count {
            let entry = AccessEntry {
                peer: IpAddr::from([192, 0, 2, 1]),
                user: b"",
                unix_ms: 0,
                line: b"GET / HTTP/1.1",
                host: b"a",
                status: 200,
                body_bytes: 1,
                whole: true,
                referer: b"",
                user_agent: b"",
                duration_us: 1,
                outcome: "hit",
                level: "worker",
                tls: "",
            };
            history.add(|records| batch::append_record(&entry, records));
        }
    }

    #[test]
    fn history_has_all_records_of_small_blocks_and_a_part_of_large_ones() {
        let mut history = DictionaryHistory::default();
        for _ in 0..3 {
            add(&mut history, BLOCK_HISTORY_LEN);
            history.record_use(1);
        }
        assert_eq!(history.record_count, 3 * BLOCK_HISTORY_LEN);
        let mut history = DictionaryHistory::default();
        add(&mut history, 32 * BLOCK_HISTORY_LEN);
        // All of the first part, and half as many of each of the five doublings that follow.
        assert_eq!(history.record_count, 7 * BLOCK_HISTORY_LEN / 2);
    }

    #[test]
    fn dictionaries_are_made_of_at_most_twice_as_many_records_as_are_added() {
        let (mut history, mut read) = (DictionaryHistory::default(), 0);
        let blocks = 2000;
        for _ in 0..blocks {
            add(&mut history, FIRST_COUNT);
            // Each block is long enough for another dictionary.
            history.record_use(REPLACE_FACTOR);
            if history.is_due() {
                history.for_each_record(|_| {});
                read += history.record_count;
                history.record_written(1);
            }
        }
        assert!(read <= 2 * blocks * FIRST_COUNT, "{read}");
    }
}
