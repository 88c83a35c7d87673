//! Writes text as HTML and JSON.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use crate::value::{MachineValue, TextRef};

/// The empty text: the result of functions that are called for their effect.
pub const EMPTY: MachineValue = MachineValue::Text(TextRef {
    at: 0,
    len: 0,
    in_page: true,
    is_safe: false,
});

/// The HTML escape of a byte; `None` if it is written unchanged.
#[inline]
fn escaped(byte: u8) -> Option<&'static str> {
    if !(b'"'..=b'>').contains(&byte) {
        return None;
    }
    Some(match byte {
        b'<' => "&lt;",
        b'>' => "&gt;",
        b'&' => "&amp;",
        b'"' => "&quot;",
        b'\'' => "&#x27;",
        b'/' => "&#x2f;",
        _ => return None,
    })
}

/// Appends a text, escaped for HTML as minijinja does.
#[inline]
pub fn escape(text: &[u8], to: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| escaped(byte).is_some()) {
        let (before, after) = rest.split_at(at);
        to.extend_from_slice(before);
        to.extend_from_slice(escaped(after[0]).unwrap_or_default().as_bytes());
        rest = &after[1..];
    }
    to.extend_from_slice(rest);
}

/// Like `escape`, for a string.
pub fn escape_into(text: &str, to: &mut String) {
    for c in text.chars() {
        match u8::try_from(c).ok().and_then(escaped) {
            Some(replacement) => to.push_str(replacement),
            None => to.push(c),
        }
    }
}

/// Appends a text as a JSON string that is safe in HTML.
pub fn json(text: &str, to: &mut String) {
    to.push('"');
    for c in text.chars() {
        match c {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            '\u{8}' => to.push_str("\\b"),
            '\u{c}' => to.push_str("\\f"),
            // These characters are escaped as in the server's `tojson`, so that the text may be placed in a script or
            // an attribute.
            '<' | '>' | '&' | '\'' | '\0'..='\u{1f}' => {
                let _ = write!(to, "\\u{:04x}", u32::from(c));
            }
            c => to.push(c),
        }
    }
    to.push('"');
}
