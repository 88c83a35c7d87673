//! Checksums of payload, computed before the payload is sent.

use alloc::vec::Vec;

use lowroad_wire::checksum::InternetChecksum;

/// Bytes covered by each checksum of `SendPiece::Lasting`: the payload of a full segment.
pub const SUM_LEN: usize = 1460;

/// The checksums of a `SendPiece::Lasting`, one for each [`SUM_LEN`] bytes (the last part may be shorter): the ones'
/// complement sum of the big-endian 16-bit words, folded to 16 bits and not inverted; an odd last byte is padded with
/// zero. Equal to `!InternetChecksum::default().bytes(part).checksum()` of `lowroad-wire`.
#[must_use]
pub fn sums(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks(SUM_LEN).map(sum_of).collect()
}

/// The folded sum of bytes that begin at an even offset.
pub(crate) fn sum_of(bytes: &[u8]) -> u16 {
    !InternetChecksum::default().bytes(bytes).checksum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_checksum() {
        let bytes: Vec<u8> = (0..4000u32).map(|i| (i * 7) as u8).collect();
        let sums = sums(&bytes);
        assert_eq!(sums.len(), 3);
        let whole = sums
            .iter()
            .fold(InternetChecksum::default(), |sum, part| sum.word(*part));
        assert_eq!(
            whole.checksum(),
            InternetChecksum::default().bytes(&bytes).checksum()
        );
    }
}
