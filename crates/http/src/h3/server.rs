//! The state of a connection, its events, and the errors that end a stream or the connection. The diagram in `h3` shows
//! the order of calls and events. Read RFC 9114 §4.1.1, §5, §6 and §8.

use alloc::vec::Vec;

use lowroad_limits::BucketState;

use super::error::{ErrorScope, H3Error, H3ErrorCode};
use super::frames::stream_type;
use super::qpack::QpackDecoder;
use super::stream_input::{InputPhase, StreamInputState};
use super::unidirectional::ClientStreams;
use super::{ClientAbort, H3Settings, H3Turn, StreamBytes, StreamId, StreamRequestHead, varint};
use crate::fields::FieldLines;
use crate::h1::InputStep;
use crate::refusal::RequestRefusal;
use crate::request::PartialRequest;
use crate::streams::{
    EarlyPriorities, GoawayState, MessageStream, Priority, PriorityQueue, StreamInput,
    StreamOutput, StreamTable,
};

/// A stream of a request.
pub(super) type H3Stream = MessageStream<StreamInputState>;

/// The request after which GOAWAY moves the client to another connection: numbers have 32 bits.
const DRAIN_AT: u32 = 1 << 31;

/// An event from the client.
#[derive(Debug)]
pub enum H3ServerEvent<'h, 'b> {
    /// A complete head. If there is a body, `H3ServerEvent::Data` and then `H3ServerEvent::End` follow.
    Request(&'h StreamRequestHead<'b>),
    /// A part of a body, not empty.
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
    /// A refused request: over a limit, or with a body that is too long. The caller can respond with the refusal's
    /// status; only `H3ServerEvent::Reset` and `H3ServerEvent::PriorityUpdate` can follow.
    Refused {
        /// The stream of the request.
        stream: StreamId,
        /// The reason.
        refusal: RequestRefusal,
        /// The known parts of the request; `None` if `H3ServerEvent::Request` was returned before.
        request: Option<PartialRequest<'b>>,
    },
    /// The body of an answered request ended before its announced length: only its reader gets an error.
    Cut {
        /// The stream of the request.
        stream: StreamId,
    },
    /// A stream ended early, by the client's abort or after a stream error: both of its directions are to be aborted
    /// with the code. After `Request` or `Refused`, its slot is occupied until the caller has ended the work for it and
    /// calls `H3Server::release_reset_stream`.
    Reset {
        /// The stream that ended.
        stream: StreamId,
        /// The error code to send.
        code: H3ErrorCode,
    },
    /// A unidirectional stream of unknown type: STOP_SENDING is to be sent, its bytes are ignored.
    StopReading {
        /// The QUIC identifier of the stream.
        stream_id: u64,
        /// The error code to send.
        code: H3ErrorCode,
    },
    /// The client has changed the priority of a response, which may be complete already.
    PriorityUpdate {
        /// The stream of the response.
        stream: StreamId,
        /// The priority.
        priority: Priority,
    },
}

/// The state of one connection.
#[derive(Debug)]
pub struct H3Server {
    /// The connection has ended; input is discarded.
    pub(super) is_ended: bool,
    pub(super) decoder: QpackDecoder,
    pub(super) streams: StreamTable<StreamInputState>,
    pub(super) queue: PriorityQueue,
    /// The number after that of the highest request stream that has begun.
    pub(super) next_number: u32,
    pub(super) goaway: GoawayState,
    /// The first request that is rejected, once the final GOAWAY was sent.
    pub(super) rejected_from: u32,
    pub(super) client_streams: ClientStreams,
    /// The streams with field sections that wait for the dynamic table.
    pub(super) blocked: Vec<u32>,
    /// Answered streams that need no more input.
    pub(super) stopped: Vec<u32>,
    pub(super) early_priorities: EarlyPriorities,
    /// The bytes of incomplete and blocked field sections.
    pub(super) kept_len: usize,
    resets: BucketState,
    glitches: BucketState,
    /// Glitches compensated by requests and data; subtracted at the next glitch.
    pub(super) glitch_credit: u32,
}

/// The QUIC identifier of a request stream (RFC 9000 §2.1).
pub(super) fn stream_id(number: u32) -> u64 {
    u64::from(number) << 2
}

impl H3Server {
    /// A new connection. Writes the stream types and the server's settings.
    #[must_use]
    pub fn new(turn: &mut H3Turn<'_>) -> H3Server {
        varint::put(stream_type::CONTROL, turn.control);
        turn.settings.put_frame(turn.control);
        // RFC 9204 §4.2: without a dynamic table, the decoder stream is not needed.
        if turn.settings.table_len_max > 0 {
            varint::put(stream_type::DECODER, turn.decoder);
        }
        H3Server {
            is_ended: false,
            decoder: QpackDecoder::new(turn.settings.table_len_max),
            streams: StreamTable::default(),
            queue: PriorityQueue::default(),
            next_number: 0,
            goaway: GoawayState::No,
            rejected_from: u32::MAX,
            client_streams: ClientStreams::default(),
            blocked: Vec::new(),
            stopped: Vec::new(),
            early_priorities: EarlyPriorities::default(),
            kept_len: 0,
            resets: BucketState::default(),
            glitches: BucketState::default(),
            glitch_credit: 0,
        }
    }

    /// Examines bytes of a stream that the client opened. Fields are decoded into `text`, and a head is built in
    /// `head_slot`. Call `next` again with the rest as long as it returns an event or consumes bytes. Bytes that are then
    /// left wait for `H3Server::next_unblocked`.
    ///
    /// # Errors
    /// A connection error: the connection is to be closed with its code.
    #[inline]
    pub fn next<'h, 'b>(
        &mut self,
        stream_id: u64,
        input: StreamBytes<'b>,
        text: &'b mut Vec<u8>,
        head_slot: &'h mut Option<StreamRequestHead<'b>>,
        turn: &mut H3Turn<'_>,
    ) -> Result<InputStep<H3ServerEvent<'h, 'b>>, H3Error> {
        if self.is_ended {
            return Ok(InputStep::used(input.bytes.len()));
        }
        // RFC 9000 §2.1: the two lower bits give the initiator and the direction.
        let step = match stream_id & 3 {
            0 => self.request_input(stream_id, input, text, head_slot, turn),
            2 => self.unidirectional_input(stream_id, input, turn),
            _ => Ok(InputStep::used(input.bytes.len())),
        };
        if let Err(fault) = &step {
            self.record_error(fault, turn);
        }
        step
    }

    /// Handles RESET_STREAM and STOP_SENDING of the client. Both cancel the exchange, except that the end of an unwanted
    /// body does not affect its response.
    ///
    /// # Errors
    /// A connection error: the connection is to be closed with its code.
    pub fn handle_abort<'h, 'b>(
        &mut self,
        stream_id: u64,
        abort: ClientAbort,
        turn: &mut H3Turn<'_>,
    ) -> Result<Option<H3ServerEvent<'h, 'b>>, H3Error> {
        if self.is_ended {
            return Ok(None);
        }
        let event = match stream_id & 3 {
            0 => self.abort_request(stream_id, abort, turn),
            1 => Ok(None),
            2 => self.client_streams.abort(stream_id).map(|()| None),
            // RFC 9114 §6.2.1, RFC 9204 §4.2: the server's streams must not be stopped, either.
            _ => Err(CLOSED_CRITICAL),
        };
        if let Err(fault) = &event {
            self.record_error(fault, turn);
        }
        event
    }

    fn abort_request<'h, 'b>(
        &mut self,
        stream_id: u64,
        abort: ClientAbort,
        turn: &mut H3Turn<'_>,
    ) -> Result<Option<H3ServerEvent<'h, 'b>>, H3Error> {
        let number = self.open_request(stream_id, turn)?;
        let Some(slot) = self.streams.find(number) else {
            return Ok(None);
        };
        if self.streams.get(slot).is_dead {
            return Ok(None);
        }
        turn.counters.resets += 1;
        self.count_reset(turn)?;
        // A client may stop its upload when the response comes early (RFC 9114 §4.1).
        if abort == ClientAbort::ResetStream
            && self.streams.get(slot).input == StreamInput::Unwanted
        {
            self.abandon_input(slot, turn.decoder);
            self.streams.get(slot).input = StreamInput::Ended;
            self.remove_if_complete(number);
            return Ok(None);
        }
        Ok(Some(self.abort(
            number,
            H3ErrorCode::REQUEST_CANCELLED,
            turn,
        )))
    }

    /// The number of a request stream. As in QUIC, a stream opens all streams with lower identifiers (RFC 9000 §2.1).
    #[inline]
    pub(super) fn open_request(
        &mut self,
        stream_id: u64,
        turn: &mut H3Turn<'_>,
    ) -> Result<u32, H3Error> {
        let number = u32::try_from(stream_id >> 2)
            .ok()
            .filter(|number| *number < u32::MAX);
        let number = number.ok_or(H3Error::connection(
            H3ErrorCode::ID_ERROR,
            "more requests than a connection can have",
        ))?;
        while self.next_number <= number {
            // The caller grants only `streams_max` streams, but those that it has closed may be busy here.
            if self.streams.len() > 2 * usize::from(turn.settings.streams_max) {
                return Err(H3Error::load("too many open streams"));
            }
            // Until its request is complete, the stream has no output.
            self.streams.add(H3Stream::new(
                self.next_number,
                StreamInput::Head,
                StreamOutput::Ended,
                Priority::default(),
                StreamInputState::NEW,
            ));
            self.next_number += 1;
            if self.next_number == DRAIN_AT {
                self.drain(turn.control);
            }
        }
        Ok(number)
    }

    /// Turns a stream error into a reset of the stream; connection errors are passed on.
    #[cold]
    pub(super) fn fail_stream<'h, 'b>(
        &mut self,
        number: u32,
        fault: H3Error,
        turn: &mut H3Turn<'_>,
    ) -> Result<H3ServerEvent<'h, 'b>, H3Error> {
        if fault.scope == ErrorScope::Connection {
            return Err(fault);
        }
        match fault.code {
            H3ErrorCode::REQUEST_REJECTED => turn.counters.refused += 1,
            _ => turn.counters.faults += 1,
        }
        turn.counters.malformed += u64::from(fault.code == H3ErrorCode::MESSAGE_ERROR);
        // These resets count like the client's own aborts, since the client can provoke them.
        self.count_reset(turn)?;
        Ok(self.abort(number, fault.code, turn))
    }

    /// Ends both directions of a stream.
    fn abort<'h, 'b>(
        &mut self,
        number: u32,
        code: H3ErrorCode,
        turn: &mut H3Turn<'_>,
    ) -> H3ServerEvent<'h, 'b> {
        if let Some(slot) = self.streams.find(number) {
            self.abandon_input(slot, turn.decoder);
            // A dead stream sends nothing, even if a part of its body is announced.
            self.queue.remove(&mut self.streams, slot);
            let stream = self.streams.get(slot);
            stream.mark_dead();
            // Without a request there is no work that could continue.
            if !stream.transport.has_request {
                self.streams.remove(number);
            }
        }
        H3ServerEvent::Reset {
            stream: StreamId(number),
            code,
        }
    }

    /// Drops the kept input of a stream, and cancels its undecoded sections (RFC 9204 §4.4.2).
    pub(super) fn abandon_input(&mut self, slot: u16, decoder_out: &mut Vec<u8>) {
        let stream = self.streams.get(slot);
        if stream.input != StreamInput::Ended {
            self.decoder
                .put_cancellation(stream_id(stream.id), decoder_out);
        }
        self.drop_input(slot);
    }

    /// Drops the kept input of a stream.
    pub(super) fn drop_input(&mut self, slot: u16) {
        let stream = self.streams.get(slot);
        let number = stream.id;
        stream.transport.phase = InputPhase::FrameHead;
        // The slot is reused, so its memory is freed here.
        let section = core::mem::take(&mut stream.transport.section);
        self.kept_len -= section.len();
        self.blocked.retain(|blocked| *blocked != number);
    }

    /// Counts a stream that ended early, by the client's abort or after a stream error.
    fn count_reset(&mut self, turn: &mut H3Turn<'_>) -> Result<(), H3Error> {
        // Rapid reset, as in HTTP/2: QUIC grants the client another stream for each one that it aborts.
        match self.resets.charge(1, turn.settings.resets, turn.now_ms) {
            true => Ok(()),
            false => Err(H3Error::load("too many streams were reset")),
        }
    }

    /// Counts glitches (legal but useless frames), and ends the connection if there are too many.
    pub(super) fn glitch(&mut self, count: u32, turn: &mut H3Turn<'_>) -> Result<(), H3Error> {
        turn.counters.glitches += u64::from(count);
        let rate = turn.settings.glitches;
        // Requests and data cost more than the frames that they excuse.
        let credit = core::mem::take(&mut self.glitch_credit);
        self.glitches.refund(u64::from(credit), rate);
        match self.glitches.charge(u64::from(count), rate, turn.now_ms) {
            true => Ok(()),
            false => Err(H3Error::load("too many frames of little use")),
        }
    }

    #[cold]
    fn record_error(&mut self, fault: &H3Error, turn: &mut H3Turn<'_>) {
        // The caller closes the connection, which also ends all streams.
        self.is_ended = true;
        turn.counters.ended += 1;
        turn.counters.floods += u64::from(fault.code == H3ErrorCode::EXCESSIVE_LOAD);
    }
}

/// RFC 9114 §6.2.1, RFC 9204 §4.2.
pub(super) const CLOSED_CRITICAL: H3Error = H3Error::connection(
    H3ErrorCode::CLOSED_CRITICAL_STREAM,
    "a stream that the connection requires was closed",
);

impl H3Settings {
    /// The most bytes of incomplete and blocked field sections of a connection.
    pub(super) fn kept_len_max(&self) -> usize {
        self.section_len_max.saturating_mul(4)
    }
}
