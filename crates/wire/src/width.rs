//! Numbers of one width as numbers of another, where that can't fail: what frames and maps hold has 8 to 64
//! bits, what is in memory is counted in `usize`. It knows nothing of either.

// From here on it is no question whether a number of the wire or of a map is one of memory, or the reverse.
const _: () = assert!(usize::BITS == u64::BITS);

/// A number of 32 bits as an index or a length in memory.
#[must_use]
pub const fn index(number: u32) -> usize {
    number as usize
}

/// A number of 64 bits as an index.
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

/// A length in sequence numbers, which go round after 2^32 (RFC 9293 §3.4).
#[must_use]
pub const fn sequence(len: usize) -> u32 {
    len as u32
}

/// How long a value of a type is.
#[must_use]
pub const fn len_of<T>() -> u32 {
    const { assert!(size_of::<T>() <= index(u32::MAX)) }
    size_of::<T>() as u32
}

/// A sum of 16-bit words, in 16 bits (RFC 1071 §2).
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
    fn halves_make_the_word() {
        let word = 0x0123_4567_89ab_cdef;
        assert_eq!([upper(word), lower(word)], [0x0123_4567, 0x89ab_cdef]);
        assert_eq!(long_index(word) >> 32, index(upper(word)));
    }

    #[test]
    fn sequence_numbers_go_round() {
        assert_eq!(sequence((1 << 32) + 7), 7);
    }

    #[test]
    fn carries_come_round() {
        assert_eq!(
            [folded(0x1_ffff), folded(0xffff), folded(u64::MAX)],
            [1, 0xffff, 0xffff]
        );
    }
}
