//! The dictionaries that a reader has found in a file.

use std::sync::Arc;

use zstd::bulk::Decompressor;

use crate::context_memory::BlockMemory;
use crate::decoder::DictionaryValues;

/// Maximum number of dictionaries. An encoder uses one at a time, but several processes may write to one file: after
/// upgrades, those that still drain.
const DICTIONARIES_MAX: usize = 32;
/// Length of the part that zstd uses: the end of a dictionary, which has its texts.
const ZSTD_DICTIONARY_LEN: usize = 64 * 1024;

/// The part of a dictionary's raw bytes that zstd takes as the dictionary of small blocks.
pub fn zstd_dictionary(raw: &[u8]) -> &[u8] {
    &raw[raw.len().saturating_sub(ZSTD_DICTIONARY_LEN)..]
}

/// A dictionary, ready for blocks.
pub struct ReadyDictionary {
    sum: u32,
    /// Its values.
    pub values: Arc<DictionaryValues>,
    /// The memory that blocks begin with.
    pub memory: BlockMemory,
    /// Decompresses blocks that name it, with their texts or without.
    pub decompressor: Decompressor<'static>,
}

/// Dictionaries by the checksum of their raw bytes; the latest last.
#[derive(Default)]
pub struct DictionaryTable {
    entries: Vec<ReadyDictionary>,
}

impl DictionaryTable {
    /// Adds a dictionary, in place of the oldest.
    ///
    /// # Errors
    /// zstd has no memory.
    pub fn add(&mut self, values: DictionaryValues, memory: BlockMemory) -> std::io::Result<()> {
        let decompressor = Decompressor::with_dictionary(zstd_dictionary(values.raw()))?;
        let sum = crc32fast::hash(values.raw());
        // The same dictionary may be read twice; a duplicate would push another one out of the table.
        self.entries.retain(|it| it.sum != sum);
        if self.entries.len() >= DICTIONARIES_MAX {
            // The writer has moved on from the oldest one, unless several processes write to the file.
            self.entries.remove(0);
        }
        self.entries.push(ReadyDictionary {
            sum,
            values: Arc::new(values),
            memory,
            decompressor,
        });
        Ok(())
    }

    /// A dictionary by its checksum.
    pub fn find(&mut self, sum: u32) -> Option<&mut ReadyDictionary> {
        self.entries.iter_mut().find(|it| it.sum == sum)
    }

    /// Removes all dictionaries: each file has its own.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}
