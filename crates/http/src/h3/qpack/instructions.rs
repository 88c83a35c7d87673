//! The encoder stream of the peer, which fills the dynamic table, and its decoder stream. Instructions arrive in parts of
//! any size. Read RFC 9204 §4.3 and §4.4.

use alloc::vec::Vec;

use super::decoder::QpackDecoder;
use super::{QpackError, static_table};
use crate::field_coding::integer::{IntegerError, decode_wide};
use crate::field_coding::{FieldClass, TableEntry, huffman, is_valid_value};

/// Why an instruction was not processed.
enum Interruption {
    /// Its rest has not arrived.
    Incomplete,
    Invalid(QpackError),
}

impl From<IntegerError> for Interruption {
    fn from(fault: IntegerError) -> Interruption {
        match fault {
            IntegerError::Truncated => Interruption::Incomplete,
            IntegerError::TooLarge => Interruption::Invalid(QpackError::Integer),
        }
    }
}

impl From<QpackError> for Interruption {
    fn from(fault: QpackError) -> Interruption {
        Interruption::Invalid(fault)
    }
}

/// A complete string that is not decoded yet.
struct EncodedString<'b> {
    bytes: &'b [u8],
    is_huffman: bool,
}

impl EncodedString<'_> {
    fn decode(&self, text: &mut Vec<u8>) -> Result<(), QpackError> {
        match self.is_huffman {
            true => huffman::decode(self.bytes, text).ok_or(QpackError::Huffman),
            false => {
                text.extend_from_slice(self.bytes);
                Ok(())
            }
        }
    }
}

impl QpackDecoder {
    /// Processes bytes of the encoder stream. An incomplete instruction at their end is kept.
    ///
    /// # Errors
    /// An invalid instruction: the connection has to end.
    pub(in crate::h3) fn receive_instructions(&mut self, bytes: &[u8]) -> Result<(), QpackError> {
        // The bytes are copied only if an instruction is split.
        let mut partial = core::mem::take(&mut self.partial);
        if partial.is_empty() {
            let used = self.process(bytes)?;
            partial.extend_from_slice(bytes.get(used..).unwrap_or_default());
        } else {
            partial.extend_from_slice(bytes);
            let used = self.process(&partial)?;
            partial.drain(..used);
        }
        self.partial = partial;
        Ok(())
    }

    /// Processes the complete instructions at the start of `bytes`. Returns their length.
    fn process(&mut self, bytes: &[u8]) -> Result<usize, QpackError> {
        let mut rest = bytes;
        // An instruction takes effect only when it is complete, so an incomplete one can be read again.
        while !rest.is_empty() {
            rest = match self.instruction(rest) {
                Ok(after) => after,
                Err(Interruption::Incomplete) => break,
                Err(Interruption::Invalid(fault)) => return Err(fault),
            };
        }
        Ok(bytes.len() - rest.len())
    }

    fn instruction<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], Interruption> {
        let first = bytes.first().copied().unwrap_or_default();
        match first {
            0x80.. => self.insert_with_name(bytes),
            0x40.. => self.insert_literal(bytes),
            0x20.. => {
                let (capacity, rest) = decode_wide(bytes, 5)?;
                if capacity > self.capacity_max as u64 {
                    return Err(QpackError::Capacity.into());
                }
                // A smaller capacity evicts entries (RFC 9204 §3.2.3).
                self.capacity = capacity as usize;
                self.table.set_size_max(self.capacity);
                Ok(rest)
            }
            _ => {
                // Duplicate (RFC 9204 §4.3.4).
                let (index, rest) = decode_wide(bytes, 5)?;
                let mut line = core::mem::take(&mut self.line);
                line.clear();
                // The insertion may evict the original, so it is copied first.
                let entry = self.recent(index)?;
                line.extend_from_slice(entry.line);
                let (name_len, kind) = (entry.name_len, entry.kind);
                self.line = line;
                self.insert(name_len, kind)?;
                Ok(rest)
            }
        }
    }

    /// Inserts an entry with the name of another one (RFC 9204 §4.3.2).
    fn insert_with_name<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], Interruption> {
        let is_static = bytes.first().is_some_and(|first| first & 0x40 != 0);
        let (index, rest) = decode_wide(bytes, 6)?;
        let (value, rest) = self.string(rest, 7)?;
        let mut line = core::mem::take(&mut self.line);
        line.clear();
        let entry = match is_static {
            true => static_table::entry(usize::try_from(index).unwrap_or(usize::MAX)),
            false => self.recent(index).ok(),
        };
        let entry = entry.ok_or(QpackError::Index)?;
        // The insertion may evict the entry, so its name is copied first (RFC 9204 §3.2.2).
        line.extend_from_slice(&entry.line[..entry.name_len]);
        let (name_len, kind) = (entry.name_len, entry.kind);
        self.line = line;
        self.insert_value(name_len, kind, &value)?;
        Ok(rest)
    }

    /// Inserts an entry with a literal name (RFC 9204 §4.3.3).
    fn insert_literal<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], Interruption> {
        let (name, rest) = self.string(bytes, 5)?;
        let (value, rest) = self.string(rest, 7)?;
        self.line.clear();
        // Both strings are complete here, so nothing is decoded twice.
        name.decode(&mut self.line)?;
        let kind = FieldClass::for_name(&self.line);
        self.insert_value(self.line.len(), kind, &value)?;
        Ok(rest)
    }

    fn insert_value(
        &mut self,
        name_len: usize,
        kind: FieldClass,
        value: &EncodedString<'_>,
    ) -> Result<(), QpackError> {
        self.line.extend_from_slice(b": ");
        value.decode(&mut self.line)?;
        self.line.extend_from_slice(b"\r\n");
        self.insert(name_len, kind)
    }

    /// Inserts the entry in `line`.
    fn insert(&mut self, name_len: usize, kind: FieldClass) -> Result<(), QpackError> {
        let value = self.line.get(name_len + 2..self.line.len() - 2);
        let value = value.unwrap_or_default();
        // Class and validity are determined once for all sections that refer to the entry.
        let entry = TableEntry {
            line: &self.line,
            name_len,
            kind: kind.with_value(value),
            is_value_valid: is_valid_value(value),
        };
        // RFC 9204 §3.2.2: unlike in HPACK, such an entry is an error.
        if entry.size() > self.capacity {
            return Err(QpackError::EntryTooLarge);
        }
        self.table.insert(&entry);
        self.inserted += 1;
        Ok(())
    }

    /// The entry with an index that counts back from the newest (RFC 9204 §3.2.5).
    fn recent(&self, index: u64) -> Result<TableEntry<'_>, QpackError> {
        let index = usize::try_from(index).map_err(|_| QpackError::Index)?;
        self.table.get(index).ok_or(QpackError::Index)
    }

    /// The string at the start of `bytes`, and the bytes after it.
    fn string<'b>(
        &self,
        bytes: &'b [u8],
        prefix: u32,
    ) -> Result<(EncodedString<'b>, &'b [u8]), Interruption> {
        let is_huffman = bytes.first().is_some_and(|first| first >> prefix & 1 != 0);
        let (len, rest) = decode_wide(bytes, prefix)?;
        // The longest Huffman code has 30 bits, so a string of more than four times the capacity can't fit. The check
        // bounds the part of an instruction that is kept.
        if len > 4 * self.capacity as u64 {
            return Err(QpackError::EntryTooLarge.into());
        }
        let (bytes, rest) = rest
            .split_at_checked(len as usize)
            .ok_or(Interruption::Incomplete)?;
        Ok((EncodedString { bytes, is_huffman }, rest))
    }
}

/// Checks bytes of the peer's decoder stream, and returns the length of its complete instructions. This side's encoder
/// inserts nothing, so only cancellations are valid (RFC 9204 §4.4).
///
/// # Errors
/// An acknowledgement: the connection has to end.
pub(in crate::h3) fn check_decoder_stream(bytes: &[u8]) -> Result<usize, QpackError> {
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        // Section Acknowledgment and Insert Count Increment are invalid with any number.
        if !matches!(first, 0x40..0x80) {
            return Err(QpackError::Acknowledgement);
        }
        rest = match decode_wide(rest, 6) {
            Ok((_, after)) => after,
            Err(IntegerError::Truncated) => break,
            Err(IntegerError::TooLarge) => return Err(QpackError::Integer),
        };
    }
    Ok(bytes.len() - rest.len())
}
