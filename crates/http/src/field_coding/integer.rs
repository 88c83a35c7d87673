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

/// Why an integer of an instruction stream cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntegerError {
    /// More input is needed.
    Truncated,
    /// Larger than 62 bits.
    TooLarge,
}

/// Like [`decode`], for streams that deliver an integer in parts, up to the 62 bits that RFC 9204 §4.1.1 requires.
///
/// # Errors
/// The integer is incomplete or too large.
pub(crate) fn decode_wide(bytes: &[u8], prefix: u32) -> Result<(u64, &[u8]), IntegerError> {
    let (first, mut rest) = bytes.split_first().ok_or(IntegerError::Truncated)?;
    let mask = ((1_u32 << prefix) - 1) as u8;
    let mut value = u64::from(first & mask);
    if first & mask != mask {
        return Ok((value, rest));
    }
    for shift in (0..63).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(IntegerError::Truncated)?;
        value += u64::from(byte & 0x7f) << shift;
        rest = after;
        if byte & 0x80 == 0 {
            return match value >> 62 {
                0 => Ok((value, rest)),
                _ => Err(IntegerError::TooLarge),
            };
        }
    }
    Err(IntegerError::TooLarge)
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
    fn wide_integers_have_up_to_62_bits() {
        for value in [0, 62, 63, 300, 1 << 40, (1 << 62) - 1] {
            let mut out = Vec::new();
            encode(value, 6, 0, &mut out);
            assert_eq!(decode_wide(&out, 6), Ok((value as u64, &[][..])));
            let cut = &out[..out.len() - 1];
            assert_eq!(decode_wide(cut, 6), Err(IntegerError::Truncated));
        }
        let mut out = Vec::new();
        encode(1 << 62, 6, 0, &mut out);
        assert_eq!(decode_wide(&out, 6), Err(IntegerError::TooLarge));
        assert_eq!(decode_wide(&[0xff; 20], 6), Err(IntegerError::TooLarge));
    }

    #[test]
    fn overlong_integers_are_decoding_errors() {
        // RFC 7541 §5.1: excessively large integers are decoding errors.
        assert_eq!(decode(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0], 7), None);
        assert_eq!(decode(&[0x7f, 0x80, 0x80, 0x80, 0x80, 0], 7), None);
        assert_eq!(decode(&[0xff; 20], 7), None);
    }
}
