//! LEB128: seven bits a byte, the lowest first. Signed numbers are zigzag encoded.

/// Appends a number.
pub fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number from the front. None if there is none, or it exceeds 64 bits.
pub fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7F);
        // The tenth byte has one bit of the number.
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Takes this many bytes from the front.
pub fn take_bytes<'b>(bytes: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

/// Maps a signed number to an unsigned one, small for small absolute values.
pub fn zigzag(number: i64) -> u64 {
    // The shift to the right repeats the sign, so it inverts all bits of a negative number and none of others.
    (number << 1 ^ number >> 63) as u64
}

/// Reverses [`zigzag`].
pub fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_encoding_and_decoding() {
        let powers = (0..64).map(|shift| 1_u64 << shift);
        let numbers = powers.flat_map(|power| [power - 1, power, power + 1]);
        for number in numbers.chain([u64::MAX]) {
            let mut out = Vec::new();
            put_number(number, &mut out);
            let mut rest = &out[..];
            assert_eq!(take_number(&mut rest), Some(number));
            assert!(rest.is_empty());
            let signed = number as i64;
            assert_eq!(unzigzag(zigzag(signed)), signed);
            // Without its last byte it is incomplete.
            assert_eq!(take_number(&mut &out[..out.len() - 1]), None);
        }
    }

    #[test]
    fn numbers_beyond_64_bits_are_refused() {
        assert_eq!(take_number(&mut &[0xFF; 20][..]), None);
        let mut beyond = [0x80; 10];
        beyond[9] = 2;
        assert_eq!(take_number(&mut &beyond[..]), None);
    }
}
