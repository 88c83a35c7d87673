//! Escapes received bytes for a log, so that a client's bytes cannot leave their field or their line.

use std::io::Write;

/// Appends bytes; `"`, `\` and all bytes except printable ASCII become `\xHH`.
pub fn escaped(bytes: &[u8], out: &mut Vec<u8>) {
    if are_plain(bytes) {
        out.extend_from_slice(bytes);
        return;
    }
    for byte in bytes {
        match is_plain(*byte) {
            true => out.push(*byte),
            // Writing into memory cannot fail.
            false => drop(write!(out, "\\x{byte:02X}")),
        }
    }
}

/// Appends bytes like [`escaped`], and also escapes spaces, which end the field.
pub fn escaped_word(bytes: &[u8], out: &mut Vec<u8>) {
    escaped_until(b' ', bytes, out);
}

/// Appends bytes like [`escaped_word`], and also escapes another character that ends the field.
pub fn escaped_until(delimiter: u8, bytes: &[u8], out: &mut Vec<u8>) {
    let mut rest = bytes;
    while let Some(at) = rest
        .iter()
        .position(|byte| *byte == b' ' || *byte == delimiter)
    {
        escaped(&rest[..at], out);
        // Writing into memory cannot fail.
        let _ = write!(out, "\\x{:02X}", rest[at]);
        rest = &rest[at + 1..];
    }
    escaped(rest, out);
}

/// Whether a character changes how a terminal or an editor shows the text around it: control characters, marks and
/// overrides of the direction (UAX #9 §2), characters without width, and separators of lines. All of them have 16 bits, so
/// that one escape of JSON is enough.
pub fn is_invisible(it: char) -> bool {
    it.is_control()
        || matches!(it, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// Appends the content of a JSON string (RFC 8259 §7). Bytes that are not UTF-8 become U+FFFD.
pub fn json_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    if are_plain(bytes) {
        out.extend_from_slice(bytes);
        return;
    }
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            // JSON allows most of them, but a terminal interprets them.
            c if is_invisible(c) => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Whether none of the escape functions changes these bytes.
fn are_plain(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk() else {
        return bytes.iter().all(|byte| is_plain(*byte));
    };
    // The last chunk may overlap the previous one, so that no bytes remain for a loop over single bytes.
    bytes.as_chunks().0.iter().chain([last]).all(is_chunk_plain)
}

/// Whether all bytes of a chunk are plain. Without an early exit the compiler turns the comparisons into a few vector
/// instructions.
fn is_chunk_plain(chunk: &[u8; 16]) -> bool {
    chunk.iter().fold(true, |is_chunk_plain_so_far, byte| {
        is_chunk_plain_so_far & is_plain(*byte)
    })
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') & (byte != b'"') & (byte != b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(escape: fn(&[u8], &mut Vec<u8>), bytes: &[u8]) -> String {
        let mut out = Vec::new();
        escape(bytes, &mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn byte_is_escaped_at_every_offset() {
        // The fast path checks chunks of 16 bytes, the last of which may overlap.
        for len in 1..70 {
            for place in 0..len {
                let mut bytes = vec![b'a'; len];
                bytes[place] = b'\n';
                let text = "a".repeat(len);
                let at = |escape: &str| format!("{}{escape}{}", &text[..place], &text[place + 1..]);
                assert_eq!(with(escaped, &bytes), at("\\x0A"));
                assert_eq!(with(json_escaped, &bytes), at("\\u000a"));
            }
        }
    }

    #[test]
    fn json_has_no_invisible_characters() {
        for (text, expected) in [
            ("\u{202e}gpj.\u{2066}", "\\u202egpj.\\u2066"),
            ("\u{9b}\u{7f}\u{feff}", "\\u009b\\u007f\\ufeff"),
            ("\u{e4}\u{1f600}", "\u{e4}\u{1f600}"),
        ] {
            assert_eq!(with(json_escaped, text.as_bytes()), expected);
        }
    }

    #[test]
    fn only_plain_bytes_are_unescaped() {
        for byte in 0..=255 {
            let want = match byte {
                b' ' | b'!' | b'#'..=b'[' | b']'..=b'~' => char::from(byte).to_string(),
                _ => format!("\\x{byte:02X}"),
            };
            assert_eq!(with(escaped, &[byte]), want);
            assert_eq!(with(escaped, &[byte; 40]), want.repeat(40));
        }
    }

    #[test]
    fn escaped_word_escapes_spaces() {
        assert_eq!(
            with(escaped_word, b" a  b\" "),
            "\\x20a\\x20\\x20b\\x22\\x20"
        );
        let until_bar = |bytes: &[u8], out: &mut Vec<u8>| escaped_until(b'|', bytes, out);
        assert_eq!(with(until_bar, b"a|b |"), "a\\x7Cb\\x20\\x7C");
    }
}
