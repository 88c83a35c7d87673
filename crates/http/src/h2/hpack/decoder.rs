//! Decodes HPACK field blocks. Each field is appended as a text line to a buffer; the `FieldSink` decides which lines
//! it keeps. Read RFC 7541 §3 and §6.

use super::HpackError;
use super::static_table::{self, STATIC_LEN};
use crate::field_coding::string::{self, StringError};
use crate::field_coding::{
    DecodedField, DynamicTable, FieldClass, FieldSink, TableEntry, integer, is_valid_value,
    put_entry,
};

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
        put_entry(entry, sink);
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
            rest = string::decode(rest, 7, text)?;
        }
        let name_len = text.len() - line_start;
        let kind = indexed_kind.unwrap_or_else(|| FieldClass::for_name(&text[line_start..]));
        text.extend_from_slice(b": ");
        let value_at = text.len();
        let rest = string::decode(rest, 7, text)?;
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

impl From<StringError> for HpackError {
    fn from(fault: StringError) -> HpackError {
        match fault {
            StringError::Integer => HpackError::Integer,
            StringError::Truncated => HpackError::Truncated,
            StringError::Huffman => HpackError::Huffman,
        }
    }
}
