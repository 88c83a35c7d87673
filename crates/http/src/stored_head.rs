//! The head of a stored response, encoded once for each protocol.
//!
//! The HTTP/1 text is built when the response is stored. It is stored with the response, mostly directly before the
//! body, so that a hit is sent with one copy; `HeadMap` has the offsets in the text. The HTTP/2 block is a separate
//! [`crate::h2::LazyBlock`].
//!
//! ```text
//! HTTP/1.1 200 OK\r\nDate: …\r\n                status and date
//! Last-Modified, ETag, Vary, …                  fields that a 304 has, too ┐
//! Content-Type, Content-Encoding, …             fields about the content    ┴ all fields
//! Content-Length: …\r\n
//! ```

use alloc::vec::Vec;

use crate::date;
use crate::fields::{FieldLines, FieldName, StandardHeader};
use crate::head_writer::{HeadWriter, date_offset};
use crate::status::StatusCode;

/// Offsets into the text of a stored head, which is passed to each method. Small, since there is one for each stored
/// response.
#[derive(Clone, Copy, Debug)]
pub struct HeadMap {
    status: StatusCode,
    /// The text has the origin's Date, which must be kept.
    is_dated: bool,
    /// The end of the fields that a 304 also has (they follow the date), and the start of the fields about the content.
    /// Content-Length follows those.
    content: u32,
    /// The end of the head, without the empty line.
    end: u32,
    /// The length of the Content-Length line in bytes; 0 if there is none.
    length_len: u8,
    /// The range of the ETag value; empty if there is none.
    etag: (u16, u16),
}

/// A finished head: its text, without the empty line, and the offsets in it.
#[derive(Clone, Debug)]
pub struct EncodedHead {
    /// The HTTP/1 text.
    pub text: Vec<u8>,
    /// The offsets into the text.
    pub map: HeadMap,
}

/// Some of the fields of a stored head, encoded.
#[derive(Clone, Copy, Debug)]
pub struct StoredSection<'t> {
    h1: &'t [u8],
}

impl<'t> StoredSection<'t> {
    /// The name and value of each field.
    pub fn fields(self) -> impl Iterator<Item = (FieldName<'t>, &'t [u8])> {
        FieldLines::new(self.h1).resolved_names()
    }

    /// The fields as HTTP/1 lines.
    #[must_use]
    pub(crate) fn h1(self) -> &'t [u8] {
        self.h1
    }
}

impl HeadMap {
    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether the text has the origin's Date, which must be kept.
    #[must_use]
    #[inline]
    pub fn is_dated(&self) -> bool {
        self.is_dated
    }

    /// The origin's Date, if the response has one.
    #[must_use]
    pub fn date<'t>(&self, text: &'t [u8]) -> Option<&'t [u8; 29]> {
        let date_bytes = text
            .get(date_offset(self.status)..)
            .filter(|_| self.is_dated)?;
        date_bytes.first_chunk()
    }

    /// The length of the HTTP/1 head in bytes, without the empty line.
    #[must_use]
    #[inline]
    pub fn h1_len(&self) -> usize {
        self.end as usize
    }

    /// Whether the head has Content-Length.
    #[must_use]
    #[inline]
    pub fn has_length(&self) -> bool {
        self.length_len > 0
    }

    /// Appends Content-Length to the text, which must not be finished yet, unless the status forbids it.
    pub fn set_length(&mut self, text: &mut Vec<u8>, body_len: u64) {
        // RFC 9110 §8.6: no Content-Length in a 204.
        if self.status != StatusCode::NO_CONTENT && !self.has_length() {
            let start = text.len();
            HeadWriter::resume(text).field_u64("Content-Length", body_len);
            self.length_len = line_len(start, text.len());
            self.end = offset(text.len());
        }
    }

    /// The fields that a 304 response also has (RFC 9110 §15.4.5).
    #[must_use]
    pub fn shared<'t>(&self, text: &'t [u8]) -> StoredSection<'t> {
        section(text, self.start(), self.content)
    }

    /// The fields about the content.
    #[must_use]
    pub fn content<'t>(&self, text: &'t [u8]) -> StoredSection<'t> {
        section(text, self.content, self.length())
    }

    /// All fields except Content-Length.
    #[must_use]
    pub fn all<'t>(&self, text: &'t [u8]) -> StoredSection<'t> {
        section(text, self.start(), self.length())
    }

    /// The offset of Content-Length.
    fn length(&self) -> u32 {
        self.end - u32::from(self.length_len)
    }

    /// The offset after the date.
    fn start(&self) -> u32 {
        offset(date_offset(self.status) + 31)
    }

    /// The value of ETag; empty if there is none.
    #[must_use]
    pub fn etag<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        let (start, end) = self.etag;
        value(text, start.into(), end.into())
    }

    /// The value of Content-Type; empty if the head has none and a rule sets it.
    #[must_use]
    pub fn content_type<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        let has_content_type_name = |(name, _): &(FieldName<'t>, &[u8])| {
            *name == FieldName::Known(StandardHeader::ContentType)
        };
        let last = self
            .content(text)
            .fields()
            .filter(has_content_type_name)
            .last();
        last.map_or(&[], |(_, value)| value)
    }
}

fn section(text: &[u8], start: u32, end: u32) -> StoredSection<'_> {
    StoredSection {
        h1: value(text, start, end),
    }
}

fn value(text: &[u8], start: u32, end: u32) -> &[u8] {
    text.get(start as usize..end as usize).unwrap_or_default()
}

/// Converts an offset. No head is longer than `u32::MAX`; a larger offset is saturated, and look-ups at it return an
/// empty slice.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// The length of the Content-Length line, which is short.
fn line_len(start: usize, end: usize) -> u8 {
    u8::try_from(end - start).unwrap_or(u8::MAX)
}

/// Builds a stored head: first the fields that a 304 also has, then those about the content.
#[derive(Debug)]
pub struct HeadEncoder {
    text: Vec<u8>,
    status: StatusCode,
    is_dated: bool,
    /// The start of the fields about the content, once they have begun.
    content: Option<usize>,
    etag: (usize, usize),
}

impl HeadEncoder {
    /// Begins a head. The date that it contains must be overwritten, see [`date_offset`].
    #[must_use]
    pub fn start(status: StatusCode) -> HeadEncoder {
        let mut text = Vec::with_capacity(320);
        HeadWriter::start(&mut text, status, &date::format(0)).finish_open();
        HeadEncoder {
            text,
            status,
            is_dated: false,
            content: None,
            etag: (0, 0),
        }
    }

    /// Sets the origin's date.
    pub fn set_date(&mut self, date: &[u8; 29]) {
        let start = date_offset(self.status);
        if let Some(date_slot) = self.text.get_mut(start..start + date.len()) {
            date_slot.copy_from_slice(date);
            self.is_dated = true;
        }
    }

    /// Adds a field; see [`HeadWriter::field`].
    pub fn field(&mut self, name: &str, value: &[u8]) {
        let start = self.text.len() + name.len() + 2;
        HeadWriter::resume(&mut self.text).field(name, value);
        // The first of several ETag fields counts. An ETag among the fields about the content is not the validator.
        let is_etag = StandardHeader::find(name.as_bytes()) == Some(StandardHeader::Etag);
        if is_etag && self.content.is_none() && self.etag == (0, 0) {
            self.etag = (start, start + value.len());
        }
    }

    /// Begins the fields about the content.
    pub fn begin_content(&mut self) {
        self.content = Some(self.text.len());
    }

    /// Ends the head of a response with a body of `body_len` bytes.
    #[must_use]
    pub fn finish(mut self, body_len: u64) -> EncodedHead {
        let length = self.text.len();
        HeadWriter::resume(&mut self.text).field_u64("Content-Length", body_len);
        self.into_encoded(length)
    }

    /// Ends a head without Content-Length: the length is unknown, or is added when the response is sent.
    #[must_use]
    pub fn finish_open(self) -> EncodedHead {
        let length = self.text.len();
        self.into_encoded(length)
    }

    fn into_encoded(self, length: usize) -> EncodedHead {
        let (start, end) = self.etag;
        let map = HeadMap {
            status: self.status,
            is_dated: self.is_dated,
            content: offset(self.content.unwrap_or(length)),
            end: offset(self.text.len()),
            length_len: line_len(length, self.text.len()),
            // An ETag beyond the first 64 KiB is treated as absent: conditional requests then get the whole response.
            etag: match (start.try_into(), end.try_into()) {
                (Ok(start), Ok(end)) => (start, end),
                _ => (0, 0),
            },
        };
        EncodedHead {
            text: self.text,
            map,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded() -> EncodedHead {
        let mut encoder = HeadEncoder::start(StatusCode::OK);
        encoder.field("ETag", b"\"e\"");
        encoder.field("X-Own", b"1");
        encoder.begin_content();
        encoder.field("Content-Type", b"text/css");
        encoder.finish(1234)
    }

    #[test]
    fn head_map_offsets_match_the_text() {
        assert!(size_of::<HeadMap>() <= 16, "there are as many as responses");
        let EncodedHead { text, map: encoded } = encoded();
        assert_eq!(encoded.etag(&text), b"\"e\"");
        assert_eq!(encoded.content_type(&text), b"text/css");
        assert_eq!(encoded.shared(&text).h1(), b"ETag: \"e\"\r\nX-Own: 1\r\n");
        let all = b"ETag: \"e\"\r\nX-Own: 1\r\nContent-Type: text/css\r\n";
        assert_eq!(encoded.all(&text).h1(), all);
        assert_eq!(encoded.h1_len(), text.len());
        assert!(text.ends_with(b"text/css\r\nContent-Length: 1234\r\n"));
    }

    #[test]
    fn head_without_content_length_has_valid_offsets() {
        let mut encoder = HeadEncoder::start(StatusCode::NOT_FOUND);
        encoder.field("etag", b"\"e\"");
        let EncodedHead { text, map: encoded } = encoder.finish_open();
        assert_eq!(
            (encoded.status(), encoded.h1_len()),
            (StatusCode::NOT_FOUND, text.len())
        );
        assert_eq!(encoded.all(&text).h1(), b"etag: \"e\"\r\n");
        assert_eq!(encoded.shared(&text).h1(), encoded.all(&text).h1());
        assert_eq!(encoded.etag(&text), b"\"e\"");
    }

    #[test]
    fn content_length_can_be_added_after_finish_open() {
        // The second call must not add a second field.
        let mut head = HeadEncoder::start(StatusCode::OK).finish_open();
        let (text, encoded) = (&mut head.text, &mut head.map);
        assert!(!encoded.has_length());
        for len in [7, 8] {
            encoded.set_length(text, len);
            assert!(encoded.has_length() && text.ends_with(b" GMT\r\nContent-Length: 7\r\n"));
            assert_eq!(encoded.h1_len(), text.len());
            assert!(encoded.all(text).h1().is_empty());
        }
        let mut head = HeadEncoder::start(StatusCode::NO_CONTENT).finish_open();
        let (text, none) = (&mut head.text, &mut head.map);
        none.set_length(text, 0);
        assert!(!none.has_length() && none.h1_len() == text.len());
    }

    #[test]
    fn stored_fields_are_equal_in_http1_and_http2() {
        let EncodedHead { text, map: encoded } = encoded();
        let fields: Vec<_> = encoded.all(&text).fields().collect();
        let wanted = [
            (FieldName::Known(StandardHeader::Etag), &b"\"e\""[..]),
            (FieldName::Other("X-Own"), b"1"),
            (FieldName::Known(StandardHeader::ContentType), b"text/css"),
        ];
        assert_eq!(
            (encoded.status(), &fields[..]),
            (StatusCode::OK, &wanted[..])
        );
    }
}
