//! The server's side of an HTTP/1 connection. The diagram in `h1` shows the order of calls and events.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::receive_body::{self, IncomingPart};
use super::request::{self, H1RequestHead};
use super::send_body::{BodyLen, BodyLengthMismatch, OutgoingMessage};
use super::{InputStep, is_due};
use crate::body::{BodyFraming, BodyReader};
use crate::fields::FieldLines;
use crate::head_writer::HeadWriter;
use crate::limits::RequestLimits;
use crate::method::Method;
use crate::protocol::{ServerProtocol, StreamId};
use crate::refusal::RequestRefusal;
use crate::status::StatusCode;
use crate::version::HttpVersion;

/// An event from the client.
#[derive(Debug)]
pub enum H1ServerEvent<'h, 'b> {
    /// A complete head. Its body follows as `H1ServerEvent::Data`, and always an `H1ServerEvent::End`.
    Request(&'h H1RequestHead<'b>),
    /// A part of the body, not empty.
    Data(&'b [u8]),
    /// The request is complete. Only chunked bodies have trailers; they are not merged into the header section (RFC
    /// 9110 §6.5.1).
    End {
        /// The trailers, validated.
        trailers: FieldLines<'b>,
    },
}

/// If the response ends before the request's body, the connection stays open only if at most this many bytes of the
/// body are outstanding.
const DRAINED_LEN_MAX: u64 = 64 << 10;

/// The state of one connection. Small, since there may be tens of thousands of idle connections.
#[derive(Debug)]
pub struct H1Server {
    /// The body of the current request: `Some` in `RequestInput::Body` only.
    reader: Option<Box<BodyReader>>,
    /// Bytes of the response's announced body still to be sent.
    remaining: u64,
    /// Bytes of a partial head that were parsed; 0 except in `RequestInput::Head`.
    parsed_len: u32,
    input: RequestInput,
    output: OutgoingMessage,
    flags: ConnectionFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestInput {
    /// A head.
    Head,
    /// The body of the current request.
    Body,
    /// The body was refused; the error is returned when the caller reads it.
    Refused(RequestRefusal),
    /// A request without a body; its end event is still to be returned.
    NoBody,
    /// The request is complete; its response is not.
    Done,
    /// The connection is a tunnel: input is passed on unchanged until the client's EOF.
    Tunnel,
    /// Input is discarded.
    Closed,
}

/// Flags of the current request and the connection.
#[derive(Clone, Copy, Debug)]
struct ConnectionFlags(u8);

impl ConnectionFlags {
    /// The client speaks HTTP/1.0.
    const HTTP_10: u8 = 1;
    /// The request in progress is a HEAD.
    const HEAD: u8 = 2;
    /// The client waits for 100 (Continue) before it sends the body.
    const EXPECTS_CONTINUE: u8 = 4;
    /// The connection closes after the current response.
    const CLOSES: u8 = 8;
    /// The connection is a tunnel.
    const TUNNEL: u8 = 16;

    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    fn set(&mut self, flag: u8, is_set: bool) {
        self.0 = self.0 & !flag | if is_set { flag } else { 0 };
    }
}

impl Default for H1Server {
    fn default() -> H1Server {
        H1Server {
            reader: None,
            remaining: 0,
            parsed_len: 0,
            input: RequestInput::Head,
            output: OutgoingMessage::Idle,
            flags: ConnectionFlags(0),
        }
    }
}

impl H1Server {
    /// Examines the unconsumed input. A head is parsed into `head_slot`, so that it is not moved afterwards.
    ///
    /// # Errors
    /// The input is not HTTP or exceeds a limit: one response may still be sent, then the connection closes.
    #[inline]
    pub fn next<'h, 'b>(
        &mut self,
        input: &'b [u8],
        limits: &RequestLimits,
        head_slot: &'h mut Option<H1RequestHead<'b>>,
    ) -> Result<InputStep<H1ServerEvent<'h, 'b>>, RequestRefusal> {
        let step = match self.input {
            // Pipelining: the next head waits until the current response is complete.
            RequestInput::Head if self.output != OutgoingMessage::Idle => {
                return Ok(InputStep::WAIT);
            }
            RequestInput::Head => {
                // Parsing a partial head after each received byte would take quadratic time.
                if self.parsed_len > 0 && !is_due(input, self.parsed_len as usize, limits) {
                    self.parsed_len = saturated_len(input);
                    return Ok(InputStep::WAIT);
                }
                self.head(input, limits, head_slot)
            }
            RequestInput::NoBody => {
                self.input = RequestInput::Done;
                self.start_next_request();
                return Ok(InputStep::event(0, H1ServerEvent::End { trailers: NONE }));
            }
            _ => self.after_head(input),
        };
        if step.is_err() {
            self.refuse(input);
        }
        step
    }

    /// Ends the input after an invalid request. The response to a refused HEAD has no content, either (RFC 9110
    /// §9.3.2).
    #[cold]
    fn refuse(&mut self, input: &[u8]) {
        let line = request::first_line(input);
        let is_head = self.input == RequestInput::Head && line.starts_with(b"HEAD ");
        // `stop_reading` resets the flags, so the HEAD flag is set after it.
        self.stop_reading();
        self.flags.set(
            ConnectionFlags::HEAD,
            is_head || self.flags.has(ConnectionFlags::HEAD),
        );
    }

    /// Consumes input after a head.
    fn after_head<'h, 'b>(
        &mut self,
        input: &'b [u8],
    ) -> Result<InputStep<H1ServerEvent<'h, 'b>>, RequestRefusal> {
        match (self.input, &mut self.reader) {
            (RequestInput::Refused(refusal), _) => Err(refusal),
            (RequestInput::Closed, _) => Ok(InputStep::used(input.len())),
            (RequestInput::Tunnel, _) if !input.is_empty() => {
                Ok(InputStep::event(input.len(), H1ServerEvent::Data(input)))
            }
            (RequestInput::Body, Some(reader)) => {
                let step = feed(reader, input)?;
                // RFC 9110 §10.1.1: 100 (Continue) may be omitted after content was received.
                if step.used > 0 {
                    self.flags.set(ConnectionFlags::EXPECTS_CONTINUE, false);
                }
                if let Some(H1ServerEvent::End { .. }) = step.event {
                    self.enter_input(RequestInput::Done);
                    self.start_next_request();
                }
                Ok(step)
            }
            _ => Ok(InputStep::WAIT),
        }
    }

    /// Leaves the body and continues with `input`.
    fn enter_input(&mut self, input: RequestInput) {
        self.input = input;
        self.parsed_len = 0;
        self.reader = None;
    }

    /// Stops reading. One response may still be sent: to the current request, or to malformed input.
    pub fn stop_reading(&mut self) {
        // Even if no request was read, a refusal (400, 408) has to be sent.
        if self.output == OutgoingMessage::Idle && self.input == RequestInput::Head {
            self.output = OutgoingMessage::Head;
            self.flags = ConnectionFlags(0);
        }
        self.enter_input(RequestInput::Closed);
        self.close();
    }

    #[inline(always)]
    fn head<'h, 'b>(
        &mut self,
        input: &'b [u8],
        limits: &RequestLimits,
        head_slot: &'h mut Option<H1RequestHead<'b>>,
    ) -> Result<InputStep<H1ServerEvent<'h, 'b>>, RequestRefusal> {
        request::parse_into(head_slot, input, limits)?;
        let Some(head) = head_slot else {
            self.parsed_len = saturated_len(input);
            return Ok(InputStep::WAIT);
        };
        self.parsed_len = 0;
        self.output = OutgoingMessage::Head;
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        // `close` may have been called before this request.
        let closes = self.flags.has(ConnectionFlags::CLOSES) | !head.keep_alive;
        self.flags = ConnectionFlags(
            flag(head.version.is_10(), ConnectionFlags::HTTP_10)
                | flag(head.request.method == Method::Head, ConnectionFlags::HEAD)
                | flag(head.expect_continue, ConnectionFlags::EXPECTS_CONTINUE)
                | flag(closes, ConnectionFlags::CLOSES),
        );
        self.input = RequestInput::NoBody;
        if head.framing.has_body() {
            self.expect_body(head.framing, limits);
        }
        Ok(InputStep::event(head.len, H1ServerEvent::Request(head)))
    }

    fn expect_body(&mut self, framing: BodyFraming, limits: &RequestLimits) {
        self.input = match BodyReader::new(framing, limits) {
            Ok(reader) => {
                // The reader is boxed, so that a connection without a body in progress stays small.
                self.reader = Some(Box::new(reader));
                RequestInput::Body
            }
            // Not an error yet: a handler may respond without reading the body.
            Err(refusal) => RequestInput::Refused(refusal),
        };
    }

    /// Closes the connection after the current response; without a current one, after the next response.
    pub fn close(&mut self) {
        self.flags.set(ConnectionFlags::CLOSES, true);
    }

    /// Chooses the framing of a response's body.
    fn choose_framing(&mut self, status: StatusCode, len: BodyLen) {
        self.flags.set(ConnectionFlags::EXPECTS_CONTINUE, false);
        self.remaining = match len {
            BodyLen::Known(len) => len,
            BodyLen::None | BodyLen::Unknown => 0,
        };
        self.output = match len {
            // RFC 9112 §6.3: these responses have no body, independent of their fields.
            _ if self.flags.has(ConnectionFlags::HEAD) || status.is_bodiless() => {
                OutgoingMessage::Omitted
            }
            // A response that could have a body must state that it is empty.
            BodyLen::None | BodyLen::Known(_) => OutgoingMessage::Length,
            BodyLen::Unknown if !self.version().is_10() => OutgoingMessage::Chunked,
            BodyLen::Unknown => {
                // HTTP/1.0 has no chunked coding: the end of the connection ends the body.
                self.close();
                OutgoingMessage::UntilClose
            }
        };
    }

    /// Completes a head that [`HeadWriter::start`] began at the end of `out`: adds the fields that depend on the
    /// connection (Content-Length, Transfer-Encoding, Connection) and the empty line. Returns whether a body is to be
    /// sent; if not, body data given later is dropped.
    pub fn finish_head(&mut self, status: StatusCode, len: BodyLen, out: &mut Vec<u8>) -> bool {
        self.choose_framing(status, len);
        let mut head = HeadWriter::resume(out);
        match (self.output, len) {
            // 1xx and 204 must not have Content-Length or Transfer-Encoding (RFC 9110 §8.6, RFC 9112 §6.1).
            _ if status.code() < 200 || status == StatusCode::NO_CONTENT => {}
            (OutgoingMessage::Chunked, _) => {
                head.field("Transfer-Encoding", b"chunked");
            }
            // In a response to HEAD this is the length of the response to GET (RFC 9110 §8.6).
            (OutgoingMessage::Length, _) | (_, BodyLen::Known(_))
                if status != StatusCode::NOT_MODIFIED =>
            {
                head.field_u64("Content-Length", self.remaining);
            }
            _ => {}
        }
        out.extend_from_slice(self.head_end());
        self.has_body()
    }

    /// Writes the head of the response to the current request; `lines` are its field lines. See
    /// `H1Server::finish_head`.
    pub fn respond(
        &mut self,
        status: StatusCode,
        lines: &[u8],
        len: BodyLen,
        date: &[u8; 29],
        out: &mut Vec<u8>,
    ) -> bool {
        HeadWriter::start(out, status, date).lines(lines);
        self.finish_head(status, len, out)
    }

    /// Like `H1Server::finish_head`, for a prebuilt head that includes Content-Length.
    pub fn finish_prebuilt(&mut self, status: StatusCode, len: u64, out: &mut Vec<u8>) -> bool {
        self.choose_framing(status, BodyLen::Known(len));
        out.extend_from_slice(self.head_end());
        self.has_body()
    }

    /// Whether a prebuilt head with its empty line, and its body after it, can be sent unchanged.
    #[must_use]
    pub fn accepts_prebuilt(&self) -> bool {
        const NONE_OF: u8 =
            ConnectionFlags::CLOSES | ConnectionFlags::HTTP_10 | ConnectionFlags::HEAD;
        !self.flags.has(NONE_OF)
    }

    fn has_body(&self) -> bool {
        match self.output {
            OutgoingMessage::Length => self.remaining > 0,
            output => output != OutgoingMessage::Omitted,
        }
    }

    /// The end of the response head: the Connection field, where one is due (RFC 9112 §9.3), and the empty line.
    #[must_use]
    pub fn head_end(&self) -> &'static [u8] {
        // An HTTP/1.0 client assumes that the connection closes, unless the response confirms that it persists.
        match (self.is_closing(), self.version().is_10()) {
            (false, false) => b"\r\n",
            (false, true) => b"Connection: keep-alive\r\n\r\n",
            (true, _) => b"Connection: close\r\n\r\n",
        }
    }

    /// Writes the framing before `len` bytes of the body; `len` must not be 0. The caller sends the bytes next, if the
    /// returned value is true.
    ///
    /// # Errors
    /// The body is longer than announced.
    pub fn data(&mut self, len: u64, out: &mut Vec<u8>) -> Result<bool, BodyLengthMismatch> {
        self.output.data(&mut self.remaining, len, out)
    }

    /// The framing after the bytes that [`H1Server::data`] announced.
    #[must_use]
    pub fn data_end(&self) -> &'static [u8] {
        self.output.data_end()
    }

    /// Ends the response. `trailers` are field lines; they are sent only if the body is chunked. The rest of the
    /// request's body is returned as events before the next request, unless this was the last response.
    ///
    /// # Errors
    /// The body is shorter than announced: the connection has to be closed.
    pub fn end(&mut self, trailers: &[u8], out: &mut Vec<u8>) -> Result<(), BodyLengthMismatch> {
        self.output.end(self.remaining, trailers, out)?;
        self.start_next_request();
        Ok(())
    }

    /// Ends a response after its body was sent, with its announced length, without calls of `H1Server::data`.
    pub fn end_sent_body(&mut self) {
        self.output = OutgoingMessage::Idle;
        self.start_next_request();
    }

    /// Starts the next request when both request and response are complete.
    fn start_next_request(&mut self) {
        if self.output != OutgoingMessage::Idle {
            return;
        }
        match self.input {
            // The client's direction of a tunnel ends separately.
            RequestInput::Tunnel => {}
            _ if self.is_closing() => self.enter_input(RequestInput::Closed),
            RequestInput::NoBody | RequestInput::Done => self.input = RequestInput::Head,
            RequestInput::Head
            | RequestInput::Body
            | RequestInput::Refused(_)
            | RequestInput::Closed => {}
        }
    }

    /// Whether the current request may be answered with 101, if it asked for an upgrade ([`requested_upgrade`]).
    ///
    /// [`requested_upgrade`]: super::requested_upgrade
    #[must_use]
    pub fn can_upgrade(&self) -> bool {
        self.output == OutgoingMessage::Head
            // Otherwise the rest of the request's body would be taken for bytes of the new protocol.
            && self.is_request_whole()
            && !self.flags.has(ConnectionFlags::HTTP_10 | ConnectionFlags::HEAD)
    }

    /// Completes a head with status 101 at the end of `out`. From now on the connection is a tunnel: received bytes are
    /// returned as `H1ServerEvent::Data`, and `H1Server::data` adds no framing. The two directions end independently:
    /// with `H1Server::handle_client_eof` and with `H1Server::end`. Requires `H1Server::can_upgrade`.
    pub fn finish_upgrade(&mut self, protocol: &[u8], out: &mut Vec<u8>) {
        HeadWriter::resume(out)
            .field("Upgrade", protocol)
            .field("Connection", b"upgrade");
        out.extend_from_slice(b"\r\n");
        self.flags
            .set(ConnectionFlags::TUNNEL | ConnectionFlags::CLOSES, true);
        self.enter_input(RequestInput::Tunnel);
        self.output = OutgoingMessage::UntilClose;
    }

    /// Turns the connection into a tunnel: bytes pass unchanged in both directions, beginning with those of the current
    /// request or of input that is not HTTP. Must be called before any part of a response is written.
    pub fn pass_through(&mut self) {
        self.flags = ConnectionFlags(ConnectionFlags::TUNNEL | ConnectionFlags::CLOSES);
        self.enter_input(RequestInput::Tunnel);
        self.remaining = 0;
        self.output = OutgoingMessage::UntilClose;
    }

    /// Whether the current body ends when the connection closes. If the body is incomplete, the connection must be
    /// reset, so that the client notices (RFC 9112 §8).
    #[must_use]
    pub fn ends_by_close(&self) -> bool {
        matches!(self.output, OutgoingMessage::UntilClose)
    }

    /// Handles the client's EOF: no input follows.
    pub fn handle_client_eof(&mut self) {
        self.enter_input(RequestInput::Closed);
    }

    /// Whether `input`, the next bytes, contains the whole rest of the request.
    #[must_use]
    pub fn contains_request_end(&self, input: &[u8]) -> bool {
        // The trial run uses a copy, since the reader's state must not change.
        let mut reader = match &self.reader {
            Some(reader) => BodyReader::clone(reader),
            None => return self.is_request_whole(),
        };
        let mut used = 0;
        while let Ok(progress) = reader.feed(input.get(used..).unwrap_or_default()) {
            used += progress.consumed;
            if progress.done || progress.consumed == 0 {
                return progress.done;
            }
        }
        false
    }

    /// Whether the request was received completely.
    #[must_use]
    pub fn is_request_whole(&self) -> bool {
        matches!(self.input, RequestInput::NoBody | RequestInput::Done)
    }

    /// Whether the rest of the request's body is short and certain to arrive. It is then read after an early response,
    /// and the connection stays open. A client that waits for 100 (Continue) may omit its body (RFC 9110 §10.1.1).
    #[must_use]
    pub fn drains_body(&self) -> bool {
        let remaining = self.reader.as_ref().and_then(|reader| reader.remaining());
        !self.flags.has(ConnectionFlags::EXPECTS_CONTINUE)
            && remaining.is_some_and(|remaining| remaining <= DRAINED_LEN_MAX)
    }

    /// Whether the connection closes after the current response.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.flags.has(ConnectionFlags::CLOSES)
    }

    /// Whether a request was received in part.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.parsed_len > 0 || self.input == RequestInput::Body
    }
}

impl ServerProtocol for H1Server {
    fn version(&self) -> HttpVersion {
        match self.flags.has(ConnectionFlags::HTTP_10) {
            true => HttpVersion::Http10,
            false => HttpVersion::Http11,
        }
    }

    /// Also true while a request head is partial, or while the body of an answered request is outstanding.
    fn is_idle(&self) -> bool {
        self.output == OutgoingMessage::Idle
    }

    fn is_finished(&self) -> bool {
        self.is_idle() && matches!(self.input, RequestInput::Closed)
    }

    fn is_tunnel(&self) -> bool {
        self.flags.has(ConnectionFlags::TUNNEL)
    }

    fn has_whole_request(&mut self, _: StreamId) -> bool {
        self.is_request_whole()
    }

    fn is_answered(&mut self, _: StreamId) -> bool {
        self.output != OutgoingMessage::Head
    }

    /// False once a part of the body was received or the response has begun.
    fn expects_continue(&mut self, _: StreamId) -> bool {
        self.flags.has(ConnectionFlags::EXPECTS_CONTINUE)
            && self.output == OutgoingMessage::Head
            && self.input == RequestInput::Body
    }

    /// Does nothing for an HTTP/1.0 client, which does not understand 1xx (RFC 9110 §15.2).
    fn interim(
        &mut self,
        _: StreamId,
        status: StatusCode,
        lines: FieldLines<'_>,
        out: &mut Vec<u8>,
    ) {
        if self.output != OutgoingMessage::Head || self.flags.has(ConnectionFlags::HTTP_10) {
            return;
        }
        if status == StatusCode::CONTINUE {
            self.flags.set(ConnectionFlags::EXPECTS_CONTINUE, false);
        }
        HeadWriter::interim(out, status).lines(lines.as_bytes());
        out.extend_from_slice(b"\r\n");
    }

    fn discard_body(&mut self, _: StreamId, _: &mut Vec<u8>) {
        if !matches!(self.input, RequestInput::NoBody | RequestInput::Done) {
            // The start of the next request is unknown until the body is read (RFC 9112 §9.3).
            self.enter_input(RequestInput::Closed);
            self.close();
        }
    }

    fn drain(&mut self, _: &mut Vec<u8>) {
        self.close();
    }
}

/// The length of the examined input, saturated: a longer head is only examined more often than necessary.
fn saturated_len(input: &[u8]) -> u32 {
    u32::try_from(input.len()).unwrap_or(u32::MAX)
}

const NONE: FieldLines<'static> = FieldLines::NONE;

/// Consumes body input until an event is complete.
fn feed<'h, 'b>(
    reader: &mut BodyReader,
    input: &'b [u8],
) -> Result<InputStep<H1ServerEvent<'h, 'b>>, RequestRefusal> {
    let step = receive_body::take(reader, input).map_err(|broken| broken.refusal)?;
    Ok(InputStep {
        used: step.used,
        event: step.event.map(|part| match part {
            IncomingPart::Data(data) => H1ServerEvent::Data(data),
            IncomingPart::End(trailers) => H1ServerEvent::End { trailers },
        }),
    })
}
