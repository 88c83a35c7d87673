//! The server's end of a connection. See the module for the order of things.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::incoming::{self, Part};
use super::outgoing::{BodyLen, Broken, Outgoing};
use super::request::{self, Head};
use super::{Step, is_due};
use crate::body::BodyReader;
use crate::fields::Lines;
use crate::head::HeadWriter;
use crate::limits::Limits;
use crate::method::Method;
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

/// One connection.
#[derive(Debug)]
pub struct Server {
    input: Input,
    output: Outgoing,
    version: Version,
    /// The request under way is a HEAD.
    is_head: bool,
    /// The client waits for a word before it sends the body.
    expects: bool,
    /// Another request may follow.
    keep_alive: bool,
}

#[derive(Debug)]
enum Input {
    /// A head, of which so many bytes were looked at.
    Head { seen_len: usize },
    /// The body of the request under way.
    Body(Box<BodyReader>),
    /// That body is refused.
    Refused(Refusal),
    /// The end of the request without a body is still to be told.
    NoBody,
    /// The request has come whole; its response has not left.
    Done,
    /// Nothing is read any more.
    Closed,
}

impl Default for Server {
    fn default() -> Server {
        Server {
            input: Input::Head { seen_len: 0 },
            output: Outgoing::Idle,
            version: Version::Http11,
            is_head: false,
            expects: false,
            keep_alive: true,
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
        let step = match &mut self.input {
            Input::Head { .. } if self.output != Outgoing::Idle => Ok(Step::WAIT),
            Input::Head { seen_len } => {
                if *seen_len > 0 && !is_due(input, *seen_len, limits) {
                    *seen_len = input.len();
                    return Ok(Step::WAIT);
                }
                self.head(input, limits, place)
            }
            Input::NoBody => {
                self.input = Input::Done;
                self.turn();
                Ok(Step::event(0, Event::End { trailers: NONE }))
            }
            _ => self.after_head(input),
        };
        if step.is_err() {
            self.give_up();
        }
        step
    }

    /// Takes what is behind a head with a body.
    fn after_head<'h, 'b>(&mut self, input: &'b [u8]) -> Result<Step<Event<'h, 'b>>, Refusal> {
        match &mut self.input {
            Input::Body(reader) => {
                let step = feed(reader, input)?;
                self.expects &= step.used == 0;
                if let Some(Event::End { .. }) = step.event {
                    self.input = Input::Done;
                    self.turn();
                }
                Ok(step)
            }
            Input::Refused(refusal) => Err(*refusal),
            Input::Closed => Ok(Step::used(input.len())),
            Input::Head { .. } | Input::NoBody | Input::Done => Ok(Step::WAIT),
        }
    }

    /// Reads no more. One response may still be sent: to the request under way, or to what is none.
    pub fn give_up(&mut self) {
        let input = core::mem::replace(&mut self.input, Input::Closed);
        self.keep_alive = false;
        if self.output == Outgoing::Idle && matches!(input, Input::Head { .. }) {
            self.output = Outgoing::Head;
            self.is_head = false;
            self.version = Version::Http11;
        }
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
            self.input = Input::Head {
                seen_len: input.len(),
            };
            return Ok(Step::WAIT);
        };
        self.output = Outgoing::Head;
        self.version = head.version;
        self.is_head = head.request.method == Method::Head;
        self.keep_alive &= head.keep_alive;
        self.expects = head.expect_continue;
        self.input = match head.framing {
            framing if !framing.has_body() => Input::NoBody,
            framing => match BodyReader::new(framing, limits) {
                Ok(reader) => Input::Body(Box::new(reader)),
                // Who answers without the body need not hear of it.
                Err(refusal) => Input::Refused(refusal),
            },
        };
        Ok(Step::event(head.len, Event::Request(head)))
    }

    /// The version that the client speaks, by its last request.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether the client waits to be told that it may send the body. Over once some of it has come, or the response
    /// has begun.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.expects && self.output == Outgoing::Head && matches!(self.input, Input::Body(_))
    }

    /// Writes an interim response (1xx but 101); `lines` are field lines. Clients of HTTP/1.0 get none.
    pub fn interim(&mut self, status: Status, lines: &[u8], out: &mut Vec<u8>) {
        if self.output != Outgoing::Head || self.version == Version::Http10 {
            return;
        }
        self.expects &= status != Status::CONTINUE;
        HeadWriter::interim(out, status).lines(lines);
        out.extend_from_slice(b"\r\n");
    }

    /// Nobody will read the rest of the request's body: the connection closes after the response.
    pub fn leave_body(&mut self) {
        if !matches!(self.input, Input::NoBody | Input::Done) {
            self.input = Input::Closed;
            self.keep_alive = false;
        }
    }

    /// The response under way is the last, or the next one is.
    pub fn close(&mut self) {
        self.keep_alive = false;
    }

    /// How the body of a response is to be sent.
    fn delimit(&mut self, status: Status, len: BodyLen) -> Outgoing {
        self.expects = false;
        if self.is_head || status.is_bodiless() {
            return Outgoing::Omitted;
        }
        match len {
            // Where a body could be, its absence has to be said.
            BodyLen::None => Outgoing::Length(0),
            BodyLen::Known(len) => Outgoing::Length(len),
            BodyLen::Unknown if self.version == Version::Http11 => Outgoing::Chunked,
            BodyLen::Unknown => {
                self.keep_alive = false;
                Outgoing::UntilClose
            }
        }
    }

    /// Ends a head that was begun at the end of `out` by [`HeadWriter::start`], and has all fields but those that are the
    /// connection's: Content-Length, Transfer-Encoding, Connection. Whether a body is to be sent; what is given of it
    /// where it is not, is left out.
    pub fn finish_head(&mut self, status: Status, len: BodyLen, out: &mut Vec<u8>) -> bool {
        self.output = self.delimit(status, len);
        let mut head = HeadWriter::resume(out);
        match (self.output, len) {
            // Neither says how long it would be (RFC 9110 §8.6).
            _ if status.code() < 200 || status == Status::NO_CONTENT => {}
            (Outgoing::Chunked, _) => {
                head.field("Transfer-Encoding", b"chunked");
            }
            (Outgoing::Length(len), _) | (_, BodyLen::Known(len))
                if status != Status::NOT_MODIFIED =>
            {
                head.field_u64("Content-Length", len);
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
        self.output = self.delimit(status, BodyLen::Known(len));
        out.extend_from_slice(self.head_end());
        self.has_body()
    }

    /// Whether a built head with its empty line, and its body behind it, may go out as they are.
    #[must_use]
    pub fn takes_built(&self) -> bool {
        self.keep_alive && self.version == Version::Http11 && !self.is_head
    }

    fn has_body(&self) -> bool {
        !matches!(self.output, Outgoing::Omitted | Outgoing::Length(0))
    }

    /// What ends the head of this response: the connection field where one is due (RFC 9112 §9.3) and the empty line.
    #[must_use]
    pub fn head_end(&self) -> &'static [u8] {
        match (self.keep_alive, self.version) {
            (true, Version::Http11) => b"\r\n",
            (true, Version::Http10) => b"Connection: keep-alive\r\n\r\n",
            (false, _) => b"Connection: close\r\n\r\n",
        }
    }

    /// Writes what stands before `len` bytes of the body (not 0), which follow. Whether they are to be sent.
    ///
    /// # Errors
    /// More than was announced.
    pub fn data(&mut self, len: u64, out: &mut Vec<u8>) -> Result<bool, Broken> {
        self.output.data(len, out)
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
        self.output.end(trailers, out)?;
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
            _ if !self.keep_alive => self.input = Input::Closed,
            Input::NoBody | Input::Done => self.input = Input::Head { seen_len: 0 },
            Input::Head { .. } | Input::Body(_) | Input::Refused(_) | Input::Closed => {}
        }
    }

    /// Whether `input`, which comes next, holds all that is still to come of the request.
    #[must_use]
    pub fn ends_within(&self, input: &[u8]) -> bool {
        let mut reader = match &self.input {
            Input::NoBody | Input::Done => return true,
            Input::Body(reader) => BodyReader::clone(reader),
            Input::Head { .. } | Input::Refused(_) | Input::Closed => return false,
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
    pub fn has_whole_request(&self) -> bool {
        matches!(self.input, Input::NoBody | Input::Done)
    }

    /// Whether no response is due; the head of a request may have begun, or the body of one answered be still to come.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.output == Outgoing::Idle
    }

    /// Whether the response to the request under way has begun, or is over.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.output != Outgoing::Head
    }

    /// Whether no other request will follow.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        !self.keep_alive
    }

    /// Whether all has been said: the connection ends once what was written has left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_idle() && matches!(self.input, Input::Closed)
    }

    /// Whether a request has begun that is not whole.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        matches!(self.input, Input::Head { seen_len: 1.. } | Input::Body(_))
    }
}

const NONE: Lines<'static> = Lines::NONE;

/// Takes what can be taken of a body, until there is something to tell.
fn feed<'h, 'b>(reader: &mut BodyReader, input: &'b [u8]) -> Result<Step<Event<'h, 'b>>, Refusal> {
    let step = incoming::take(reader, input)?;
    Ok(Step {
        used: step.used,
        event: step.event.map(|part| match part {
            Part::Data(data) => Event::Data(data),
            Part::End(trailers) => Event::End { trailers },
        }),
    })
}
