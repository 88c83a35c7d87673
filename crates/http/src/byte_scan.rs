//! Byte classes, and the search for the first byte outside a class.
//!
//! Three techniques, by cost: a table look-up per byte for short runs and many classes; eight lanes in a `u64` (SWAR)
//! to find a position; a fold over 16 bytes, which the compiler vectorizes, to skip long runs.
//!
//! Read RFC 9110 §5.6.2 (token) and §5.5 (field values), RFC 3986 §2 (characters of a URI).

/// A character of a token (RFC 9110 §5.6.2).
pub(crate) const TOKEN: u8 = 1;
/// A character of a path that needs no normalization: unreserved, sub-delimiters, `:` and `@`, but not the slash.
pub(crate) const PATH: u8 = 1 << 1;
/// A character that a request target may contain: visible ASCII except `#`.
pub(crate) const TARGET: u8 = 1 << 2;
/// A character of a host name: letters, digits, `-`, `_`, but not the dot.
pub(crate) const HOST: u8 = 1 << 3;
/// A character of a field value: visible ASCII, SP, HTAB and bytes from 0x80.
pub(crate) const VALUE: u8 = 1 << 4;
/// An unreserved character of RFC 3986 §2.3.
pub(crate) const UNRESERVED: u8 = 1 << 5;
/// `0` to `9`.
pub(crate) const DIGIT: u8 = 1 << 6;

static CLASSES: [u8; 256] = classes();

/// Whether `byte` belongs to one of the classes in `class`.
#[inline(always)]
pub(crate) fn is_in_class(byte: u8, class: u8) -> bool {
    CLASSES[byte as usize] & class != 0
}

/// The number of bytes at the start of `bytes` that belong to `class`.
#[inline(always)]
pub(crate) fn run_len(bytes: &[u8], class: u8) -> usize {
    bytes.len() - skip(bytes, class).len()
}

/// The rest of `bytes` from the first one that does not belong to `class`.
#[inline(always)]
pub(crate) fn skip(bytes: &[u8], class: u8) -> &[u8] {
    let mut rest = bytes;
    // Four look-ups are combined into one branch.
    while let Some((four, after)) = rest.split_first_chunk::<4>()
        && four.iter().fold(class, |c, b| c & CLASSES[*b as usize]) != 0
    {
        rest = after;
    }
    while let [byte, after @ ..] = rest
        && is_in_class(*byte, class)
    {
        rest = after;
    }
    rest
}

/// The bytes after `prefix`, compared as whole words.
#[inline(always)]
pub(crate) fn strip_prefix<'b, const N: usize>(
    bytes: &'b [u8],
    prefix: &[u8; N],
) -> Option<&'b [u8]> {
    let (start, rest) = bytes.split_first_chunk::<N>()?;
    (start == prefix).then_some(rest)
}

/// The bytes before the first `:` and those after it.
#[inline(always)]
pub(crate) fn split_at_colon(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (words, _) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        // `marks` has a bit in lanes equal to `:` and in lanes from 0x80, which no field name contains. A borrow can
        // also set bits above the first marked lane.
        let marks = (u64::from_le_bytes(*word) ^ spread(b':')).wrapping_sub(ONES) & HIGH;
        if marks != 0 {
            return match bytes.split_at(i * 8 + first_lane(marks)) {
                (name, [b':', value @ ..]) => Some((name, value)),
                _ => split_at_colon_slowly(bytes),
            };
        }
    }
    split_at_colon_slowly(bytes)
}

#[cold]
fn split_at_colon_slowly(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = bytes.iter().position(|b| *b == b':')?;
    Some((bytes.get(..colon)?, bytes.get(colon + 1..)?))
}

/// The number of bytes before the first one that a field value cannot contain (normally the CR at its end).
#[inline(always)]
pub(crate) fn value_len(bytes: &[u8]) -> usize {
    let len = clean_len(bytes);
    match bytes.get(len) {
        Some(byte) if is_in_class(*byte, VALUE) => value_len_after(bytes, len + 1),
        _ => len,
    }
}

/// Continues `value_len` after the first `len` bytes, for a value with bytes at which [`clean_len`] stops.
#[inline(never)]
fn value_len_after(bytes: &[u8], mut len: usize) -> usize {
    loop {
        let rest = bytes.get(len..).unwrap_or_default();
        len += clean_len(rest);
        match bytes.get(len) {
            Some(byte) if is_in_class(*byte, VALUE) => len += 1,
            _ => return len,
        }
    }
}

/// The length of a prefix without control characters. The byte after the prefix is usually a control character, but may
/// also be HTAB, 0x7e after 0xff, or any byte within the last 16.
#[inline(always)]
fn clean_len(bytes: &[u8]) -> usize {
    let (chunks, tail) = bytes.as_chunks::<16>();
    let Some((first, following)) = chunks.split_first() else {
        return run_len(tail, VALUE);
    };
    // Most values are short, so look for the position in the first 16 bytes immediately; only if they are clean, use
    // the cheaper test without a position for the following chunks.
    if let Some(at) = suspect_in(first) {
        return at;
    }
    let mut len = 16;
    for chunk in following {
        if has_control(chunk) {
            return len + suspect_in(chunk).unwrap_or_default();
        }
        len += 16;
    }
    len + run_len(tail, VALUE)
}

/// Whether the first `len` bytes are a token; false if there are fewer. Names of letters and hyphens take the fast
/// path.
#[inline(always)]
pub(crate) fn starts_with_token(bytes: &[u8], len: usize) -> bool {
    if let (Some(chunk), Some(lanes)) = (bytes.first_chunk::<16>(), LANES.get(len))
        && letters_and_hyphens(chunk, lanes)
    {
        return len > 0;
    }
    is_token_by_table(bytes.get(..len).unwrap_or_default())
}

/// For each length, 16 lanes: 0xff in the lanes that belong to a name of that length, 0 in the others.
static LANES: [[u8; 16]; 17] = {
    let mut lanes = [[0; 16]; 17];
    let mut len = 0;
    while len < 17 {
        let mut lane = 0;
        while lane < len {
            lanes[len][lane] = 0xff;
            lane += 1;
        }
        len += 1;
    }
    lanes
};

/// Whether all lanes selected by `lanes` are ASCII letters or `-`.
#[inline(always)]
fn letters_and_hyphens(chunk: &[u8; 16], lanes: &[u8; 16]) -> bool {
    let has_other = chunk
        .iter()
        .zip(lanes)
        .fold(false, |has_other, (byte, lane)| {
            // Unselected lanes count as hyphens.
            let byte = (byte ^ b'-') & lane ^ b'-';
            // No short-circuit operators, so that the loop can be vectorized.
            has_other | (((byte | 0x20).wrapping_sub(b'a') >= 26) & (byte != b'-'))
        });
    !has_other
}

fn is_token_by_table(bytes: &[u8]) -> bool {
    !bytes.is_empty() && run_len(bytes, TOKEN) == bytes.len()
}

const ONES: u64 = u64::from_le_bytes([1; 8]);
const HIGH: u64 = ONES << 7;

const fn spread(byte: u8) -> u64 {
    ONES * byte as u64
}

/// The position of the first control character in the chunk, or of a harmless byte before it: a byte 0x7e after 0xff
/// looks like 0x7f because of the carry.
#[inline(always)]
fn suspect_in(chunk: &[u8; 16]) -> Option<usize> {
    let ([low, high], _) = chunk.as_chunks::<8>() else {
        return None;
    };
    if let Some(at) = suspect_lane(u64::from_le_bytes(*low)) {
        return Some(at);
    }
    suspect_lane(u64::from_le_bytes(*high)).map(|at| at + 8)
}

/// The first lane below 0x20 or equal to 0x7f, or a harmless one before it.
#[inline(always)]
fn suspect_lane(word: u64) -> Option<usize> {
    let below_space = word.wrapping_sub(spread(0x20));
    let above_tilde = word.wrapping_add(ONES);
    // Most lanes from 0x80 are marked, too; their marks are removed only if there are any.
    let marks = (below_space | above_tilde) & HIGH;
    if marks == 0 || marks & !word == 0 {
        return None;
    }
    Some(first_lane(marks & !word))
}

#[inline(always)]
fn first_lane(marks: u64) -> usize {
    (marks.trailing_zeros() >> 3) as usize
}

#[inline(always)]
fn has_control(chunk: &[u8; 16]) -> bool {
    let check_byte = |found, byte: &u8| found | (*byte < 0x20) | (*byte == 0x7f);
    chunk.iter().fold(false, check_byte)
}

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0_u8;
    loop {
        table[byte as usize] = class_of(byte);
        if byte == 255 {
            return table;
        }
        byte += 1;
    }
}

const fn class_of(byte: u8) -> u8 {
    let mut class = 0;
    if byte.is_ascii_alphanumeric() {
        class |= TOKEN | PATH | HOST | UNRESERVED;
    }
    if byte.is_ascii_digit() {
        class |= DIGIT;
    }
    if matches!(byte, b'-' | b'_') {
        class |= HOST;
    }
    if matches!(byte, b'-' | b'.' | b'_' | b'~') {
        class |= TOKEN | PATH | UNRESERVED;
    }
    if matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'*' | b'+') {
        class |= TOKEN | PATH;
    }
    if matches!(byte, b'(' | b')' | b',' | b';' | b'=' | b':' | b'@') {
        class |= PATH;
    }
    if matches!(byte, b'#' | b'%' | b'^' | b'`' | b'|') {
        class |= TOKEN;
    }
    if byte.is_ascii_graphic() && byte != b'#' {
        class |= TARGET;
    }
    if byte == b'\t' || (byte >= b' ' && byte != 0x7f) {
        class |= VALUE;
    }
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_classes_match_the_rfc_grammars() {
        let of = |class| -> alloc::vec::Vec<u8> {
            (0..=255).filter(|b| is_in_class(*b, class)).collect()
        };
        assert_eq!(of(TOKEN).len(), 62 + b"!#$%&'*+-.^_`|~".len());
        assert!(b"!#$%&'*+-.^_`|~".iter().all(|b| is_in_class(*b, TOKEN)));
        assert_eq!(of(PATH).len(), 62 + b"-._~!$&'()*+,;=:@".len());
        assert!(b"-._~!$&'()*+,;=:@".iter().all(|b| is_in_class(*b, PATH)));
        assert_eq!(of(UNRESERVED).len(), 62 + 4);
        assert_eq!(of(TARGET).len(), 94 - 1);
        assert_eq!(of(HOST).len(), 62 + 2);
        assert_eq!(of(DIGIT), b"0123456789");
        assert_eq!(of(VALUE).len(), 256 - 33 + 1);
    }

    #[test]
    fn value_len_stops_at_each_control_character_at_each_offset() {
        // All lanes and all lengths of the remainder.
        for len in 0..70 {
            let clean = alloc::vec![b'\xe9'; len];
            assert_eq!(value_len(&clean), len);
            for at in 0..len {
                for byte in 0..=255_u8 {
                    let mut bytes = clean.clone();
                    bytes[at] = byte;
                    let expected = if is_in_class(byte, VALUE) { len } else { at };
                    assert_eq!(value_len(&bytes), expected, "{byte} at {at} of {len}");
                }
            }
        }
    }

    #[test]
    fn value_len_stops_at_the_first_control_character() {
        // 0x7e after 0xff looks like 0x7f to the carry, see `suspect_in`.
        assert_eq!(value_len(b"ab\x7f\r\n\0\x01\x02"), 2);
        assert_eq!(value_len(b"\tab\t\tcd\t\r\n"), 8);
        assert_eq!(value_len(b"abcdef\xff\x7e\xff\x7f0123456789"), 9);
    }

    #[test]
    fn split_at_colon_uses_the_first_colon() {
        // `9` and `;` are the neighbours of `:`, and 0xba is `:` with the high bit.
        for (text, split) in [
            (&b"ab:9:;::"[..], Some((&b"ab"[..], &b"9:;::"[..]))),
            (b"abcdefgh9;", None),
            (b"abcdefgh9;:", Some((b"abcdefgh9;", b""))),
            (b"\xbaabcdefg:\xba", Some((b"\xbaabcdefg", b"\xba"))),
            (b"abcdefgh:jklmnop", Some((b"abcdefgh", b"jklmnop"))),
            (b":", Some((b"", b""))),
            (b"", None),
        ] {
            assert_eq!(split_at_colon(text), split, "{text:?}");
        }
    }

    #[test]
    fn run_len_stops_at_the_first_byte_of_another_class() {
        for len in 0..12 {
            let mut bytes = alloc::vec![b'a'; len];
            assert_eq!(run_len(&bytes, HOST), len);
            bytes.extend_from_slice(b".aaaaa");
            assert_eq!(run_len(&bytes, HOST), len);
        }
    }

    #[test]
    fn starts_with_token_checks_each_byte_at_each_offset() {
        // The fast path reads 16 bytes, also those after the name.
        for len in 0..40 {
            for at in 0..len {
                for byte in 0..=255_u8 {
                    let mut line = alloc::vec![b'a'; len];
                    line[at] = byte;
                    line.extend_from_slice(b":\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
                    let expected = is_in_class(byte, TOKEN);
                    assert_eq!(
                        starts_with_token(&line, len),
                        expected,
                        "{byte} at {at} of {len}"
                    );
                    assert_eq!(starts_with_token(&line[..len], len), expected);
                }
            }
        }
        assert!(!starts_with_token(b"", 0));
        assert!(!starts_with_token(b":0123456789abcdef", 0));
    }
}
