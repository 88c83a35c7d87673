//! Integers of QUIC: the two upper bits of the first byte give the length, of 1 to 8 bytes. Read RFC 9000 §16.

use alloc::vec::Vec;

/// The largest integer, of 62 bits.
pub const MAX: u64 = (1 << 62) - 1;

/// Decodes the integer at the start of `bytes`. Also returns its length; `None` if it is incomplete.
#[must_use]
#[inline]
pub fn decode(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    // Nearly all types and many lengths have one byte.
    if first < 0x40 {
        return Some((u64::from(first), 1));
    }
    let len = 1 << (first >> 6);
    let (integer, _) = bytes.split_at_checked(len)?;
    let value = integer
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte));
    Some((value & (MAX >> (64 - len * 8)), len))
}

/// Appends an integer in its shortest form; larger ones than [`MAX`] are cut off.
pub fn put(value: u64, out: &mut Vec<u8>) {
    // The two upper bits are the logarithm of the length.
    match value {
        ..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => {
            out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes());
        }
        _ => out.extend_from_slice(&(value & MAX | 3 << 62).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9000_integer_examples() {
        // RFC 9000 appendix A.1.
        for (bytes, value) in [
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..],
                151_288_809_941_952_652,
            ),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            let mut out = Vec::new();
            put(value, &mut out);
            assert_eq!(
                (&out[..], decode(bytes)),
                (bytes, Some((value, bytes.len())))
            );
            assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        }
        // Longer forms than necessary are valid.
        assert_eq!(decode(&[0x40, 0x25]), Some((37, 2)));
    }

    #[test]
    fn integers_round_trip_at_the_bounds_of_each_length() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, MAX] {
            let mut out = Vec::new();
            put(value, &mut out);
            assert_eq!(decode(&out), Some((value, out.len())));
        }
    }
}
