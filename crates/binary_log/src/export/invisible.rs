//! Escapes characters that a terminal does not show but obeys: they can reorder or hide text.

use std::fmt::Write;

use lowroad_log::escape::is_invisible;

/// Appends JSON with such characters as `\uXXXX`. They occur only within strings of JSON (RFC 8259 §2), except line breaks
/// and tabs, which stay.
pub fn escape_json(json: &str, out: &mut Vec<u8>) {
    let mut escape = String::new();
    for it in json.chars() {
        match it {
            '\n' | '\t' => out.push(it as u8),
            it if is_invisible(it) => {
                escape.clear();
                // All of them have 16 bits, so one escape is enough. Writing into memory does not fail.
                let _ = write!(escape, "\\u{:04x}", u32::from(it));
                out.extend_from_slice(escape.as_bytes());
            }
            it => out.extend_from_slice(it.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_json_has_the_same_value_without_invisible_characters() {
        for (text, expected) in [
            ("{\"a\":\"b\"}\n", "{\"a\":\"b\"}\n"),
            ("\"\u{202e}gpj\u{2066}\"", "\"\\u202egpj\\u2066\""),
            ("\"\u{9b}\u{7f}\"", "\"\\u009b\\u007f\""),
            ("\"\u{e4}\u{1f600}\"", "\"\u{e4}\u{1f600}\""),
        ] {
            let mut out = Vec::new();
            escape_json(text, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}
