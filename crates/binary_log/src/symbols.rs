//! Symbols of a table column: one number for each record, in planes.
//!
//! 0 is the next value of the table, for the first time; 1 is the last value that came with the same value of the
//! context column; `place + 2` is the value at that place. Values are in the order of their first appearance, so that
//! frequent ones have small places. A plane has one byte of each symbol. The number of planes, the width, precedes
//! them.

use crate::varint::take_bytes;

/// The next new value.
pub const NEW: u32 = 0;
/// The last value with the same context.
pub const SAME: u32 = 1;
/// Added to a place.
pub const PLACE: u32 = 2;

/// Appends width and planes.
pub fn put_symbols(symbols: &[u32], out: &mut Vec<u8>) {
    let largest = symbols.iter().copied().max().unwrap_or_default();
    let width = (u32::BITS - largest.leading_zeros()).div_ceil(8);
    out.push(width as u8);
    for plane in 0..width {
        // zstd compresses a plane of equal bytes to nothing, as the high planes of small symbols are.
        out.extend(symbols.iter().map(|symbol| (symbol >> (8 * plane)) as u8));
    }
}

/// Takes the symbols of this many records.
pub fn take_symbols(bytes: &mut &[u8], count: usize) -> Option<Vec<u32>> {
    let width = take_bytes(bytes, 1)?[0];
    // Symbols have 32 bits; a fifth plane would be shifted out.
    if width > 4 {
        return None;
    }
    let mut symbols = vec![0; count];
    for plane in 0..u32::from(width) {
        let plane_bytes = take_bytes(bytes, count)?;
        for (symbol, byte) in symbols.iter_mut().zip(plane_bytes) {
            *symbol |= u32::from(*byte) << (8 * plane);
        }
    }
    Some(symbols)
}
