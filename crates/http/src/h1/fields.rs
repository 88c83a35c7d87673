//! Response fields in HTTP/1 format: lines of text.

use alloc::vec::Vec;

use crate::fields::ResponseFields;
use crate::stored_head::StoredSection;

/// Writes the fields that are sent to clients.
#[inline]
pub fn put_fields(fields: &ResponseFields, out: &mut Vec<u8>) {
    match fields.text() {
        Some(text) => out.extend_from_slice(text),
        None => put_each_field(fields, out),
    }
}

/// Writes the fields of a stored head, which stores them as lines.
#[inline]
pub fn put_encoded(section: StoredSection<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(section.h1());
}

fn put_each_field(fields: &ResponseFields, out: &mut Vec<u8>) {
    for (name, value) in fields.for_clients() {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_tag_is_not_sent_to_clients() {
        let mut fields = ResponseFields::new();
        fields.push("Content-Type", b"text/html");
        let mut out = Vec::new();
        put_fields(&fields, &mut out);
        assert_eq!(out, b"Content-Type: text/html\r\n");
        fields.push("Cache-Tag", b"a");
        fields.push("X", b"y");
        out.clear();
        put_fields(&fields, &mut out);
        assert_eq!(out, b"Content-Type: text/html\r\nX: y\r\n");
    }
}
