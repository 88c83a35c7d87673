//! Writes the head of a response, field by field, for all protocols.

use lowroad_cache::{cache_control, targeted_fields};
use lowroad_http::fields::{FieldLines, FieldName, ResponseFields, StandardHeader};
use lowroad_http::h1::{self, BodyLen};
use lowroad_http::h2::{self, hpack};
use lowroad_http::h3::{self, qpack};
use lowroad_http::head_writer::{HeadWriter, put_content_range};
use lowroad_http::status::StatusCode;
use lowroad_http::stored_head::StoredSection;

use super::{FieldChanges, ResponseProtocol};

/// The name of the field Cache-Control.
const CACHE_CONTROL: &str = "Cache-Control";

/// The fields of a head in a frame.
#[derive(Clone, Copy)]
enum FramedHead {
    /// The head is that of HTTP/1, or the stream has ended: then nothing is written.
    None,
    Http2(h2::HeadInProgress),
    Http3(h3::H3HeadInProgress),
}

/// A head being written: fields in the order in which they are added. The connection adds its own fields.
pub struct HeadBuilder<'r> {
    wire: ResponseProtocol<'r>,
    status: StatusCode,
    /// The fields of HTTP/2 or HTTP/3.
    framed: FramedHead,
    /// The changes to the fields of this response, if there are any.
    changes: Option<&'r FieldChanges>,
    /// The lines of Cache-Control of a response that becomes private.
    cache_control: Vec<Box<[u8]>>,
    out: &'r mut Vec<u8>,
}

impl<'r> HeadBuilder<'r> {
    #[inline]
    pub(super) fn new(
        mut wire: ResponseProtocol<'r>,
        status: StatusCode,
        date: &[u8; 29],
        out: &'r mut Vec<u8>,
    ) -> HeadBuilder<'r> {
        let framed = match &mut wire {
            ResponseProtocol::Http1(_) => {
                HeadWriter::start(out, status, date);
                FramedHead::None
            }
            ResponseProtocol::Http2(http, stream) => {
                let head = http.begin_head(*stream, status, date, out);
                head.map_or(FramedHead::None, FramedHead::Http2)
            }
            ResponseProtocol::Http3(http, stream) => {
                let head = http.begin_head(*stream, status, date, out);
                head.map_or(FramedHead::None, FramedHead::Http3)
            }
        };
        HeadBuilder {
            wire,
            status,
            framed,
            changes: None,
            cache_control: Vec::new(),
            out,
        }
    }

    /// The builder with changes to the fields that are added to it.
    #[inline]
    pub(super) fn with_changes(self, changes: Option<&'r FieldChanges>) -> HeadBuilder<'r> {
        HeadBuilder { changes, ..self }
    }
}

impl HeadBuilder<'_> {
    /// Adds a field. Bytes that are not allowed in a value become spaces.
    pub fn field(&mut self, name: &str, value: &[u8]) -> &mut Self {
        let Some(changes) = self.changes else {
            return self.put(name, value);
        };
        if changes.omits(name.as_bytes())
            || changes.is_private && targeted_fields::is_targeted(name)
        {
            return self;
        }
        if changes.is_private && name.eq_ignore_ascii_case(CACHE_CONTROL) {
            self.cache_control.push(value.into());
            return self;
        }
        self.put(name, value)
    }

    fn put(&mut self, name: &str, value: &[u8]) -> &mut Self {
        match (&self.wire, self.framed) {
            (ResponseProtocol::Http1(_), _) => {
                HeadWriter::resume(self.out).field(name, value);
            }
            (_, FramedHead::None) => {}
            (_, FramedHead::Http2(_)) => write_field(name, value, hpack::put_field, self.out),
            (_, FramedHead::Http3(_)) => write_field(name, value, qpack::put_field, self.out),
        }
        self
    }

    /// Adds a field with the value that `write` appends, see [`HeadWriter::field_by`].
    pub fn field_by(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        if self.is_omitted(name) {
            return self;
        }
        if let ResponseProtocol::Http1(_) = self.wire {
            HeadWriter::resume(self.out).field_by(name, write);
            return self;
        }
        let mut value = Vec::new();
        write(&mut value);
        self.field(name, &value)
    }

    /// Adds a field with a number as its value.
    pub fn field_u64(&mut self, name: &str, value: u64) -> &mut Self {
        if let ResponseProtocol::Http1(_) = self.wire {
            HeadWriter::resume(self.out).field_u64(name, value);
            return self;
        }
        self.field_by(name, |out| {
            lowroad_http::head_writer::put_number(out, value)
        })
    }

    /// Adds Content-Range, see [`HeadWriter::content_range`].
    pub fn content_range(&mut self, start: u64, end: u64, len: u64) -> &mut Self {
        self.field_by("Content-Range", |out| {
            put_content_range(out, start, end, len)
        })
    }

    /// Adds fields, except hop-by-hop fields and others that are not for clients.
    pub fn fields(&mut self, fields: &ResponseFields) -> &mut Self {
        if self.filters() {
            for (name, value) in fields.for_clients() {
                self.field(name.as_str(), value);
            }
            return self;
        }
        match (&self.wire, self.framed) {
            (ResponseProtocol::Http1(_), _) => h1::put_fields(fields, self.out),
            (_, FramedHead::None) => {}
            (_, FramedHead::Http2(_)) => h2::put_fields(fields, self.out),
            (_, FramedHead::Http3(_)) => h3::put_fields(fields, self.out),
        }
        self
    }

    /// Adds fields of a stored head.
    pub fn encoded(&mut self, section: StoredSection<'_>) -> &mut Self {
        if self.filters() {
            for (name, value) in section.fields() {
                self.field(name.as_str(), value);
            }
            return self;
        }
        match (&self.wire, self.framed) {
            (ResponseProtocol::Http1(_), _) => h1::put_encoded(section, self.out),
            (_, FramedHead::None) => {}
            (_, FramedHead::Http2(_)) => h2::put_encoded(section, self.out),
            (_, FramedHead::Http3(_)) => h3::put_encoded(section, self.out),
        }
        self
    }

    fn filters(&self) -> bool {
        self.changes.is_some_and(FieldChanges::filters)
    }

    #[inline]
    fn is_omitted(&self, name: &str) -> bool {
        self.changes
            .is_some_and(|changes| changes.omits(name.as_bytes()))
    }

    /// Ends the head. Returns whether the caller has to write a body.
    pub fn end(mut self, body: BodyLen) -> bool {
        if let Some(changes) = self.changes {
            for (name, value) in FieldLines::new(&changes.lines) {
                // The names are those of the configuration.
                self.put(&String::from_utf8_lossy(name), value);
            }
            if changes.is_private {
                let lines = std::mem::take(&mut self.cache_control);
                let value = cache_control::private_value(lines.iter().map(|line| &**line));
                self.put(CACHE_CONTROL, &value);
            }
        }
        match (self.wire, self.framed) {
            (ResponseProtocol::Http1(http), _) => http.finish_head(self.status, body, self.out),
            (ResponseProtocol::Http2(http, _), FramedHead::Http2(head)) => {
                http.finish_head(head, body, self.out)
            }
            (ResponseProtocol::Http3(http, _), FramedHead::Http3(head)) => {
                http.finish_head(head, body, self.out)
            }
            _ => false,
        }
    }
}

fn write_field(
    name: &str,
    value: &[u8],
    put: impl FnOnce(FieldName<'_>, &[u8], &mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    let name = match StandardHeader::find(name.as_bytes()) {
        Some(standard) => FieldName::Known(standard),
        None => FieldName::Other(name),
    };
    match value.iter().all(|byte| is_value_byte(*byte)) {
        true => put(name, value, out),
        false => {
            // RFC 9110 §5.5: CR, LF and NUL could end the field, so they are replaced.
            let clean = value.iter().map(|byte| match is_value_byte(*byte) {
                true => *byte,
                false => b' ',
            });
            put(name, &clean.collect::<Vec<u8>>(), out);
        }
    }
}

/// Whether a field value may contain this byte (RFC 9110 §5.5).
fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}
