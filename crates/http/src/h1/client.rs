//! The client's end of a connection. See the module for the order of things. One request at a time: what is not
//! answered is not followed by another.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::incoming::{self, Part};
use super::outgoing::{BodyLen, Broken, Outgoing};
use super::response::{self, Fault, ResponseFraming, ResponseHead};
use super::{Step, is_due};
use crate::body::{self, BodyReader};
use crate::fields::Lines;
use crate::head::{HeadWriter, put_number};
use crate::limits::Limits;
use crate::method::Method;
use crate::refusal::Refusal;
use crate::status::Status;

/// Interim responses to one request; more are an attack or an error.
const INTERIM_MAX: u8 = 16;

/// What came from the server.
#[derive(Debug)]
pub enum ClientEvent<'b> {
    /// The head is irregular and whole: give what [`mend_head`](super::mend_head) makes of the input instead of it. Nothing
    /// was used.
    Irregular,
    /// The trailers are irregular and whole: give what [`mend_trailers`](super::mend_trailers) makes of the input behind the
    /// bytes that were used.
    IrregularTrailers,
    /// A response before the one that counts (1xx but 101).
    Interim(ResponseHead<'b>),
    /// The head of a response with status 101: the protocol is the one that was asked for. What follows it comes as
    /// [`ClientEvent::Data`], as it is and without an end, and is said as it is.
    Upgraded(ResponseHead<'b>),
    /// The head of the response. Its body follows as [`ClientEvent::Data`], and always a [`ClientEvent::End`].
    Response(ResponseHead<'b>),
    /// Some of the body, not empty.
    Data(&'b [u8]),
    /// The response is whole.
    End {
        /// Validated; with chunks only.
        trailers: Lines<'b>,
    },
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    input: Input,
    output: Outgoing,
    /// Bytes of the request's body still to be sent, of those that were announced.
    left: u64,
    is_head: bool,
    asks_upgrade: bool,
    interim_count: u8,
    keep_alive: bool,
}

#[derive(Debug)]
enum Input {
    /// No request is under way: nothing may come.
    Idle,
    /// A head, of which so many bytes were looked at.
    Head { seen_len: usize },
    /// A body of which so many bytes are to come, at least one.
    Length(u64),
    /// A body with another framing.
    Body(Box<BodyReader>),
    /// The body ends with the connection.
    UntilClose,
    /// The protocol was changed.
    Tunnel,
    /// Nothing of the body is to come, but its end is still to be told.
    NoBody,
    /// The connection is of no more use.
    Closed,
}

impl Default for Client {
    fn default() -> Client {
        Client {
            input: Input::Idle,
            output: Outgoing::Idle,
            left: 0,
            is_head: false,
            asks_upgrade: false,
            interim_count: 0,
            keep_alive: true,
        }
    }
}

impl Client {
    /// Writes the head of a request; `lines` are field lines, Host among them, without any of those that are the
    /// connection's: Content-Length, Transfer-Encoding, Connection. Whether a body is to follow.
    ///
    /// # Errors
    /// The response to the request before has not come whole, or the connection is of no more use.
    pub fn request(
        &mut self,
        method: Method,
        target: &[u8],
        lines: &[u8],
        len: BodyLen,
        out: &mut Vec<u8>,
    ) -> Result<bool, Broken> {
        if !self.is_idle() {
            return Err(Broken);
        }
        out.extend_from_slice(method.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(target);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        out.extend_from_slice(lines);
        self.output = match len {
            BodyLen::None => Outgoing::Omitted,
            BodyLen::Known(len) => {
                out.extend_from_slice(b"Content-Length: ");
                put_number(out, len);
                out.extend_from_slice(b"\r\n");
                self.left = len;
                Outgoing::Length
            }
            BodyLen::Unknown => {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
                Outgoing::Chunked
            }
        };
        out.extend_from_slice(b"\r\n");
        self.input = Input::Head { seen_len: 0 };
        self.is_head = method == Method::Head;
        self.asks_upgrade = false;
        self.interim_count = 0;
        let has_body = !matches!(len, BodyLen::None | BodyLen::Known(0));
        if !has_body {
            self.output = Outgoing::Idle;
        }
        Ok(has_body)
    }

    /// As [`Client::request`], for a GET that asks for another protocol. The server may as well answer as ever.
    ///
    /// # Errors
    /// As there.
    pub fn request_upgrade(
        &mut self,
        target: &[u8],
        lines: &[u8],
        protocol: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        self.request(Method::Get, target, lines, BodyLen::None, out)?;
        self.asks_upgrade = true;
        // Before the empty line.
        out.truncate(out.len().saturating_sub(2));
        HeadWriter::resume(out)
            .field("Connection", b"upgrade")
            .field("Upgrade", protocol);
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Writes what stands before `len` bytes of the body (not 0), which follow.
    ///
    /// # Errors
    /// More than was announced, or no body is due.
    pub fn data(&mut self, len: u64, out: &mut Vec<u8>) -> Result<(), Broken> {
        self.output.data(&mut self.left, len, out).map(drop)
    }

    /// What stands behind those bytes.
    #[must_use]
    pub fn data_end(&self) -> &'static [u8] {
        self.output.data_end()
    }

    /// Ends the request's body. `trailers` are field lines, sent with chunks only.
    ///
    /// # Errors
    /// Less than was announced: the connection has to be cut.
    pub fn end(&mut self, trailers: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
        self.output.end(self.left, trailers, out)
    }

    /// Looks at the start of what was received and not used yet.
    ///
    /// # Errors
    /// It is not a response, or not to what was asked. The connection is of no more use.
    pub fn next<'b>(
        &mut self,
        input: &'b [u8],
        limits: &Limits,
    ) -> Result<Step<ClientEvent<'b>>, Fault> {
        let step = self.step(input, limits);
        if step.is_err() {
            self.give_up();
        }
        step
    }

    /// The rest of the response's body, if its length is known and all of it is at the start of what was received: then
    /// neither that nor the end is told by an event.
    pub fn take_rest<'b>(&mut self, input: &'b [u8]) -> Option<&'b [u8]> {
        let len = match self.input {
            Input::Length(left) => usize::try_from(left).ok()?,
            Input::NoBody => 0,
            _ => return None,
        };
        let rest = input.get(..len)?;
        self.input = Input::Idle;
        Some(rest)
    }

    fn step<'b>(
        &mut self,
        input: &'b [u8],
        limits: &Limits,
    ) -> Result<Step<ClientEvent<'b>>, Fault> {
        match &mut self.input {
            Input::Idle | Input::Closed if input.is_empty() => Ok(Step::WAIT),
            Input::Idle | Input::Closed => Err(Fault::Unasked),
            Input::Head { seen_len } => {
                let seen_len = *seen_len;
                if seen_len > 0
                    && !is_due(input, seen_len, limits)
                    && !response::has_end(input, seen_len)
                {
                    return Ok(self.wait_for_head(input));
                }
                self.head(input, seen_len, limits)
            }
            Input::Body(reader) => {
                let step = match incoming::take(reader, input) {
                    Ok(step) => step,
                    Err(broken) if broken.refusal.is_mendable() => {
                        let used = broken.used;
                        let is_whole =
                            is_whole_section(input.get(used..).unwrap_or_default(), limits)?;
                        let event = is_whole.then_some(ClientEvent::IrregularTrailers);
                        return Ok(Step { used, event });
                    }
                    Err(broken) => return Err(broken.refusal.into()),
                };
                let event = step.event.map(|part| match part {
                    Part::Data(data) => ClientEvent::Data(data),
                    Part::End(trailers) => {
                        self.input = Input::Idle;
                        ClientEvent::End { trailers }
                    }
                });
                Ok(Step {
                    used: step.used,
                    event,
                })
            }
            Input::Length(_) | Input::UntilClose | Input::Tunnel if input.is_empty() => {
                Ok(Step::WAIT)
            }
            Input::Length(left) => {
                let data = body::take(*left, input);
                *left -= data.len() as u64;
                if *left == 0 {
                    self.input = Input::NoBody;
                }
                Ok(Step::event(data.len(), ClientEvent::Data(data)))
            }
            Input::UntilClose | Input::Tunnel => {
                Ok(Step::event(input.len(), ClientEvent::Data(input)))
            }
            Input::NoBody => {
                self.input = Input::Idle;
                let trailers = Lines::NONE;
                Ok(Step::event(0, ClientEvent::End { trailers }))
            }
        }
    }

    fn wait_for_head<E>(&mut self, input: &[u8]) -> Step<E> {
        self.input = Input::Head {
            seen_len: input.len(),
        };
        Step::WAIT
    }

    fn head<'b>(
        &mut self,
        input: &'b [u8],
        seen_len: usize,
        limits: &Limits,
    ) -> Result<Step<ClientEvent<'b>>, Fault> {
        let within = input.get(..limits.head_len_max).unwrap_or(input);
        let head = match response::parse(input, limits) {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(self.wait_for_head(input)),
            Err(fault) if fault.is_mendable() && response::has_end(within, seen_len) => {
                self.input = Input::Head { seen_len: 0 };
                return Ok(Step::event(0, ClientEvent::Irregular));
            }
            Err(fault) if fault.is_mendable() && input.len() < limits.head_len_max => {
                return Ok(self.wait_for_head(input));
            }
            Err(fault) => return Err(fault),
        };
        if head.status == Status::SWITCHING_PROTOCOLS {
            return self.upgraded(head);
        }
        if head.status.code() < 200 {
            self.interim_count += 1;
            if self.interim_count > INTERIM_MAX {
                return Err(Fault::TooManyInterim);
            }
            self.input = Input::Head { seen_len: 0 };
            return Ok(Step::event(head.len, ClientEvent::Interim(head)));
        }
        self.keep_alive &= head.keep_alive;
        self.input = match head.framing {
            _ if self.is_head || head.status.is_bodiless() => Input::NoBody,
            ResponseFraming::Length(0) => Input::NoBody,
            ResponseFraming::Length(len) if len > limits.body_len_max => {
                return Err(Refusal::BodyTooLarge.into());
            }
            ResponseFraming::Length(len) => Input::Length(len),
            ResponseFraming::Chunked => {
                Input::Body(Box::new(BodyReader::of_response_chunks(limits)))
            }
            ResponseFraming::UntilClose => {
                self.keep_alive = false;
                Input::UntilClose
            }
        };
        Ok(Step::event(head.len, ClientEvent::Response(head)))
    }

    fn upgraded<'b>(&mut self, head: ResponseHead<'b>) -> Result<Step<ClientEvent<'b>>, Fault> {
        if !self.asks_upgrade {
            return Err(Fault::Upgrade);
        }
        self.keep_alive = false;
        self.input = Input::Tunnel;
        self.output = Outgoing::UntilClose;
        Ok(Step::event(head.len, ClientEvent::Upgraded(head)))
    }

    /// Whether the body under way ends with the connection, so that nobody will know whether it came whole.
    #[must_use]
    pub fn is_unframed(&self) -> bool {
        matches!(self.input, Input::UntilClose)
    }

    /// The server has sent its last byte. Whether a body has come to its end by that: nobody can say whether that was
    /// all of it.
    ///
    /// # Errors
    /// The response is not whole.
    pub fn ended(&mut self) -> Result<bool, Fault> {
        let input = core::mem::replace(&mut self.input, Input::Closed);
        self.keep_alive = false;
        match input {
            Input::UntilClose | Input::Tunnel => Ok(true),
            Input::Idle | Input::Closed | Input::NoBody => Ok(false),
            Input::Head { .. } | Input::Length(_) | Input::Body(_) => Err(Fault::Cut),
        }
    }

    /// No more is to be read of it, nor sent.
    pub fn give_up(&mut self) {
        self.input = Input::Closed;
        self.keep_alive = false;
    }

    /// Whether another request may be sent: nothing is under way in either direction, and the server keeps the
    /// connection open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.keep_alive && self.output == Outgoing::Idle && matches!(self.input, Input::Idle)
    }

    /// Whether nothing of a response has come yet: a request that may be repeated can be, on another connection.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        matches!(self.input, Input::Head { seen_len: 0 }) && self.interim_count == 0
    }
}

/// Whether an irregular trailer section has come to its end.
///
/// # Errors
/// It is longer than the limit.
fn is_whole_section(section: &[u8], limits: &Limits) -> Result<bool, Fault> {
    let within = section.get(..limits.trailers_len_max).unwrap_or(section);
    match section.starts_with(b"\n") || response::has_end(within, 0) {
        true => Ok(true),
        false if section.len() < limits.trailers_len_max => Ok(false),
        false => Err(Refusal::TrailersTooLarge.into()),
    }
}
