//! Encodes records into blocks. Uses no clock and no files: times are in the records, and the caller writes the bytes.

mod columns;
mod dictionary;

use std::io;

use lowroad_log::AccessEntry;
use zstd::bulk::Compressor;

use self::columns::ColumnWriter;
use self::dictionary::DictionaryHistory;
use crate::batch::{self, BatchRecord};
use crate::dictionaries::zstd_dictionary;
use crate::frame::{BlockHeader, BlockKind, mask_payload};
use crate::limits::{BLOCK_RECORDS_MAX, DICTIONARY_LEN_MAX, RAW_LEN_MAX, TEXT_LEN_MAX};
use crate::schema::BlockSchema;

/// zstd's level for short blocks. The log's thread pays for it, not a worker: some ms for a block.
const THOROUGH_LEVEL: i32 = 12;
/// Maximum uncompressed length of a block that is compressed with [`THOROUGH_LEVEL`].
const THOROUGH_RAW_LEN: usize = 256 * 1024;
/// Maximum records of such a block. Longer ones come from a busy server.
const THOROUGH_RECORDS_MAX: u32 = 8192;
/// zstd's level for larger blocks.
const LEVEL: i32 = 3;
/// Maximum uncompressed length of a block that is compressed with the dictionary's texts. Longer ones have enough
/// repetitions of their own.
const SMALL_RAW_LEN: usize = 16 * 1024;
/// A dictionary takes at most this part of a file, 1 / 8.
const DICTIONARY_SHARE: usize = 8;
/// An upper bound for the columns of a record: its texts, and a few bytes for each column.
const RECORD_LEN_MAX: usize = 5 * TEXT_LEN_MAX + 1024;

/// Encodes the records of one session.
pub struct BlockEncoder {
    session: u32,
    /// The number of records in all previous blocks, including blocks that the caller could not write.
    record_count: u64,
    schema: Vec<u8>,
    schema_sum: u32,
    columns: ColumnWriter,
    plain: Compressor<'static>,
    history: DictionaryHistory,
    dictionary: Option<BlockDictionary>,
    /// The columns of the block that is being closed.
    raw: Vec<u8>,
    /// A block is full from this uncompressed length on.
    block_len_max: usize,
    /// A dictionary takes no more records from this uncompressed length on.
    dictionary_len_max: usize,
}

/// The dictionary that the file's blocks use.
struct BlockDictionary {
    /// The checksum of its raw bytes.
    sum: u32,
    compressor: Compressor<'static>,
}

impl BlockEncoder {
    /// Creates an encoder. The session is a random number.
    ///
    /// # Errors
    /// zstd has no memory.
    pub fn new(session: u32) -> io::Result<BlockEncoder> {
        let schema = BlockSchema::encode_current();
        Ok(BlockEncoder {
            session,
            record_count: 0,
            schema_sum: crc32fast::hash(&schema),
            schema,
            columns: ColumnWriter::default(),
            plain: Compressor::new(LEVEL)?,
            history: DictionaryHistory::default(),
            dictionary: None,
            raw: Vec::new(),
            block_len_max: RAW_LEN_MAX,
            dictionary_len_max: DICTIONARY_LEN_MAX,
        })
    }

    /// Limits blocks and dictionaries to fit into files of this length.
    pub fn fit_into_files(&mut self, file_len_max: u64) {
        let len = usize::try_from(file_len_max).unwrap_or(usize::MAX);
        self.block_len_max = len.min(RAW_LEN_MAX);
        self.dictionary_len_max = (len / DICTIONARY_SHARE).min(DICTIONARY_LEN_MAX);
    }

    /// Appends the block that describes the columns and, if one is due, a dictionary. Required at the beginning of a
    /// file, new or continued, and after a block that was not written. The open block must be empty.
    ///
    /// # Errors
    /// zstd has no memory.
    pub fn begin_file(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let payload = self.plain.compress(&self.schema)?;
        let header = self.header(BlockKind::Schema, self.schema.len());
        put_block(header, payload, out);
        // A reader may have this file alone, so nothing of the file before may be needed.
        self.history.begin_file();
        self.dictionary = None;
        self.columns = ColumnWriter::default();
        self.put_due_dictionary(out)
    }

    /// Adds a record to the open block.
    pub fn push(&mut self, entry: &AccessEntry<'_>) {
        self.columns.push(entry);
        self.history
            .add(|history| batch::append_record(entry, history));
    }

    /// Adds an encoded record to the open block, behind `previous`. Returns false for a record that can't be decoded.
    #[inline]
    pub fn push_record(
        &mut self,
        record: BatchRecord<'_>,
        previous: Option<BatchRecord<'_>>,
    ) -> bool {
        match previous.is_some_and(|previous| record.repeats(previous)) {
            // One client with one resource, such as a health check, gives equal records.
            true => self
                .columns
                .push_repeated(record.unix_ms(), record.duration_us()),
            false => match record.entry() {
                Some(entry) => self.columns.push(&entry),
                None => return false,
            },
        }
        self.history
            .add(|history| history.extend_from_slice(record.bytes()));
        true
    }

    /// Whether the open block must be closed before another record is added.
    pub fn is_full(&self) -> bool {
        // A reader refuses a block beyond these limits, so there must be room for the largest record.
        self.columns.record_count() >= BLOCK_RECORDS_MAX
            || self.columns.raw_len_max() + RECORD_LEN_MAX > RAW_LEN_MAX
            || self.columns.raw_len_max() >= self.block_len_max
    }

    /// Closes the open block and appends it; after it a dictionary, if one is due. Appends nothing if the block has no
    /// records. Returns the number of records.
    ///
    /// # Errors
    /// zstd has no memory. The records are lost.
    pub fn finish_block(&mut self, out: &mut Vec<u8>) -> io::Result<u32> {
        let record_count = self.columns.record_count() as u32;
        if record_count == 0 {
            return Ok(0);
        }
        // Filters skip a block by its period without decompressing it.
        let (first_ms, last_ms) = self.columns.period();
        self.raw.clear();
        self.columns.put(&mut self.raw);
        self.columns.clear();
        let header = BlockHeader {
            record_count,
            first_ms,
            span_ms: u32::try_from(last_ms - first_ms).unwrap_or(u32::MAX),
            dictionary: self.dictionary.as_ref().map_or(0, |it| it.sum),
            ..self.header(BlockKind::Records, self.raw.len())
        };
        // Counted before the compression can fail, so that a reader notices the lost records as a gap.
        self.record_count += u64::from(record_count);
        let payload = match &mut self.dictionary {
            // A small block has too few repetitions of its own, so zstd gets the dictionary's texts as well.
            Some(dictionary) if self.raw.len() <= SMALL_RAW_LEN => {
                dictionary.compressor.compress(&self.raw)
            }
            _ => compress(&mut self.plain, &self.raw, record_count),
        };
        self.history.record_use(put_block(header, payload?, out));
        // After the block, so that the block itself still names the dictionary that it was encoded with.
        self.put_due_dictionary(out)?;
        Ok(record_count)
    }

    /// Appends a dictionary, if one is due. The open block is empty.
    fn put_due_dictionary(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if !self.history.is_due() {
            return Ok(());
        }
        // A dictionary must be readable without the one before, so its columns begin without known values.
        self.dictionary = None;
        self.columns = ColumnWriter::default();
        self.history.for_each_record(|entry| {
            let len = self.columns.raw_len_max();
            // A reader refuses a longer dictionary, and with it all blocks that name it.
            if len + RECORD_LEN_MAX <= DICTIONARY_LEN_MAX && len < self.dictionary_len_max {
                self.columns.push(entry);
            }
        });
        self.raw.clear();
        self.columns.put(&mut self.raw);
        let header = BlockHeader {
            record_count: self.columns.record_count() as u32,
            ..self.header(BlockKind::Dictionary, self.raw.len())
        };
        // From here on values of the dictionary are known to each block, so they are not written again.
        self.columns.freeze();
        let payload = compress(&mut self.plain, &self.raw, header.record_count)?;
        self.history.record_written(put_block(header, payload, out));
        self.dictionary = Some(BlockDictionary {
            sum: crc32fast::hash(&self.raw),
            compressor: Compressor::with_dictionary(THOROUGH_LEVEL, zstd_dictionary(&self.raw))?,
        });
        Ok(())
    }

    /// A header for this many raw bytes, without records.
    fn header(&self, kind: BlockKind, raw_len: usize) -> BlockHeader {
        BlockHeader {
            kind,
            mask: 0,
            payload_len: 0,
            raw_len,
            record_count: 0,
            session: self.session,
            first_record: self.record_count,
            first_ms: 0,
            span_ms: 0,
            schema: self.schema_sum,
            dictionary: 0,
            payload_sum: 0,
        }
    }
}

fn compress(
    compressor: &mut Compressor<'static>,
    raw: &[u8],
    record_count: u32,
) -> io::Result<Vec<u8>> {
    let is_short = raw.len() <= THOROUGH_RAW_LEN && record_count <= THOROUGH_RECORDS_MAX;
    compressor.set_compression_level(if is_short { THOROUGH_LEVEL } else { LEVEL })?;
    compressor.compress(raw)
}

/// Appends a block. Returns its length.
fn put_block(mut header: BlockHeader, mut payload: Vec<u8>, out: &mut Vec<u8>) -> usize {
    // Masked before the checksum is computed, so that a reader verifies the bytes of the file.
    mask_payload(&mut header, &mut payload);
    header.payload_len = payload.len();
    header.payload_sum = crc32fast::hash(&payload);
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(&payload);
    header.block_len()
}
