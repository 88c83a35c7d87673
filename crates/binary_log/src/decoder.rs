//! Reads the payload of a block.

mod columns;
mod table;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use lowroad_log::AccessEntry;
use zstd::bulk::Decompressor;

use self::columns::{ColumnSource, ColumnValues};
use crate::context_memory::BlockMemory;
use crate::frame::{BlockHeader, apply_mask};
use crate::line::RequestWords;
use crate::schema::{BlockSchema, COLUMNS, LogColumn};
use crate::varint::{take_bytes, take_number};

/// The reason why a block with a valid header can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// The payload's checksum is wrong.
    Checksum,
    /// zstd refuses the payload, or its length is not that of the header.
    Compression,
    /// The columns contradict their description.
    Columns,
    /// The block names a description of columns that was not read.
    MissingSchema,
    /// The block names a dictionary that was not read.
    MissingDictionary,
}

impl fmt::Display for BlockError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            BlockError::Checksum => "its checksum is wrong",
            BlockError::Compression => "it can't be decompressed",
            BlockError::Columns => "its columns contradict their description",
            BlockError::MissingSchema => "the description of its columns is damaged or missing",
            BlockError::MissingDictionary => "its dictionary is damaged or missing",
        })
    }
}

/// Decompresses a payload after its checksum was verified.
///
/// # Errors
/// Checksum or compression.
pub fn decompress(
    header: &BlockHeader,
    payload: &[u8],
    decompressor: &mut Decompressor<'static>,
) -> Result<Vec<u8>, BlockError> {
    if crc32fast::hash(payload) != header.payload_sum {
        return Err(BlockError::Checksum);
    }
    // The checksum covers the masked bytes, as they are in the file, so the mask is removed after the check.
    let unmasked;
    let payload = match header.mask {
        0 => payload,
        _ => {
            let mut bytes = payload.to_vec();
            apply_mask(header, &mut bytes);
            unmasked = bytes;
            &unmasked[..]
        }
    };
    // zstd writes at most this many bytes, even if the frame claims more.
    let raw = decompressor.decompress(payload, header.raw_len);
    let raw = raw.map_err(|_| BlockError::Compression)?;
    // A frame that ends early is valid for zstd, and would leave columns without their bytes.
    match raw.len() == header.raw_len {
        true => Ok(raw),
        false => Err(BlockError::Compression),
    }
}

/// The columns of a block and their raw bytes.
struct DecodedColumns {
    raw: Vec<u8>,
    /// In the order of [`COLUMNS`]; a column that the file lacks is empty.
    columns: [ColumnValues; COLUMNS.len()],
}

impl DecodedColumns {
    /// Reads the columns. None if they contradict their description.
    fn decode(
        header: &BlockHeader,
        raw: Vec<u8>,
        schema: &BlockSchema,
        known: Option<&DictionaryValues>,
        memory: &mut BlockMemory,
    ) -> Option<DecodedColumns> {
        let mut columns = std::array::from_fn(|_| ColumnValues::default());
        let mut rest = &raw[..];
        for column in &schema.columns {
            let len = usize::try_from(take_number(&mut rest)?).ok()?;
            // Values are kept as ranges of the raw bytes, so a column needs its offset in them.
            let start = raw.len() - rest.len();
            let bytes = take_bytes(&mut rest, len)?;
            // A column of a later version.
            let Some(column) = column else { continue };
            // The schema has each context before the columns that depend on it, so its places are already decoded.
            let context = match column.layout().context {
                Some(context) => Some(columns[context.place()].places()?),
                None => None,
            };
            let source = ColumnSource {
                bytes,
                start,
                count: header.record_count as usize,
                first_ms: header.first_ms,
                context,
                known: known.map(|known| &known.0.columns[column.place()]),
            };
            let values = source.decode(*column, memory)?;
            columns[column.place()] = values;
        }
        // Bytes after the last column mean that the schema is not the one that the block was written with.
        let is_whole = rest.is_empty();
        is_whole.then_some(DecodedColumns { raw, columns })
    }
}

/// The values of a dictionary.
pub struct DictionaryValues(DecodedColumns);

impl DictionaryValues {
    /// Reads a dictionary. Also returns the memory that its blocks begin with.
    ///
    /// # Errors
    /// The columns contradict their description.
    pub fn decode(
        header: &BlockHeader,
        raw: Vec<u8>,
        schema: &BlockSchema,
    ) -> Result<(DictionaryValues, BlockMemory), BlockError> {
        let mut memory = BlockMemory::default();
        let decoded = DecodedColumns::decode(header, raw, schema, None, &mut memory);
        // Blocks that name this dictionary begin with the memory that it leaves, as in the encoder.
        memory.freeze();
        let values = decoded.map(DictionaryValues).ok_or(BlockError::Columns)?;
        Ok((values, memory))
    }

    /// The dictionary's bytes, uncompressed.
    pub fn raw(&self) -> &[u8] {
        &self.0.raw
    }
}

/// The records of a block.
pub struct RecordBlock {
    /// The block's header.
    pub header: BlockHeader,
    decoded: DecodedColumns,
    dictionary: Option<Arc<DictionaryValues>>,
}

impl RecordBlock {
    /// Reads the columns of a block. `memory` is the frozen memory of the dictionary, or an empty one; it is restored
    /// afterwards.
    ///
    /// # Errors
    /// The columns contradict their description.
    pub fn decode(
        header: BlockHeader,
        raw: Vec<u8>,
        schema: &BlockSchema,
        dictionary: Option<Arc<DictionaryValues>>,
        memory: &mut BlockMemory,
    ) -> Result<RecordBlock, BlockError> {
        let known = dictionary.as_deref();
        let decoded = DecodedColumns::decode(&header, raw, schema, known, memory);
        // Also after an error: the next block that names this dictionary needs the frozen memory.
        memory.restore();
        Ok(RecordBlock {
            header,
            decoded: decoded.ok_or(BlockError::Columns)?,
            dictionary,
        })
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.header.record_count as usize
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The record with this index, below [`RecordBlock::len`]. The request line is assembled in `line`, which is
    /// cleared first.
    pub fn entry<'a>(&'a self, record: usize, line: &'a mut Vec<u8>) -> AccessEntry<'a> {
        line.clear();
        let words = RequestWords {
            method: self.bytes(LogColumn::Method, record),
            target: self.bytes(LogColumn::Target, record),
            protocol: self.bytes(LogColumn::Protocol, record),
        };
        words.append(line);
        AccessEntry {
            peer: self.peer(record),
            user: self.bytes(LogColumn::User, record),
            unix_ms: self.number(LogColumn::Time, record),
            line,
            host: self.bytes(LogColumn::Host, record),
            // The checksum does not prove that the number fits into a status: any program may have written the file.
            status: u16::try_from(self.number(LogColumn::Status, record)).unwrap_or_default(),
            body_bytes: self.number(LogColumn::BodyBytes, record),
            whole: self.number(LogColumn::Whole, record) != 0,
            referer: self.bytes(LogColumn::Referer, record),
            user_agent: self.bytes(LogColumn::UserAgent, record),
            duration_us: self.number(LogColumn::Duration, record),
            outcome: self.word(LogColumn::Outcome, record),
            level: match self.word(LogColumn::Level, record) {
                // The name of this level in files that earlier versions wrote.
                "module" => "handler",
                level => level,
            },
            tls: self.word(LogColumn::Tls, record),
        }
    }

    fn peer(&self, record: usize) -> IpAddr {
        let bytes = self.bytes(LogColumn::Peer, record);
        if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
            return octets.into();
        }
        // The file may lack the column of addresses, or have addresses of another length.
        let octets = <[u8; 16]>::try_from(bytes).unwrap_or_default();
        IpAddr::from(octets)
    }

    fn number(&self, column: LogColumn, record: usize) -> u64 {
        self.decoded.columns[column.place()].number(record)
    }

    fn bytes(&self, column: LogColumn, record: usize) -> &[u8] {
        let values = &self.decoded.columns[column.place()];
        let Some(place) = values.places().and_then(|places| places.get(record)) else {
            return b"";
        };
        let place = *place as usize;
        let Some(dictionary) = self.dictionary.as_deref().map(|it| &it.0) else {
            return values.value(place, &self.decoded.raw);
        };
        let known = &dictionary.columns[column.place()];
        // Places count the values of the dictionary first and continue with those of the block.
        match place.checked_sub(known.value_count()) {
            None => known.value(place, &dictionary.raw),
            Some(place) => values.value(place, &self.decoded.raw),
        }
    }

    fn word(&self, column: LogColumn, record: usize) -> &str {
        // The encoder writes printable words. Other bytes of a foreign program must not end the reading, nor reach a
        // terminal: formats print words without escapes.
        let bytes = self.bytes(column, record);
        let word = std::str::from_utf8(bytes).ok();
        word.filter(|_| bytes.iter().all(u8::is_ascii_graphic))
            .unwrap_or_default()
    }
}
