//! The client's side of an HTTP/1 connection. The diagram in `h1` shows the order of calls and events. No pipelining: a
//! request is sent only after the previous response is complete.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::receive_body::{self, IncomingPart};
use super::response::{self, H1ResponseHead, ResponseFault, ResponseFraming};
use super::send_body::{BodyLen, BodyLengthMismatch, OutgoingMessage};
use super::{InputStep, is_due};
use crate::body::{self, BodyReader};
use crate::fields::FieldLines;
use crate::head_writer::{HeadWriter, put_number};
use crate::limits::RequestLimits;
use crate::method::Method;
use crate::refusal::RequestRefusal;
use crate::status::StatusCode;

/// The number of interim responses accepted for one request; a server that sends more is broken or malicious.
const INTERIM_MAX: u8 = 16;

/// An event from the server.
#[derive(Debug)]
pub enum H1ClientEvent<'b> {
    /// The head is complete, but has a fault that [`repair_head`](super::repair_head) can remove: call again with its
    /// output in place of the input. No bytes were consumed.
    RepairableHead,
    /// The trailer section is complete, but has a fault that [`repair_trailers`](super::repair_trailers) can remove:
    /// call again with its output in place of the input after the consumed bytes.
    RepairableTrailers,
    /// An interim response (1xx except 101).
    Interim(H1ResponseHead<'b>),
    /// The head of a 101 response: the requested protocol is in use. The bytes after the head are returned as
    /// `H1ClientEvent::Data` unchanged, without an end event, and sent bytes get no framing.
    Upgraded(H1ResponseHead<'b>),
    /// The head of the final response. Its body follows as `H1ClientEvent::Data`, and always an `H1ClientEvent::End`.
    Response(H1ResponseHead<'b>),
    /// A part of the body, not empty.
    Data(&'b [u8]),
    /// The response is complete.
    End {
        /// The trailers, validated; only chunked bodies have any.
        trailers: FieldLines<'b>,
    },
}

/// The state of one connection.
#[derive(Debug)]
pub struct H1Client {
    input: ResponseInput,
    output: OutgoingMessage,
    /// Bytes of the request's announced body still to be sent.
    remaining: u64,
    is_head: bool,
    is_upgrade_requested: bool,
    interim_count: u8,
    keep_alive: bool,
}

#[derive(Debug)]
enum ResponseInput {
    /// No response is expected: any input is an error.
    Idle,
    /// A response head, of which the first `parsed_len` bytes were parsed.
    Head { parsed_len: usize },
    /// The outstanding bytes of a body with a length, at least one.
    Length(u64),
    /// A body with chunked framing.
    Body(Box<BodyReader>),
    /// The body ends when the server closes the connection.
    UntilClose,
    /// The connection was upgraded to another protocol.
    Tunnel,
    /// The body is complete; its end event is still to be returned.
    NoBody,
    /// The connection cannot be used any more.
    Closed,
}

impl Default for H1Client {
    fn default() -> H1Client {
        H1Client {
            input: ResponseInput::Idle,
            output: OutgoingMessage::Idle,
            remaining: 0,
            is_head: false,
            is_upgrade_requested: false,
            interim_count: 0,
            keep_alive: true,
        }
    }
}

impl H1Client {
    /// Writes the head of a request. `lines` are its field lines, including Host, but without Content-Length,
    /// Transfer-Encoding and Connection. Returns whether a body is to follow.
    ///
    /// # Errors
    /// The previous response is incomplete, or the connection cannot be used any more.
    pub fn request(
        &mut self,
        method: Method,
        target: &[u8],
        lines: &[u8],
        len: BodyLen,
        out: &mut Vec<u8>,
    ) -> Result<bool, BodyLengthMismatch> {
        if !self.is_idle() {
            return Err(BodyLengthMismatch);
        }
        out.extend_from_slice(method.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(target);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        out.extend_from_slice(lines);
        self.output = match len {
            // RFC 9110 §8.6: no Content-Length if there is no content.
            BodyLen::None => OutgoingMessage::Omitted,
            BodyLen::Known(len) => {
                out.extend_from_slice(b"Content-Length: ");
                put_number(out, len);
                out.extend_from_slice(b"\r\n");
                self.remaining = len;
                OutgoingMessage::Length
            }
            BodyLen::Unknown => {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
                OutgoingMessage::Chunked
            }
        };
        out.extend_from_slice(b"\r\n");
        self.input = ResponseInput::Head { parsed_len: 0 };
        self.is_head = method == Method::Head;
        self.is_upgrade_requested = false;
        self.interim_count = 0;
        let has_body = !len.is_empty();
        // Without a body, neither data nor a last chunk follows, so the request is complete.
        if !has_body {
            self.output = OutgoingMessage::Idle;
        }
        Ok(has_body)
    }

    /// Like `H1Client::request`, for a GET that requests an upgrade to another protocol. The server may also answer it
    /// as an ordinary GET.
    ///
    /// # Errors
    /// As for `H1Client::request`.
    pub fn request_upgrade(
        &mut self,
        target: &[u8],
        lines: &[u8],
        protocol: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), BodyLengthMismatch> {
        self.request(Method::Get, target, lines, BodyLen::None, out)?;
        self.is_upgrade_requested = true;
        // Insert the two fields before the empty line.
        out.truncate(out.len().saturating_sub(2));
        HeadWriter::resume(out)
            .field("Connection", b"upgrade")
            .field("Upgrade", protocol);
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Writes the framing before `len` bytes of the body (not 0), which the caller sends next.
    ///
    /// # Errors
    /// The body is longer than announced, or no body is due.
    pub fn data(&mut self, len: u64, out: &mut Vec<u8>) -> Result<(), BodyLengthMismatch> {
        self.output.data(&mut self.remaining, len, out).map(drop)
    }

    /// The framing after the bytes that [`H1Client::data`] announced.
    #[must_use]
    pub fn data_end(&self) -> &'static [u8] {
        self.output.data_end()
    }

    /// Ends the request's body. `trailers` are field lines; they are sent only if the body is chunked.
    ///
    /// # Errors
    /// The body is shorter than announced: the connection has to be closed.
    pub fn end(&mut self, trailers: &[u8], out: &mut Vec<u8>) -> Result<(), BodyLengthMismatch> {
        self.output.end(self.remaining, trailers, out)
    }

    /// Examines the unconsumed input.
    ///
    /// # Errors
    /// The input is not a response to the request. The connection cannot be used any more.
    pub fn next<'b>(
        &mut self,
        input: &'b [u8],
        limits: &RequestLimits,
    ) -> Result<InputStep<H1ClientEvent<'b>>, ResponseFault> {
        let step = self.step(input, limits);
        if step.is_err() {
            self.abandon();
        }
        step
    }

    /// The rest of the response's body, if its length is known and all of it is in `input`. No data or end event is
    /// returned for these bytes.
    pub fn take_remaining_body<'b>(&mut self, input: &'b [u8]) -> Option<&'b [u8]> {
        let len = match self.input {
            ResponseInput::Length(remaining) => usize::try_from(remaining).ok()?,
            ResponseInput::NoBody => 0,
            _ => return None,
        };
        let rest = input.get(..len)?;
        self.input = ResponseInput::Idle;
        Some(rest)
    }

    fn step<'b>(
        &mut self,
        input: &'b [u8],
        limits: &RequestLimits,
    ) -> Result<InputStep<H1ClientEvent<'b>>, ResponseFault> {
        match &mut self.input {
            ResponseInput::Idle | ResponseInput::Closed if input.is_empty() => Ok(InputStep::WAIT),
            // Response splitting or a broken server: the bytes cannot be assigned to a request.
            ResponseInput::Idle | ResponseInput::Closed => Err(ResponseFault::Unsolicited),
            ResponseInput::Head { parsed_len } => {
                let parsed_len = *parsed_len;
                if parsed_len > 0
                    && !is_due(input, parsed_len, limits)
                    && !response::has_end(input, parsed_len)
                {
                    return Ok(self.wait_for_head(input));
                }
                self.head(input, parsed_len, limits)
            }
            ResponseInput::Body(reader) => {
                let step = match receive_body::take(reader, input) {
                    Ok(step) => step,
                    Err(broken) if broken.refusal.is_mendable() => {
                        let used = broken.used;
                        // `repair_trailers` needs the whole section.
                        let is_complete =
                            is_complete_section(input.get(used..).unwrap_or_default(), limits)?;
                        let event = is_complete.then_some(H1ClientEvent::RepairableTrailers);
                        return Ok(InputStep { used, event });
                    }
                    Err(broken) => return Err(broken.refusal.into()),
                };
                let event = step.event.map(|part| match part {
                    IncomingPart::Data(data) => H1ClientEvent::Data(data),
                    IncomingPart::End(trailers) => {
                        self.input = ResponseInput::Idle;
                        H1ClientEvent::End { trailers }
                    }
                });
                Ok(InputStep {
                    used: step.used,
                    event,
                })
            }
            ResponseInput::Length(_) | ResponseInput::UntilClose | ResponseInput::Tunnel
                if input.is_empty() =>
            {
                Ok(InputStep::WAIT)
            }
            ResponseInput::Length(remaining) => {
                let data = body::take(*remaining, input);
                *remaining -= data.len() as u64;
                if *remaining == 0 {
                    self.input = ResponseInput::NoBody;
                }
                Ok(InputStep::event(data.len(), H1ClientEvent::Data(data)))
            }
            ResponseInput::UntilClose | ResponseInput::Tunnel => {
                Ok(InputStep::event(input.len(), H1ClientEvent::Data(input)))
            }
            ResponseInput::NoBody => {
                self.input = ResponseInput::Idle;
                let trailers = FieldLines::NONE;
                Ok(InputStep::event(0, H1ClientEvent::End { trailers }))
            }
        }
    }

    fn wait_for_head<E>(&mut self, input: &[u8]) -> InputStep<E> {
        self.input = ResponseInput::Head {
            parsed_len: input.len(),
        };
        InputStep::WAIT
    }

    fn head<'b>(
        &mut self,
        input: &'b [u8],
        parsed_len: usize,
        limits: &RequestLimits,
    ) -> Result<InputStep<H1ClientEvent<'b>>, ResponseFault> {
        let limited = input.get(..limits.head_len_max).unwrap_or(input);
        let head = match response::parse(input, limits) {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(self.wait_for_head(input)),
            // The repaired head is parsed from its start.
            Err(fault) if fault.is_repairable() && response::has_end(limited, parsed_len) => {
                self.input = ResponseInput::Head { parsed_len: 0 };
                return Ok(InputStep::event(0, H1ClientEvent::RepairableHead));
            }
            // A head can be repaired only when it is complete.
            Err(fault) if fault.is_repairable() && input.len() < limits.head_len_max => {
                return Ok(self.wait_for_head(input));
            }
            Err(fault) => return Err(fault),
        };
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return self.upgraded(head);
        }
        if head.status.code() < 200 {
            self.interim_count += 1;
            // A server could send interim responses without end.
            if self.interim_count > INTERIM_MAX {
                return Err(ResponseFault::TooManyInterim);
            }
            self.input = ResponseInput::Head { parsed_len: 0 };
            return Ok(InputStep::event(head.len, H1ClientEvent::Interim(head)));
        }
        self.keep_alive &= head.keep_alive;
        self.input = match head.framing {
            // Responses to HEAD, and those with status 1xx, 204 or 304, have no body, regardless of their fields (RFC
            // 9112 §6.3).
            _ if self.is_head || head.status.is_bodiless() => ResponseInput::NoBody,
            ResponseFraming::Length(0) => ResponseInput::NoBody,
            ResponseFraming::Length(len) if len > limits.body_len_max => {
                return Err(RequestRefusal::BodyTooLarge.into());
            }
            ResponseFraming::Length(len) => ResponseInput::Length(len),
            ResponseFraming::Chunked => {
                ResponseInput::Body(Box::new(BodyReader::from_response_chunks(limits)))
            }
            ResponseFraming::UntilClose => {
                self.keep_alive = false;
                ResponseInput::UntilClose
            }
        };
        Ok(InputStep::event(head.len, H1ClientEvent::Response(head)))
    }

    fn upgraded<'b>(
        &mut self,
        head: H1ResponseHead<'b>,
    ) -> Result<InputStep<H1ClientEvent<'b>>, ResponseFault> {
        // RFC 9110 §7.8: a server must not switch to a protocol that was not requested.
        if !self.is_upgrade_requested {
            return Err(ResponseFault::Upgrade);
        }
        self.keep_alive = false;
        self.input = ResponseInput::Tunnel;
        self.output = OutgoingMessage::UntilClose;
        Ok(InputStep::event(head.len, H1ClientEvent::Upgraded(head)))
    }

    /// Whether the current body ends with the connection, so that its completeness cannot be verified.
    #[must_use]
    pub fn is_unframed(&self) -> bool {
        matches!(self.input, ResponseInput::UntilClose)
    }

    /// Handles EOF from the server. Returns whether the EOF ended a body; the completeness of such a body cannot be
    /// verified.
    ///
    /// # Errors
    /// The response is incomplete.
    pub fn handle_eof(&mut self) -> Result<bool, ResponseFault> {
        let input = core::mem::replace(&mut self.input, ResponseInput::Closed);
        self.keep_alive = false;
        match input {
            ResponseInput::UntilClose | ResponseInput::Tunnel => Ok(true),
            ResponseInput::Idle | ResponseInput::Closed | ResponseInput::NoBody => Ok(false),
            ResponseInput::Head { .. } | ResponseInput::Length(_) | ResponseInput::Body(_) => {
                Err(ResponseFault::Truncated)
            }
        }
    }

    /// Stops using the connection in both directions.
    pub fn abandon(&mut self) {
        self.input = ResponseInput::Closed;
        self.keep_alive = false;
    }

    /// Whether another request may be sent: both directions are idle, and the server keeps the connection open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.keep_alive
            && self.output == OutgoingMessage::Idle
            && matches!(self.input, ResponseInput::Idle)
    }

    /// Whether no byte of the response was received. A retryable request can then be sent on another connection.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        matches!(self.input, ResponseInput::Head { parsed_len: 0 }) && self.interim_count == 0
    }
}

/// Whether a trailer section that needs repair is complete.
///
/// # Errors
/// The section exceeds the limit.
fn is_complete_section(section: &[u8], limits: &RequestLimits) -> Result<bool, ResponseFault> {
    let limited = section.get(..limits.trailers_len_max).unwrap_or(section);
    match section.starts_with(b"\n") || response::has_end(limited, 0) {
        true => Ok(true),
        false if section.len() < limits.trailers_len_max => Ok(false),
        false => Err(RequestRefusal::TrailersTooLarge.into()),
    }
}
