//! Sums of payload that are made before it is sent. It knows no headers.

use alloc::vec::Vec;

use lowroad_wire::checksum::Sum;

/// Bytes that each of the sums of [`crate::Piece::Lasting`] is of: what a full segment carries.
pub const SUM_LEN: usize = 1460;

/// The sums of a [`crate::Piece::Lasting`]: for each [`SUM_LEN`] bytes, the last ones maybe fewer, the ones'
/// complement sum of their big-endian 16-bit words, folded to 16 bits and not inverted; an odd last byte has a
/// zero behind it. That is `!Sum::default().bytes(part).checksum()` of `lowroad-wire`.
#[must_use]
pub fn sums(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks(SUM_LEN).map(sum_of).collect()
}

/// The folded sum of bytes that begin at an even place.
pub(crate) fn sum_of(bytes: &[u8]) -> u16 {
    !Sum::default().bytes(bytes).checksum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cut_has_its_sum() {
        let bytes: Vec<u8> = (0..4000u32).map(|i| (i * 7) as u8).collect();
        let sums = sums(&bytes);
        assert_eq!(sums.len(), 3);
        let whole = sums
            .iter()
            .fold(Sum::default(), |sum, part| sum.word(*part));
        assert_eq!(whole.checksum(), Sum::default().bytes(&bytes).checksum());
    }
}
