//! The encodings of values.

/// Percent-encodes each byte for which `is_plain` does not hold (RFC 3986 §2.1).
pub fn percent_encode(bytes: &[u8], is_plain: impl Fn(u8) -> bool, out: &mut Vec<u8>) {
    // Upper case is the normal form of escapes (RFC 3986 §6.2.2.1).
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        match is_plain(byte) {
            true => out.push(byte),
            false => {
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
                out.extend_from_slice(&[b'%', HEX[high], HEX[low]]);
            }
        }
    }
}

/// Whether a field value may contain a byte (RFC 9110 §5.5).
pub(crate) fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}

/// Removes spaces and tabs around the value that begins at `start`.
pub(crate) fn trim_value(out: &mut Vec<u8>, start: usize) {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    while out.len() > start && out.last().is_some_and(is_space) {
        out.pop();
    }
    let spaces = out[start..]
        .iter()
        .take_while(|byte| is_space(byte))
        .count();
    out.drain(start..start + spaces);
}

/// Decodes a value of a query: percent-encoding, and `+` as a space (WHATWG URL, application/x-www-form-urlencoded).
pub(crate) fn decode_query_value(value: &[u8], out: &mut Vec<u8>) {
    let mut rest = value;
    while let [first, after @ ..] = rest {
        // An invalid escape is ordinary text (WHATWG URL, percent-decode).
        let escaped = match rest {
            [b'%', high, low, after @ ..] => digits(*high, *low).map(|byte| (byte, after)),
            _ => None,
        };
        let (byte, after) = match (escaped, first) {
            (Some(escaped), _) => escaped,
            (None, b'+') => (b' ', after),
            (None, byte) => (*byte, after),
        };
        out.push(byte);
        rest = after;
    }
}

fn digits(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}
