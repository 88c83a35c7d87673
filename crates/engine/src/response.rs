//! Writes responses. The service chooses status, fields and body; this module and `lowroad_http::{h1, h2}` decide the
//! format on the wire and whether the connection persists.

mod head;

use bytes::Bytes;
use lowroad_http::encoded_heads::EncodedHeads;
use lowroad_http::fields::{FieldLines, ResponseFields};
use lowroad_http::h1::{BodyLen, H1Server, H1ServerEvent, put_fields};
use lowroad_http::h2;
use lowroad_http::h3::{self, H3Server};
use lowroad_http::head_writer::{HeadWriter, date_offset};
use lowroad_http::limits::RequestLimits;
use lowroad_http::protocol::{ServerProtocol, StreamId};
use lowroad_http::request::Request;
use lowroad_http::status::StatusCode;
use lowroad_http::version::HttpVersion;

use crate::response_body::{BodyPart, BodySource, OutputBuffer, StreamedBody};
use crate::response_pace::{PacedBody, ResponseRate};
use crate::tunnel::ClientTunnel;

pub use self::head::HeadBuilder;

/// Bodies up to this length are copied behind the head; longer ones are sent without a copy.
const COPIED_LEN_MAX: usize = 16 * 1024;

/// The response to one request.
pub struct ResponseWriter<'r> {
    wire: ResponseProtocol<'r>,
    out: &'r mut OutputBuffer,
    /// The start of the response in the output.
    start: usize,
    date: &'r [u8; 29],
    /// The changes to the fields of the response, of any kind.
    changes: Option<Box<FieldChanges>>,
    /// The limit for the bytes of the body.
    rate: Option<ResponseRate>,
    /// The number of parts of earlier responses.
    earlier_parts: usize,
}

/// The changes to the fields of a response that depend on its request.
#[derive(Debug, Default)]
pub struct FieldChanges {
    /// Field lines to add, each with its CRLF.
    pub lines: Vec<u8>,
    /// The names of fields that are omitted, other than those in `lines`.
    pub omitted: Vec<Box<str>>,
    /// Keeps the response out of shared caches: Cache-Control becomes `private` with the directives for private caches
    /// (RFC 9111 §5.2.2.7), and fields with lifetimes for caches of a kind are omitted.
    pub is_private: bool,
}

impl FieldChanges {
    /// Whether a field is omitted.
    pub fn omits(&self, name: &[u8]) -> bool {
        let mut omitted = self.omitted.iter();
        omitted.any(|it| it.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Whether fields of the response are omitted or changed.
    pub fn filters(&self) -> bool {
        !self.omitted.is_empty() || self.is_private
    }
}

/// The protocol in which the response is written.
enum ResponseProtocol<'r> {
    /// HTTP/1, with the connection's state. Head and copied body are in `OutputBuffer::bytes`.
    Http1(&'r mut H1Server),
    /// HTTP/2, with the connection's state and the stream. The head is in `OutputBuffer::bytes` as frames, the copied
    /// body in `OutputBuffer::body`.
    Http2(&'r mut h2::H2Server, StreamId),
    /// HTTP/3, as HTTP/2.
    Http3(&'r mut H3Server, StreamId),
}

impl ResponseProtocol<'_> {
    fn reborrow(&mut self) -> ResponseProtocol<'_> {
        match self {
            ResponseProtocol::Http1(http) => ResponseProtocol::Http1(http),
            ResponseProtocol::Http2(http, stream) => ResponseProtocol::Http2(http, *stream),
            ResponseProtocol::Http3(http, stream) => ResponseProtocol::Http3(http, *stream),
        }
    }
}

/// A prepared response in memory: a head for HTTP/1 as [`HeadWriter`] writes it, with Content-Length and without the
/// empty line.
pub struct PreparedResponse<'b> {
    /// The status code.
    pub status: StatusCode,
    /// The head; if `is_inline`, followed by the empty line and the body.
    pub bytes: &'b [u8],
    /// The head's Date is sent; otherwise it is replaced by the current date.
    pub is_dated: bool,
    /// The end of the head in `bytes`.
    pub head_len: usize,
    /// The length of the body in bytes.
    pub body_len: u64,
    /// The body follows the head in `bytes`.
    pub is_inline: bool,
    /// Additional field lines for this client.
    pub extra_fields: &'b [u8],
}

/// The head of a written response.
pub struct WrittenHead<'l> {
    /// The fields.
    pub fields: FieldLines<'l>,
    /// The length in bytes: over HTTP/2 and HTTP/3, of the frames.
    pub len: u64,
}

impl WrittenHead<'_> {
    /// No head.
    pub const NONE: WrittenHead<'static> = WrittenHead {
        fields: FieldLines::NONE,
        len: 0,
    };
}

impl<'r> ResponseWriter<'r> {
    pub(crate) fn new(
        http: &'r mut H1Server,
        out: &'r mut OutputBuffer,
        date: &'r [u8; 29],
    ) -> ResponseWriter<'r> {
        let wire = ResponseProtocol::Http1(http);
        ResponseWriter::with_protocol(wire, out, date)
    }

    pub(crate) fn for_stream(
        http: &'r mut h2::H2Server,
        stream: StreamId,
        out: &'r mut OutputBuffer,
        date: &'r [u8; 29],
    ) -> ResponseWriter<'r> {
        let wire = ResponseProtocol::Http2(http, stream);
        ResponseWriter::with_protocol(wire, out, date)
    }

    pub(crate) fn for_http3(
        http: &'r mut H3Server,
        stream: StreamId,
        out: &'r mut OutputBuffer,
        date: &'r [u8; 29],
    ) -> ResponseWriter<'r> {
        let wire = ResponseProtocol::Http3(http, stream);
        ResponseWriter::with_protocol(wire, out, date)
    }

    fn with_protocol(
        wire: ResponseProtocol<'r>,
        out: &'r mut OutputBuffer,
        date: &'r [u8; 29],
    ) -> ResponseWriter<'r> {
        out.body_in_bytes = 0;
        let (start, earlier_parts) = (out.bytes.len(), out.parts.len());
        ResponseWriter {
            wire,
            out,
            start,
            date,
            changes: None,
            rate: None,
            earlier_parts,
        }
    }

    /// The head as it was written. `lines` is memory for decoded field lines.
    pub fn written_head<'l>(&'l self, lines: &'l mut Vec<u8>) -> WrittenHead<'l> {
        lines.clear();
        let bytes = self.out.bytes.get(self.start..).unwrap_or_default();
        let decode = match self.wire {
            ResponseProtocol::Http1(_) => None,
            ResponseProtocol::Http2(..) => Some(h2::decode_written_head as fn(&[u8], &mut _) -> _),
            ResponseProtocol::Http3(..) => Some(h3::decode_written_head as fn(&[u8], &mut _) -> _),
        };
        if let Some(decode) = decode {
            let len = decode(bytes, lines) as u64;
            let fields = FieldLines::new(lines);
            return WrittenHead { fields, len };
        }
        let find = |text: &[u8]| bytes.windows(text.len()).position(|it| it == text);
        let (Some(line_end), Some(end)) = (find(b"\r\n"), find(b"\r\n\r\n")) else {
            return WrittenHead::NONE;
        };
        // Without fields, the end of the status line is the end of the head.
        let fields = bytes.get(line_end + 2..end + 2).unwrap_or_default();
        WrittenHead {
            fields: FieldLines::new(fields),
            len: end as u64 + 4,
        }
    }

    /// Announces the close of the connection if the rest of the request's body is too long to be read.
    #[inline]
    fn close_over_body(&mut self) {
        if let ResponseProtocol::Http1(http) = &mut self.wire
            && !http.is_request_whole()
            && !http.drains_body()
        {
            http.close();
        }
    }

    /// Closes an HTTP/1 connection after this response. Called before the head is written.
    pub fn close(&mut self) {
        if let ResponseProtocol::Http1(http) = &mut self.wire {
            http.close();
        }
    }

    /// Ends the exchange without a response: closes an HTTP/1 connection, after the responses to earlier requests, or
    /// resets a stream. Nothing may be written afterwards.
    pub fn abandon(&mut self) {
        match &mut self.wire {
            ResponseProtocol::Http1(http) => http.close(),
            ResponseProtocol::Http2(http, stream) => {
                http.reset(*stream, h2::ErrorCode::CANCEL, &mut self.out.bytes);
            }
            // QUIC is not known here: the connection resets the stream after the call.
            ResponseProtocol::Http3(..) => self.out.is_abandoned = true,
        }
    }

    /// Sets the changes to the fields of the response, of any kind. They replace those that were set before. Called
    /// before the head is written.
    pub fn set_field_changes(&mut self, changes: FieldChanges) {
        // Writers test for changes by this option only.
        let is_empty = changes.lines.is_empty() && !changes.filters();
        self.changes = (!is_empty).then(|| Box::new(changes));
    }

    /// Limits the rate of the body; bodies up to 16 KiB that are copied behind the head are sent at once. Called before
    /// the body is written.
    pub fn set_rate(&mut self, rate: Option<ResponseRate>) {
        self.rate = rate;
    }

    /// Begins the head.
    pub fn head(&mut self, status: StatusCode) -> HeadBuilder<'_> {
        self.head_dated(status, None)
    }

    /// Begins a head with this Date instead of the current one.
    pub fn head_dated(&mut self, status: StatusCode, date: Option<&[u8; 29]>) -> HeadBuilder<'_> {
        self.close_over_body();
        let (date, out) = (date.unwrap_or(self.date), &mut self.out.bytes);
        let changes = self.changes.as_deref();
        HeadBuilder::new(self.wire.reborrow(), status, date, out).with_changes(changes)
    }

    /// Writes a prepared response; for HTTP/2 and HTTP/3, `heads` returns the encoded heads. Returns whether the caller has to write
    /// the body: the response has one (not for HEAD), and it is not inline.
    #[inline]
    pub fn write_prepared<'b>(
        &mut self,
        prepared: &PreparedResponse<'_>,
        heads: impl FnOnce() -> &'b EncodedHeads,
    ) -> bool {
        if self.changes.is_some() {
            return self.write_prepared_with_changes(prepared, heads);
        }
        self.close_over_body();
        let http = match &mut self.wire {
            ResponseProtocol::Http1(http) => http,
            _ => return self.write_prepared_framed(prepared, heads()),
        };
        let out = &mut self.out.bytes;
        let start = out.len();
        let has_body = if prepared.is_inline && http.accepts_prebuilt() {
            if prepared.extra_fields.is_empty() {
                out.extend_from_slice(prepared.bytes);
            } else {
                let (head, body) = prepared.bytes.split_at(prepared.head_len);
                // So all pieces together cause at most one reallocation.
                out.reserve(prepared.bytes.len() + prepared.extra_fields.len());
                out.extend_from_slice(head);
                out.extend_from_slice(prepared.extra_fields);
                out.extend_from_slice(body);
            }
            self.out.body_in_bytes += prepared.body_len;
            false
        } else {
            out.extend_from_slice(&prepared.bytes[..prepared.head_len]);
            out.extend_from_slice(prepared.extra_fields);
            let has_body = http.finish_prebuilt(prepared.status, prepared.body_len, out);
            if has_body && prepared.is_inline {
                let body = &prepared.bytes[prepared.head_len + 2..];
                out.extend_from_slice(body);
                self.out.body_in_bytes += prepared.body_len;
            }
            has_body && !prepared.is_inline
        };
        // RFC 9110 §6.6.1: Date is the time at which the message was generated, which is now.
        if !prepared.is_dated {
            // The Date field has a fixed length, so it is replaced in place.
            let date_at = start + date_offset(prepared.status);
            self.out.bytes[date_at..date_at + 29].copy_from_slice(self.date);
        }
        has_body
    }

    /// Like `write_prepared`, with the changes that were set for this response.
    #[cold]
    fn write_prepared_with_changes<'b>(
        &mut self,
        prepared: &PreparedResponse<'_>,
        heads: impl FnOnce() -> &'b EncodedHeads,
    ) -> bool {
        let changes = self.changes.take().unwrap_or_default();
        if !changes.filters() {
            let prepared = PreparedResponse {
                extra_fields: &[prepared.extra_fields, &changes.lines].concat(),
                ..*prepared
            };
            return self.write_prepared(&prepared, heads);
        }
        // The builder of the head needs the changes again.
        self.changes = Some(changes);
        let date_at = date_offset(prepared.status);
        let date = prepared.bytes.get(date_at..).and_then(<[u8]>::first_chunk);
        let fields_at = date_at + self.date.len() + b"\r\n".len();
        let fields = prepared.bytes.get(fields_at..prepared.head_len);
        let all = [fields.unwrap_or_default(), prepared.extra_fields];
        let mut head = self.head_dated(prepared.status, date.filter(|_| prepared.is_dated));
        for (name, value) in all.into_iter().flat_map(FieldLines::new) {
            // `end` writes the length.
            if !name.eq_ignore_ascii_case(b"content-length") {
                head.field(&String::from_utf8_lossy(name), value);
            }
        }
        let has_body = head.end(BodyLen::Known(prepared.body_len));
        if has_body && prepared.is_inline {
            self.write_copied(&prepared.bytes[prepared.head_len + 2..]);
        }
        has_body && !prepared.is_inline
    }

    /// Like `write_prepared`, for HTTP/2 and HTTP/3: the fields are encoded from the head once, then reused.
    fn write_prepared_framed(
        &mut self,
        prepared: &PreparedResponse<'_>,
        heads: &EncodedHeads,
    ) -> bool {
        let date_at = date_offset(prepared.status);
        // The Date is encoded separately, as the fields are reused for many responses.
        let prepared_date = prepared.bytes[date_at..].first_chunk();
        let date = prepared_date
            .filter(|_| prepared.is_dated)
            .unwrap_or(self.date);
        let lines = &prepared.bytes[date_at + date.len() + b"\r\n".len()..prepared.head_len];
        let (status, lines) = (prepared.status, FieldLines::new(lines));
        let extra_lines = FieldLines::new(prepared.extra_fields);
        let (len, out) = (prepared.body_len, &mut self.out.bytes);
        let has_body = match &mut self.wire {
            ResponseProtocol::Http1(_) => return false,
            ResponseProtocol::Http2(http, stream) => {
                let block = heads.h2.encode_lines(status, lines);
                http.respond_prebuilt(*stream, block, len, (date, extra_lines), out)
            }
            ResponseProtocol::Http3(http, stream) => {
                let section = heads.h3.encode_lines(status, lines);
                http.respond_prebuilt(*stream, section, len, date, extra_lines, out)
            }
        };
        if has_body && prepared.is_inline {
            self.write_copied(&prepared.bytes[prepared.head_len + 2..]);
        }
        has_body && !prepared.is_inline
    }

    /// Writes part of the body by copying it.
    pub fn write_copied(&mut self, bytes: &[u8]) {
        if self.out.parts.is_empty() {
            match self.wire {
                ResponseProtocol::Http1(_) => self.out.bytes.extend_from_slice(bytes),
                _ => self.out.body.extend_from_slice(bytes),
            }
            self.out.body_in_bytes += bytes.len() as u64;
        } else {
            self.write_part(BodyPart::Bytes(Bytes::copy_from_slice(bytes)));
        }
    }

    /// Writes part of the body, copied if it is short.
    pub fn write_bytes(&mut self, write_bytes: Bytes) {
        // A short copy is cheaper than another system call or piece.
        if self.out.parts.is_empty() && write_bytes.len() <= COPIED_LEN_MAX {
            self.write_copied(&write_bytes);
        } else if !write_bytes.is_empty() {
            self.write_part(BodyPart::Bytes(write_bytes));
        }
    }

    /// Writes part of the body, sent without a copy.
    pub fn write_part(&mut self, write_part: BodyPart) {
        match self.rate {
            None => self.out.parts.push(write_part),
            Some(rate) => self.write_paced(rate, write_part),
        }
    }

    #[cold]
    fn write_paced(&mut self, rate: ResponseRate, part: BodyPart) {
        // Parts of one response share a limit; those of earlier responses have another.
        let own = self.out.parts.get_mut(self.earlier_parts..);
        if let Some(BodyPart::Paced(paced)) = own.and_then(<[BodyPart]>::last_mut) {
            return paced.push(part);
        }
        let mut paced = PacedBody::new(rate);
        paced.push(part);
        self.out.parts.push(BodyPart::Paced(Box::new(paced)));
    }

    /// Accepts the client's upgrade: writes a response with status 101, or 200 over HTTP/2 and HTTP/3, which is followed by the
    /// tunnel's bytes.
    ///
    /// # Errors
    /// An upgrade is not possible, as the client uses HTTP/1.0 or the request has a body. Nothing is written.
    pub fn upgrade(
        &mut self,
        protocol: &[u8],
        fields: &ResponseFields,
        tunnel: ClientTunnel,
    ) -> Result<(), ClientTunnel> {
        let mut all_fields;
        let fields = match &self.changes {
            None => fields,
            Some(changes) => {
                all_fields = ResponseFields::new();
                let kept = fields.for_clients();
                let kept = kept.filter(|(name, _)| !changes.omits(name.as_str().as_bytes()));
                kept.for_each(|(name, value)| all_fields.push(name.as_str(), value));
                for (name, value) in FieldLines::new(&changes.lines) {
                    all_fields.try_push(name, value);
                }
                &all_fields
            }
        };
        let out = &mut self.out.bytes;
        let is_written = match &mut self.wire {
            ResponseProtocol::Http1(http) => {
                let can_upgrade = http.can_upgrade();
                if can_upgrade {
                    HeadWriter::start(out, StatusCode::SWITCHING_PROTOCOLS, self.date);
                    put_fields(fields, out);
                    http.finish_upgrade(protocol, out);
                }
                can_upgrade
            }
            ResponseProtocol::Http2(http, stream) => {
                http.open_tunnel(*stream, fields, self.date, out)
            }
            ResponseProtocol::Http3(http, stream) => {
                http.open_tunnel(*stream, fields, self.date, out)
            }
        };
        if !is_written {
            return Err(tunnel);
        }
        let (to_client, tunnel_return) = tunnel.split();
        // The limit is for responses.
        self.rate = None;
        self.write_stream(to_client);
        // The connection starts the tunnel when it handles the written response.
        self.out.tunnel_return = Some(Box::new(tunnel_return));
        Ok(())
    }

    /// Streams the rest of the body from this source.
    pub fn write_stream(&mut self, source: impl Into<BodySource>) {
        self.write_part(BodyPart::Stream(StreamedBody::new(source)));
    }
}

/// A response without a connection, for callers that need the bytes that a client would get over HTTP/1.
#[derive(Default)]
pub struct DetachedResponse {
    http: H1Server,
    out: OutputBuffer,
}

impl DetachedResponse {
    /// Parses the request. `None` if it is invalid or has a body.
    pub fn request<'b>(&mut self, head: &'b [u8], limits: &RequestLimits) -> Option<Request<'b>> {
        let mut head_slot = None;
        match self.http.next(head, limits, &mut head_slot).ok()?.event? {
            H1ServerEvent::Request(_) if self.http.is_request_whole() => Some(head_slot?.request),
            _ => None,
        }
    }

    /// The version of HTTP of the request.
    pub fn protocol(&self) -> HttpVersion {
        self.http.version()
    }

    /// The writer for the response.
    pub fn response<'r>(&'r mut self, date: &'r [u8; 29]) -> ResponseWriter<'r> {
        ResponseWriter::new(&mut self.http, &mut self.out, date)
    }

    /// The complete response, if it is in memory and at most `len_max` bytes long.
    pub fn into_bytes(self, len_max: usize) -> Option<Vec<u8>> {
        let mut bytes = self.out.bytes;
        for part in &self.out.parts {
            let part_bytes: &[u8] = match part {
                BodyPart::Bytes(part_bytes) => part_bytes,
                BodyPart::Block { block, range } => block.get(range.clone())?,
                BodyPart::File { .. } | BodyPart::Stream(_) | BodyPart::Paced(_) => return None,
            };
            if bytes.len() + part_bytes.len() > len_max {
                return None;
            }
            bytes.extend_from_slice(part_bytes);
        }
        (bytes.len() <= len_max).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";

    fn detached_response_len(write: impl FnOnce(&mut ResponseWriter<'_>)) -> Option<usize> {
        let mut unsent = DetachedResponse::default();
        let head = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let request = unsent.request(head, &RequestLimits::default());
        assert!(request.is_some());
        write(&mut unsent.response(&DATE));
        unsent.into_bytes(1000).map(|bytes| bytes.len())
    }

    #[test]
    fn into_bytes_needs_a_response_in_memory_within_len_max() {
        let shared = |len: usize| BodyPart::Bytes(vec![b'x'; len].into());
        assert_eq!(detached_response_len(|to| to.write_copied(b"ab")), Some(2));
        let two = |to: &mut ResponseWriter<'_>| {
            to.write_part(shared(3));
            to.write_copied(b"ab");
        };
        assert_eq!(detached_response_len(two), Some(5));
        assert_eq!(
            detached_response_len(|to| to.write_part(shared(1000))),
            Some(1000)
        );
        assert_eq!(
            detached_response_len(|to| to.write_part(shared(1001))),
            None
        );
        let (_, from) = crate::stream::stream(1);
        assert_eq!(detached_response_len(|to| to.write_stream(from)), None);
    }

    #[test]
    fn prepared_response_is_sent_with_extra_fields_and_date() {
        let text = b"HTTP/1.1 200 OK\r\nDate: Mon, 07 Nov 1994 08:49:37 GMT\r\nContent-Length: 2\r\n\r\nab";
        let sent = |request: &[u8], is_dated, extra_fields_for_client: &[u8]| {
            let mut unsent = DetachedResponse::default();
            let limits = RequestLimits::default();
            assert!(unsent.request(request, &limits).is_some());
            let is_more = unsent.response(&DATE).write_prepared(
                &PreparedResponse {
                    status: StatusCode::OK,
                    bytes: text,
                    is_dated,
                    head_len: text.len() - 4,
                    body_len: 2,
                    is_inline: true,
                    extra_fields: extra_fields_for_client,
                },
                || unreachable!("no HTTP/2"),
            );
            assert!(!is_more);
            String::from_utf8(unsent.into_bytes(1000).expect("it is short")).expect("ASCII")
        };
        let (get, head) = (
            b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
            b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n",
        );
        let text = String::from_utf8_lossy(text);
        assert_eq!(sent(get, true, b""), text);
        let with_age = text.replace("\r\n\r\n", "\r\nAge: 1\r\n\r\n");
        assert_eq!(sent(get, true, b"Age: 1\r\n"), with_age);
        assert_eq!(sent(head, true, b"Age: 1\r\n") + "ab", with_age);
        let closing = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        let closed = with_age.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
        assert_eq!(sent(closing, true, b"Age: 1\r\n"), closed);
        let now = text.replace("Mon, 07", "Sun, 06");
        assert_eq!(sent(get, false, b""), now);
    }

    #[test]
    fn written_head_is_that_of_the_response() {
        let mut unsent = DetachedResponse::default();
        let head = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        assert!(unsent.request(head, &RequestLimits::default()).is_some());
        let mut response = unsent.response(&DATE);
        let mut lines = Vec::new();
        assert_eq!(response.written_head(&mut lines).len, 0);
        let mut builder = response.head(StatusCode::OK);
        builder.field("X-A", b"1").field("X-B", b"\r\n\r\n2");
        assert!(builder.end(lowroad_http::h1::BodyLen::Known(8)));
        response.write_copied(b"a\r\n\r\nb\r\n");
        let written = response.written_head(&mut lines);
        let values = |name: &[u8]| {
            let fields = written.fields.clone().filter(|it| it.0 == name);
            fields.map(|it| it.1).collect::<Vec<_>>()
        };
        assert_eq!(values(b"X-A"), [b"1"]);
        assert_eq!(values(b"Content-Length"), [b"8"]);
        let head_len = written.len;
        let bytes = unsent.into_bytes(1000).expect("it is short");
        assert_eq!(bytes.len() as u64, head_len + 8);
    }

    #[test]
    fn detached_response_refuses_a_request_with_body() {
        let head = b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx";
        let mut unsent = DetachedResponse::default();
        assert!(unsent.request(head, &RequestLimits::default()).is_none());
    }
}
