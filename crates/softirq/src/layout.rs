//! The types of the maps' values, generated from `bpf/shared.h`, and the names of the programs' reasons (exit
//! counters).

#![allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    clippy::all,
    clippy::pedantic
)]

include!(concat!(env!("OUT_DIR"), "/shared.rs"));

/// Name and meaning of each reason, indexed by its number.
pub const REASONS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/reasons.rs"));

/// The folded one's complement sum (RFC 1071) of words in host byte order; an odd byte at the end is padded with zero.
#[must_use]
pub fn sum_of(bytes: &[u8]) -> u16 {
    let mut sum: u64 = 0;
    for chunk in bytes.chunks(2) {
        sum += u64::from(u16::from_ne_bytes([
            chunk[0],
            chunk.get(1).copied().unwrap_or(0),
        ]));
    }
    lowroad_wire::width::folded(sum)
}
