//! Infallible conversions between integer widths: fields of frames and maps have 8 to 64 bits, lengths in memory are
//! `usize`.

// This makes the conversions below lossless.
const _: () = assert!(usize::BITS == u64::BITS);

/// A 32-bit number as an index or a length in memory.
#[must_use]
pub const fn index(number: u32) -> usize {
    number as usize
}

/// A 64-bit number as an index.
#[must_use]
pub const fn long_index(number: u64) -> usize {
    number as usize
}

/// The upper half of a word.
#[must_use]
pub const fn upper(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The lower half of a word.
#[must_use]
pub const fn lower(word: u64) -> u32 {
    word as u32
}

/// A length in sequence numbers, which wrap at 2^32 (RFC 9293 §3.4).
#[must_use]
pub const fn sequence(len: usize) -> u32 {
    len as u32
}

/// The size of a type.
#[must_use]
pub const fn len_of<T>() -> u32 {
    const { assert!(size_of::<T>() <= index(u32::MAX)) }
    size_of::<T>() as u32
}

/// Folds a sum of 16-bit words to 16 bits (RFC 1071 §2).
#[must_use]
pub const fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_and_lower_are_the_halves_of_a_word() {
        let word = 0x0123_4567_89ab_cdef;
        assert_eq!([upper(word), lower(word)], [0x0123_4567, 0x89ab_cdef]);
        assert_eq!(long_index(word) >> 32, index(upper(word)));
    }

    #[test]
    fn sequence_wraps_at_32_bits() {
        assert_eq!(sequence((1 << 32) + 7), 7);
    }

    #[test]
    fn folded_adds_carries() {
        assert_eq!(
            [folded(0x1_ffff), folded(0xffff), folded(u64::MAX)],
            [1, 0xffff, 0xffff]
        );
    }
}
