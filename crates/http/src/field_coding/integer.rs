//! Integers of HPACK and QPACK: a prefix within a byte, and continuation bytes. Read RFC 7541 §5.1, RFC 9204 §4.1.1.

use alloc::vec::Vec;

/// The most bytes after the prefix: their 28 bits exceed every accepted length or index.
const CONTINUED_MAX: u32 = 4;

/// Decodes the integer at the start of `bytes`, in the low `prefix` bits of the first byte. Also returns the bytes
/// after the integer. `None` if the integer is truncated, or longer than every valid one.
#[inline(always)]
pub(crate) fn decode(bytes: &[u8], prefix: u32) -> Option<(usize, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    // A prefix may be the whole byte (RFC 9204 §4.5.1).
    let mask = ((1_u32 << prefix) - 1) as u8;
    match first & mask {
        all if all == mask => continued(usize::from(mask), rest),
        small => Some((usize::from(small), rest)),
    }
}

#[cold]
fn continued(mut value: usize, mut rest: &[u8]) -> Option<(usize, &[u8])> {
    for at in 0..CONTINUED_MAX {
        let (byte, after) = rest.split_first()?;
        value += usize::from(byte & 0x7f) << (7 * at);
        rest = after;
        if byte & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

/// Appends an integer. `first` has the bits above the prefix.
#[inline]
pub(crate) fn encode(mut value: usize, prefix: u32, first: u8, out: &mut Vec<u8>) {
    let mask = (1_usize << prefix) - 1;
    if value < mask {
        out.push(first | value as u8);
        return;
    }
    out.push(first | mask as u8);
    value -= mask;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc7541_integer_examples() {
        for (value, prefix, bytes) in [
            (10, 5, &[10][..]),
            (1337, 5, &[31, 154, 10]),
            (42, 8, &[42]),
            (30, 5, &[30]),
            (31, 5, &[31, 0]),
        ] {
            let mut out = Vec::new();
            encode(value, prefix, 0, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(decode(&out, prefix), Some((value, &[][..])));
        }
    }

    #[test]
    fn encoded_integers_decode_to_the_same_value() {
        for prefix in 3..=8 {
            for value in (0..300).chain([16_383, 16_384, 65_535, (1 << 28) - 1]) {
                let mut out = Vec::new();
                encode(value, prefix, 0, &mut out);
                assert_eq!(decode(&out, prefix), Some((value, &[][..])));
                assert_eq!(decode(&out[..out.len() - 1], prefix), None);
            }
        }
    }

    #[test]
    fn overlong_integers_are_decoding_errors() {
        // RFC 7541 §5.1: excessively large integers are decoding errors.
        assert_eq!(decode(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0], 7), None);
        assert_eq!(decode(&[0x7f, 0x80, 0x80, 0x80, 0x80, 0], 7), None);
        assert_eq!(decode(&[0xff; 20], 7), None);
    }
}
