//! The streams of a connection that has many at a time (HTTP/2, HTTP/3): the progress of each exchange, their table, and
//! the order in which they send. Read RFC 9113 §5.1, RFC 9114 §4.1.
//!
//! ```text
//!           HEADERS                     last of the body                       a stream exists while
//! input     ─────────► Open ────────────────────────────► Ended                one of its directions is open,
//! output    ─────────► Head ── head ──► Body ── last ───► Ended                or work for it continues (is_dead)
//!
//!           a reset by either side: is_dead, until the caller reports that the work for the stream has ended
//! ```

mod priority;
mod queue;
mod table;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub(crate) use self::priority::EarlyPriorities;
pub use self::priority::Priority;
pub(crate) use self::queue::PriorityQueue;
pub(crate) use self::table::{NONE, StreamTable};
use crate::h1::{BodyLen, BodyLengthMismatch};
use crate::method::Method;
use crate::status::StatusCode;

/// A length that was not announced.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// The next input of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamInput {
    /// The head of a message.
    Head,
    /// DATA, or trailers.
    Open,
    /// DATA or trailers, which are discarded.
    Unwanted,
    Ended,
}

/// The next output of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamOutput {
    Head,
    Body,
    Ended,
}

/// The progress of a graceful shutdown (RFC 9113 §6.8, RFC 9114 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GoawayState {
    No,
    /// GOAWAY was sent as an announcement; streams that the client opens before it receives GOAWAY are accepted.
    Announced,
    /// The final GOAWAY was sent; new streams are not processed.
    Gone,
}

/// How a stream takes content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentOutcome {
    Accepted,
    /// The content is not wanted.
    Dropped,
    /// The body exceeds its limit.
    TooLarge,
    /// The message is malformed: there is more content than Content-Length announces.
    TooLong,
    /// The message is malformed: content before the response to a CONNECT. No handler is chosen yet, and WebSocket
    /// clients send no data before the response (RFC 8441 §5).
    Early,
}

/// A stream with its exchange. `T` is the state that only one version of HTTP has.
#[derive(Debug)]
pub(crate) struct MessageStream<T> {
    pub(crate) id: u32,
    pub(crate) input: StreamInput,
    pub(crate) output: StreamOutput,
    /// The stream was reset, by either side; the work for it may continue.
    pub(crate) is_dead: bool,
    /// The request is a HEAD.
    pub(crate) is_head: bool,
    /// The content is that of a tunnel, of any length.
    pub(crate) is_tunnel: bool,
    /// The client waits for 100 (Continue).
    pub(crate) expects_continue: bool,
    /// `ready` includes the last bytes of the body.
    pub(crate) is_complete: bool,
    /// The stream is in the queue of streams that can send.
    pub(crate) is_queued: bool,
    pub(crate) priority: Priority,
    /// Neighbours in the queue.
    pub(crate) next: u16,
    pub(crate) previous: u16,
    /// Announced bytes still to be received, or [`UNKNOWN`].
    pub(crate) recv_remaining: u64,
    /// Bytes received.
    pub(crate) received: u64,
    /// Bytes that can be sent as soon as the windows allow.
    pub(crate) ready: u64,
    /// Announced bytes that are not ready yet, or [`UNKNOWN`].
    pub(crate) send_remaining: u64,
    /// The field block of the trailers.
    pub(crate) trailers: Option<Box<[u8]>>,
    pub(crate) transport: T,
}

impl<T> MessageStream<T> {
    /// A stream with these next events.
    pub(crate) fn new(
        id: u32,
        input: StreamInput,
        output: StreamOutput,
        priority: Priority,
        transport: T,
    ) -> MessageStream<T> {
        MessageStream {
            id,
            input,
            output,
            is_dead: false,
            is_head: false,
            is_tunnel: false,
            expects_continue: false,
            is_complete: false,
            is_queued: false,
            priority,
            next: 0,
            previous: 0,
            recv_remaining: UNKNOWN,
            received: 0,
            ready: 0,
            send_remaining: UNKNOWN,
            trailers: None,
            transport,
        }
    }

    /// Whether both directions are complete.
    pub(crate) fn is_closed(&self) -> bool {
        !self.is_dead && self.input == StreamInput::Ended && self.output == StreamOutput::Ended
    }

    /// Whether the response has ended while the client still sends an unwanted body.
    pub(crate) fn is_lingering(&self) -> bool {
        !self.is_dead && self.input == StreamInput::Unwanted && self.output == StreamOutput::Ended
    }

    /// Whether the client waits for 100 (Continue) before it sends the body.
    pub(crate) fn awaits_continue(&self) -> bool {
        self.expects_continue && self.output == StreamOutput::Head && self.received == 0
    }

    /// Records the properties of a request with this method. `is_connect`: a CONNECT, also an extended one.
    #[inline]
    pub(crate) fn begin_request(
        &mut self,
        method: Method,
        is_connect: bool,
        expects_continue: bool,
        content_len: Option<u64>,
    ) {
        self.is_head = method == Method::Head;
        self.expects_continue = expects_continue;
        self.is_tunnel = is_connect;
        // A tunnel has no length (RFC 9110 §9.3.6).
        self.recv_remaining = match is_connect {
            true => UNKNOWN,
            false => content_len.unwrap_or(UNKNOWN),
        };
    }

    /// Counts received content of a message that is open or unwanted.
    #[inline]
    pub(crate) fn take_content(&mut self, len: u64, body_len_max: u64) -> ContentOutcome {
        // RFC 9113 §8.1.1, RFC 9114 §4.1.2.
        if len > self.recv_remaining {
            return ContentOutcome::TooLong;
        }
        let is_open = self.input == StreamInput::Open;
        if is_open && self.is_tunnel && self.output == StreamOutput::Head && len > 0 {
            return ContentOutcome::Early;
        }
        if self.recv_remaining != UNKNOWN {
            self.recv_remaining -= len;
        }
        if !is_open {
            return ContentOutcome::Dropped;
        }
        self.received = self.received.saturating_add(len);
        // A tunnel may carry any number of bytes.
        match !self.is_tunnel && self.received > body_len_max {
            true => ContentOutcome::TooLarge,
            false => ContentOutcome::Accepted,
        }
    }

    /// Whether a message that ends now is shorter than its Content-Length (RFC 9113 §8.1.1, RFC 9114 §4.1.2).
    pub(crate) fn is_short(&self) -> bool {
        // Clients such as curl end an upload early if it gets an early response, which they must still receive.
        self.input != StreamInput::Unwanted
            && self.recv_remaining != UNKNOWN
            && self.recv_remaining > 0
    }

    /// Announces more of a body. Returns whether the body is to be sent.
    pub(crate) fn announce(&mut self, len: u64) -> Result<bool, BodyLengthMismatch> {
        match self.output {
            StreamOutput::Head => return Err(BodyLengthMismatch),
            StreamOutput::Ended => return Ok(false),
            StreamOutput::Body => {}
        }
        if self.send_remaining != UNKNOWN {
            let remaining = self.send_remaining.checked_sub(len);
            self.send_remaining = remaining.ok_or(BodyLengthMismatch)?;
        }
        self.ready += len;
        Ok(true)
    }

    /// Announces a whole body. Returns whether the body is to be sent.
    #[inline]
    pub(crate) fn announce_whole(&mut self, len: u64) -> Result<bool, BodyLengthMismatch> {
        if self.output != StreamOutput::Body {
            return match self.output {
                StreamOutput::Head => Err(BodyLengthMismatch),
                _ => Ok(false),
            };
        }
        if self.send_remaining != UNKNOWN && self.send_remaining != len {
            return Err(BodyLengthMismatch);
        }
        self.send_remaining = 0;
        self.ready += len;
        self.is_complete = true;
        Ok(true)
    }

    /// Announces the end of a body. `trailers` is their field block, or empty.
    pub(crate) fn complete(&mut self, trailers: Vec<u8>) -> Result<(), BodyLengthMismatch> {
        match self.output {
            StreamOutput::Head => return Err(BodyLengthMismatch),
            StreamOutput::Ended => return Ok(()),
            StreamOutput::Body => {}
        }
        if self.send_remaining != UNKNOWN && self.send_remaining > 0 {
            return Err(BodyLengthMismatch);
        }
        self.is_complete = true;
        self.trailers = (!trailers.is_empty()).then(|| trailers.into());
        Ok(())
    }

    /// Records that the head of the final response is written. Returns whether a body is to be sent.
    #[inline]
    pub(crate) fn begin_output(&mut self, status: StatusCode, len: BodyLen) -> bool {
        // After the final response, 100 (Continue) is pointless (RFC 9110 §10.1.1).
        self.expects_continue = false;
        let has_body = !self.is_head && !status.is_bodiless() && !len.is_empty();
        self.output = if has_body {
            StreamOutput::Body
        } else {
            StreamOutput::Ended
        };
        // After a refused CONNECT, the client may already have sent bytes for the tunnel.
        if self.is_tunnel && status.code() / 100 != 2 && self.input == StreamInput::Open {
            self.input = StreamInput::Unwanted;
        }
        self.send_remaining = match len {
            BodyLen::Known(len) => len,
            BodyLen::None | BodyLen::Unknown => UNKNOWN,
        };
        has_body
    }

    /// The Content-Length that a response with this status and body has to have, unless its fields include it.
    pub(crate) fn content_len(&self, status: StatusCode, len: BodyLen) -> Option<u64> {
        match len {
            BodyLen::Known(len) if !status.is_bodiless() => Some(len),
            // A response that could have a body must state that it is empty.
            BodyLen::None if !status.is_bodiless() && !self.is_head => Some(0),
            _ => None,
        }
    }

    /// Ends both directions of a stream that was reset; it keeps its slot until the work for it has ended.
    pub(crate) fn mark_dead(&mut self) {
        self.is_dead = true;
        self.input = StreamInput::Ended;
        self.output = StreamOutput::Ended;
        self.expects_continue = false;
        // Otherwise the stream would seem to wait for a window.
        self.ready = 0;
        self.trailers = None;
    }
}
