//! Compares names with literals, ignoring case: eight bytes at a time. The standard library compares single bytes.
//!
//! The bit that distinguishes upper from lower case is set where the expected character is a letter, and only there, so
//! that no other byte compares equal.

/// Whether `name` is `lower` in any case. `lower` has no upper-case letters. With a literal, all but the loads and
/// comparisons is evaluated at compile time; a name that is only known at run time takes more than `eq_ignore_ascii_case`.
#[inline(always)]
#[must_use]
pub fn equals_lower(name: &[u8], lower: &[u8]) -> bool {
    if name.len() != lower.len() {
        return false;
    }
    match lower.len() {
        0..4 | 25.. => name.eq_ignore_ascii_case(lower),
        4..8 => {
            is_chunk_equal::<4>(name, lower, 0) && is_chunk_equal::<4>(name, lower, lower.len() - 4)
        }
        8..=16 => {
            is_chunk_equal::<8>(name, lower, 0) && is_chunk_equal::<8>(name, lower, lower.len() - 8)
        }
        _ => {
            is_chunk_equal::<8>(name, lower, 0)
                && is_chunk_equal::<8>(name, lower, 8)
                && is_chunk_equal::<8>(name, lower, lower.len() - 8)
        }
    }
}

/// Whether the `N` bytes at `at` are equal, ignoring case.
#[inline(always)]
fn is_chunk_equal<const N: usize>(name: &[u8], lower: &[u8], at: usize) -> bool {
    let (Some(name), Some(lower)) = (chunk::<N>(name, at), chunk::<N>(lower, at)) else {
        return false;
    };
    word(name) | word(&lower.map(case_bit)) == word(lower)
}

#[inline(always)]
fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>()
}

#[inline(always)]
fn case_bit(lower: u8) -> u8 {
    if lower.is_ascii_lowercase() { 0x20 } else { 0 }
}

/// Packs four or eight bytes into one number.
#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N]) -> u64 {
    let mut word = [0; 8];
    word[..N].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::equals_lower;

    const LITERALS: [&[u8]; 6] = [
        b"te",
        b"host",
        b"chunked",
        b"100-continue",
        b"if-unmodified-since",
        b"cloudfront-forwarded-proto",
    ];

    #[test]
    fn equals_lower_ignores_case_and_detects_one_changed_byte() {
        for lower in LITERALS {
            assert!(equals_lower(lower, lower) && equals_lower(&lower.to_ascii_uppercase(), lower));
            assert!(!equals_lower(&lower[1..], lower));
            for at in 0..lower.len() {
                for byte in 0..=255_u8 {
                    let mut other = alloc::vec::Vec::from(lower);
                    other[at] = byte;
                    let same = other.eq_ignore_ascii_case(lower);
                    assert_eq!(equals_lower(&other, lower), same, "{lower:?} {at} {byte}");
                }
            }
        }
    }
}
