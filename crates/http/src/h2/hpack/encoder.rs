//! Encodes HPACK field blocks, with the static table only: nothing is added to the peer's dynamic table. Read RFC 7541
//! §6.2.2.
//!
//! So blocks are stateless: the block of a stored response is built once and sent on any connection, in any order, and
//! an idle connection keeps no encoding table. Cost: about 60 bytes a response for repeated fields (Date, Server,
//! Content-Type). A dynamic table would cost a search for each field, 4 KB a connection, and a copy of each head.

use alloc::vec::Vec;

use super::static_table::index_of;
use crate::field_coding::{integer, standard_indexes, string};
use crate::fields::{FieldName, StandardHeader};
use crate::head_writer;
use crate::status::StatusCode;

/// The static table's index of each standard name; 0 if it has none.
const INDEXES: [u8; StandardHeader::ALL.len()] = standard_indexes!(index_of);

/// The number of bytes that [`put_status`] writes.
#[must_use]
pub const fn status_len(status: StatusCode) -> usize {
    match status_index(status) {
        0 => 5,
        _ => 1,
    }
}

const fn status_index(status: StatusCode) -> u8 {
    match status.code() {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => 0,
    }
}

/// Appends `:status`.
pub fn put_status(status: StatusCode, out: &mut Vec<u8>) {
    match status_index(status) {
        0 => {
            let digits = head_writer::three_digits(status.code());
            // A literal without indexing, with the name of index 8: `:status`.
            out.extend_from_slice(&[0x08, 3, digits[0], digits[1], digits[2]]);
        }
        index => out.push(0x80 | index),
    }
}

/// The offset of the date's 29 bytes in a block that begins with status and date.
#[must_use]
pub const fn date_offset(status: StatusCode) -> usize {
    status_len(status) + 3
}

/// Appends Date as 29 bytes that can be overwritten.
pub fn put_date(date: &[u8; 29], out: &mut Vec<u8>) {
    // A literal without indexing, name index 33, a plain string of 29 bytes.
    out.extend_from_slice(&[0x0f, 33 - 15, 29]);
    out.extend_from_slice(date);
}

/// Appends a field; the name may be in any case.
pub fn put_field(name: FieldName<'_>, value: &[u8], out: &mut Vec<u8>) {
    put_name(name, out);
    string::put_plain(value, 7, 0, out);
}

/// Like [`put_field`], with the shorter of plain and Huffman coding: for blocks that are built once and sent often.
pub fn put_field_short(name: FieldName<'_>, value: &[u8], out: &mut Vec<u8>) {
    put_name(name, out);
    string::put_short(value, 7, out);
}

/// Appends a field with a number as its value.
pub fn put_field_u64(name: StandardHeader, value: u64, out: &mut Vec<u8>) {
    put_name(FieldName::Known(name), out);
    string::put_number(value, out);
}

/// Appends a pseudo-header field of a request, with an indexed name.
pub(in crate::h2) fn put_pseudo(index: u8, value: &[u8], out: &mut Vec<u8>) {
    integer::encode(usize::from(index), 4, 0, out);
    string::put_plain(value, 7, 0, out);
}

/// Appends a pseudo-header field with a literal name.
pub(in crate::h2) fn put_unindexed(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.push(0);
    string::put_plain(name, 7, 0, out);
    string::put_plain(value, 7, 0, out);
}

fn put_name(name: FieldName<'_>, out: &mut Vec<u8>) {
    if let FieldName::Known(header) = name {
        let index = INDEXES[header as usize];
        if index > 0 {
            return integer::encode(usize::from(index), 4, 0, out);
        }
    }
    out.push(0);
    string::put_lower(name.as_str().as_bytes(), 7, 0, out);
}
