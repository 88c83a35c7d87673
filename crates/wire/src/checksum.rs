//! The Internet checksum (RFC 1071): a sum of 16-bit words with end-around carry.

use crate::width::folded;

/// The number of bytes per step of the vectorized sum.
const BLOCK: usize = 32;

/// A partial sum. Parts of the data may be added in any order, if each begins at an even offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InternetChecksum(u64);

impl InternetChecksum {
    /// Adds bytes; an odd last byte is padded with zero.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> InternetChecksum {
        let (long, bytes) = bytes.as_chunks::<BLOCK>();
        self.blocks(long).short(bytes)
    }

    /// Adds 32-bit words in native byte order. The byte order only swaps the bytes of the folded sum (RFC 1071 §2 B),
    /// and 2^16 is congruent to 1, so the halves of a sum can be added.
    fn blocks(self, blocks: &[[u8; BLOCK]]) -> InternetChecksum {
        if blocks.is_empty() {
            return self;
        }
        // The lanes are independent sums in native byte order (RFC 1071 §2).
        let mut lanes = [0u64; BLOCK / 4];
        for block in blocks {
            for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
                *lane += u64::from(u32::from_ne_bytes(*word));
            }
        }
        // The end-around carries are added once, at the end (RFC 1071 §2).
        let add_halves = |sum: u64| (sum >> 32) + (sum & 0xffff_ffff);
        let sum = lanes.iter().map(|lane| add_halves(*lane)).sum();
        // The sum is converted to network byte order, so that the result can be added to the sum of `short`.
        let folded = folded(add_halves(sum));
        InternetChecksum(self.0 + u64::from(u16::from_be_bytes(folded.to_ne_bytes())))
    }

    fn short(self, bytes: &[u8]) -> InternetChecksum {
        let (words, rest) = bytes.as_chunks::<2>();
        let words: u64 = words
            .iter()
            .map(|word| u64::from(u16::from_be_bytes(*word)))
            .sum();
        // An odd last byte is the high half of a word.
        let last = rest.first().map_or(0, |byte| u64::from(*byte) << 8);
        InternetChecksum(self.0 + words + last)
    }

    /// Adds a number, such as a length.
    #[must_use]
    pub fn word(self, word: u16) -> InternetChecksum {
        InternetChecksum(self.0 + u64::from(word))
    }

    /// The checksum for the header. Over data that includes its checksum, the result is 0 if the checksum is correct.
    #[must_use]
    pub fn checksum(self) -> u16 {
        !folded(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_of_rfc_1071() {
        // RFC 1071 §3.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(
            InternetChecksum::default().bytes(&bytes).checksum(),
            !0xddf2
        );
    }

    #[test]
    fn sum_of_parts_equals_the_whole_with_an_odd_last_byte() {
        let whole = InternetChecksum::default().bytes(&[1, 2, 3, 4, 5]);
        let parts = InternetChecksum::default()
            .bytes(&[5])
            .bytes(&[3, 4])
            .word(0x0102);
        assert_eq!(whole, parts);
    }

    #[test]
    fn vectorized_sum_equals_the_sum_of_words() {
        // The vectorized sum must equal the plain one for all lengths of the remainder.
        let bytes: [u8; 2000] = core::array::from_fn(|i| (i * i / 7) as u8);
        for len in 0..bytes.len() {
            let (fast, slow) = (
                InternetChecksum::default().bytes(&bytes[..len]),
                InternetChecksum::default().short(&bytes[..len]),
            );
            assert_eq!(fast.checksum(), slow.checksum(), "{len}");
        }
        // 0xffff and 0 are both zero in ones' complement; the vectorized sum must give the same one as the plain sum.
        let ones = [0xff; 2000];
        assert_eq!(InternetChecksum::default().bytes(&ones).checksum(), 0);
        assert_eq!(
            InternetChecksum::default().bytes(&[0; 64]).checksum(),
            0xffff
        );
    }

    #[test]
    fn sum_over_data_with_its_checksum_is_zero() {
        let sum = InternetChecksum::default().bytes(&[0xff, 0xff, 0xff, 0xfe, 7, 9]);
        assert_eq!(sum.word(sum.checksum()).checksum(), 0);
    }
}
