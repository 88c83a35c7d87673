//! The server's side of an HTTP/2 connection: builds requests from field blocks, and accepts streams. Responses are in
//! `response_head`. The diagram in `h2` shows the order of calls and events.

use alloc::vec::Vec;

use super::connection::{ConnectionEvent, ConnectionPhase, FieldBlockFragment, H2Connection};
use super::error::{ConnectionError, ErrorCode};
use super::streams::{StreamInput, StreamOutput};
use super::{ConnectionTurn, H2RequestHead, NextData, StreamId};
use crate::field_section::{
    DiscardSink, FieldSpans, MalformedRequest, RequestFieldSink, ResponseFieldSink,
};
use crate::fields::FieldLines;
use crate::h1::{BodyLengthMismatch, InputStep};
use crate::method::Method;
use crate::refusal::RequestRefusal;
use crate::request::PartialRequest;
use crate::streams::GoawayState;

/// An event from the client.
#[derive(Debug)]
pub enum H2ServerEvent<'h, 'b> {
    /// A complete head. If there is a body, `H2ServerEvent::Data` and then `H2ServerEvent::End` follow.
    Request(&'h H2RequestHead<'b>),
    /// A part of a body, not empty. Call `H2Server::release_capacity` once it is consumed.
    Data {
        /// The stream of the body.
        stream: StreamId,
        /// The bytes.
        data: &'b [u8],
    },
    /// A request with a body is complete.
    End {
        /// The stream of the request.
        stream: StreamId,
        /// The trailers, validated.
        trailers: FieldLines<'b>,
    },
    /// A refused request: malformed, over a limit, or with a body that is too long. The caller can respond with the
    /// refusal's status; only `H2ServerEvent::Reset` can follow.
    Refused {
        /// The stream of the request.
        stream: StreamId,
        /// The reason.
        refusal: RequestRefusal,
        /// The known parts of the request; `None` if `H2ServerEvent::Request` was returned before.
        request: Option<PartialRequest<'b>>,
    },
    /// A stream ended early: by the client's RST_STREAM or after a stream error. Its slot is occupied until the caller
    /// has ended the work for it and calls `H2Server::release_reset_stream`.
    Reset {
        /// The stream that ended.
        stream: StreamId,
        /// The error code.
        code: ErrorCode,
    },
}

/// The state of one connection.
#[derive(Debug)]
pub struct H2Server {
    pub(super) http: H2Connection,
}

impl H2Server {
    /// A new connection, before or within the client's preface. Writes the server's settings.
    #[must_use]
    pub fn new(turn: &mut ConnectionTurn<'_>) -> H2Server {
        let mut http = H2Connection::new(true);
        http.write_initial_settings(turn);
        H2Server { http }
    }

    /// Examines the unconsumed input. Fields are decoded into `text`, and a head is built in `head_slot`. Call `next`
    /// again as long as it returns an event or consumes bytes; the end of a body may be returned without any input.
    ///
    /// # Errors
    /// A connection error: the connection closes after its output is sent.
    #[inline]
    pub fn next<'h, 'b>(
        &mut self,
        input: &'b [u8],
        text: &'b mut Vec<u8>,
        head_slot: &'h mut Option<H2RequestHead<'b>>,
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<InputStep<H2ServerEvent<'h, 'b>>, ConnectionError> {
        let step = self.step(input, text, head_slot, turn);
        if let Err(fault) = step {
            self.http.fail(fault, turn);
        }
        step
    }

    #[inline]
    fn step<'h, 'b>(
        &mut self,
        input: &'b [u8],
        text: &'b mut Vec<u8>,
        head_slot: &'h mut Option<H2RequestHead<'b>>,
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<InputStep<H2ServerEvent<'h, 'b>>, ConnectionError> {
        let (used, connection_event) = self.http.step(input, turn)?;
        let event = match connection_event {
            ConnectionEvent::Nothing => None,
            ConnectionEvent::Block {
                stream,
                is_end,
                block,
            } => self.block(stream, is_end, &block, text, head_slot, turn)?,
            ConnectionEvent::Data { stream, data } => Some(H2ServerEvent::Data {
                stream: StreamId(stream),
                data,
            }),
            other => server_event(other, FieldLines::NONE),
        };
        Ok(InputStep { used, event })
    }

    /// Processes a field block: a request, or trailers.
    #[inline]
    fn block<'h, 'b>(
        &mut self,
        id: u32,
        is_end: bool,
        block: &FieldBlockFragment<'_>,
        text: &'b mut Vec<u8>,
        head_slot: &'h mut Option<H2RequestHead<'b>>,
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<Option<H2ServerEvent<'h, 'b>>, ConnectionError> {
        // RFC 9113 §5.1.1: even identifiers belong to streams that servers open.
        if id.is_multiple_of(2) {
            return Err(ConnectionError::protocol(
                "a stream number that clients can't use",
            ));
        }
        // RFC 9113 §5.1.1: identifiers increase, so this stream was opened before.
        if id <= self.http.last_id {
            return self.trailers_block(id, is_end, block, text, turn);
        }
        let http = &mut self.http;
        if http.goaway == GoawayState::Gone {
            // Streams after GOAWAY are ignored, but their blocks are decoded: every block changes the dynamic table
            // (RFC 9113 §4.3).
            http.decoder.decode(block.bytes(), &mut DiscardSink(text))?;
            return Ok(None);
        }
        http.last_id = id;
        // A refused stream was not processed, so the client may retry (RFC 9113 §8.7).
        if http.streams.len() >= usize::from(turn.settings.streams_max) {
            http.decoder.decode(block.bytes(), &mut DiscardSink(text))?;
            return http
                .fail_stream(id, ErrorCode::REFUSED_STREAM, turn)
                .map(|_| None);
        }
        let mut spans = FieldSpans::default();
        let mut fields = RequestFieldSink::new(text, turn.settings.rules(), &mut spans);
        http.decoder.decode(block.bytes(), &mut fields)?;
        let method = match fields.finish(is_end) {
            Ok(method) => method,
            Err(MalformedRequest::Refused(refusal)) => {
                return Ok(Some(self.refused(id, is_end, refusal, spans.partial(text))));
            }
            Err(MalformedRequest::Malformed(_)) => {
                turn.counters.malformed += 1;
                return http
                    .fail_stream(id, ErrorCode::PROTOCOL_ERROR, turn)
                    .map(|_| None);
            }
        };
        let text: &'b [u8] = text;
        let head = match spans.head(text, StreamId(id), method, is_end, turn.settings.rules()) {
            Ok(head) => head_slot.insert(head),
            Err(refusal) => {
                return Ok(Some(self.refused(id, is_end, refusal, spans.partial(text))));
            }
        };
        // PRIORITY_UPDATE overrides the Priority field of the request (RFC 9218 §7).
        let early_priority = http.early_priorities.take(id);
        let priority = early_priority.unwrap_or(spans.priority);
        let input = if is_end {
            StreamInput::Ended
        } else {
            StreamInput::Open
        };
        let slot = http.begin(id, input, StreamOutput::Head, priority);
        let stream = http.streams.get(slot);
        let is_connect = method == Method::Connect || head.protocol.is_some();
        stream.begin_request(method, is_connect, head.expect_continue, spans.content_len);
        Ok(Some(H2ServerEvent::Request(head)))
    }

    /// Opens a stream for a refused request. The response to a HEAD has no content (RFC 9110 §9.3.2).
    fn refused<'h, 'b>(
        &mut self,
        id: u32,
        is_end: bool,
        refusal: RequestRefusal,
        request: PartialRequest<'b>,
    ) -> H2ServerEvent<'h, 'b> {
        let input = if is_end {
            StreamInput::Ended
        } else {
            StreamInput::Unwanted
        };
        let priority = super::Priority::default();
        let slot = self.http.begin(id, input, StreamOutput::Head, priority);
        self.http.streams.get(slot).is_head = request.method == b"HEAD";
        H2ServerEvent::Refused {
            stream: StreamId(id),
            refusal,
            request: Some(request),
        }
    }

    /// Processes a field block of an existing stream: only trailers are valid.
    fn trailers_block<'h, 'b>(
        &mut self,
        id: u32,
        is_end: bool,
        block: &FieldBlockFragment<'_>,
        text: &'b mut Vec<u8>,
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<Option<H2ServerEvent<'h, 'b>>, ConnectionError> {
        let http = &mut self.http;
        let mut fields = ResponseFieldSink::trailers(text, turn.settings.limits.trailers_len_max);
        http.decoder.decode(block.bytes(), &mut fields)?;
        // RFC 9113 §8.1: trailers end the stream.
        let is_malformed = fields.section_fault().is_some() || !is_end;
        let Some(stream) = http.streams.by_id(id) else {
            http.check_closed(id)?;
            http.glitch(1, turn)?;
            return Ok(None);
        };
        let event = match stream.input {
            _ if stream.is_dead => ConnectionEvent::Nothing,
            StreamInput::Ended => http.fail_stream(id, ErrorCode::STREAM_CLOSED, turn)?,
            _ if is_malformed => {
                turn.counters.malformed += 1;
                http.fail_stream(id, ErrorCode::PROTOCOL_ERROR, turn)?
            }
            _ => http.input_ended(id, turn)?,
        };
        let text: &'b [u8] = text;
        Ok(server_event(event, FieldLines::new(text)))
    }

    /// Returns the flow-control window of `len` consumed bytes of a request's body to the client.
    pub fn release_capacity(&mut self, stream: StreamId, len: usize, out: &mut Vec<u8>) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.http.release_window(stream.0, len, out);
    }

    /// Resets the streams that still receive an unwanted body 5 s after the response. To be called about once a second
    /// while the connection is not idle.
    pub fn reset_lingering(&mut self, now_ms: u64, out: &mut Vec<u8>) {
        self.http.reset_lingering(now_ms, out);
    }

    /// Frees the slot of a reset stream, after the work for it has ended.
    pub fn release_reset_stream(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        let is_dead = |it: &mut super::streams::H2Stream| it.is_dead;
        if self.http.streams.by_id(stream.0).is_some_and(is_dead) {
            self.http.remove_stream(stream.0, out);
        }
    }

    /// Resets a stream, after the work for it has ended.
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode, out: &mut Vec<u8>) {
        if let Some(h2_stream) = self.http.streams.by_id(stream.0) {
            if !h2_stream.is_dead {
                super::frame::put_reset(stream.0, code, out);
                // Frames that the client sent before it receives RST_STREAM may still arrive.
                self.http.reset_streams.add(stream.0);
            }
            self.http.remove_stream(stream.0, out);
        }
    }

    /// Announces more of a response's body; `H2Server::send` sends it. Returns false if the body is not to be sent: the
    /// response has no body, or the client has cancelled the request.
    ///
    /// # Errors
    /// The body is longer than announced: the stream is to be reset.
    pub fn body(&mut self, stream: StreamId, len: u64) -> Result<bool, BodyLengthMismatch> {
        self.http.announce_data(stream.0, len)
    }

    /// Like `H2Server::body` and `H2Server::end`, for a whole body.
    ///
    /// # Errors
    /// The body is longer or shorter than announced: the stream is to be reset.
    #[inline]
    pub fn whole_body(&mut self, stream: StreamId, len: u64) -> Result<bool, BodyLengthMismatch> {
        self.http.announce_body(stream.0, len)
    }

    /// Announces the end of a response's body. `trailers` are field lines.
    ///
    /// # Errors
    /// The body is shorter than announced: the stream is to be reset.
    pub fn end(
        &mut self,
        stream: StreamId,
        trailers: FieldLines<'_>,
    ) -> Result<(), BodyLengthMismatch> {
        let mut block = Vec::new();
        super::response_head::put_lines(trailers, &mut block);
        self.http.complete(stream.0, block)
    }

    /// Writes the header of the next DATA frame, of at most `len_max` bytes, which the caller must append before it
    /// writes anything else; or writes the end of a stream. `None` if no data is ready, or all ready data is blocked by
    /// windows. To be called when all input is processed, so that urgent streams are sent first, and again when there
    /// is room in the output.
    #[inline]
    pub fn send(&mut self, len_max: usize, out: &mut Vec<u8>) -> Option<NextData> {
        self.http.send(len_max, out)
    }

    /// Whether ready bodies are blocked by windows. A client that does not open its windows for long is disconnected.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.http.is_blocked()
    }

    /// Ignores new streams from now on; active ones continue.
    pub fn send_final_goaway(&mut self, out: &mut Vec<u8>) {
        self.http.send_final_goaway(out);
    }

    /// Ends the connection with its active streams.
    pub fn end_with_error(&mut self, code: ErrorCode, debug_data: &str, out: &mut Vec<u8>) {
        self.http.end(code, debug_data, out);
    }

    /// The number of active streams.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.http.streams.len()
    }

    /// Whether the client's preface or its first SETTINGS frame is still expected.
    #[must_use]
    pub fn is_new(&self) -> bool {
        matches!(
            self.http.phase,
            ConnectionPhase::Preface | ConnectionPhase::Settings
        )
    }

    /// Whether the server's settings are not acknowledged yet. After a timeout the caller ends the connection with
    /// `ErrorCode::SETTINGS_TIMEOUT`.
    #[must_use]
    pub fn awaits_acknowledgement(&self) -> bool {
        self.http.unacknowledged > 0
    }

    /// Frees memory that an idle connection does not need.
    pub fn trim(&mut self) {
        self.http.streams.trim();
    }
}

/// The event for a result of the connection.
fn server_event<'h, 'b>(
    event: ConnectionEvent<'_>,
    trailers: FieldLines<'b>,
) -> Option<H2ServerEvent<'h, 'b>> {
    Some(match event {
        ConnectionEvent::End { stream } => H2ServerEvent::End {
            stream: StreamId(stream),
            trailers,
        },
        ConnectionEvent::Refused { stream, refusal } => H2ServerEvent::Refused {
            stream: StreamId(stream),
            refusal,
            request: None,
        },
        ConnectionEvent::Reset { stream, code } => H2ServerEvent::Reset {
            stream: StreamId(stream),
            code,
        },
        ConnectionEvent::Nothing
        | ConnectionEvent::Block { .. }
        | ConnectionEvent::Data { .. }
        | ConnectionEvent::GoneAway { .. } => return None,
    })
}
