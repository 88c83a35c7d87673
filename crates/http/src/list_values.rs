//! Parses comma-separated lists and the parameters of their members. Quoted strings are not supported, since none of
//! the lists parsed here can contain one. Lists of entity tags, which may contain commas, are parsed in
//! `crate::preconditions`. Read RFC 9110 §5.6.1.

/// The members of a list, without surrounding whitespace. Empty members are included: some fields ignore them, others
/// are invalid with them.
pub(crate) fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|b| *b == b',').map(trim)
}

/// Removes SP and HTAB on both sides.
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    trim_end(trim_start(bytes))
}

/// Removes leading SP and HTAB.
pub(crate) fn trim_start(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    bytes
}

/// Removes trailing SP and HTAB.
#[inline]
pub(crate) fn trim_end(mut bytes: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Parses a decimal number: one or more digits, nothing else. `None` if the number exceeds `u64::MAX`.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    let digit_of = |byte: &u8| Some(byte.wrapping_sub(b'0')).filter(|digit| *digit < 10);
    match digits.len() {
        0 => None,
        // Nineteen digits are less than 2^64.
        1..20 => digits.iter().try_fold(0_u64, |number, byte| {
            Some(number * 10 + u64::from(digit_of(byte)?))
        }),
        _ => digits.iter().try_fold(0_u64, |number, byte| {
            number.checked_mul(10)?.checked_add(digit_of(byte)?.into())
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn members_are_trimmed_and_empty_members_are_included() {
        let all: Vec<&[u8]> = members(b" a ,\t,b c,").collect();
        assert_eq!(all, [b"a".as_slice(), b"", b"b c", b""]);
        assert_eq!(members(b"").collect::<Vec<_>>(), [b""]);
    }

    #[test]
    fn decimal_takes_digits_only_and_does_not_overflow() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"007"), Some(7));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            "",
            "18446744073709551616",
            "+1",
            "-1",
            " 1",
            "1 ",
            "1,1",
            "0x1",
            "1_0",
            "\u{661}",
        ] {
            assert_eq!(decimal(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
