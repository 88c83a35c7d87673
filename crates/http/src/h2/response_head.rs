//! Response heads: field blocks built for one response, and prebuilt field blocks of stored responses. Read RFC 9113
//! §8.1 and §8.3.2.

use alloc::boxed::Box;
use alloc::vec::Vec;

use once_cell::race::OnceBox;

use super::hpack;
use super::streams::StreamOutput;
use super::{H2Server, StreamId, frame};
use crate::field_section::is_end_to_end;
use crate::fields::{FieldLines, FieldName, ResponseFields, StandardHeader};
use crate::h1::BodyLen;
use crate::status::StatusCode;
use crate::stored_head::StoredSection;

/// A response head that is being written at the end of a buffer.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct HeadInProgress {
    stream: StreamId,
    status: StatusCode,
    /// The offset of the head's frame header.
    frame_start: usize,
    /// The head replaces a 2xx response that would have opened a tunnel without a handler for it.
    is_refused: bool,
}

/// The head of a stored response as a field block: status, a date that is overwritten for each response, and fields.
/// Valid on all connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldBlock {
    status: StatusCode,
    bytes: Box<[u8]>,
}

/// The block of a stored response, built at the first request over HTTP/2.
#[derive(Debug, Default)]
pub struct LazyBlock(OnceBox<FieldBlock>);

impl LazyBlock {
    /// The block, built from these fields on the first call. The fields include Content-Length.
    #[inline]
    pub fn encode_lines(&self, status: StatusCode, lines: FieldLines<'_>) -> &FieldBlock {
        let make = || {
            Box::new(FieldBlock::new(
                status,
                lines.resolved_names(),
                BodyLen::None,
            ))
        };
        self.0.get_or_init(make)
    }
}

impl FieldBlock {
    /// Builds a block. Values are Huffman-coded where that makes them shorter, since a block is built once and sent
    /// often.
    #[must_use]
    pub fn new<'a>(
        status: StatusCode,
        fields: impl IntoIterator<Item = (FieldName<'a>, &'a [u8])>,
        len: BodyLen,
    ) -> FieldBlock {
        let mut bytes = Vec::with_capacity(192);
        hpack::put_status(status, &mut bytes);
        // A placeholder that each response overwrites.
        hpack::put_date(&[b' '; 29], &mut bytes);
        for (name, value) in fields {
            if is_end_to_end(name) {
                hpack::put_field_short(name, value, &mut bytes);
            }
        }
        if let BodyLen::Known(len) = len {
            hpack::put_field_u64(StandardHeader::ContentLength, len, &mut bytes);
        }
        let bytes = bytes.into_boxed_slice();
        FieldBlock { status, bytes }
    }
}

/// Appends the fields that are sent to clients.
pub fn put_fields(fields: &ResponseFields, out: &mut Vec<u8>) {
    for (name, value) in fields
        .for_clients()
        .filter(|(name, _)| is_end_to_end(*name))
    {
        hpack::put_field(name, value, out);
    }
}

/// Appends the fields of a stored head.
pub fn put_encoded(section: StoredSection<'_>, out: &mut Vec<u8>) {
    for (name, value) in section.fields().filter(|(name, _)| is_end_to_end(*name)) {
        hpack::put_field(name, value, out);
    }
}

/// Appends fields given as lines.
pub fn put_lines(lines: FieldLines<'_>, out: &mut Vec<u8>) {
    for (name, value) in lines
        .resolved_names()
        .filter(|(name, _)| is_end_to_end(*name))
    {
        hpack::put_field(name, value, out);
    }
}

impl H2Server {
    /// Begins a response head at the end of `out`: status and date. The caller appends fields with
    /// [`hpack::put_field`], [`put_fields`] or [`put_encoded`], then calls `H2Server::finish_head`. `None` if the
    /// stream has ended or was answered: then nothing may be written.
    pub fn begin_head(
        &mut self,
        stream: StreamId,
        status: StatusCode,
        date: &[u8; 29],
        out: &mut Vec<u8>,
    ) -> Option<HeadInProgress> {
        let h2_stream = self.http.streams.by_id(stream.0)?;
        if h2_stream.output != StreamOutput::Head {
            return None;
        }
        // Any 2xx to CONNECT opens the tunnel (RFC 9113 §8.5). A handler that responds with a body does not implement
        // the protocol.
        let is_refused = h2_stream.is_tunnel && status.code() / 100 == 2;
        let status = match is_refused {
            true => StatusCode::NOT_IMPLEMENTED,
            false => status,
        };
        let head = self.begin(stream, status, date, out);
        Some(HeadInProgress { is_refused, ..head })
    }

    fn begin(
        &mut self,
        stream: StreamId,
        status: StatusCode,
        date: &[u8; 29],
        out: &mut Vec<u8>,
    ) -> HeadInProgress {
        let frame_start = self.http.open_block(out);
        hpack::put_status(status, out);
        hpack::put_date(date, out);
        HeadInProgress {
            stream,
            status,
            frame_start,
            is_refused: false,
        }
    }

    /// Accepts a tunnel: from now on the stream's body carries the bytes of the tunnel in both directions. Returns
    /// false if the request was not for a tunnel or the stream has ended. Omits Sec-WebSocket-Accept, which belongs to
    /// the handshake of HTTP/1.1 (RFC 8441 §5).
    pub fn open_tunnel(
        &mut self,
        stream: StreamId,
        fields: &ResponseFields,
        date: &[u8; 29],
        out: &mut Vec<u8>,
    ) -> bool {
        let h2_stream = self.http.streams.by_id(stream.0);
        if !h2_stream.is_some_and(|it| it.is_tunnel && it.output == StreamOutput::Head) {
            return false;
        }
        // RFC 8441 §5: 200 replaces 101.
        let head = self.begin(stream, StatusCode::OK, date, out);
        for (name, value) in fields
            .for_clients()
            .filter(|(name, _)| is_end_to_end(*name))
        {
            if !name.as_str().eq_ignore_ascii_case("sec-websocket-accept") {
                hpack::put_field(name, value, out);
            }
        }
        self.finish_head(head, BodyLen::Unknown, out)
    }

    /// Completes a head. Returns whether a body is to be sent; if not, body data given later is dropped.
    pub fn finish_head(&mut self, head: HeadInProgress, len: BodyLen, out: &mut Vec<u8>) -> bool {
        let HeadInProgress {
            stream,
            status,
            frame_start,
            is_refused,
        } = head;
        // If the 2xx response was replaced, its body is not sent.
        let len = if is_refused { BodyLen::None } else { len };
        let Some(slot) = self.http.streams.find(stream.0) else {
            return false;
        };
        if let Some(len) = self.http.streams.get(slot).content_len(status, len) {
            hpack::put_field_u64(StandardHeader::ContentLength, len, out);
        }
        self.close_head(slot, status, len, frame_start, out)
    }

    /// Writes a response head; `lines` are its field lines. See `H2Server::finish_head`.
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
        block: &FieldBlock,
        len: u64,
        (date, lines): (&[u8; 29], FieldLines<'_>),
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(slot) = self.http.streams.find(stream.0) else {
            return false;
        };
        if self.http.streams.get(slot).output != StreamOutput::Head {
            return false;
        }
        // A refused tunnel needs another status than that of the block.
        if self.http.streams.get(slot).is_tunnel && block.status.code() / 100 == 2 {
            let head = self.begin_head(stream, block.status, date, out);
            return head.is_some_and(|head| self.finish_head(head, BodyLen::None, out));
        }
        let frame_start = self.http.open_block(out);
        let date_at = out.len() + hpack::date_offset(block.status);
        out.extend_from_slice(&block.bytes);
        if let Some(date_slot) = out.get_mut(date_at..date_at + date.len()) {
            date_slot.copy_from_slice(date);
        }
        put_lines(lines, out);
        self.close_head(slot, block.status, BodyLen::Known(len), frame_start, out)
    }

    /// Selects how the body is sent, and completes the HEADERS frame.
    #[inline]
    fn close_head(
        &mut self,
        slot: u16,
        status: StatusCode,
        len: BodyLen,
        frame_start: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let frame_len_max = self.http.peer.frame_len_max as usize;
        let h2_stream = self.http.streams.get(slot);
        let id = h2_stream.id;
        let has_body = h2_stream.begin_output(status, len);
        frame::close_block(id, !has_body, frame_start, frame_len_max, out);
        if !has_body {
            self.http.remove_if_complete(id, out);
        }
        has_body
    }

    /// Whether the whole response to a request was written, with END_STREAM.
    #[must_use]
    pub fn is_response_complete(&mut self, stream: StreamId) -> bool {
        let stream = self.http.streams.by_id(stream.0);
        stream.is_none_or(|it| it.output == StreamOutput::Ended)
    }
}
