//! Response heads: field sections built for one response, and prebuilt field sections of stored responses. Read RFC 9114
//! §4.1 and §4.3.2.

use alloc::boxed::Box;
use alloc::vec::Vec;

use once_cell::race::OnceBox;

use super::frames;
use super::server::H3Server;
use super::{StreamId, qpack};
use crate::field_section::is_end_to_end;
use crate::fields::{FieldLines, FieldName, ResponseFields, StandardHeader};
use crate::h1::BodyLen;
use crate::status::StatusCode;
use crate::stored_head::StoredSection;
use crate::streams::StreamOutput;

/// A response head that is being written at the end of a buffer.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct H3HeadInProgress {
    stream: StreamId,
    status: StatusCode,
    /// The offset of the head's frame.
    frame_start: usize,
    /// The head replaces a 2xx response that would have opened a tunnel without a handler for it.
    is_refused: bool,
}

/// The head of a stored response as a field section: status, a date that is overwritten for each response, and fields.
/// Valid on all connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSection {
    status: StatusCode,
    bytes: Box<[u8]>,
}

/// The section of a stored response, built at the first request over HTTP/3.
#[derive(Debug, Default)]
pub struct LazySection(OnceBox<FieldSection>);

impl LazySection {
    /// The section, built from these fields on the first call. The fields include Content-Length.
    #[inline]
    pub fn encode_lines(&self, status: StatusCode, lines: FieldLines<'_>) -> &FieldSection {
        let make = || {
            let fields = lines.resolved_names();
            Box::new(FieldSection::new(status, fields, BodyLen::None))
        };
        self.0.get_or_init(make)
    }
}

impl FieldSection {
    /// Builds a section. Values have their shortest coding, since a section is built once and sent often.
    #[must_use]
    pub fn new<'a>(
        status: StatusCode,
        fields: impl IntoIterator<Item = (FieldName<'a>, &'a [u8])>,
        len: BodyLen,
    ) -> FieldSection {
        let mut bytes = Vec::with_capacity(192);
        qpack::put_prefix(&mut bytes);
        qpack::put_status(status, &mut bytes);
        // A placeholder that each response overwrites.
        qpack::put_date(&[b' '; 29], &mut bytes);
        for (name, value) in fields {
            if is_end_to_end(name) {
                qpack::put_field_short(name, value, &mut bytes);
            }
        }
        if let BodyLen::Known(len) = len {
            qpack::put_field_u64(StandardHeader::ContentLength, len, &mut bytes);
        }
        let bytes = bytes.into_boxed_slice();
        FieldSection { status, bytes }
    }
}

fn put_each<'a>(fields: impl Iterator<Item = (FieldName<'a>, &'a [u8])>, out: &mut Vec<u8>) {
    for (name, value) in fields.filter(|(name, _)| is_end_to_end(*name)) {
        qpack::put_field(name, value, out);
    }
}

/// Appends the fields that are sent to clients.
pub fn put_fields(fields: &ResponseFields, out: &mut Vec<u8>) {
    put_each(fields.for_clients(), out);
}

/// Appends the fields of a stored head.
pub fn put_encoded(section: StoredSection<'_>, out: &mut Vec<u8>) {
    put_each(section.fields(), out);
}

/// Appends fields given as lines.
pub fn put_lines(lines: FieldLines<'_>, out: &mut Vec<u8>) {
    put_each(lines.resolved_names(), out);
}

impl H3Server {
    /// Begins a response head at the end of `out`: status and date. The caller appends fields with
    /// [`qpack::put_field`], [`put_fields`] or [`put_encoded`], then calls `H3Server::finish_head`. `None` if the
    /// stream has ended or was answered: then nothing may be written.
    pub fn begin_head(
        &mut self,
        stream: StreamId,
        status: StatusCode,
        date: &[u8; 29],
        out: &mut Vec<u8>,
    ) -> Option<H3HeadInProgress> {
        let h3_stream = self.streams.by_id(stream.0)?;
        if h3_stream.output != StreamOutput::Head {
            return None;
        }
        // Any 2xx to CONNECT opens the tunnel (RFC 9114 §4.4). A handler that responds with a body does not implement
        // the protocol.
        let is_refused = h3_stream.is_tunnel && status.code() / 100 == 2;
        let status = match is_refused {
            true => StatusCode::NOT_IMPLEMENTED,
            false => status,
        };
        Some(H3HeadInProgress {
            is_refused,
            ..begin(stream, status, date, out)
        })
    }

    /// Accepts a tunnel: from now on the stream's body carries the bytes of the tunnel in both directions. Returns
    /// false if the request was not for a tunnel or the stream has ended. Omits Sec-WebSocket-Accept, which belongs to
    /// the handshake of HTTP/1.1 (RFC 9220 §3).
    pub fn open_tunnel(
        &mut self,
        stream: StreamId,
        fields: &ResponseFields,
        date: &[u8; 29],
        out: &mut Vec<u8>,
    ) -> bool {
        let h3_stream = self.streams.by_id(stream.0);
        if !h3_stream.is_some_and(|it| it.is_tunnel && it.output == StreamOutput::Head) {
            return false;
        }
        // RFC 9220 §3: 200 replaces 101.
        let head = begin(stream, StatusCode::OK, date, out);
        let is_sent =
            |name: FieldName<'_>| !name.as_str().eq_ignore_ascii_case("sec-websocket-accept");
        put_each(fields.for_clients().filter(|(name, _)| is_sent(*name)), out);
        self.finish_head(head, BodyLen::Unknown, out)
    }

    /// Completes a head. Returns whether a body is to be sent; if not, the stream ends, and body data given later is
    /// dropped.
    pub fn finish_head(&mut self, head: H3HeadInProgress, len: BodyLen, out: &mut Vec<u8>) -> bool {
        // If the 2xx response was replaced, its body is not sent.
        let len = if head.is_refused { BodyLen::None } else { len };
        let Some(stream) = self.streams.by_id(head.stream.0) else {
            return false;
        };
        if let Some(len) = stream.content_len(head.status, len) {
            qpack::put_field_u64(StandardHeader::ContentLength, len, out);
        }
        self.close_head(head.stream, head.status, len, head.frame_start, out)
    }

    /// Writes a response head; `lines` are its field lines. See `H3Server::finish_head`.
    pub fn respond(
        &mut self,
        stream: StreamId,
        status: StatusCode,
        lines: FieldLines<'_>,
        len: BodyLen,
        date: &[u8; 29],
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(head) = self.begin_head(stream, status, date, out) else {
            return false;
        };
        put_lines(lines, out);
        self.finish_head(head, len, out)
    }

    /// Writes a prebuilt head with this date and additional field lines, for a response with a body of `len` bytes.
    #[inline]
    pub fn respond_prebuilt(
        &mut self,
        stream: StreamId,
        section: &FieldSection,
        len: u64,
        date: &[u8; 29],
        lines: FieldLines<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(h3_stream) = self.streams.by_id(stream.0) else {
            return false;
        };
        // The stream was answered or reset.
        if h3_stream.output != StreamOutput::Head {
            return false;
        }
        // A refused tunnel needs another status than that of the section.
        if h3_stream.is_tunnel && section.status.code() / 100 == 2 {
            let head = self.begin_head(stream, section.status, date, out);
            return head.is_some_and(|head| self.finish_head(head, BodyLen::None, out));
        }
        let frame_start = frames::open_section(out);
        let date_at = out.len() + qpack::date_offset(section.status);
        out.extend_from_slice(&section.bytes);
        if let Some(date_slot) = out.get_mut(date_at..date_at + date.len()) {
            date_slot.copy_from_slice(date);
        }
        put_lines(lines, out);
        self.close_head(
            stream,
            section.status,
            BodyLen::Known(len),
            frame_start,
            out,
        )
    }

    /// Selects how the body is sent, and completes the HEADERS frame.
    #[inline]
    fn close_head(
        &mut self,
        stream: StreamId,
        status: StatusCode,
        len: BodyLen,
        frame_start: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        frames::close_section(frame_start, out);
        let Some(h3_stream) = self.streams.by_id(stream.0) else {
            return false;
        };
        let has_body = h3_stream.begin_output(status, len);
        if !has_body {
            self.remove_if_complete(stream.0);
        }
        has_body
    }

    /// Writes an interim response (1xx except 101) with these field lines.
    pub fn interim(
        &mut self,
        stream: StreamId,
        status: StatusCode,
        lines: FieldLines<'_>,
        out: &mut Vec<u8>,
    ) {
        let Some(h3_stream) = self.streams.by_id(stream.0) else {
            return;
        };
        if h3_stream.output != StreamOutput::Head {
            return;
        }
        // 100 is sent at most once.
        if status == StatusCode::CONTINUE {
            h3_stream.expects_continue = false;
        }
        let frame_start = frames::open_section(out);
        qpack::put_prefix(out);
        qpack::put_status(status, out);
        put_lines(lines, out);
        frames::close_section(frame_start, out);
    }
}

fn begin(
    stream: StreamId,
    status: StatusCode,
    date: &[u8; 29],
    out: &mut Vec<u8>,
) -> H3HeadInProgress {
    let frame_start = frames::open_section(out);
    qpack::put_prefix(out);
    qpack::put_status(status, out);
    qpack::put_date(date, out);
    H3HeadInProgress {
        stream,
        status,
        frame_start,
        is_refused: false,
    }
}
