//! Decodes field sections. Each field is appended as a text line to a buffer, see [`FieldSink`]. Read RFC 9204 §3.2,
//! §4.4 and §4.5.
//!
//! Entries of the dynamic table have absolute indexes: the number of entries inserted before them. The prefix of a
//! section gives the number of insertions that it requires, and the base to which its indexes are relative.

use alloc::vec::Vec;

use super::QpackError;
use super::static_table;
use crate::field_coding::{
    DecodedField, DynamicTable, ENTRY_LEN, FieldClass, FieldSink, TableEntry, integer,
    is_valid_value, put_entry, string,
};

/// The decoder of a connection.
#[derive(Debug)]
pub(in crate::h3) struct QpackDecoder {
    pub(super) table: DynamicTable,
    /// The capacity that was announced to the peer.
    pub(super) capacity_max: usize,
    /// The capacity that the peer has set.
    pub(super) capacity: usize,
    /// The number of insertions.
    pub(super) inserted: u64,
    /// The number of insertions that the peer knows to be received.
    acknowledged: u64,
    /// The received part of an instruction.
    pub(super) partial: Vec<u8>,
    /// The line of the entry that is inserted.
    pub(super) line: Vec<u8>,
}

/// The prefix of a field section.
#[derive(Clone, Copy, Debug)]
pub(in crate::h3) struct SectionPrefix<'b> {
    /// The number of insertions that have to arrive first.
    pub(in crate::h3) required: u64,
    base: u64,
    /// The field lines.
    lines: &'b [u8],
}

impl QpackDecoder {
    /// A decoder with a table of at most `capacity_max` bytes; its capacity is 0 until the peer changes it.
    pub(in crate::h3) fn new(capacity_max: usize) -> QpackDecoder {
        QpackDecoder {
            table: DynamicTable::new(0),
            capacity_max,
            capacity: 0,
            inserted: 0,
            acknowledged: 0,
            partial: Vec::new(),
            line: Vec::new(),
        }
    }

    /// The number of insertions that have arrived.
    pub(in crate::h3) fn insert_count(&self) -> u64 {
        self.inserted
    }

    /// Reads the prefix of a whole section (RFC 9204 §4.5.1).
    ///
    /// # Errors
    /// The prefix is malformed.
    #[inline]
    pub(in crate::h3) fn prefix<'b>(
        &self,
        section: &'b [u8],
    ) -> Result<SectionPrefix<'b>, QpackError> {
        // Without references to the dynamic table, all bits are 0.
        if let Some((&[0, 0], lines)) = section.split_first_chunk() {
            return Ok(SectionPrefix {
                required: 0,
                base: 0,
                lines,
            });
        }
        self.dynamic_prefix(section)
    }

    #[inline(never)]
    fn dynamic_prefix<'b>(&self, section: &'b [u8]) -> Result<SectionPrefix<'b>, QpackError> {
        let (encoded, rest) = integer::decode(section, 8).ok_or(QpackError::Integer)?;
        let required = self.required_inserts(encoded as u64)?;
        // The base may be below the count, so that an encoder can insert while it encodes (RFC 9204 §4.5.1.2).
        let is_negative = rest.first().is_some_and(|first| first & 0x80 != 0);
        let (delta, lines) = integer::decode(rest, 7).ok_or(QpackError::Integer)?;
        let delta = delta as u64;
        let base = match is_negative {
            false => Some(required + delta),
            true => required.checked_sub(delta + 1),
        };
        Ok(SectionPrefix {
            required,
            base: base.ok_or(QpackError::InsertCount)?,
            lines,
        })
    }

    /// Restores a required insert count, which is sent modulo twice the number of possible entries (RFC 9204 §4.5.1.1).
    fn required_inserts(&self, encoded: u64) -> Result<u64, QpackError> {
        if encoded == 0 {
            return Ok(0);
        }
        let entries_max = (self.capacity_max / ENTRY_LEN) as u64;
        let range = 2 * entries_max;
        if encoded > range {
            return Err(QpackError::InsertCount);
        }
        let count_max = self.inserted + entries_max;
        let count = count_max / range * range + encoded - 1;
        // The count is the only one within a range that ends at the highest possible one.
        let count = match count > count_max {
            true => count.saturating_sub(range),
            false => count,
        };
        match count {
            // A count of 0 has another representation.
            0 => Err(QpackError::InsertCount),
            count => Ok(count),
        }
    }

    /// Whether entries that the section refers to have not arrived.
    pub(in crate::h3) fn is_blocked(&self, prefix: &SectionPrefix<'_>) -> bool {
        prefix.required > self.inserted
    }

    /// Decodes the field lines of a section that is not blocked.
    ///
    /// # Errors
    /// The first fault. The peer's state is then unknown, so the connection has to end.
    #[inline]
    pub(in crate::h3) fn decode(
        &self,
        prefix: &SectionPrefix<'_>,
        sink: &mut impl FieldSink,
    ) -> Result<(), QpackError> {
        let mut rest = prefix.lines;
        while let Some(first) = rest.first() {
            rest = match first {
                // RFC 9204 §4.5.2: the second bit selects the static table.
                0xc0.. => {
                    let (index, after) = integer::decode(rest, 6).ok_or(QpackError::Integer)?;
                    put_entry(static_table::entry(index).ok_or(QpackError::Index)?, sink);
                    after
                }
                0x40..0x80 => self.named_literal(rest, prefix, sink)?,
                0x20..0x40 => literal(rest, sink)?,
                _ => self.dynamic_line(rest, prefix, sink)?,
            };
        }
        Ok(())
    }

    /// Decodes the representations that always refer to the dynamic table.
    fn dynamic_line<'b>(
        &self,
        rest: &'b [u8],
        prefix: &SectionPrefix<'_>,
        sink: &mut impl FieldSink,
    ) -> Result<&'b [u8], QpackError> {
        let first = rest.first().copied().unwrap_or_default();
        // RFC 9204 §4.5.2, §4.5.3 and §4.5.5: the length of the pattern gives the length of the prefix.
        let bits = match first {
            0x80.. => 6,
            0x10.. => 4,
            _ => 3,
        };
        let (index, after) = integer::decode(rest, bits).ok_or(QpackError::Integer)?;
        let entry = match first {
            0x80.. => self.relative(index, prefix)?,
            // Indexes after the base (RFC 9204 §3.2.6).
            _ => self.absolute(prefix.base + index as u64, prefix)?,
        };
        // The other patterns have a literal value.
        if first >= 0x10 {
            put_entry(entry, sink);
            return Ok(after);
        }
        value_after(entry, after, sink)
    }

    /// Decodes a literal with the name of an entry (RFC 9204 §4.5.4).
    #[inline(never)]
    fn named_literal<'b>(
        &self,
        rest: &'b [u8],
        prefix: &SectionPrefix<'_>,
        sink: &mut impl FieldSink,
    ) -> Result<&'b [u8], QpackError> {
        let is_static = rest.first().is_some_and(|first| first & 0x10 != 0);
        let (index, after) = integer::decode(rest, 4).ok_or(QpackError::Integer)?;
        let entry = match is_static {
            true => static_table::entry(index).ok_or(QpackError::Index)?,
            false => self.relative(index, prefix)?,
        };
        value_after(entry, after, sink)
    }

    /// The entry with an index that counts down from the base (RFC 9204 §3.2.5).
    fn relative(
        &self,
        index: usize,
        prefix: &SectionPrefix<'_>,
    ) -> Result<TableEntry<'_>, QpackError> {
        let index = prefix.base.checked_sub(index as u64 + 1);
        self.absolute(index.ok_or(QpackError::Index)?, prefix)
    }

    fn absolute(
        &self,
        index: u64,
        prefix: &SectionPrefix<'_>,
    ) -> Result<TableEntry<'_>, QpackError> {
        // RFC 9204 §2.2.1: a section refers only to entries that its required insert count covers.
        if index >= prefix.required {
            return Err(QpackError::Index);
        }
        // The table numbers its entries from the newest.
        let number = self.inserted.checked_sub(index + 1);
        let entry = number.and_then(|number| self.table.get(number as usize));
        entry.ok_or(QpackError::Index)
    }

    /// Appends the acknowledgement of a decoded section of this QUIC stream to the decoder stream (RFC 9204 §4.4.1).
    pub(in crate::h3) fn put_acknowledgement(
        &mut self,
        stream: u64,
        required: u64,
        out: &mut Vec<u8>,
    ) {
        // Sections without references to the dynamic table are not acknowledged.
        if required > 0 {
            integer::encode(stream as usize, 7, 0x80, out);
            // The encoder infers that all required insertions have arrived (RFC 9204 §2.1.4).
            self.acknowledged = self.acknowledged.max(required);
        }
    }

    /// Appends the cancellation of a QUIC stream with sections that will not be decoded (RFC 9204 §4.4.2).
    pub(in crate::h3) fn put_cancellation(&self, stream: u64, out: &mut Vec<u8>) {
        // RFC 9204 §2.2.2.2: without a dynamic table there are no references to release.
        if self.capacity_max > 0 {
            integer::encode(stream as usize, 6, 0x40, out);
        }
    }

    /// Appends the number of insertions that no acknowledgement covers (RFC 9204 §4.4.3).
    pub(in crate::h3) fn put_increment(&mut self, out: &mut Vec<u8>) {
        let increment = self.inserted.saturating_sub(self.acknowledged);
        // RFC 9204 §4.4.3: an increment of 0 is an error.
        if increment > 0 {
            integer::encode(increment as usize, 6, 0, out);
            self.acknowledged = self.inserted;
        }
    }
}

/// Decodes a literal with a literal name (RFC 9204 §4.5.6).
#[inline(never)]
fn literal<'b>(rest: &'b [u8], sink: &mut impl FieldSink) -> Result<&'b [u8], QpackError> {
    let text = sink.text();
    let line_start = text.len();
    let rest = string::decode(rest, 3, text)?;
    // Only literal names are classified; entries of the tables have a class.
    let kind = FieldClass::for_name(&text[line_start..]);
    value(rest, line_start, kind, sink)
}

fn value_after<'b>(
    entry: TableEntry<'_>,
    rest: &'b [u8],
    sink: &mut impl FieldSink,
) -> Result<&'b [u8], QpackError> {
    let text = sink.text();
    let line_start = text.len();
    text.extend_from_slice(&entry.line[..entry.name_len]);
    value(rest, line_start, entry.kind, sink)
}

/// Decodes the value of a field; its name is at the end of the text.
#[inline(always)]
fn value<'b>(
    rest: &'b [u8],
    line_start: usize,
    kind: FieldClass,
    sink: &mut impl FieldSink,
) -> Result<&'b [u8], QpackError> {
    let text = sink.text();
    let name_len = text.len() - line_start;
    text.extend_from_slice(b": ");
    let value_at = text.len();
    let rest = string::decode(rest, 7, text)?;
    let is_value_valid = is_valid_value(&text[value_at..]);
    let kind = kind.with_value(&text[value_at..]);
    text.extend_from_slice(b"\r\n");
    sink.on_field(DecodedField {
        line_start,
        name_len,
        kind,
        is_value_valid,
    });
    Ok(rest)
}
