//! The format of the records in journals and checkpoints. A journal contains the commits and removals since the last
//! checkpoint, a checkpoint all objects. Both are called a log here.
//!
//! A record has 40 bytes. Its checksum is seeded with store, generation and position, so that only records written to
//! this position of this file are accepted.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::index::IndexEntry;
use crate::record::{u32_at, u64_at};

/// The length of a record in bytes.
pub const RECORD_LEN: usize = 40;

const CHECK_AT: usize = 32;
/// The seed of the first record's checksum: the seed of the log is known only after that record is read. The last byte
/// is the version.
const BEGIN_SEED: u64 = 0x4c6f_7772_6f61_6401;

const BEGIN: u8 = 1;
const PUT: u8 = 2;
const REMOVE: u8 = 3;
const END: u8 = 4;

/// An entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalEntry {
    /// The first record of a file.
    Begin(JournalIdentity),
    /// Puts an object into the index; it replaces any with the same hash.
    Put(IndexEntry),
    /// Removes the object with this hash.
    Remove(u64),
    /// The last record of a checkpoint: the number of preceding records, including the first.
    End(u64),
}

/// The identity of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalIdentity {
    /// The random number of the store, with which keys are hashed.
    pub store: u64,
    /// The number of earlier checkpoints.
    pub generation: u64,
}

impl JournalIdentity {
    fn seed(self, position: u64) -> u64 {
        // The seed includes the position, so that a record of another log or position is never accepted.
        self.store ^ self.generation.rotate_left(40) ^ position.rotate_left(9)
    }
}

impl JournalEntry {
    /// Encodes the record for a position (in bytes) in a log.
    pub fn encode(&self, log: JournalIdentity, position: u64) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        let mut seed = log.seed(position);
        match self {
            JournalEntry::Begin(identity) => {
                // The identity, and so the seed of other records, is read from this record.
                seed = BEGIN_SEED;
                bytes[0] = BEGIN;
                bytes[8..16].copy_from_slice(&identity.store.to_le_bytes());
                bytes[24..32].copy_from_slice(&identity.generation.to_le_bytes());
            }
            JournalEntry::Put(entry) => encode_entry(entry, &mut bytes),
            JournalEntry::Remove(hash) => {
                bytes[0] = REMOVE;
                bytes[8..16].copy_from_slice(&hash.to_le_bytes());
            }
            JournalEntry::End(count) => {
                bytes[0] = END;
                bytes[24..32].copy_from_slice(&count.to_le_bytes());
            }
        }
        let check = xxh3_64_with_seed(&bytes[..CHECK_AT], seed);
        bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Decodes the record at a position; `None` if it is torn or belongs to another log.
    pub fn decode(bytes: &[u8], log: JournalIdentity, position: u64) -> Option<JournalEntry> {
        let kind = verified_kind(bytes, log.seed(position))?;
        match kind {
            PUT => decode_entry(bytes).map(JournalEntry::Put),
            REMOVE => Some(JournalEntry::Remove(u64_at(bytes, 8))),
            END => Some(JournalEntry::End(u64_at(bytes, 24))),
            _ => None,
        }
    }
}

impl JournalIdentity {
    /// Reads the first record of a file.
    pub fn decode(bytes: &[u8]) -> Option<JournalIdentity> {
        (verified_kind(bytes, BEGIN_SEED)? == BEGIN).then(|| JournalIdentity {
            store: u64_at(bytes, 8),
            generation: u64_at(bytes, 24),
        })
    }
}

/// The kind of a valid record.
fn verified_kind(bytes: &[u8], seed: u64) -> Option<u8> {
    let is_valid = bytes.len() == RECORD_LEN
        && xxh3_64_with_seed(&bytes[..CHECK_AT], seed) == u64_at(bytes, CHECK_AT);
    is_valid.then(|| bytes[0])
}

fn encode_entry(entry: &IndexEntry, bytes: &mut [u8; RECORD_LEN]) {
    // The length of a head has 24 bits; the lowest byte of the word is the kind.
    bytes[..4].copy_from_slice(&(entry.head_len() << 8).to_le_bytes());
    bytes[0] = PUT;
    bytes[4..8].copy_from_slice(&entry.segment.to_le_bytes());
    bytes[8..16].copy_from_slice(&entry.hash.to_le_bytes());
    bytes[16..20].copy_from_slice(&entry.offset_units.to_le_bytes());
    bytes[20..24].copy_from_slice(&entry.expires_s.to_le_bytes());
    bytes[24..32].copy_from_slice(&entry.body_len.to_le_bytes());
}

fn decode_entry(bytes: &[u8]) -> Option<IndexEntry> {
    let head_len = u32_at(bytes, 0) >> 8;
    let mut entry = IndexEntry::new(u64_at(bytes, 8), head_len, u64_at(bytes, 24))?;
    entry.segment = u32_at(bytes, 4);
    entry.offset_units = u32_at(bytes, 16);
    entry.expires_s = u32_at(bytes, 20);
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: JournalIdentity = JournalIdentity {
        store: 5,
        generation: 2,
    };

    fn entry() -> IndexEntry {
        let mut entry = IndexEntry::new(0x1234_5678_9abc_def0, 4711, 1 << 40).expect("fits");
        (entry.segment, entry.offset_units, entry.expires_s) = (3, 9, 77);
        entry
    }

    #[test]
    fn journal_entries_round_trip() {
        for step in [
            JournalEntry::Put(entry()),
            JournalEntry::Remove(8),
            JournalEntry::End(4),
        ] {
            let bytes = step.encode(LOG, 80);
            assert_eq!(JournalEntry::decode(&bytes, LOG, 80), Some(step));
            assert_eq!(JournalEntry::decode(&bytes, LOG, 120), None, "elsewhere");
            let older = JournalIdentity {
                generation: 1,
                ..LOG
            };
            assert_eq!(
                JournalEntry::decode(&bytes, older, 80),
                None,
                "of another file"
            );
        }
        let begin = JournalEntry::Begin(LOG).encode(LOG, 0);
        assert_eq!(JournalIdentity::decode(&begin), Some(LOG));
    }

    #[test]
    fn torn_or_damaged_record_is_rejected() {
        let bytes = JournalEntry::Put(entry()).encode(LOG, 40);
        for len in 0..RECORD_LEN {
            assert_eq!(JournalEntry::decode(&bytes[..len], LOG, 40), None);
        }
        for bit in 0..RECORD_LEN * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(JournalEntry::decode(&damaged, LOG, 40), None);
        }
        assert_eq!(
            JournalEntry::decode(&[0; RECORD_LEN], LOG, 40),
            None,
            "zeros"
        );
    }
}
