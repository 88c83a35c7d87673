//! The field names that the parser acts on, told apart by their length and then by whole words.
//! It knows nothing of what the fields mean.
//!
//! A name is compared with one expected name, eight bytes at a time: the bit that distinguishes
//! upper from lower case is set where the expected character is a letter, and only there, so that
//! no other byte can be taken for one of the name.

/// A field the parser acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    AcceptEncoding,
    Authorization,
    CacheControl,
    Connection,
    ContentLength,
    Expect,
    Host,
    IfMatch,
    IfModifiedSince,
    IfNoneMatch,
    IfRange,
    IfUnmodifiedSince,
    /// One of three names.
    MethodOverride,
    Pragma,
    Range,
    Referer,
    TransferEncoding,
    UserAgent,
}

impl Known {
    /// The field with this name in any case. Every byte of a name that is found has been compared,
    /// so it needs no further validation.
    #[inline(always)]
    pub(super) fn find(name: &[u8]) -> Option<Known> {
        match name.len() {
            4 if is(name, b"host") => Some(Known::Host),
            5 if is(name, b"range") => Some(Known::Range),
            6 if is(name, b"expect") => Some(Known::Expect),
            6 if is(name, b"pragma") => Some(Known::Pragma),
            7 if is(name, b"referer") => Some(Known::Referer),
            8 if is(name, b"if-match") => Some(Known::IfMatch),
            8 if is(name, b"if-range") => Some(Known::IfRange),
            10 if is(name, b"user-agent") => Some(Known::UserAgent),
            10 if is(name, b"connection") => Some(Known::Connection),
            13 if is(name, b"if-none-match") => Some(Known::IfNoneMatch),
            13 if is(name, b"cache-control") => Some(Known::CacheControl),
            13 if is(name, b"x-http-method") => Some(Known::MethodOverride),
            13 if is(name, b"authorization") => Some(Known::Authorization),
            14 if is(name, b"content-length") => Some(Known::ContentLength),
            15 if is(name, b"accept-encoding") => Some(Known::AcceptEncoding),
            17 if is(name, b"transfer-encoding") => Some(Known::TransferEncoding),
            17 if is(name, b"x-method-override") => Some(Known::MethodOverride),
            17 if is(name, b"if-modified-since") => Some(Known::IfModifiedSince),
            19 if is(name, b"if-unmodified-since") => Some(Known::IfUnmodifiedSince),
            22 if is(name, b"x-http-method-override") => Some(Known::MethodOverride),
            _ => None,
        }
    }

    /// This field's bit in a set.
    pub(super) const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Whether `name` is `lower` in any case; `lower` is a literal of 4 to 24 characters, so that all
/// but the loads and comparisons is done by the compiler.
#[inline(always)]
pub(super) fn is(name: &[u8], lower: &[u8]) -> bool {
    if name.len() != lower.len() {
        return false;
    }
    match lower.len() {
        0..8 => is_at::<4>(name, lower, 0) && is_at::<4>(name, lower, lower.len() - 4),
        8..=16 => is_at::<8>(name, lower, 0) && is_at::<8>(name, lower, lower.len() - 8),
        _ => {
            is_at::<8>(name, lower, 0)
                && is_at::<8>(name, lower, 8)
                && is_at::<8>(name, lower, lower.len() - 8)
        }
    }
}

/// Whether the `N` bytes at `at` agree.
#[inline(always)]
fn is_at<const N: usize>(name: &[u8], lower: &[u8], at: usize) -> bool {
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

/// Four or eight bytes as one number.
#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N]) -> u64 {
    let mut word = [0; 8];
    word[..N].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::Known;

    const NAMES: [(&str, Known); 20] = [
        ("Accept-Encoding", Known::AcceptEncoding),
        ("Authorization", Known::Authorization),
        ("Cache-Control", Known::CacheControl),
        ("Connection", Known::Connection),
        ("Content-Length", Known::ContentLength),
        ("Expect", Known::Expect),
        ("Host", Known::Host),
        ("If-Match", Known::IfMatch),
        ("If-Modified-Since", Known::IfModifiedSince),
        ("If-None-Match", Known::IfNoneMatch),
        ("If-Range", Known::IfRange),
        ("If-Unmodified-Since", Known::IfUnmodifiedSince),
        ("X-HTTP-Method", Known::MethodOverride),
        ("X-HTTP-Method-Override", Known::MethodOverride),
        ("X-Method-Override", Known::MethodOverride),
        ("Pragma", Known::Pragma),
        ("Range", Known::Range),
        ("Referer", Known::Referer),
        ("Transfer-Encoding", Known::TransferEncoding),
        ("User-Agent", Known::UserAgent),
    ];

    #[test]
    fn names_are_found_in_any_case() {
        for (name, known) in NAMES {
            assert_eq!(Known::find(name.as_bytes()), Some(known));
            assert_eq!(
                Known::find(name.to_ascii_uppercase().as_bytes()),
                Some(known)
            );
            assert_eq!(
                Known::find(name.to_ascii_lowercase().as_bytes()),
                Some(known)
            );
        }
    }

    #[test]
    fn one_other_byte_anywhere_makes_another_name() {
        for (name, _) in NAMES {
            for at in 0..name.len() {
                for byte in 0..=255_u8 {
                    let mut other = alloc::vec::Vec::from(name);
                    other[at] = byte;
                    let same = other.eq_ignore_ascii_case(name.as_bytes());
                    assert_eq!(Known::find(&other).is_some(), same, "{name} {at} {byte}");
                }
            }
            assert_eq!(Known::find(&name.as_bytes()[1..]), None);
        }
    }

    #[test]
    fn each_field_has_a_bit_of_its_own() {
        let all = NAMES.iter().fold(0, |bits, (_, known)| bits | known.bit());
        assert_eq!(all.count_ones(), 18);
    }
}
