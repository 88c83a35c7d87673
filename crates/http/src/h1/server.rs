//! The server's end of a connection. See the module for the order of things.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::incoming::{self, Part};
use super::outgoing::{BodyLen, Broken, Outgoing};
use super::request::{self, Head};
use super::{Step, is_due};
use crate::body::{BodyReader, Framing};
use crate::fields::Lines;
use crate::head::HeadWriter;
use crate::limits::Limits;
use crate::method::Method;
use crate::protocol::{ServerProtocol, StreamId};
use crate::refusal::Refusal;
use crate::status::Status;
use crate::version::Version;

/// What came from the client.
#[derive(Debug)]
pub enum Event<'h, 'b> {
    /// A whole head. Its body follows as [`Event::Data`], and always an [`Event::End`].
    Request(&'h Head<'b>),
    /// Some of the body, not empty.
    Data(&'b [u8]),
    /// The request is whole. Trailers came with chunks only; they are for who asks for them, and are not fields of the
    /// head (RFC 9110 §6.5.1).
    End {
        /// Validated.
        trailers: Lines<'b>,
    },
}

/// An early response keeps the connection if no more of the request's body is still to come.
const DRAINED_LEN_MAX: u64 = 64 << 10;

/// One connection. Small, since idle ones are kept by the ten thousand.
#[derive(Debug)]
pub struct Server {
    /// The body of the request under way: `Some` in [`Input::Body`] only.
    reader: Option<Box<BodyReader>>,
    /// Bytes of the response's body still to be sent, of those that were announced.
    left: u64,
    /// Bytes of a head that were looked at; 0 but in [`Input::Head`].
    seen_len: u32,
    input: Input,
    output: Outgoing,
    flags: Flags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// A head.
    Head,
    /// The body of the request under way.
    Body,
    /// That body is refused.
    Refused(Refusal),
    /// The end of the request without a body is still to be told.
    NoBody,
    /// The request has come whole; its response has not left.
    Done,
    /// The protocol was changed: bytes, until the client has sent its last.
    Tunnel,
    /// Nothing is read any more.
    Closed,
}

/// What is known of the request under way and of the connection, a bit each.
#[derive(Clone, Copy, Debug)]
struct Flags(u8);

impl Flags {
    /// The client speaks HTTP/1.0.
    const HTTP_10: u8 = 1;
    /// The request under way is a HEAD.
    const HEAD: u8 = 2;
    /// The client waits for a word before it sends the body.
    const EXPECTS: u8 = 4;
    /// No other request will follow.
    const CLOSES: u8 = 8;
    /// The protocol was changed.
    const TUNNEL: u8 = 16;

    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    fn set(&mut self, flag: u8, is_set: bool) {
        self.0 = self.0 & !flag | if is_set { flag } else { 0 };
    }
}

impl Default for Server {
    fn default() -> Server {
        Server {
            reader: None,
            left: 0,
            seen_len: 0,
            input: Input::Head,
            output: Outgoing::Idle,
            flags: Flags(0),
        }
    }
}

impl Server {
    /// Looks at the start of what was received and not used yet. A head is put into `place`, where it need not be moved.
    ///
    /// # Errors
    /// It is not HTTP, or over a limit: one response may still be sent, then the connection closes.
    #[inline]
    pub fn next<'h, 'b>(
        &mut self,
        input: &'b [u8],
        limits: &Limits,
        place: &'h mut Option<Head<'b>>,
    ) -> Result<Step<Event<'h, 'b>>, Refusal> {
        let step = match self.input {
            Input::Head if self.output != Outgoing::Idle => return Ok(Step::WAIT),
            Input::Head => {
                if self.seen_len > 0 && !is_due(input, self.seen_len as usize, limits) {
                    self.seen_len = seen_len(input);
                    return Ok(Step::WAIT);
                }
                self.head(input, limits, place)
            }
            Input::NoBody => {
                self.input = Input::Done;
                self.turn();
                return Ok(Step::event(0, Event::End { trailers: NONE }));
            }
            _ => self.after_head(input),
        };
        if step.is_err() {
            self.refuse(input);
        }
        step
    }

    /// Ends input that is no valid request. A refused HEAD gets no content either (RFC 9110 §9.3.2).
    #[cold]
    fn refuse(&mut self, input: &[u8]) {
        let line = request::first_line(input);
        let is_head = self.input == Input::Head && line.starts_with(b"HEAD ");
        self.give_up();
        self.flags
            .set(Flags::HEAD, is_head || self.flags.has(Flags::HEAD));
    }

    /// Takes what is behind a head with a body.
    fn after_head<'h, 'b>(&mut self, input: &'b [u8]) -> Result<Step<Event<'h, 'b>>, Refusal> {
        match (self.input, &mut self.reader) {
            (Input::Refused(refusal), _) => Err(refusal),
            (Input::Closed, _) => Ok(Step::used(input.len())),
            (Input::Tunnel, _) if !input.is_empty() => {
                Ok(Step::event(input.len(), Event::Data(input)))
            }
            (Input::Body, Some(reader)) => {
                let step = feed(reader, input)?;
                if step.used > 0 {
                    self.flags.set(Flags::EXPECTS, false);
                }
                if let Some(Event::End { .. }) = step.event {
                    self.go_on(Input::Done);
                    self.turn();
                }
                Ok(step)
            }
            _ => Ok(Step::WAIT),
        }
    }

    /// Nothing more is read of the body.
    fn go_on(&mut self, input: Input) {
        self.input = input;
        self.seen_len = 0;
        self.reader = None;
    }

    /// Reads no more. One response may still be sent: to the request under way, or to what is none.
    pub fn give_up(&mut self) {
        if self.output == Outgoing::Idle && self.input == Input::Head {
            self.output = Outgoing::Head;
            self.flags = Flags(0);
        }
        self.go_on(Input::Closed);
        self.close();
    }

    #[inline(always)]
    fn head<'h, 'b>(
        &mut self,
        input: &'b [u8],
        limits: &Limits,
        place: &'h mut Option<Head<'b>>,
    ) -> Result<Step<Event<'h, 'b>>, Refusal> {
        request::parse_into(place, input, limits)?;
        let Some(head) = place else {
            self.seen_len = seen_len(input);
            return Ok(Step::WAIT);
        };
        self.seen_len = 0;
        self.output = Outgoing::Head;
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let closes = self.flags.has(Flags::CLOSES) | !head.keep_alive;
        self.flags = Flags(
            flag(head.version == Version::Http10, Flags::HTTP_10)
                | flag(head.request.method == Method::Head, Flags::HEAD)
                | flag(head.expect_continue, Flags::EXPECTS)
                | flag(closes, Flags::CLOSES),
        );
        self.input = Input::NoBody;
        if head.framing.has_body() {
            self.expect_body(head.framing, limits);
        }
        Ok(Step::event(head.len, Event::Request(head)))
    }

    fn expect_body(&mut self, framing: Framing, limits: &Limits) {
        self.input = match BodyReader::new(framing, limits) {
            Ok(reader) => {
                self.reader = Some(Box::new(reader));
                Input::Body
            }
            // Who answers without the body need not hear of it.
            Err(refusal) => Input::Refused(refusal),
        };
    }

    /// The response under way is the last, or the next one is.
    pub fn close(&mut self) {
        self.flags.set(Flags::CLOSES, true);
    }

    /// Decides how the body of a response is to be sent.
    fn delimit(&mut self, status: Status, len: BodyLen) {
        self.flags.set(Flags::EXPECTS, false);
        self.left = match len {
            BodyLen::Known(len) => len,
            BodyLen::None | BodyLen::Unknown => 0,
        };
        self.output = match len {
            _ if self.flags.has(Flags::HEAD) || status.is_bodiless() => Outgoing::Omitted,
            // Where a body could be, its absence has to be said.
            BodyLen::None | BodyLen::Known(_) => Outgoing::Length,
            BodyLen::Unknown if self.version() == Version::Http11 => Outgoing::Chunked,
            BodyLen::Unknown => {
                self.close();
                Outgoing::UntilClose
            }
        };
    }

    /// Ends a head that was begun at the end of `out` by [`HeadWriter::start`], and has all fields but those that are the
    /// connection's: Content-Length, Transfer-Encoding, Connection. Whether a body is to be sent; what is given of it
    /// where it is not, is left out.
    pub fn finish_head(&mut self, status: Status, len: BodyLen, out: &mut Vec<u8>) -> bool {
        self.delimit(status, len);
        let mut head = HeadWriter::resume(out);
        match (self.output, len) {
            // Neither says how long it would be (RFC 9110 §8.6).
            _ if status.code() < 200 || status == Status::NO_CONTENT => {}
            (Outgoing::Chunked, _) => {
                head.field("Transfer-Encoding", b"chunked");
            }
            (Outgoing::Length, _) | (_, BodyLen::Known(_)) if status != Status::NOT_MODIFIED => {
                head.field_u64("Content-Length", self.left);
            }
            _ => {}
        }
        out.extend_from_slice(self.head_end());
        self.has_body()
    }

    /// Writes the head of the response to the request under way; `lines` are its field lines. See
    /// [`Server::finish_head`].
    pub fn respond(
        &mut self,
        status: Status,
        lines: &[u8],
        len: BodyLen,
        date: &[u8; 29],
        out: &mut Vec<u8>,
    ) -> bool {
        HeadWriter::start(out, status, date).lines(lines);
        self.finish_head(status, len, out)
    }

    /// As [`Server::finish_head`] for a head that says already how long the body is.
    pub fn finish_built(&mut self, status: Status, len: u64, out: &mut Vec<u8>) -> bool {
        self.delimit(status, BodyLen::Known(len));
        out.extend_from_slice(self.head_end());
        self.has_body()
    }

    /// Whether a built head with its empty line, and its body behind it, may go out as they are.
    #[must_use]
    pub fn takes_built(&self) -> bool {
        const NONE_OF: u8 = Flags::CLOSES | Flags::HTTP_10 | Flags::HEAD;
        !self.flags.has(NONE_OF)
    }

    fn has_body(&self) -> bool {
        match self.output {
            Outgoing::Length => self.left > 0,
            output => output != Outgoing::Omitted,
        }
    }

    /// What ends the head of this response: the connection field where one is due (RFC 9112 §9.3) and the empty line.
    #[must_use]
    pub fn head_end(&self) -> &'static [u8] {
        match (self.is_closing(), self.version()) {
            (false, Version::Http11 | Version::Http2) => b"\r\n",
            (false, Version::Http10) => b"Connection: keep-alive\r\n\r\n",
            (true, _) => b"Connection: close\r\n\r\n",
        }
    }

    /// Writes what stands before `len` bytes of the body (not 0), which follow. Whether they are to be sent.
    ///
    /// # Errors
    /// More than was announced.
    pub fn data(&mut self, len: u64, out: &mut Vec<u8>) -> Result<bool, Broken> {
        self.output.data(&mut self.left, len, out)
    }

    /// What stands behind those bytes.
    #[must_use]
    pub fn data_end(&self) -> &'static [u8] {
        self.output.data_end()
    }

    /// Ends the response. `trailers` are field lines, sent with chunks only. What is still to come of the request's body
    /// comes as events before the next request does, unless this was the last response.
    ///
    /// # Errors
    /// Less than was announced: the connection has to be cut.
    pub fn end(&mut self, trailers: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
        self.output.end(self.left, trailers, out)?;
        self.turn();
        Ok(())
    }

    /// Ends a response whose body, of the announced length, was not shown to [`Server::data`].
    pub fn end_unseen(&mut self) {
        self.output = Outgoing::Idle;
        self.turn();
    }

    /// When both request and response have come to their end, it is the next request's turn.
    fn turn(&mut self) {
        if self.output != Outgoing::Idle {
            return;
        }
        match self.input {
            // The client may still speak.
            Input::Tunnel => {}
            _ if self.is_closing() => self.go_on(Input::Closed),
            Input::NoBody | Input::Done => self.input = Input::Head,
            Input::Head | Input::Body | Input::Refused(_) | Input::Closed => {}
        }
    }

    /// Whether the request under way may be answered with another protocol, if it asked for one ([`upgrade_asked`]).
    ///
    /// [`upgrade_asked`]: super::upgrade_asked
    #[must_use]
    pub fn can_upgrade(&self) -> bool {
        self.output == Outgoing::Head
            && self.is_request_whole()
            && !self.flags.has(Flags::HTTP_10 | Flags::HEAD)
    }

    /// Ends a head with status 101 that was begun at the end of `out`. From now on bytes go both ways as they are:
    /// received ones come as [`Event::Data`], and [`Server::data`] puts nothing before those to be sent. Each way ends
    /// by itself: with [`Server::client_ended`] and with [`Server::end`]. To be called if [`Server::can_upgrade`].
    pub fn finish_upgrade(&mut self, protocol: &[u8], out: &mut Vec<u8>) {
        HeadWriter::resume(out)
            .field("Upgrade", protocol)
            .field("Connection", b"upgrade");
        out.extend_from_slice(b"\r\n");
        self.flags.set(Flags::TUNNEL | Flags::CLOSES, true);
        self.go_on(Input::Tunnel);
        self.output = Outgoing::UntilClose;
    }

    /// Switches to a tunnel: from now on bytes pass unchanged both ways, beginning with those of the current request or
    /// of bytes that are no request. Must be called before any response to it.
    pub fn pass_through(&mut self) {
        self.flags = Flags(Flags::TUNNEL | Flags::CLOSES);
        self.go_on(Input::Tunnel);
        self.left = 0;
        self.output = Outgoing::UntilClose;
    }

    /// Whether the client takes the end of the connection for the end of the body under way. A connection that closes
    /// earlier must be reset (RFC 9112 §8).
    #[must_use]
    pub fn ends_by_close(&self) -> bool {
        matches!(self.output, Outgoing::UntilClose)
    }

    /// The client has sent its last byte of a changed protocol.
    pub fn client_ended(&mut self) {
        self.go_on(Input::Closed);
    }

    /// Whether `input`, which comes next, holds all that is still to come of the request.
    #[must_use]
    pub fn ends_within(&self, input: &[u8]) -> bool {
        let mut reader = match &self.reader {
            Some(reader) => BodyReader::clone(reader),
            None => return self.is_request_whole(),
        };
        let mut used = 0;
        while let Ok(fed) = reader.feed(input.get(used..).unwrap_or_default()) {
            used += fed.consumed;
            if fed.done || fed.consumed == 0 {
                return fed.done;
            }
        }
        false
    }

    /// Whether the request has come whole.
    #[must_use]
    pub fn is_request_whole(&self) -> bool {
        matches!(self.input, Input::NoBody | Input::Done)
    }

    /// Whether the rest of the request's body is short, and certain to come: then it is read, and the connection stays
    /// open after an early response. A client that waits for 100 may leave its body out (RFC 9110 §10.1.1).
    #[must_use]
    pub fn drains_body(&self) -> bool {
        let left = self.reader.as_ref().and_then(|reader| reader.left());
        !self.flags.has(Flags::EXPECTS) && left.is_some_and(|left| left <= DRAINED_LEN_MAX)
    }

    /// Whether no other request will follow.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.flags.has(Flags::CLOSES)
    }

    /// Whether a request has begun that is not whole.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.seen_len > 0 || self.input == Input::Body
    }
}

impl ServerProtocol for Server {
    fn version(&self) -> Version {
        match self.flags.has(Flags::HTTP_10) {
            true => Version::Http10,
            false => Version::Http11,
        }
    }

    /// The head of a request may have begun, or the body of one answered be still to come.
    fn is_idle(&self) -> bool {
        self.output == Outgoing::Idle
    }

    fn is_over(&self) -> bool {
        self.is_idle() && matches!(self.input, Input::Closed)
    }

    fn is_tunnel(&self) -> bool {
        self.flags.has(Flags::TUNNEL)
    }

    fn has_whole_request(&mut self, _: StreamId) -> bool {
        self.is_request_whole()
    }

    fn is_answered(&mut self, _: StreamId) -> bool {
        self.output != Outgoing::Head
    }

    /// No longer once some of the body has come, or the response has begun.
    fn expects_continue(&mut self, _: StreamId) -> bool {
        self.flags.has(Flags::EXPECTS) && self.output == Outgoing::Head && self.input == Input::Body
    }

    /// Clients of HTTP/1.0 get none.
    fn interim(&mut self, _: StreamId, status: Status, lines: Lines<'_>, out: &mut Vec<u8>) {
        if self.output != Outgoing::Head || self.flags.has(Flags::HTTP_10) {
            return;
        }
        if status == Status::CONTINUE {
            self.flags.set(Flags::EXPECTS, false);
        }
        HeadWriter::interim(out, status).lines(lines.as_bytes());
        out.extend_from_slice(b"\r\n");
    }

    fn leave_body(&mut self, _: StreamId, _: &mut Vec<u8>) {
        if !matches!(self.input, Input::NoBody | Input::Done) {
            self.go_on(Input::Closed);
            self.close();
        }
    }

    fn drain(&mut self, _: &mut Vec<u8>) {
        self.close();
    }
}

/// As many bytes of a head as were looked at: where that is more than fits, it is looked at more often.
fn seen_len(input: &[u8]) -> u32 {
    u32::try_from(input.len()).unwrap_or(u32::MAX)
}

const NONE: Lines<'static> = Lines::NONE;

/// Takes what can be taken of a body, until there is something to tell.
fn feed<'h, 'b>(reader: &mut BodyReader, input: &'b [u8]) -> Result<Step<Event<'h, 'b>>, Refusal> {
    let step = incoming::take(reader, input).map_err(|broken| broken.refusal)?;
    Ok(Step {
        used: step.used,
        event: step.event.map(|part| match part {
            Part::Data(data) => Event::Data(data),
            Part::End(trailers) => Event::End { trailers },
        }),
    })
}
