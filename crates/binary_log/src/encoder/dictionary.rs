//! The dictionary: records of the recent past that blocks begin with. Their values, and the values that came together,
//! are known to a block, so that it names them by a number. It is written in the form of a block of records, and again
//! after a while: damage to it loses the blocks that use it.

use std::collections::HashMap;
use std::net::IpAddr;

use foldhash::fast::RandomState;
use lowroad_log::AccessEntry;

use crate::batch;
use crate::limits::DICTIONARY_RECORDS_MAX;
use crate::line::RequestWords;

/// Records are gathered up to this length.
const HISTORY_LEN_MAX: usize = 8 << 20;
/// A first dictionary is made of this many records.
const FIRST_COUNT: usize = 32;
/// A dictionary is replaced when blocks of so many times its length used it: it then costs 3 % of the file.
const REPLACE_FACTOR: usize = 32;
/// A text that came this often belongs to a dictionary.
const FREQUENT: u32 = 2;

/// Recent records, and the use of the current dictionary.
#[derive(Default)]
pub struct DictionaryHistory {
    /// Records in the form of a batch. The first half is removed when it is full.
    records: Vec<u8>,
    record_count: usize,
    /// The length of the current dictionary in the file; 0: none.
    written_len: usize,
    /// The length of the blocks that used it.
    used_len: usize,
}

impl DictionaryHistory {
    /// Adds a record.
    pub fn add(&mut self, entry: &AccessEntry<'_>) {
        if self.records.len() >= HISTORY_LEN_MAX {
            self.remove_half();
        }
        batch::append_record(entry, &mut self.records);
        self.record_count += 1;
    }

    /// Whether a new dictionary should be written.
    pub fn is_due(&self) -> bool {
        match self.written_len {
            0 => self.record_count >= FIRST_COUNT,
            len => self.used_len >= REPLACE_FACTOR * len,
        }
    }

    /// Calls a function with the records of a new dictionary.
    pub fn each_record(&self, mut call: impl FnMut(&AccessEntry<'_>)) {
        let mut targets = HashMap::<&[u8], u32, RandomState>::default();
        let mut peers = HashMap::<IpAddr, u32, RandomState>::default();
        for entry in batch::records(&self.records) {
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
        let mut entries = batch::records(&self.records);
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

    /// Notes that the next file has no dictionary.
    pub fn begin_file(&mut self) {
        self.written_len = 0;
    }

    /// Notes that a dictionary of this length was written.
    pub fn is_written(&mut self, len: usize) {
        self.written_len = len;
        self.used_len = 0;
    }

    /// Notes the length of a block that used the dictionary.
    pub fn is_used(&mut self, len: usize) {
        self.used_len += len;
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
