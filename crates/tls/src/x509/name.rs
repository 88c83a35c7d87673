//! Distinguished names as text (RFC 4514): the last part first, as OpenSSL prints them with `-nameopt RFC2253`.

use std::fmt::Write as _;

use super::hex;
use crate::der::{self, DerElement, DerReader};

/// Short names of attribute types: those of RFC 4514 and a few more. Other types are written as object identifiers.
const TYPES: [(&[u8], &str); 12] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "street"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 42], "GN"),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25],
        "DC",
    ),
    (
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1],
        "emailAddress",
    ),
];

/// A DER name as text. Malformed input is written in hexadecimal digits.
pub fn display(name: &[u8]) -> String {
    let Some(name) = DerReader(name).expect(der::SEQUENCE) else {
        return hex(name);
    };
    let mut parts: Vec<String> = name.reader().map(|set| display_set(&set)).collect();
    // The encoding begins with the outermost part, the text with the innermost one (RFC 4514 section 2.1).
    parts.reverse();
    parts.join(",")
}

/// The common name within a DER name, unescaped.
pub(crate) fn common_name(name: &[u8]) -> Option<String> {
    let mut sets = DerReader(name).expect(der::SEQUENCE)?.reader();
    sets.find_map(|set| {
        let mut fields = set.reader().expect(der::SEQUENCE)?.reader();
        let id = fields.expect(der::OID)?;
        text(&fields.next()?).filter(|_| id.content == TYPES[0].0)
    })
}

/// Joins the attributes of one part with `+`.
fn display_set(set: &DerElement<'_>) -> String {
    if set.tag != der::SET {
        return hex(set.encoded);
    }
    let attributes = set.reader().map(|attribute| {
        let mut fields = attribute.reader();
        match (fields.next(), fields.next()) {
            (Some(id), Some(value)) if id.tag == der::OID => display_attribute(&id, &value),
            _ => hex(attribute.encoded),
        }
    });
    attributes.collect::<Vec<_>>().join("+")
}

fn display_attribute(id: &DerElement<'_>, value: &DerElement<'_>) -> String {
    let attribute_type = TYPES.iter().find(|(bytes, _)| *bytes == id.content);
    match (attribute_type, text(value)) {
        (Some((_, name)), Some(value)) => format!("{name}={}", escaped(&value)),
        (None, Some(value)) => format!("{}={}", dotted(id.content), escaped(&value)),
        _ => format!("{}=#{}", dotted(id.content), hex(value.encoded)),
    }
}

/// The text of a string value, of any string type used in certificates.
fn text(value: &DerElement<'_>) -> Option<String> {
    const UTF8: u8 = 0x0c;
    const PRINTABLE: u8 = 0x13;
    const TELETEX: u8 = 0x14;
    const IA5: u8 = 0x16;
    match value.tag {
        UTF8 | PRINTABLE | IA5 => String::from_utf8(value.content.to_vec()).ok(),
        // Certificates use Latin-1 in this type. The bytes of Latin-1 are the first 256 characters of Unicode.
        TELETEX => Some(value.content.iter().map(|byte| char::from(*byte)).collect()),
        der::BMP_STRING => {
            let (pairs, []) = value.content.as_chunks::<2>() else {
                return None;
            };
            let units = pairs.iter().map(|pair| u16::from_be_bytes(*pair));
            char::decode_utf16(units).collect::<Result<_, _>>().ok()
        }
        _ => None,
    }
}

/// Escapes a value, including control characters, so that the text fits into a header field or one log line.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (index, char) in value.chars().enumerate() {
        // A space at either end, and a number sign at the start, must be escaped (RFC 4514 section 2.4).
        match char {
            ' ' if index == 0 || index == last => text.push_str("\\ "),
            '#' if index == 0 => text.push_str("\\#"),
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => {
                text.push('\\');
                text.push(char);
            }
            char if char.is_control() || !char.is_ascii() => {
                for byte in char.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(text, "\\{byte:02X}");
                }
            }
            char => text.push(char),
        }
    }
    text
}

/// An object identifier in dotted decimal form.
fn dotted(id: &[u8]) -> String {
    let mut text = String::new();
    let mut number = 0u64;
    for byte in id {
        number = number << 7 & (u64::MAX >> 1) | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if text.is_empty() {
            // The first number encodes two: 40 times the first plus the second (X.690 section 8.19.4).
            let first = (number / 40).min(2);
            let _ = write!(text, "{first}.{}", number - first * 40);
        } else {
            let _ = write!(text, ".{number}");
        }
        number = 0;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(id: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        let id = wrapped(der::OID, id);
        let value = wrapped(tag, value);
        let pair = wrapped(der::SEQUENCE, &[id, value].concat());
        wrapped(der::SET, &pair)
    }

    fn wrapped(tag: u8, content: &[u8]) -> Vec<u8> {
        let len = u8::try_from(content.len()).unwrap();
        [&[tag, len], content].concat()
    }

    #[test]
    fn name_is_displayed_as_in_rfc_4514() {
        let parts = [
            attribute(&[0x55, 4, 10], 0x13, b"A, B + C"),
            attribute(&[0x55, 4, 3], 0x0c, " é#\n".as_bytes()),
            attribute(&[0x2a, 3, 0x81, 0], 0x16, b"x"),
        ];
        let name = wrapped(der::SEQUENCE, &parts.concat());
        assert_eq!(
            display(&name),
            "1.2.3.128=x,CN=\\ \\C3\\A9#\\0A,O=A\\, B \\+ C"
        );
    }

    #[test]
    fn malformed_name_is_displayed_as_hex() {
        assert_eq!(display(&[1, 2]), "0102");
        assert_eq!(display(&[0x30, 2, 4, 0]), "0400");
        assert_eq!(display(&[0x30, 0]), "");
    }
}
