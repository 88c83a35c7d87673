//! The values of the maps as `bpf/shared.h` has them, and the names of all exits of the programs.

#![allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    clippy::all
)]

include!(concat!(env!("OUT_DIR"), "/shared.rs"));

/// Name and meaning of each reason, by its number.
pub const REASONS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/reasons.rs"));

/// The hash of the index and of what was asked for; `bpf/request.h`, `hash_of_key`.
#[must_use]
pub fn hash_of_key(key: &[u8], keys: [u64; 2]) -> u64 {
    let mut hash = keys[0] ^ key.len() as u64;
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 32;
    }
    hash = (hash ^ keys[1]).wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ hash >> 32
}

/// The sum of native 16-bit words, folded (RFC 1071); an odd byte at the end has a zero beside it.
#[must_use]
pub fn sum_of(bytes: &[u8]) -> u16 {
    let mut sum: u64 = 0;
    for chunk in bytes.chunks(2) {
        sum += u64::from(u16::from_ne_bytes([
            chunk[0],
            chunk.get(1).copied().unwrap_or(0),
        ]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}
