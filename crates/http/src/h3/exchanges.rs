//! The progress of exchanges: the state of a stream, and the ends of streams and the connection. The
//! operations that all versions of HTTP share have the names of `crate::protocol::ServerProtocol`.

use alloc::vec::Vec;

use super::server::{H3Server, stream_id};
use super::{H3ErrorCode, H3Turn, StreamId, frames, varint};
use crate::streams::{GoawayState, StreamInput, StreamOutput};

/// The stream of a GOAWAY that only announces the shutdown: the highest that clients can open (RFC 9114 §5.2).
const ANY_STREAM: u64 = varint::MAX - 3;

impl H3Server {
    /// Whether no request is in progress.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    /// The first stream with an incomplete head.
    #[must_use]
    pub fn first_incomplete_head(&self) -> Option<StreamId> {
        let streams = self.streams.slots().map(|slot| self.streams.peek(slot));
        let mut incomplete = streams.filter(|it| it.input == StreamInput::Head && !it.is_dead);
        incomplete.next().map(|it| StreamId(it.id))
    }

    /// The number of active streams.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Whether the connection ends once all written bytes are acknowledged.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.is_ended || self.goaway == GoawayState::Gone && self.streams.is_empty()
    }

    /// Whether a request was received with its whole body.
    #[must_use]
    pub fn has_whole_request(&mut self, stream: StreamId) -> bool {
        self.streams
            .is_absent_or(stream.0, |it| it.input == StreamInput::Ended)
    }

    /// Whether the response to a request has begun, or the client has cancelled the request.
    #[must_use]
    pub fn is_answered(&mut self, stream: StreamId) -> bool {
        self.streams
            .is_absent_or(stream.0, |it| it.output != StreamOutput::Head)
    }

    /// Whether the whole response to a request was written.
    #[must_use]
    pub fn is_response_complete(&mut self, stream: StreamId) -> bool {
        self.streams
            .is_absent_or(stream.0, |it| it.output == StreamOutput::Ended)
    }

    /// Whether the client waits for 100 (Continue) before it sends the body.
    #[must_use]
    pub fn expects_continue(&mut self, stream: StreamId) -> bool {
        let stream = self.streams.by_id(stream.0);
        stream.is_some_and(|it| it.awaits_continue())
    }

    /// Drops the rest of a request's body as it arrives. After the response, the stream is returned by
    /// `H3Server::next_stopped`.
    pub fn discard_body(&mut self, stream: StreamId) {
        if let Some(h3_stream) = self.streams.by_id(stream.0)
            && h3_stream.input == StreamInput::Open
        {
            h3_stream.input = StreamInput::Unwanted;
            // The response may be complete already.
            self.remove_if_complete(stream.0);
        }
    }

    /// Removes a stream if it is complete. If only the rest of an unwanted body is missing, STOP_SENDING follows (RFC 9114
    /// §4.1).
    pub(super) fn remove_if_complete(&mut self, number: u32) {
        let Some(slot) = self.streams.find(number) else {
            return;
        };
        let stream = self.streams.get(slot);
        let is_lingering = stream.is_lingering();
        if !is_lingering && !stream.is_closed() {
            return;
        }
        // The bytes for the decoder stream are written later, since the callers of this function have other output.
        if is_lingering {
            self.stopped.push(number);
            self.drop_input(slot);
        }
        self.queue.remove(&mut self.streams, slot);
        self.streams.remove(number);
    }

    /// A stream with a complete response, while its client still sends a body that is not needed: STOP_SENDING is to
    /// be sent with [`H3Server::END_CODE`]. To be called after responses were written.
    pub fn next_stopped(&mut self, turn: &mut H3Turn<'_>) -> Option<(StreamId, H3ErrorCode)> {
        let number = self.stopped.pop()?;
        // The trailers may refer to the dynamic table (RFC 9204 §2.2.2.2).
        self.decoder
            .put_cancellation(stream_id(number), turn.decoder);
        Some((StreamId(number), H3Server::END_CODE))
    }

    /// Frees the slot of a reset stream, after the work for it has ended.
    pub fn release_reset_stream(&mut self, stream: StreamId) {
        if self.streams.by_id(stream.0).is_some_and(|it| it.is_dead) {
            self.streams.remove(stream.0);
        }
    }

    /// Frees the slot of a stream that the caller aborts, after the work for it has ended.
    pub fn reset(&mut self, stream: StreamId, decoder_out: &mut Vec<u8>) {
        if let Some(slot) = self.streams.find(stream.0) {
            // The sections of a dead stream were cancelled when it died.
            if !self.streams.get(slot).is_dead {
                self.abandon_input(slot, decoder_out);
                self.queue.remove(&mut self.streams, slot);
            }
            self.streams.remove(stream.0);
        }
    }

    /// Announces the shutdown (RFC 9114 §5.2): requests that the client sends before it receives GOAWAY are accepted.
    /// Writes to the control stream.
    pub fn drain(&mut self, control: &mut Vec<u8>) {
        if self.goaway == GoawayState::No {
            self.goaway = GoawayState::Announced;
            frames::put_goaway(ANY_STREAM, control);
        }
    }

    /// Rejects new requests from now on; active ones continue. Writes to the control stream.
    pub fn send_final_goaway(&mut self, control: &mut Vec<u8>) {
        if self.goaway != GoawayState::Gone {
            self.goaway = GoawayState::Gone;
            // Requests below may have begun; all others can be retried on another connection.
            self.rejected_from = self.next_number;
            frames::put_goaway(stream_id(self.next_number), control);
        }
    }

    /// The code with which a finished connection is closed without an error (RFC 9114 §5.2).
    pub const END_CODE: H3ErrorCode = H3ErrorCode::NO_ERROR;

    /// Discards all further input: the caller closes the connection.
    pub fn end(&mut self) {
        self.is_ended = true;
    }

    /// Frees memory that an idle connection does not need.
    pub fn trim(&mut self) {
        self.streams.trim();
        self.blocked.shrink_to_fit();
        self.stopped.shrink_to_fit();
    }
}
