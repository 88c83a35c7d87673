//! Finds the blocks of a file in bytes that arrive piece by piece, and continues behind damage.

use std::ops::Range;

use memchr::memmem;
use zstd::bulk::Decompressor;

use crate::context_memory::BlockMemory;
use crate::damage::{DamageCause, ReadDamage};
use crate::decoder::{self, BlockError, DictionaryValues, RecordBlock};
use crate::dictionaries::DictionaryTable;
use crate::frame::{BlockHeader, BlockKind, HEADER_LEN, MAGIC};
use crate::limits::DICTIONARY_LEN_MAX;
use crate::schema::BlockSchema;

/// Schemas of a file; a later one replaces the oldest.
const SCHEMAS_MAX: usize = 8;
/// Consumed bytes are removed from the buffer at this length.
const CONSUMED_LEN_MAX: usize = 1 << 20;

/// An event of reading.
pub enum ReadEvent {
    /// The records of a block.
    Records(Box<RecordBlock>),
    /// Bytes that can't be read, or records that are missing.
    Damage(ReadDamage),
}

/// Reads the files of a log, one after another. Holds a block, and the dictionaries and schemas that later blocks may
/// name.
pub struct LogReader {
    buffer: Vec<u8>,
    /// Consumed bytes of the buffer.
    consumed: usize,
    /// The offset of the buffer in the file.
    buffer_offset: u64,
    /// The offset of the first skipped byte that was not reported yet.
    skipped_from: Option<u64>,
    schemas: Vec<(u32, BlockSchema)>,
    dictionaries: DictionaryTable,
    plain: Decompressor<'static>,
    /// The memory of blocks without a dictionary.
    empty_memory: BlockMemory,
    /// The session, and the number of the record that is expected next.
    next_record: Option<(u32, u64)>,
    /// Whether a block was found in the file.
    is_log: bool,
    /// Whether the end of the file was reached.
    is_ended: bool,
}

/// The state of the bytes at the reader's position.
enum HeaderState {
    /// More bytes are needed.
    Incomplete,
    /// A block.
    Found(BlockHeader),
}

/// The result of reading a block.
enum BlockOutcome {
    /// Records or damage.
    Event(ReadEvent),
    /// The block has no records for the caller.
    Done,
    /// More bytes are needed.
    Incomplete,
}

impl LogReader {
    /// Creates a reader for the start of a file.
    ///
    /// # Errors
    /// zstd has no memory.
    pub fn new() -> std::io::Result<LogReader> {
        let schema = BlockSchema::encode_current();
        Ok(LogReader {
            buffer: Vec::new(),
            consumed: 0,
            buffer_offset: 0,
            skipped_from: None,
            // Known in advance, so that damage to the file's own description of these columns loses no records.
            schemas: vec![(crc32fast::hash(&schema), BlockSchema::current())],
            dictionaries: DictionaryTable::default(),
            plain: Decompressor::new()?,
            empty_memory: BlockMemory::default(),
            next_record: None,
            is_log: false,
            is_ended: false,
        })
    }

    /// Continues with another file of the same log. Records that are missing between the two are noticed.
    pub fn begin_file(&mut self) {
        // A rest of the file before must not join with the beginning of this one and look like a block.
        self.buffer.clear();
        self.consumed = 0;
        self.buffer_offset = 0;
        self.skipped_from = None;
        self.dictionaries.clear();
        self.is_log = false;
        self.is_ended = false;
    }

    /// Whether a block was found in the file so far.
    pub fn is_log(&self) -> bool {
        self.is_log
    }

    /// Adds bytes of the file.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.consumed >= CONSUMED_LEN_MAX || self.consumed == self.buffer.len() {
            // Rarely, because the rest is moved: once a MiB, or if there is no rest.
            self.buffer.drain(..self.consumed);
            self.buffer_offset += self.consumed as u64;
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next event; none until more bytes are added. Calling this until then bounds the buffer: it holds a block and
    /// the bytes of one `push`.
    pub fn next_event(&mut self) -> Option<ReadEvent> {
        loop {
            let HeaderState::Found(header) = self.find_header() else {
                return None;
            };
            self.is_log = true;
            // Bytes before this block are reported first, so that events have the order of the file.
            if let Some(damage) = self.take_skipped() {
                return Some(damage);
            }
            if self.rest().len() < header.block_len() {
                // A killed writer left a part of this block, and another one continued the file.
                let len = self.find_block_within(self.rest().len())?;
                return Some(self.cut(len, Some(header)));
            }
            match self.read_block(header) {
                BlockOutcome::Event(event) => return Some(event),
                BlockOutcome::Incomplete => return None,
                BlockOutcome::Done => {}
            }
        }
    }

    /// Ends the file. Returns the damage at its end; called until it returns none.
    pub fn finish(&mut self) -> Option<ReadEvent> {
        self.is_ended = true;
        if let Some(event) = self.next_event() {
            return Some(event);
        }
        let len = self.rest().len();
        let header = self.rest().first_chunk().and_then(BlockHeader::decode);
        // Without a header these bytes are the start of a magic only, and count as a part of the bytes before.
        if header.is_none() && (self.skipped_from.is_some() || !self.is_log) {
            self.skip(len);
        }
        if let Some(damage) = self.take_skipped() {
            return Some(damage);
        }
        match self.rest().len() {
            0 => None,
            len => Some(self.cut(len, header)),
        }
    }

    /// Skips bytes until a block begins.
    fn find_header(&mut self) -> HeaderState {
        loop {
            match memmem::find(self.rest(), &MAGIC) {
                Some(0) => {}
                Some(start) => self.skip(start),
                None => {
                    // The last bytes may be the beginning of the magic.
                    let is_prefix = |len: &usize| self.rest().ends_with(&MAGIC[..*len]);
                    let kept = (1..MAGIC.len()).rev().find(is_prefix).unwrap_or(0);
                    self.skip(self.rest().len() - kept);
                    return HeaderState::Incomplete;
                }
            }
            let Some(bytes) = self.rest().first_chunk::<HEADER_LEN>() else {
                return HeaderState::Incomplete;
            };
            if let Some(header) = BlockHeader::decode(bytes) {
                return HeaderState::Found(header);
            }
            // The length in a damaged header is unreliable, so the search continues behind its first byte.
            self.skip(1);
        }
    }

    /// The offset of a block that begins behind the header at the position, but within this length.
    fn find_block_within(&self, len: usize) -> Option<usize> {
        // The header itself was verified by its checksum, so another block can only begin behind it.
        let starts = memmem::find_iter(self.rest().get(HEADER_LEN..)?, &MAGIC);
        let starts = starts
            .map(|start| HEADER_LEN + start)
            .take_while(|start| *start < len);
        let mut blocks = starts.filter(|start| {
            // Damage may look like the magic, but not like a header with a valid checksum.
            let header = self.rest()[*start..].first_chunk();
            header.is_some_and(|header| BlockHeader::decode(header).is_some())
        });
        blocks.next()
    }

    /// Reads the complete block at the position.
    fn read_block(&mut self, header: BlockHeader) -> BlockOutcome {
        // Reported before the block is read: the gap is known from the header, even if the payload is damaged.
        if header.kind == BlockKind::Records
            && let Some(gap) = self.take_gap(&header)
        {
            return BlockOutcome::Event(gap);
        }
        let payload = HEADER_LEN..header.block_len();
        let read = match header.kind {
            BlockKind::Schema => self.read_schema(&header, payload).map(|()| None),
            BlockKind::Dictionary => self.read_dictionary(&header, payload).map(|()| None),
            BlockKind::Records => self.read_records(header, payload).map(Some),
            BlockKind::Unknown(_) => Ok(None),
        };
        let error = match read {
            Ok(block) => {
                self.consumed += header.block_len();
                return match block {
                    Some(block) => BlockOutcome::Event(ReadEvent::Records(Box::new(block))),
                    None => BlockOutcome::Done,
                };
            }
            Err(error) => error,
        };
        // Another block may begin in the last bytes of this one, and is recognized by its complete header.
        if !self.is_ended && self.rest().len() < header.block_len() + HEADER_LEN {
            return BlockOutcome::Incomplete;
        }
        if let Some(len) = self.find_block_within(header.block_len()) {
            return BlockOutcome::Event(self.cut(len, Some(header)));
        }
        let offset = self.offset();
        self.consumed += header.block_len();
        let cause = DamageCause::Block { error, header };
        BlockOutcome::Event(ReadEvent::Damage(ReadDamage { offset, cause }))
    }

    fn read_schema(
        &mut self,
        header: &BlockHeader,
        payload: Range<usize>,
    ) -> Result<(), BlockError> {
        let payload = &self.buffer[self.consumed..][payload];
        let raw = decoder::decompress(header, payload, &mut self.plain)?;
        let schema = BlockSchema::decode(&raw).ok_or(BlockError::Columns)?;
        let sum = crc32fast::hash(&raw);
        if self.schemas.iter().all(|(known, _)| *known != sum) {
            if self.schemas.len() >= SCHEMAS_MAX {
                // The first one is this version's schema, which stays.
                self.schemas.remove(1);
            }
            self.schemas.push((sum, schema));
        }
        Ok(())
    }

    fn read_dictionary(
        &mut self,
        header: &BlockHeader,
        payload: Range<usize>,
    ) -> Result<(), BlockError> {
        // The reader keeps several dictionaries, each uncompressed, so their limit is lower than that of a block.
        if header.raw_len > DICTIONARY_LEN_MAX {
            return Err(BlockError::Compression);
        }
        let schema = find_schema(&self.schemas, header)?;
        let payload = &self.buffer[self.consumed..][payload];
        let raw = decoder::decompress(header, payload, &mut self.plain)?;
        let (values, memory) = DictionaryValues::decode(header, raw, schema)?;
        let added = self.dictionaries.add(values, memory);
        added.map_err(|_| BlockError::Compression)
    }

    fn read_records(
        &mut self,
        header: BlockHeader,
        payload: Range<usize>,
    ) -> Result<RecordBlock, BlockError> {
        let schema = find_schema(&self.schemas, &header)?;
        let (decompressor, dictionary, memory) = match header.dictionary {
            // A block of this kind begins with an empty memory, which its decoding restores for the next one.
            0 => (&mut self.plain, None, &mut self.empty_memory),
            sum => {
                let found = self.dictionaries.find(sum);
                let found = found.ok_or(BlockError::MissingDictionary)?;
                let values = Some(found.values.clone());
                (&mut found.decompressor, values, &mut found.memory)
            }
        };
        let payload = &self.buffer[self.consumed..][payload];
        let raw = decoder::decompress(&header, payload, decompressor)?;
        RecordBlock::decode(header, raw, schema, dictionary, memory)
    }

    /// Compares the number of a block's first record with that of the block before.
    fn take_gap(&mut self, header: &BlockHeader) -> Option<ReadEvent> {
        let expected = self.next_record;
        let end = header
            .first_record
            .saturating_add(header.record_count.into());
        let records = match expected {
            // Another session has its own numbers: the records that a killed process had not written are not known.
            Some((session, next)) if session == header.session => {
                header.first_record.saturating_sub(next)
            }
            _ => 0,
        };
        if records > 0 {
            // The next call continues with this block.
            self.next_record = Some((header.session, header.first_record));
            let (offset, cause) = (self.offset(), DamageCause::Gap { records });
            return Some(ReadEvent::Damage(ReadDamage { offset, cause }));
        }
        self.next_record = Some((header.session, end));
        None
    }

    /// Skips an incomplete block with this many bytes.
    fn cut(&mut self, len: usize, header: Option<BlockHeader>) -> ReadEvent {
        // Its records are reported as cut; the gap before them must be reported first, with the number before.
        if let Some(header) = header.filter(|header| header.kind == BlockKind::Records)
            && let Some(gap) = self.take_gap(&header)
        {
            return gap;
        }
        let offset = self.offset();
        self.consumed += len;
        let len = len as u64;
        let cause = DamageCause::Cut { len, header };
        ReadEvent::Damage(ReadDamage { offset, cause })
    }

    /// Skips bytes that are not part of a block.
    fn skip(&mut self, len: usize) {
        if len > 0 {
            self.skipped_from
                .get_or_insert(self.buffer_offset + self.consumed as u64);
            self.consumed += len;
        }
    }

    /// Reports the bytes that were skipped before the position.
    fn take_skipped(&mut self) -> Option<ReadEvent> {
        let offset = self.skipped_from.take()?;
        let len = self.offset() - offset;
        let cause = DamageCause::Foreign { len };
        Some(ReadEvent::Damage(ReadDamage { offset, cause }))
    }

    fn rest(&self) -> &[u8] {
        &self.buffer[self.consumed..]
    }

    fn offset(&self) -> u64 {
        self.buffer_offset + self.consumed as u64
    }
}

fn find_schema<'s>(
    schemas: &'s [(u32, BlockSchema)],
    header: &BlockHeader,
) -> Result<&'s BlockSchema, BlockError> {
    let mut schemas = schemas.iter();
    let found = schemas.find(|(sum, _)| *sum == header.schema);
    found
        .map(|(_, schema)| schema)
        .ok_or(BlockError::MissingSchema)
}
