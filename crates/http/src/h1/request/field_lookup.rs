//! Looks up the names of the fields that the parser acts on: by length, then eight bytes at a time. This costs less
//! than `StandardHeader::find`, which covers more names.
//!
//! Names are compared case-insensitively: the bit that distinguishes upper from lower case is set where the expected
//! character is a letter, and only there, so that no other byte compares equal.

use crate::fields::StandardHeader;

/// The field with this name in any case. A name that is found needs no further validation as a token, since all its
/// bytes were compared.
#[inline(always)]
pub(super) fn find(name: &[u8]) -> Option<StandardHeader> {
    match name.len() {
        4 if equals_lower(name, b"host") => Some(StandardHeader::Host),
        5 if equals_lower(name, b"range") => Some(StandardHeader::Range),
        6 if equals_lower(name, b"expect") => Some(StandardHeader::Expect),
        6 if equals_lower(name, b"pragma") => Some(StandardHeader::Pragma),
        7 if equals_lower(name, b"referer") => Some(StandardHeader::Referer),
        8 if equals_lower(name, b"if-match") => Some(StandardHeader::IfMatch),
        8 if equals_lower(name, b"if-range") => Some(StandardHeader::IfRange),
        10 if equals_lower(name, b"user-agent") => Some(StandardHeader::UserAgent),
        10 if equals_lower(name, b"connection") => Some(StandardHeader::Connection),
        13 if equals_lower(name, b"if-none-match") => Some(StandardHeader::IfNoneMatch),
        13 if equals_lower(name, b"cache-control") => Some(StandardHeader::CacheControl),
        13 if equals_lower(name, b"x-http-method") => Some(StandardHeader::XHttpMethod),
        13 if equals_lower(name, b"authorization") => Some(StandardHeader::Authorization),
        14 if equals_lower(name, b"content-length") => Some(StandardHeader::ContentLength),
        15 if equals_lower(name, b"accept-encoding") => Some(StandardHeader::AcceptEncoding),
        17 if equals_lower(name, b"transfer-encoding") => Some(StandardHeader::TransferEncoding),
        17 if equals_lower(name, b"x-method-override") => Some(StandardHeader::XMethodOverride),
        17 if equals_lower(name, b"if-modified-since") => Some(StandardHeader::IfModifiedSince),
        19 if equals_lower(name, b"if-unmodified-since") => Some(StandardHeader::IfUnmodifiedSince),
        22 if equals_lower(name, b"x-http-method-override") => {
            Some(StandardHeader::XHttpMethodOverride)
        }
        _ => None,
    }
}

/// Whether `name` is `lower` in any case. `lower` must be a literal of 4 to 24 characters, so that all but the loads
/// and comparisons is evaluated at compile time.
#[inline(always)]
pub(super) fn equals_lower(name: &[u8], lower: &[u8]) -> bool {
    if name.len() != lower.len() {
        return false;
    }
    match lower.len() {
        0..8 => {
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
    use super::{StandardHeader, equals_lower, find};

    const LITERALS: [&[u8]; 4] = [b"host", b"chunked", b"100-continue", b"if-unmodified-since"];

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

    #[test]
    fn field_lookup_agrees_with_standard_header_find() {
        let mut count = 0;
        for known in StandardHeader::ALL {
            let name = known.as_str();
            for name in [
                name.into(),
                name.to_ascii_lowercase(),
                name.to_ascii_uppercase(),
            ] {
                let found = find(name.as_bytes());
                assert!(found.is_none() || found == Some(*known), "{name}");
                count += usize::from(found.is_some());
            }
        }
        assert_eq!(count, 3 * 20);
    }
}
