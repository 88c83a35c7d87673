//! The coding of fields that HPACK (RFC 7541) and QPACK (RFC 9204) share: integers, strings, the Huffman code, the
//! dynamic table, and the classes of fields. Each decoded field is appended as a text line to a buffer; a [`FieldSink`]
//! decides which lines it keeps.

mod class;
mod dynamic_table;
pub(crate) mod huffman;
pub(crate) mod integer;
pub(crate) mod string;

use alloc::vec::Vec;

pub(crate) use self::class::FieldClass;
pub(crate) use self::dynamic_table::{DynamicTable, ENTRY_LEN};
use crate::byte_scan;
use crate::fields::StandardHeader;

/// An entry of the static or the dynamic table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableEntry<'t> {
    /// `name: value\r\n`.
    pub(crate) line: &'t [u8],
    pub(crate) name_len: usize,
    pub(crate) kind: FieldClass,
    /// Whether the value is valid.
    pub(crate) is_value_valid: bool,
}

impl TableEntry<'_> {
    /// The size that counts for the table (RFC 7541 §4.1, RFC 9204 §3.2.1).
    pub(crate) fn size(&self) -> usize {
        // The size does not count the four bytes of ": " and CRLF.
        self.line.len() - 4 + ENTRY_LEN
    }
}

/// Receives the fields of a block.
pub(crate) trait FieldSink {
    /// The buffer that the next line is appended to.
    fn text(&mut self) -> &mut Vec<u8>;

    /// Processes a field: the line `name: value\r\n` from `line_start` to the end of the text.
    fn on_field(&mut self, field: DecodedField);

    /// Whether further fields change nothing, so that their text is not needed.
    fn has_failed(&self) -> bool {
        false
    }
}

/// A field at the end of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodedField {
    /// The offset of the field's line.
    pub(crate) line_start: usize,
    pub(crate) name_len: usize,
    pub(crate) kind: FieldClass,
    /// Whether the value is valid (RFC 9113 §8.2.1, RFC 9114 §10.3).
    pub(crate) is_value_valid: bool,
}

/// Name and value of each field.
pub type FieldPairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Keeps the lines of regular fields, for the logs of written heads.
pub(crate) struct WrittenLines<'t>(pub(crate) &'t mut Vec<u8>);

impl FieldSink for WrittenLines<'_> {
    fn text(&mut self) -> &mut Vec<u8> {
        self.0
    }

    fn on_field(&mut self, field: DecodedField) {
        if field.kind.is_pseudo() {
            self.0.truncate(field.line_start);
        }
    }
}

/// Collects fields, for tests and fuzzing.
#[derive(Default)]
pub(crate) struct CollectedFields {
    text: Vec<u8>,
    pub(crate) all: FieldPairs,
}

impl FieldSink for CollectedFields {
    fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    fn on_field(&mut self, field: DecodedField) {
        let line = &self.text[field.line_start..];
        let value = &line[field.name_len + 2..line.len() - 2];
        self.all
            .push((line[..field.name_len].to_vec(), value.to_vec()));
        self.text.truncate(field.line_start);
    }
}

/// Passes an entry of a table to the sink.
#[inline(always)]
pub(crate) fn put_entry(entry: TableEntry<'_>, sink: &mut impl FieldSink) {
    // One byte of input can refer to a long entry, and a block to thousands of them.
    if sink.has_failed() {
        return;
    }
    let text = sink.text();
    let line_start = text.len();
    text.extend_from_slice(entry.line);
    sink.on_field(DecodedField {
        line_start,
        name_len: entry.name_len,
        kind: entry.kind,
        is_value_valid: entry.is_value_valid,
    });
}

/// Whether a field value is valid: no control characters, and no whitespace at its start or end.
pub(crate) fn is_valid_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let has_blank_end = is_blank(value.first()) || is_blank(value.last());
    !has_blank_end && byte_scan::value_len(value) == value.len()
}

/// The entry of a static table for each standard name, as `index_of` returns it for the name in lower case.
macro_rules! standard_indexes {
    ($index_of:path) => {{
        let mut indexes = [0; StandardHeader::ALL.len()];
        let mut at = 0;
        while at < indexes.len() {
            let (lower, len) = $crate::field_coding::lower_name(StandardHeader::ALL[at]);
            indexes[at] = $index_of(lower.split_at(len).0);
            at += 1;
        }
        indexes
    }};
}
pub(crate) use standard_indexes;

/// A standard name in lower case, with its length.
pub(crate) const fn lower_name(header: StandardHeader) -> ([u8; 64], usize) {
    let name = header.as_str().as_bytes();
    let (mut lower, mut at) = ([0; 64], 0);
    while at < name.len() {
        lower[at] = name[at].to_ascii_lowercase();
        at += 1;
    }
    (lower, name.len())
}

/// Whether `bytes` begin with `prefix`, for tables that are computed at compile time.
pub(crate) const fn is_prefix(prefix: &[u8], bytes: &[u8]) -> bool {
    let mut at = 0;
    while at < prefix.len() {
        if at >= bytes.len() || prefix[at] != bytes[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Texts of tests.
#[cfg(test)]
pub(crate) mod test_text {
    use alloc::string::String;
    use alloc::vec::Vec;

    /// The bytes of hexadecimal digits; spaces are ignored.
    pub(crate) fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
        let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap_or("x"), 16);
        digits
            .chunks(2)
            .map(|it| pair(it).expect("hexadecimal"))
            .collect()
    }

    /// Fields as `name=value`, separated by spaces.
    pub(crate) fn fields_text(fields: &[(Vec<u8>, Vec<u8>)]) -> String {
        let line = |(name, value): &(Vec<u8>, Vec<u8>)| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            alloc::format!("{}={}", text(name), text(value))
        };
        fields.iter().map(line).collect::<Vec<_>>().join(" ")
    }
}
