//! Makes blocks of records. Without clock and file: times are in the records, and the caller writes the bytes.

mod columns;
mod dictionary;

use std::io;

use lowroad_log::AccessEntry;
use zstd::bulk::Compressor;

use self::columns::ColumnWriter;
use self::dictionary::DictionaryHistory;
use crate::dictionaries::zstd_dictionary;
use crate::frame::{BlockHeader, BlockKind, mask_payload};
use crate::limits::{BLOCK_RECORDS_MAX, RAW_LEN_MAX, TEXT_LEN_MAX};
use crate::schema::BlockSchema;

/// zstd's level for blocks up to [`THOROUGH_RAW_LEN`]. The log's thread pays for it, not a worker: some ms for a block.
const THOROUGH_LEVEL: i32 = 12;
/// A larger block is that of a busy server.
const THOROUGH_RAW_LEN: usize = 256 * 1024;
/// zstd's level for larger blocks.
const LEVEL: i32 = 3;
/// A larger block has repetitions enough for zstd.
const SMALL_RAW_LEN: usize = 16 * 1024;
/// The columns of the largest record: its texts, and a few bytes for each column.
const RECORD_LEN_MAX: usize = 5 * TEXT_LEN_MAX + 1024;

/// Encodes the records of one session.
pub struct BlockEncoder {
    session: u32,
    /// Records of all blocks before, including those of blocks that the caller could not write.
    record_count: u64,
    schema: Vec<u8>,
    schema_sum: u32,
    columns: ColumnWriter,
    plain: Compressor<'static>,
    history: DictionaryHistory,
    dictionary: Option<BlockDictionary>,
    /// The columns of the block that is being closed.
    raw: Vec<u8>,
}

/// The dictionary of the file.
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
        })
    }

    /// Begins a file, new or continued, or continues behind a block that was not written: appends the block that
    /// describes the columns, and a dictionary. The open block must be closed before.
    ///
    /// # Errors
    /// zstd has no memory.
    pub fn begin_file(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let payload = self.plain.compress(&self.schema)?;
        let header = self.header(BlockKind::Schema, self.schema.len());
        put_block(header, payload, out);
        self.history.begin_file();
        self.dictionary = None;
        self.columns = ColumnWriter::default();
        self.put_due_dictionary(out)
    }

    /// Adds a record to the open block.
    pub fn push(&mut self, entry: &AccessEntry<'_>) {
        self.columns.push(entry);
        self.history.add(entry);
    }

    /// Whether the open block must be closed before another record is added.
    pub fn is_full(&self) -> bool {
        self.columns.record_count() >= BLOCK_RECORDS_MAX
            || self.columns.raw_len_max() + RECORD_LEN_MAX > RAW_LEN_MAX
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
        self.record_count += u64::from(record_count);
        let payload = match &mut self.dictionary {
            Some(dictionary) if self.raw.len() <= SMALL_RAW_LEN => {
                dictionary.compressor.compress(&self.raw)
            }
            _ => compress(&mut self.plain, &self.raw),
        };
        self.history.is_used(put_block(header, payload?, out));
        self.put_due_dictionary(out)?;
        Ok(record_count)
    }

    /// Appends a dictionary, if one is due. The open block is empty.
    fn put_due_dictionary(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if !self.history.is_due() {
            return Ok(());
        }
        self.dictionary = None;
        self.columns = ColumnWriter::default();
        self.history.each_record(|entry| self.columns.push(entry));
        self.raw.clear();
        self.columns.put(&mut self.raw);
        let header = BlockHeader {
            record_count: self.columns.record_count() as u32,
            ..self.header(BlockKind::Dictionary, self.raw.len())
        };
        self.columns.freeze();
        let payload = compress(&mut self.plain, &self.raw)?;
        self.history.is_written(put_block(header, payload, out));
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

fn compress(compressor: &mut Compressor<'static>, raw: &[u8]) -> io::Result<Vec<u8>> {
    compressor.set_compression_level(match raw.len() <= THOROUGH_RAW_LEN {
        true => THOROUGH_LEVEL,
        false => LEVEL,
    })?;
    compressor.compress(raw)
}

/// Appends a block. Returns its length.
fn put_block(mut header: BlockHeader, mut payload: Vec<u8>, out: &mut Vec<u8>) -> usize {
    mask_payload(&mut header, &mut payload);
    header.payload_len = payload.len();
    header.payload_sum = crc32fast::hash(&payload);
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(&payload);
    header.block_len()
}
