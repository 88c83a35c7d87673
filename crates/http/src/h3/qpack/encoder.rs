//! Encodes field sections, with the static table only: nothing is added to the peer's dynamic table. Read RFC 9204 §4.5.
//!
//! So sections are stateless, as in `crate::h2::hpack`: the section of a stored response is built once and sent on any
//! connection. No response waits for the encoder stream, and no entry has to be kept until it is acknowledged.

use alloc::vec::Vec;

use super::static_table::{ABSENT, index_of, index_with_value};
use crate::field_coding::{integer, standard_indexes, string};
use crate::fields::{FieldName, StandardHeader};
use crate::head_writer;
use crate::status::StatusCode;

/// The static table's index of each standard name; [`ABSENT`] if it has none.
const INDEXES: [u8; StandardHeader::ALL.len()] = standard_indexes!(index_of);
/// The first bits of a literal with the name of an entry of the static table.
const NAMED_LITERAL: u8 = 0x50;
/// The first bits of an entry of the static table.
const INDEXED: u8 = 0xc0;

/// Appends the prefix of a section without references to the dynamic table (RFC 9204 §4.5.1).
pub fn put_prefix(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
}

const fn status_index(status: StatusCode) -> Option<u8> {
    Some(match status.code() {
        100 => 63,
        103 => 24,
        200 => 25,
        204 => 64,
        206 => 65,
        302 => 66,
        304 => 26,
        400 => 67,
        403 => 68,
        404 => 27,
        421 => 69,
        425 => 70,
        500 => 71,
        503 => 28,
        _ => return None,
    })
}

/// Appends `:status`.
pub fn put_status(status: StatusCode, out: &mut Vec<u8>) {
    match status_index(status) {
        Some(index) => integer::encode(usize::from(index), 6, INDEXED, out),
        None => {
            let digits = head_writer::three_digits(status.code());
            // The name of entry 24, the first one with `:status`.
            integer::encode(24, 4, NAMED_LITERAL, out);
            string::put_plain(&digits, 7, 0, out);
        }
    }
}

/// The offset of the date's 29 bytes in a section that begins with prefix, status and date.
#[must_use]
pub const fn date_offset(status: StatusCode) -> usize {
    let status_len = match status_index(status) {
        None => 6,
        // The prefix of 6 bits is not sufficient from 63 on.
        Some(63..) => 2,
        Some(_) => 1,
    };
    2 + status_len + 2
}

/// Appends Date as 29 bytes that can be overwritten.
pub fn put_date(date: &[u8; 29], out: &mut Vec<u8>) {
    // A literal with the name of entry 6, a plain string of 29 bytes.
    out.extend_from_slice(&[NAMED_LITERAL | 6, 29]);
    out.extend_from_slice(date);
}

/// Appends a field; the name may be in any case.
pub fn put_field(name: FieldName<'_>, value: &[u8], out: &mut Vec<u8>) {
    put_name(name, out);
    string::put_plain(value, 7, 0, out);
}

/// Like [`put_field`], with the shortest coding: for sections that are built once and sent often.
pub fn put_field_short(name: FieldName<'_>, value: &[u8], out: &mut Vec<u8>) {
    // The static table has whole fields, such as frequent media types.
    if let FieldName::Known(header) = name
        && let Some(index) = index_with_value(INDEXES[header as usize], value)
    {
        return integer::encode(index, 6, INDEXED, out);
    }
    put_name(name, out);
    string::put_short(value, 7, out);
}

/// Appends a field with a number as its value.
pub fn put_field_u64(name: StandardHeader, value: u64, out: &mut Vec<u8>) {
    put_name(FieldName::Known(name), out);
    string::put_number(value, out);
}

fn put_name(name: FieldName<'_>, out: &mut Vec<u8>) {
    if let FieldName::Known(header) = name {
        let index = INDEXES[header as usize];
        if index != ABSENT {
            return integer::encode(usize::from(index), 4, NAMED_LITERAL, out);
        }
    }
    // A literal name has a prefix of 3 bits below the pattern and the flag of the Huffman code.
    string::put_lower(name.as_str().as_bytes(), 3, 0x20, out);
}
