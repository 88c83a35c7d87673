//! Decodes HPACK field blocks. Each field is appended as a text line to a buffer; the `FieldSink` decides which lines
//! it keeps. Read RFC 7541 §3 and §6.

use alloc::vec::Vec;

use super::indexing_mode::FieldClass;
use super::static_table::{self, STATIC_LEN, TableEntry};
use super::table::DynamicTable;
use super::{HpackError, huffman, integer};
use crate::byte_scan;

/// Receives the fields of a block.
pub(in crate::h2) trait FieldSink {
    /// The buffer that the next line is appended to.
    fn text(&mut self) -> &mut Vec<u8>;

    /// Processes a field: the line `name: value\r\n` from `line_start` to the end of the text.
    fn on_field(&mut self, field: DecodedField);
}

/// A field at the end of the text.
#[derive(Clone, Copy, Debug)]
pub(in crate::h2) struct DecodedField {
    /// The offset of the field's line.
    pub(in crate::h2) line_start: usize,
    pub(in crate::h2) name_len: usize,
    pub(in crate::h2) kind: FieldClass,
    /// Whether the value is valid (RFC 9113 §8.2.1).
    pub(in crate::h2) is_value_valid: bool,
}

/// The decoder of a connection.
#[derive(Debug)]
pub(in crate::h2) struct HpackDecoder {
    table: DynamicTable,
    /// The table size that was announced to the peer.
    size_limit: usize,
}

impl HpackDecoder {
    /// A decoder with a table of at most `size_limit` bytes.
    pub(in crate::h2) fn new(size_limit: usize) -> HpackDecoder {
        HpackDecoder {
            table: DynamicTable::new(size_limit),
            size_limit,
        }
    }

    /// Decodes a whole block.
    ///
    /// # Errors
    /// The first fault. The dynamic table is then out of sync, so the connection has to end.
    pub(in crate::h2) fn decode(
        &mut self,
        block: &[u8],
        sink: &mut impl FieldSink,
    ) -> Result<(), HpackError> {
        let mut rest = self.size_updates(block)?;
        while let Some(first) = rest.first() {
            rest = match first {
                0x80.. => self.indexed(rest, sink)?,
                // With incremental indexing (RFC 7541 §6.2.1).
                0x40..0x80 => self.literal(rest, 6, sink)?,
                // RFC 7541 §4.2: size updates come first in a block.
                0x20..0x40 => return Err(HpackError::SizeUpdate),
                // Without indexing, or never indexed: the difference matters to intermediaries only (RFC 7541 §6.2.3).
                _ => self.literal(rest, 4, sink)?,
            };
        }
        Ok(())
    }

    /// Processes the size updates at the start of a block (RFC 7541 §4.2).
    #[inline]
    fn size_updates<'b>(&mut self, block: &'b [u8]) -> Result<&'b [u8], HpackError> {
        let mut rest = block;
        while let Some(0x20..0x40) = rest.first() {
            let (size, after) = integer::decode(rest, 5).ok_or(HpackError::Integer)?;
            // RFC 7541 §6.3: the limit is the value of SETTINGS_HEADER_TABLE_SIZE.
            if size > self.size_limit {
                return Err(HpackError::SizeUpdate);
            }
            self.table.set_size_max(size);
            rest = after;
        }
        Ok(rest)
    }

    #[inline(always)]
    fn entry(&self, index: usize) -> Result<TableEntry<'_>, HpackError> {
        let entry = match index {
            ..=STATIC_LEN => static_table::entry(index),
            _ => self.table.get(index - STATIC_LEN - 1),
        };
        entry.ok_or(HpackError::Index)
    }

    #[inline(always)]
    fn indexed<'b>(
        &self,
        rest: &'b [u8],
        sink: &mut impl FieldSink,
    ) -> Result<&'b [u8], HpackError> {
        let (index, rest) = integer::decode(rest, 7).ok_or(HpackError::Integer)?;
        let entry = self.entry(index)?;
        let text = sink.text();
        let line_start = text.len();
        text.extend_from_slice(entry.line);
        sink.on_field(DecodedField {
            line_start,
            name_len: entry.name_len,
            kind: entry.kind,
            is_value_valid: entry.is_value_valid,
        });
        Ok(rest)
    }

    /// Decodes a literal field, with a name that may be indexed. With a prefix of 6 bits the field is added to the
    /// dynamic table.
    #[inline(never)]
    fn literal<'b>(
        &mut self,
        rest: &'b [u8],
        prefix: u32,
        sink: &mut impl FieldSink,
    ) -> Result<&'b [u8], HpackError> {
        let (index, mut rest) = integer::decode(rest, prefix).ok_or(HpackError::Integer)?;
        let text = sink.text();
        let line_start = text.len();
        let mut indexed_kind = None;
        if index > 0 {
            let entry = self.entry(index)?;
            text.extend_from_slice(&entry.line[..entry.name_len]);
            indexed_kind = Some(entry.kind);
        } else {
            rest = string(rest, text)?;
        }
        let name_len = text.len() - line_start;
        let kind = indexed_kind.unwrap_or_else(|| FieldClass::for_name(&text[line_start..]));
        text.extend_from_slice(b": ");
        let value_at = text.len();
        let rest = string(rest, text)?;
        let is_value_valid = is_valid_value(&text[value_at..]);
        let kind = kind.with_value(&text[value_at..]);
        text.extend_from_slice(b"\r\n");
        // RFC 7541 §4.4: this insertion may evict the entry that the name was copied from.
        if prefix == 6 {
            self.table.insert(&TableEntry {
                line: &text[line_start..],
                name_len,
                kind,
                is_value_valid,
            });
        }
        sink.on_field(DecodedField {
            line_start,
            name_len,
            kind,
            is_value_valid,
        });
        Ok(rest)
    }
}

/// Appends the string at the start of `bytes`. Returns the bytes after it.
#[inline]
fn string<'b>(bytes: &'b [u8], text: &mut Vec<u8>) -> Result<&'b [u8], HpackError> {
    let is_huffman = bytes.first().is_some_and(|first| first & 0x80 != 0);
    let (len, rest) = integer::decode(bytes, 7).ok_or(HpackError::Integer)?;
    let (string, rest) = rest.split_at_checked(len).ok_or(HpackError::Truncated)?;
    match is_huffman {
        true => huffman::decode(string, text).ok_or(HpackError::Huffman)?,
        false => text.extend_from_slice(string),
    }
    Ok(rest)
}

/// Whether a field value is valid: no control characters, and no whitespace at its start or end.
fn is_valid_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let has_blank_end = is_blank(value.first()) || is_blank(value.last());
    !has_blank_end && byte_scan::value_len(value) == value.len()
}
