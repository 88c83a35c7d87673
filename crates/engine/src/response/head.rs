//! The head of a response while it is written, field by field, in either protocol.

use lowroad_http::encoded::Section;
use lowroad_http::fields::{Fields, Known, Name};
use lowroad_http::h1::{self, BodyLen};
use lowroad_http::h2::{self, hpack};
use lowroad_http::head::{HeadWriter, put_content_range};
use lowroad_http::protocol::StreamId;
use lowroad_http::status::Status;

/// A head being written: fields in their order, but those that are the connection's.
pub struct Head<'r> {
    wire: Wire<'r>,
    out: &'r mut Vec<u8>,
}

enum Wire<'r> {
    One {
        http: &'r mut h1::Server,
        status: Status,
    },
    /// Nothing has begun where nobody waits for the response any more: then nothing is written.
    Two {
        http: &'r mut h2::Server,
        begun: Option<h2::Begun>,
    },
}

impl<'r> Head<'r> {
    pub(super) fn of_connection(
        http: &'r mut h1::Server,
        status: Status,
        date: &[u8; 29],
        out: &'r mut Vec<u8>,
    ) -> Head<'r> {
        HeadWriter::start(out, status, date);
        let wire = Wire::One { http, status };
        Head { wire, out }
    }

    pub(super) fn of_stream(
        http: &'r mut h2::Server,
        stream: StreamId,
        status: Status,
        date: &[u8; 29],
        out: &'r mut Vec<u8>,
    ) -> Head<'r> {
        let begun = http.begin_head(stream, status, date, out);
        let wire = Wire::Two { http, begun };
        Head { wire, out }
    }
}

impl Head<'_> {
    /// Adds a field. What a value cannot have becomes a space.
    pub fn field(&mut self, name: &str, value: &[u8]) -> &mut Self {
        match self.wire {
            Wire::One { .. } => drop(HeadWriter::resume(self.out).field(name, value)),
            Wire::Two { begun: None, .. } => {}
            Wire::Two { .. } => put_field(name, value, self.out),
        }
        self
    }

    /// Adds a field whose value `write` appends, see [`HeadWriter::field_by`].
    pub fn field_by(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        if let Wire::One { .. } = self.wire {
            HeadWriter::resume(self.out).field_by(name, write);
            return self;
        }
        let mut value = Vec::new();
        write(&mut value);
        self.field(name, &value)
    }

    /// Adds a field whose value is a number.
    pub fn field_u64(&mut self, name: &str, value: u64) -> &mut Self {
        if let Wire::One { .. } = self.wire {
            HeadWriter::resume(self.out).field_u64(name, value);
            return self;
        }
        self.field_by(name, |out| lowroad_http::head::put_number(out, value))
    }

    /// Adds Content-Range, see [`HeadWriter::content_range`].
    pub fn content_range(&mut self, start: u64, end: u64, len: u64) -> &mut Self {
        self.field_by("Content-Range", |out| {
            put_content_range(out, start, end, len)
        })
    }

    /// Adds fields, but those that are not for clients.
    pub fn fields(&mut self, fields: &Fields) -> &mut Self {
        match self.wire {
            Wire::One { .. } => h1::put_fields(fields, self.out),
            Wire::Two { begun: None, .. } => {}
            Wire::Two { .. } => h2::put_fields(fields, self.out),
        }
        self
    }

    /// Adds fields of a stored head.
    pub fn encoded(&mut self, section: Section<'_>) -> &mut Self {
        match self.wire {
            Wire::One { .. } => h1::put_encoded(section, self.out),
            Wire::Two { begun: None, .. } => {}
            Wire::Two { .. } => h2::put_encoded(section, self.out),
        }
        self
    }

    /// Ends the head. Whether a body is wanted; else none may be written.
    pub fn end(self, body: BodyLen) -> bool {
        match self.wire {
            Wire::One { http, status } => http.finish_head(status, body, self.out),
            Wire::Two { begun: None, .. } => false,
            Wire::Two {
                http,
                begun: Some(begun),
            } => http.finish_head(begun, body, self.out),
        }
    }
}

fn put_field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    let name = match Known::find(name.as_bytes()) {
        Some(known) => Name::Known(known),
        None => Name::Other(name),
    };
    match value.iter().all(|byte| is_of_value(*byte)) {
        true => hpack::put_field(name, value, out),
        false => {
            let clean = value.iter().map(|byte| match is_of_value(*byte) {
                true => *byte,
                false => b' ',
            });
            hpack::put_field(name, &clean.collect::<Vec<u8>>(), out);
        }
    }
}

/// RFC 9110 §5.5.
fn is_of_value(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}
