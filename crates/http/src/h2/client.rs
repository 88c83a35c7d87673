//! The client's side of an HTTP/2 connection: for load generators, tests, and origins that speak HTTP/2. The number of
//! concurrent requests is limited by the server's settings. The diagram in `h2` shows the order of calls and events.

use alloc::vec::Vec;

use super::connection::{ConnectionEvent, ConnectionPhase, FieldBlockFragment, H2Connection};
use super::error::{ConnectionError, ErrorCode};
use super::hpack::{put_field_u64, put_pseudo, put_unindexed};
use super::response_head::put_lines;
use super::streams::{StreamInput, StreamOutput, UNKNOWN};
use super::{ConnectionTurn, NextData, Priority, StreamId, frame};
use crate::field_section::ResponseFieldSink;
use crate::fields::{FieldLines, StandardHeader};
use crate::h1::{BodyLen, BodyLengthMismatch, InputStep};
use crate::method::Method;
use crate::status::StatusCode;
use crate::streams::GoawayState;

/// The highest stream identifier (31 bits); a client's streams are odd.
const ID_MAX: u32 = 0x7fff_ffff;

/// The payload of a PING that looks for a sign of life; it differs from those in `control`.
const PING_LIVENESS: [u8; 8] = *b"liveness";

/// A response without its body.
#[derive(Clone, Debug)]
pub struct H2ResponseHead<'b> {
    /// The stream of the response.
    pub stream: StreamId,
    /// The status.
    pub status: StatusCode,
    /// The fields, validated, in their order.
    pub fields: FieldLines<'b>,
    /// Content-Length.
    pub content_len: Option<u64>,
    /// Whether a body, which may turn out to be empty, and its end follow.
    pub has_body: bool,
}

/// An event from the server.
#[derive(Debug)]
pub enum H2ClientEvent<'b> {
    /// An interim response (1xx).
    Interim(H2ResponseHead<'b>),
    /// The head of the final response. If it has a body, `H2ClientEvent::Data` and then `H2ClientEvent::End` follow.
    Response(H2ResponseHead<'b>),
    /// A part of a body, not empty. Call `H2Client::release_capacity` once it is consumed.
    Data {
        /// The stream of the body.
        stream: StreamId,
        /// The bytes.
        data: &'b [u8],
    },
    /// A response with a body is complete.
    End {
        /// The stream of the response.
        stream: StreamId,
        /// The trailers, validated.
        trailers: FieldLines<'b>,
    },
    /// A stream ended early: by the server's RST_STREAM, or after a stream error of the server. With
    /// `ErrorCode::NO_ERROR` after a complete response, the server does not need the rest of the request.
    Reset {
        /// The stream that ended.
        stream: StreamId,
        /// The error code.
        code: ErrorCode,
    },
    /// GOAWAY: the server accepts no more streams, and has not processed those above `last`.
    GoneAway {
        /// The last stream that the server may have processed.
        last: StreamId,
        /// The error code.
        code: ErrorCode,
    },
}

/// The pseudo-header fields of a request, for `H2Client::request`.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRequest<'a> {
    /// The method.
    pub method: Method,
    /// Whether the scheme is https.
    pub is_https: bool,
    /// Host and port.
    pub authority: &'a [u8],
    /// Path and query; empty for CONNECT without a protocol.
    pub path: &'a [u8],
    /// `:protocol` of an extended CONNECT (RFC 8441).
    pub protocol: Option<&'a [u8]>,
}

impl OutgoingRequest<'_> {
    /// Appends the pseudo-header fields, the start of a field block.
    pub fn put_pseudo_fields(&self, out: &mut Vec<u8>) {
        match self.method {
            // Indexed fields of HPACK's static table (RFC 7541 appendix A).
            Method::Get => out.push(0x82),
            Method::Post => out.push(0x83),
            method => put_pseudo(2, method.as_str().as_bytes(), out),
        }
        // A plain CONNECT has neither :scheme nor :path (RFC 9113 §8.5).
        if !self.path.is_empty() {
            out.push(if self.is_https { 0x87 } else { 0x86 });
            match self.path {
                b"/" => out.push(0x84),
                path => put_pseudo(4, path, out),
            }
        }
        // The number is an index of the static table: `:authority`.
        put_pseudo(1, self.authority, out);
        if let Some(protocol) = self.protocol {
            put_unindexed(b":protocol", protocol, out);
        }
    }
}

/// The state of one connection.
#[derive(Debug)]
pub struct H2Client {
    http: H2Connection,
}

impl H2Client {
    /// A new connection. Writes the preface and the client's settings; requests may follow immediately (RFC 9113 §3.4).
    #[must_use]
    pub fn new(turn: &mut ConnectionTurn<'_>) -> H2Client {
        let mut http = H2Connection::new(false);
        http.write_initial_settings(turn);
        H2Client { http }
    }

    /// Whether another request may be sent now.
    #[must_use]
    pub fn can_request(&self) -> bool {
        let http = &self.http;
        http.phase != ConnectionPhase::Ended
            && http.goaway == GoawayState::No
            && http.peer_last_id.is_none()
            // Stream identifiers can't be reused (RFC 9113 §5.1.1).
            && http.last_id < ID_MAX - 1
            // The number of streams is bounded even if the peer sets no limit, since slots are u16.
            && http.streams.len() < http.peer.streams_max.min(32_767) as usize
    }

    /// Writes the head of a request and returns its stream. `lines` are its field lines, without Host. If `len` is not
    /// 0, the body is announced with `H2Client::body` and `H2Client::end`.
    ///
    /// # Errors
    /// No request may be sent, see `H2Client::can_request`.
    pub fn request(
        &mut self,
        ask: &OutgoingRequest<'_>,
        lines: FieldLines<'_>,
        len: BodyLen,
        out: &mut Vec<u8>,
    ) -> Result<StreamId, BodyLengthMismatch> {
        let mut block = Vec::with_capacity(128);
        ask.put_pseudo_fields(&mut block);
        put_lines(lines, &mut block);
        if let BodyLen::Known(len) = len {
            put_field_u64(StandardHeader::ContentLength, len, &mut block);
        }
        self.request_prebuilt(&block, ask.method, len, out)
    }

    /// Like `H2Client::request`, with a prebuilt field block that includes Content-Length.
    ///
    /// # Errors
    /// As for `H2Client::request`.
    pub fn request_prebuilt(
        &mut self,
        block: &[u8],
        method: Method,
        len: BodyLen,
        out: &mut Vec<u8>,
    ) -> Result<StreamId, BodyLengthMismatch> {
        if !self.can_request() {
            return Err(BodyLengthMismatch);
        }
        let http = &mut self.http;
        // RFC 9113 §5.1.1: a client's streams are odd and increase.
        let id = if http.last_id == 0 {
            1
        } else {
            http.last_id + 2
        };
        http.last_id = id;
        let has_body = !len.is_empty();
        let output = if has_body {
            StreamOutput::Body
        } else {
            StreamOutput::Ended
        };
        let slot = http.begin(id, StreamInput::Head, output, Priority::default());
        let stream = http.streams.get(slot);
        stream.is_head = method == Method::Head;
        if let BodyLen::Known(len) = len {
            stream.send_remaining = len;
        }
        let frame_len_max = http.peer.frame_len_max as usize;
        let frame_start = http.open_block(out);
        out.extend_from_slice(block);
        frame::close_block(id, !has_body, frame_start, frame_len_max, out);
        Ok(StreamId(id))
    }

    /// Examines the unconsumed input. Fields are decoded into `text`. Call `next` again as long as it returns an event
    /// or consumes bytes.
    ///
    /// # Errors
    /// A connection error: the connection cannot be used any more.
    pub fn next<'b>(
        &mut self,
        input: &'b [u8],
        text: &'b mut Vec<u8>,
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<InputStep<H2ClientEvent<'b>>, ConnectionError> {
        let step = self.step(input, text, turn);
        if let Err(fault) = step {
            self.http.fail(fault, turn);
        }
        step
    }

    fn step<'b>(
        &mut self,
        input: &'b [u8],
        text: &'b mut Vec<u8>,
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<InputStep<H2ClientEvent<'b>>, ConnectionError> {
        let (used, connection_event) = self.http.step(input, turn)?;
        let event = match connection_event {
            ConnectionEvent::Block {
                stream,
                is_end,
                block,
            } => self.block(stream, is_end, &block, text, turn)?,
            ConnectionEvent::Data { stream, data } => Some(H2ClientEvent::Data {
                stream: StreamId(stream),
                data,
            }),
            other => self.convert_event(other, FieldLines::NONE, turn),
        };
        Ok(InputStep { used, event })
    }

    fn convert_event<'b>(
        &mut self,
        event: ConnectionEvent<'_>,
        trailers: FieldLines<'b>,
        turn: &mut ConnectionTurn<'_>,
    ) -> Option<H2ClientEvent<'b>> {
        Some(match event {
            ConnectionEvent::End { stream } => H2ClientEvent::End {
                stream: StreamId(stream),
                trailers,
            },
            ConnectionEvent::Reset { stream, code } => {
                // The client does no work for a stream, so the stream is removed immediately.
                self.http.remove_stream(stream, turn.out);
                H2ClientEvent::Reset {
                    stream: StreamId(stream),
                    code,
                }
            }
            ConnectionEvent::GoneAway { last_id, code } => H2ClientEvent::GoneAway {
                last: StreamId(last_id),
                code,
            },
            _ => return None,
        })
    }

    /// Processes a field block: the head of a response, or trailers.
    fn block<'b>(
        &mut self,
        id: u32,
        is_end: bool,
        block: &FieldBlockFragment<'_>,
        text: &'b mut Vec<u8>,
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<Option<H2ClientEvent<'b>>, ConnectionError> {
        let http = &mut self.http;
        let input = http.streams.by_id(id).map(|stream| stream.input);
        let section_len_max = turn.settings.section_len_max;
        let mut fields = match input {
            Some(StreamInput::Head) => ResponseFieldSink::response(text, section_len_max),
            _ => ResponseFieldSink::trailers(text, section_len_max),
        };
        // The block is decoded even if the stream is closed: every block changes the decoder's dynamic table (RFC 9113
        // §4.3).
        http.decoder.decode(block.bytes(), &mut fields)?;
        let (is_malformed, status) = (fields.section_fault().is_some(), fields.status);
        let content_len = fields.content_len;
        // Frames of a stream that was reset may still arrive.
        let Some(stream) = http.streams.by_id(id) else {
            http.check_closed(id)?;
            return Ok(None);
        };
        let status = status.and_then(StatusCode::new);
        let event = match (stream.input, status) {
            (StreamInput::Ended, _) => http.fail_stream(id, ErrorCode::STREAM_CLOSED, turn)?,
            (StreamInput::Head, Some(status)) if !is_malformed && is_allowed(status, is_end) => {
                let head = H2ResponseHead {
                    stream: StreamId(id),
                    status,
                    fields: FieldLines::new(text),
                    content_len,
                    has_body: !is_end,
                };
                if status.code() < 200 {
                    // A server could send interim responses without end.
                    http.glitch(1, turn)?;
                    return Ok(Some(H2ClientEvent::Interim(head)));
                }
                stream.recv_remaining = match content_len {
                    // RFC 9113 §8.1.1: these responses have no content, even if they have a Content-Length.
                    _ if stream.is_head || status.is_bodiless() => 0,
                    len => len.unwrap_or(UNKNOWN),
                };
                stream.input = StreamInput::Open;
                if !is_end {
                    return Ok(Some(H2ClientEvent::Response(head)));
                }
                match http.input_ended(id, turn)? {
                    ConnectionEvent::End { .. } => return Ok(Some(H2ClientEvent::Response(head))),
                    other => return Ok(self.convert_event(other, FieldLines::NONE, turn)),
                }
            }
            // RFC 9113 §8.1: trailers end the stream.
            (StreamInput::Open | StreamInput::Unwanted, _) if !is_malformed && is_end => {
                http.input_ended(id, turn)?
            }
            _ => {
                turn.counters.malformed += 1;
                http.fail_stream(id, ErrorCode::PROTOCOL_ERROR, turn)?
            }
        };
        let text: &'b [u8] = text;
        Ok(self.convert_event(event, FieldLines::new(text), turn))
    }

    /// Returns the flow-control window of `len` consumed bytes of a response's body to the server.
    pub fn release_capacity(&mut self, stream: StreamId, len: usize, out: &mut Vec<u8>) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.http.release_window(stream.0, len, out);
    }

    /// Like `super::H2Server::body`.
    ///
    /// # Errors
    /// As for `super::H2Server::body`.
    pub fn body(&mut self, stream: StreamId, len: u64) -> Result<bool, BodyLengthMismatch> {
        self.http.announce_data(stream.0, len)
    }

    /// Like `super::H2Server::end`.
    ///
    /// # Errors
    /// As for `super::H2Server::end`.
    pub fn end(
        &mut self,
        stream: StreamId,
        trailers: FieldLines<'_>,
    ) -> Result<(), BodyLengthMismatch> {
        let mut block = Vec::new();
        put_lines(trailers, &mut block);
        self.http.complete(stream.0, block)
    }

    /// Like `super::H2Server::send`.
    pub fn send(&mut self, len_max: usize, out: &mut Vec<u8>) -> Option<NextData> {
        self.http.send(len_max, out)
    }

    /// Cancels a request.
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode, out: &mut Vec<u8>) {
        if self.http.streams.find(stream.0).is_some() {
            frame::put_reset(stream.0, code, out);
            // Frames that the server sent before it receives RST_STREAM may still arrive.
            self.http.reset_streams.add(stream.0);
            self.http.remove_stream(stream.0, out);
        }
    }

    /// Asks the server for a sign of life. Any byte that it sends afterwards is one, so the acknowledgement is no event.
    pub fn ping(&mut self, out: &mut Vec<u8>) {
        if self.http.phase != ConnectionPhase::Ended {
            frame::put_ping(false, PING_LIVENESS, out);
        }
    }

    /// The number of streams that may be open at the same time. The server's settings may change it at any time.
    #[must_use]
    pub fn streams_max(&self) -> u32 {
        self.http.peer.streams_max
    }

    /// Ends the connection with GOAWAY.
    pub fn end_with_error(&mut self, code: ErrorCode, debug_data: &str, out: &mut Vec<u8>) {
        self.http.end(code, debug_data, out);
    }

    /// Whether the server's settings were received.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.http.phase == ConnectionPhase::Open
    }

    /// Whether the server accepts extended CONNECT (RFC 8441).
    #[must_use]
    pub fn accepts_connect_protocol(&self) -> bool {
        self.http.peer.connect_protocol
    }

    /// The number of active streams.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.http.streams.len()
    }
}

/// Whether HTTP/2 allows a response with this status: 101 is not used (RFC 9113 §8.6), and an interim response does not
/// end the stream (§8.1).
fn is_allowed(status: StatusCode, is_end: bool) -> bool {
    // RFC 9113 §8.6: there is no 101; an interim response does not end the stream.
    status != StatusCode::SWITCHING_PROTOCOLS && (status.code() >= 200 || !is_end)
}

#[cfg(test)]
mod tests {
    use super::super::{GlitchCounters, H2Settings};
    use super::*;

    /// The window updates in `out`: streams and increments.
    fn window_updates(mut out: &[u8]) -> Vec<(u32, u32)> {
        let mut updates = Vec::new();
        while let Some(head) = out.first_chunk().map(frame::FrameHead::parse) {
            let payload = &out[frame::HEAD_LEN..frame::HEAD_LEN + head.len];
            if head.kind == frame::kind::WINDOW_UPDATE {
                updates.push((head.stream, frame::word(payload)));
            }
            out = &out[frame::HEAD_LEN + head.len..];
        }
        updates
    }

    #[test]
    fn slow_reader_holds_the_window_of_its_stream_only() {
        let (mut out, mut counters) = (Vec::new(), GlitchCounters::default());
        let settings = H2Settings::default();
        let mut turn = ConnectionTurn {
            now_ms: 1,
            settings: &settings,
            out: &mut out,
            counters: &mut counters,
        };
        let mut client = H2Client::new(&mut turn);
        assert!(!client.is_open());
        let ask = OutgoingRequest {
            method: Method::Get,
            is_https: false,
            authority: b"a",
            path: b"/",
            protocol: None,
        };
        let stream = client
            .request(&ask, FieldLines::NONE, BodyLen::None, turn.out)
            .expect("room for a stream");
        turn.out.clear();
        let mut input = Vec::new();
        frame::put_settings(&[(super::super::id::MAX_CONCURRENT_STREAMS, 7)], &mut input);
        let start = input.len();
        input.extend_from_slice(&[0; frame::HEAD_LEN]);
        super::super::hpack::put_status(StatusCode::OK, &mut input);
        frame::close_block(stream.0, false, start, 16_384, &mut input);
        for len in [16_384, 16_384, 16_384, 16_383] {
            frame::put_head(frame::kind::DATA, 0, stream.0, len, &mut input);
            input.resize(input.len() + len, b'x');
        }
        let (mut used, mut received, mut text) = (0, 0, Vec::new());
        loop {
            let step = client.next(&input[used..], &mut text, &mut turn);
            let step = step.expect("the frames are valid");
            used += step.used;
            match step.event {
                Some(H2ClientEvent::Data { data, .. }) => received += data.len(),
                None if step.used == 0 => break,
                _ => {}
            }
        }
        assert_eq!((received, client.streams_max()), (65_535, 7));
        assert!(client.is_open());
        let updates = window_updates(turn.out);
        assert!(!updates.is_empty() && updates.iter().all(|(id, _)| *id == 0));
        turn.out.clear();
        client.release_capacity(stream, received, turn.out);
        let streams: Vec<u32> = window_updates(turn.out).iter().map(|it| it.0).collect();
        assert_eq!(streams, [stream.0]);
    }
}
