//! String literals: a flag for the Huffman code, a length and the bytes. Read RFC 7541 §5.2, RFC 9204 §4.1.2.

use alloc::vec::Vec;

use super::{huffman, integer};
use crate::head_writer;

/// Why a string cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StringError {
    /// The length is truncated, or larger than every valid one.
    Integer,
    /// The string is longer than the input.
    Truncated,
    /// Bytes that are not a Huffman code, or wrong padding.
    Huffman,
}

/// Appends the decoded string at the start of `bytes`, with a length of `prefix` bits below its flag. Returns the bytes
/// after it.
///
/// # Errors
/// The string is truncated or not valid.
#[inline]
pub(crate) fn decode<'b>(
    bytes: &'b [u8],
    prefix: u32,
    text: &mut Vec<u8>,
) -> Result<&'b [u8], StringError> {
    let flag = 1_u8 << prefix;
    let is_huffman = bytes.first().is_some_and(|first| first & flag != 0);
    let (len, rest) = integer::decode(bytes, prefix).ok_or(StringError::Integer)?;
    let (string, rest) = rest.split_at_checked(len).ok_or(StringError::Truncated)?;
    match is_huffman {
        true => huffman::decode(string, text).ok_or(StringError::Huffman)?,
        false => text.extend_from_slice(string),
    }
    Ok(rest)
}

/// Appends a number as a string, without Huffman coding.
pub(crate) fn put_number(value: u64, out: &mut Vec<u8>) {
    let at = out.len();
    // u64::MAX has twenty digits, so the length is one byte.
    out.push(0);
    head_writer::put_number(out, value);
    let len = out.len() - at - 1;
    out[at] = len as u8;
}

/// Appends a string without Huffman coding. `first` has the bits above the flag.
#[inline]
pub(crate) fn put_plain(text: &[u8], prefix: u32, first: u8, out: &mut Vec<u8>) {
    integer::encode(text.len(), prefix, first, out);
    out.extend_from_slice(text);
}

/// Appends a name in lower case, which RFC 9113 §8.2.1 and RFC 9114 §4.2 require.
pub(crate) fn put_lower(name: &[u8], prefix: u32, first: u8, out: &mut Vec<u8>) {
    integer::encode(name.len(), prefix, first, out);
    out.extend(name.iter().map(u8::to_ascii_lowercase));
}

/// Appends a string in the shorter of plain and Huffman coding.
pub(crate) fn put_short(text: &[u8], prefix: u32, out: &mut Vec<u8>) {
    let len = huffman::encoded_len(text);
    if len >= text.len() {
        return put_plain(text, prefix, 0, out);
    }
    integer::encode(len, prefix, 1 << prefix, out);
    huffman::encode(text, out);
}
