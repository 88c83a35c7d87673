//! The fields of a response in their order. Fields that the sender of the message sets itself are dropped, and fields
//! that are not for clients are marked; all others are not interpreted.
//!
//! The fields are stored in one buffer in HTTP/1 format, so that HTTP/1 sends them with one copy. The standard names of
//! the first 16 fields are stored as numbers next to the buffer, so that HTTP/2 need not look them up:
//!
//! ```text
//! text   Content-Type: text/html\r\nX-Own: 1\r\nVary: Cookie\r\n
//! names  ContentType               -           Vary
//! ```

use alloc::vec::Vec;

use super::StandardHeader;
use crate::byte_scan::{self, TOKEN, VALUE};

/// The initial capacity: enough for an ordinary response.
const TEXT_LEN: usize = 256;
/// The number of fields with a stored standard name; names of later fields are looked up on demand.
const STORED_NAMES_MAX: usize = 16;
/// Marks a name that is not a standard one.
const OTHER: u8 = u8::MAX;

/// Fields in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseFields {
    /// `name: value\r\n` each; names are tokens, values have no control characters.
    text: Vec<u8>,
    len: u32,
    has_lifetime_field: bool,
    has_tags: bool,
    names: [u8; STORED_NAMES_MAX],
    date: Option<[u8; 29]>,
}

/// A field's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldName<'a> {
    /// A standard name.
    Known(StandardHeader),
    /// A token, as given.
    Other(&'a str),
}

impl<'a> FieldName<'a> {
    /// The name; a standard one in its registered spelling.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        match self {
            FieldName::Known(header) => header.as_str(),
            FieldName::Other(name) => name,
        }
    }
}

/// How a field is treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldAction {
    Plain,
    /// Set by the sender of the message, or hop-by-hop (RFC 9110 §7.6.1); dropped if a handler sets it.
    SetBySender,
    /// Can define the freshness lifetime of the response.
    Lifetime,
    /// Names tags for purging; not sent to clients.
    Tag,
}

const fn field_action(header: StandardHeader) -> FieldAction {
    match header {
        StandardHeader::Connection
        | StandardHeader::ContentLength
        | StandardHeader::Date
        | StandardHeader::KeepAlive
        | StandardHeader::ProxyConnection
        | StandardHeader::Te
        | StandardHeader::TransferEncoding
        | StandardHeader::Upgrade => FieldAction::SetBySender,
        StandardHeader::CacheControl | StandardHeader::Expires => FieldAction::Lifetime,
        StandardHeader::CacheTag => FieldAction::Tag,
        _ => FieldAction::Plain,
    }
}

impl ResponseFields {
    /// No fields.
    #[must_use]
    pub fn new() -> ResponseFields {
        ResponseFields::default()
    }

    /// The number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is a Cache-Control or Expires field.
    #[must_use]
    pub fn has_lifetime(&self) -> bool {
        self.has_lifetime_field
    }

    /// The time at which the message was generated, if another server generated it: the value of Date, in the format of
    /// [`crate::date::format`] (RFC 9110 §6.6.1).
    #[must_use]
    pub fn date(&self) -> Option<&[u8; 29]> {
        self.date.as_ref()
    }

    /// Sets the value of Date.
    pub fn set_date(&mut self, date: [u8; 29]) {
        self.date = Some(date);
    }

    /// Adds a field, unless the sender of the message sets it itself. `name` must be a token; bytes that a value cannot
    /// have, such as those of a line end, become spaces.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        let end = self.text.len();
        self.append(
            name.as_bytes(),
            StandardHeader::find(name.as_bytes()),
            value,
        );
        // Nothing was written if `append` dropped the field. Otherwise skip "name: " before the value and CRLF after
        // it.
        let written = self.text.get_mut(end..).unwrap_or_default();
        let len = written.len().saturating_sub(2);
        let written = written.iter_mut().take(len).skip(name.len() + 2);
        // Against response splitting: a line end in a value would begin another field.
        let refused = |byte: &&mut u8| !byte_scan::is_in_class(**byte, VALUE);
        written.filter(refused).for_each(|byte| *byte = b' ');
    }

    /// Like `push`, but returns false and adds nothing if the name or the value is invalid (RFC 9110 §5).
    pub fn try_push(&mut self, name: &[u8], value: &[u8]) -> bool {
        self.try_push_resolved(name, StandardHeader::find(name), value)
    }

    /// Like `try_push`, for callers that have looked the name up already.
    pub fn try_push_resolved(
        &mut self,
        name: &[u8],
        header: Option<StandardHeader>,
        value: &[u8],
    ) -> bool {
        let is_valid = (header.is_some() || is_token(name))
            // No early exit, so that the compiler can vectorize the loop.
            && value.iter().fold(true, |is_valid, byte| is_valid & is_text(*byte));
        if is_valid {
            self.append(name, header, value);
        }
        is_valid
    }

    /// The name and value of each field.
    pub fn entries(&self) -> impl Iterator<Item = (FieldName<'_>, &[u8])> + Clone {
        self.lines().enumerate().filter_map(|(at, (name, value))| {
            let name = match self.standard_at(at, name) {
                Some(header) => FieldName::Known(header),
                None => FieldName::Other(str::from_utf8(name).ok()?),
            };
            Some((name, value))
        })
    }

    /// The name, as given, and value of each field.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        self.lines()
            .filter_map(|(name, value)| Some((str::from_utf8(name).ok()?, value)))
    }

    /// Like `iter`, with names as bytes.
    pub fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        WrittenLines(&self.text)
    }

    /// The values of the fields with this name.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let header = StandardHeader::find(name.as_bytes());
        let may_contain = header.is_none_or(|header| self.may_contain(header));
        let lines = may_contain.then(|| self.lines()).into_iter().flatten();
        let matching =
            lines.filter(move |(field_name, _)| field_name.eq_ignore_ascii_case(name.as_bytes()));
        matching.map(|(_, value)| value)
    }

    /// The values of the fields with this standard name.
    pub fn standard_values(&self, name: StandardHeader) -> impl Iterator<Item = &[u8]> {
        let entries = self.may_contain(name).then(|| self.entries());
        let matching = entries.into_iter().flatten();
        let matching =
            matching.filter(move |(field_name, _)| *field_name == FieldName::Known(name));
        matching.map(|(_, value)| value)
    }

    /// Whether there may be a field with this standard name. Most names are absent, and then no line needs to be read.
    fn may_contain(&self, name: StandardHeader) -> bool {
        let codes = self.names.iter().take(self.len());
        self.len() > STORED_NAMES_MAX || codes.into_iter().any(|it| *it == name as u8)
    }

    /// Replaces the values of the fields with a standard name: `replacement` returns the new value, or `None` to keep
    /// the old one.
    pub fn replace(
        &mut self,
        name: StandardHeader,
        replacement: impl Fn(&[u8]) -> Option<Vec<u8>>,
    ) {
        let is_replaced = |value| replacement(value).is_some();
        // Most responses need no replacement: return before the fields are copied.
        if !self.standard_values(name).any(is_replaced) {
            return;
        }
        // The fields are rebuilt, since a value of another length moves all lines after its own.
        let mut replaced = ResponseFields {
            date: self.date,
            ..ResponseFields::default()
        };
        for (field_name, value) in self.iter() {
            let is_named = StandardHeader::find(field_name.as_bytes()) == Some(name);
            let new_value = is_named.then(|| replacement(value)).flatten();
            replaced.push(field_name, new_value.as_deref().unwrap_or(value));
        }
        *self = replaced;
    }

    /// The fields that are sent to clients.
    pub fn for_clients(&self) -> impl Iterator<Item = (FieldName<'_>, &[u8])> + Clone {
        let is_tag = |name| name == FieldName::Known(StandardHeader::CacheTag);
        self.entries().filter(move |(name, _)| !is_tag(*name))
    }

    /// All fields in HTTP/1 format; `None` if one of them is not for clients.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        (!self.has_tags).then_some(&self.text)
    }

    /// The size of the fields in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.text.len()
    }

    fn append(&mut self, name: &[u8], header: Option<StandardHeader>, value: &[u8]) {
        match header.map_or(FieldAction::Plain, field_action) {
            FieldAction::Plain => {}
            FieldAction::SetBySender => return,
            FieldAction::Lifetime => self.has_lifetime_field = true,
            FieldAction::Tag => self.has_tags = true,
        }
        // Beyond `STORED_NAMES_MAX`, `standard_at` looks the name up.
        if let Some(code) = self.names.get_mut(self.len as usize) {
            *code = header.map_or(OTHER, |header| header as u8);
        }
        // So most responses need at most one allocation, and a response without fields none.
        if self.text.capacity() == 0 {
            // The four bytes are ": " and CRLF.
            let len = name.len() + value.len() + 4;
            self.text = Vec::with_capacity(len.max(TEXT_LEN));
        }
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(b": ");
        self.text.extend_from_slice(value);
        self.text.extend_from_slice(b"\r\n");
        self.len += 1;
    }

    /// The standard name of the field at index `at`, which was given as `name`.
    fn standard_at(&self, at: usize, name: &[u8]) -> Option<StandardHeader> {
        match self.names.get(at) {
            Some(code) => StandardHeader::ALL.get(usize::from(*code)).copied(),
            None => StandardHeader::find(name),
        }
    }
}

/// Iterator over lines that `ResponseFields::append` wrote: values as given.
#[derive(Clone)]
struct WrittenLines<'t>(&'t [u8]);

impl<'t> Iterator for WrittenLines<'t> {
    type Item = (&'t [u8], &'t [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, rest) = byte_scan::split_at_colon(core::mem::take(&mut self.0))?;
        let rest = rest.get(1..)?;
        let (value, end) = rest.split_at_checked(byte_scan::value_len(rest))?;
        self.0 = end.get(2..)?;
        Some((name, value))
    }
}

impl<'a> FromIterator<(&'a str, &'a [u8])> for ResponseFields {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a [u8])>>(entries: I) -> ResponseFields {
        let mut fields = ResponseFields::new();
        entries
            .into_iter()
            .for_each(|(name, value)| fields.push(name, value));
        fields
    }
}

/// Whether the name is a token (RFC 9110 §5.6.2).
#[must_use]
pub fn is_token(name: &[u8]) -> bool {
    let and_token = |is_valid, byte: &u8| is_valid & byte_scan::is_in_class(*byte, TOKEN);
    !name.is_empty() && name.iter().fold(true, and_token)
}

/// Whether a byte is in the scanner's class `VALUE`, in a form that the compiler can vectorize.
fn is_text(byte: u8) -> bool {
    (byte >= b' ') & (byte != 0x7f) | (byte == b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn text(fields: &ResponseFields) -> Option<&str> {
        fields.text().and_then(|text| str::from_utf8(text).ok())
    }

    #[test]
    fn response_fields_keep_their_order() {
        let mut fields = ResponseFields::new();
        fields.push("Content-Type", b"text/plain");
        assert!(fields.try_push(b"X-A", b"b\tc: d"));
        fields.push("VARY", b"");
        let lines = "Content-Type: text/plain\r\nX-A: b\tc: d\r\nVARY: \r\n";
        assert_eq!((text(&fields), fields.len()), (Some(lines), 3));
        let again: ResponseFields = fields.iter().collect();
        assert_eq!(again, fields);
        assert_eq!(fields.values("x-a").next(), Some(&b"b\tc: d"[..]));
        assert_eq!(
            fields.standard_values(StandardHeader::Vary).next(),
            Some(&b""[..])
        );
        assert!(!fields.has_lifetime());
        let names: Vec<_> = fields.entries().map(|(name, _)| name).collect();
        let known = |known| FieldName::Known(known);
        let wanted = [
            known(StandardHeader::ContentType),
            FieldName::Other("X-A"),
            known(StandardHeader::Vary),
        ];
        assert_eq!(names, wanted);
    }

    #[test]
    fn standard_names_are_found_beyond_the_stored_ones() {
        let mut fields = ResponseFields::new();
        for at in 0..40 {
            fields.push(if at % 2 == 0 { "link" } else { "X-Link" }, b"a");
        }
        let known = fields.standard_values(StandardHeader::Link).count();
        assert_eq!((known, fields.values("x-link").count()), (20, 20));
    }

    #[test]
    fn replace_keeps_field_position_and_spelling() {
        let mut fields = ResponseFields::new();
        fields.set_date(*b"Sun, 06 Nov 1994 08:49:37 GMT");
        for at in 0..20 {
            fields.push(if at % 9 == 1 { "LOCATION" } else { "X" }, b"a");
        }
        let before = fields.clone();
        fields.replace(StandardHeader::Vary, |_| Some(b"b".to_vec()));
        fields.replace(StandardHeader::Location, |_| None);
        assert_eq!(fields, before);
        fields.replace(StandardHeader::Location, |value| {
            Some([value, b"b"].concat())
        });
        let changed = fields
            .iter()
            .filter(|(name, value)| (*name, *value) == ("LOCATION", b"ab"));
        assert_eq!((changed.count(), fields.len()), (3, 20));
        assert_eq!(fields.date(), before.date());
        assert_eq!(fields.standard_values(StandardHeader::Location).count(), 3);
    }

    #[test]
    fn line_ends_in_field_values_are_neutralized() {
        let mut fields = ResponseFields::new();
        fields.push("X", b"b\r\nSet-Cookie: c\0");
        assert_eq!(text(&fields), Some("X: b  Set-Cookie: c \r\n"));
        for (name, value) in [
            (&b""[..], &b"b"[..]),
            (b"X A", b"b"),
            (b"X:", b"b"),
            (b"X", b"b\r\nSet-Cookie: c"),
            (b"X", b"\x7f"),
        ] {
            assert!(!fields.try_push(name, value), "{name:?}");
        }
        assert_eq!(fields.len(), 1);
    }

    #[test]
    fn framing_fields_are_dropped_and_cache_tag_is_hidden_from_clients() {
        let mut fields = ResponseFields::new();
        for name in [
            "Date",
            "CONTENT-LENGTH",
            "Transfer-Encoding",
            "Upgrade",
            "te",
        ] {
            fields.push(name, b"1");
        }
        assert!(fields.is_empty());
        fields.push("expires", b"0");
        assert!(fields.has_lifetime() && fields.text().is_some());
        fields.push("Cache-Tag", b"a, b");
        assert_eq!(fields.text(), None);
        assert_eq!(
            fields
                .standard_values(StandardHeader::CacheTag)
                .collect::<Vec<_>>(),
            vec![b"a, b"]
        );
        let shown: Vec<_> = fields.for_clients().collect();
        assert_eq!(
            shown,
            [(FieldName::Known(StandardHeader::Expires), &b"0"[..])]
        );
    }
}
