//! Receives bodies: DATA frames, in pieces of any size. Read RFC 9113 §6.1 and §8.1.1.

use alloc::vec::Vec;

use super::ConnectionTurn;
use super::connection::{ConnectionEvent, H2Connection};
use super::data_send::WORTHWHILE_LEN;
use super::error::{ConnectionError, ErrorCode};
use super::frame::{self, FrameHead, HEAD_LEN, flag};
use super::streams::{H2Stream, StreamInput};
use crate::refusal::RequestRefusal;
use crate::streams::ContentOutcome;

/// The rest of a DATA frame of which only a part has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataPayload {
    stream: u32,
    remaining: usize,
    pad_remaining: usize,
    is_end: bool,
    /// The content is discarded.
    is_dropped: bool,
}

impl H2Connection {
    /// Begins a DATA frame. If it is padded, waits for the length of the padding.
    pub(super) fn begin_data<'b>(
        &mut self,
        head: FrameHead,
        rest: &[u8],
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<(usize, ConnectionEvent<'b>), ConnectionError> {
        let (mut used, mut remaining, mut pad_remaining) = (HEAD_LEN, head.len, 0);
        if head.has(flag::PADDED) {
            remaining = remaining.checked_sub(1).ok_or(frame::NO_PAD_LEN)?;
            // The frame begins only when the length of its padding has arrived.
            let Some(pad_len) = rest.get(HEAD_LEN) else {
                return Ok((0, ConnectionEvent::Nothing));
            };
            used += 1;
            pad_remaining = usize::from(*pad_len);
            remaining = remaining.checked_sub(pad_remaining).ok_or(frame::PADDING)?;
        }
        // Padding counts for flow control, too (RFC 9113 §6.1).
        if !self.window.take(head.len as u32) {
            let reason = "more data than the connection's window allows";
            return Err(ConnectionError::new(ErrorCode::FLOW_CONTROL_ERROR, reason));
        }
        let is_end = head.has(flag::END_STREAM);
        // Frames without content use little or no window, so they are bounded as glitches.
        if remaining == 0 && !is_end {
            self.glitch(1, turn)?;
        } else {
            // Common gRPC implementations measure the round trip by a PING for each short message. A message costs more
            // than the PING that it excuses.
            self.glitch_credit = self.glitch_credit.saturating_add(1);
        }
        let mut data = DataPayload {
            stream: head.stream,
            remaining,
            pad_remaining,
            is_end,
            is_dropped: false,
        };
        let event = match self.accept_data(head, remaining as u64, turn)? {
            None => {
                // The caller returns the window of the content only: return the window of the padding here.
                let padding = (head.len - remaining) as u32;
                self.release_window(head.stream, padding, turn.out);
                // The responses of one connection may belong to different readers. If the connection's window waited for
                // a slow reader, it would stop all others; the windows of the streams bound the memory.
                if !self.is_server {
                    self.release_connection_window(head.len as u32, turn.out);
                }
                if self
                    .estimate
                    .record_received(head.len as u32, turn.settings.window_len_max)
                {
                    frame::put_ping(false, super::control::PING_ESTIMATE, turn.out);
                }
                ConnectionEvent::Nothing
            }
            Some(event) => {
                // Dropped data does not reach the caller: return its window here.
                data.is_dropped = true;
                self.release_connection_window(head.len as u32, turn.out);
                event
            }
        };
        self.data = Some(data);
        Ok((used, event))
    }

    /// Checks whether a stream accepts data. `None` if it does, else the resulting event.
    fn accept_data(
        &mut self,
        head: FrameHead,
        len: u64,
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<Option<ConnectionEvent<'static>>, ConnectionError> {
        let id = head.stream;
        // The body of a response has no limit here.
        let body_len_max = match self.is_server {
            true => turn.settings.limits.body_len_max,
            false => u64::MAX,
        };
        let Some(stream) = self.streams.by_id(id) else {
            self.check_closed(id)?;
            // A few frames are expected after a reset; many small ones are a flood.
            if len < u64::from(WORTHWHILE_LEN) {
                self.glitch(1, turn)?;
            }
            return Ok(Some(ConnectionEvent::Nothing));
        };
        if stream.is_dead {
            return Ok(Some(ConnectionEvent::Nothing));
        }
        let code = match stream.input {
            StreamInput::Ended => ErrorCode::STREAM_CLOSED,
            // RFC 9113 §8.1: DATA before the HEADERS of the response.
            StreamInput::Head => ErrorCode::PROTOCOL_ERROR,
            _ if !stream.transport.window.take(head.len as u32) => ErrorCode::FLOW_CONTROL_ERROR,
            _ => match stream.take_content(len, body_len_max) {
                ContentOutcome::Accepted => {
                    // Includes the padding; `begin_data` returns the window of the padding immediately.
                    stream.transport.unconsumed += head.len as u32;
                    return Ok(None);
                }
                ContentOutcome::Dropped => {
                    stream.release_dropped(head, 0, turn.out);
                    return Ok(Some(ConnectionEvent::Nothing));
                }
                ContentOutcome::TooLarge => {
                    stream.input = StreamInput::Unwanted;
                    let unconsumed = core::mem::take(&mut stream.transport.unconsumed);
                    stream.release_dropped(head, unconsumed, turn.out);
                    self.release_connection_window(unconsumed, turn.out);
                    return Ok(Some(ConnectionEvent::Refused {
                        stream: id,
                        refusal: RequestRefusal::BodyTooLarge,
                    }));
                }
                ContentOutcome::TooLong | ContentOutcome::Early => {
                    turn.counters.malformed += 1;
                    ErrorCode::PROTOCOL_ERROR
                }
            },
        };
        self.fail_stream(id, code, turn).map(Some)
    }

    pub(super) fn continue_data<'b>(
        &mut self,
        rest: &'b [u8],
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<(usize, ConnectionEvent<'b>), ConnectionError> {
        let Some(data) = &mut self.data else {
            return Ok((0, ConnectionEvent::Nothing));
        };
        if data.remaining > 0 {
            let part = rest.get(..data.remaining).unwrap_or(rest);
            data.remaining -= part.len();
            let event = match data.is_dropped || part.is_empty() {
                true => ConnectionEvent::Nothing,
                false => ConnectionEvent::Data {
                    stream: data.stream,
                    data: part,
                },
            };
            return Ok((part.len(), event));
        }
        let used = data.pad_remaining.min(rest.len());
        data.pad_remaining -= used;
        if data.pad_remaining > 0 {
            return Ok((used, ConnectionEvent::Nothing));
        }
        let (id, is_end) = (data.stream, data.is_end);
        self.data = None;
        let event = match is_end {
            true => self.input_ended(id, turn)?,
            false => ConnectionEvent::Nothing,
        };
        match (used, &event) {
            // The frame has ended without consuming bytes. The caller would wait for input, so process the next frame
            // now.
            (0, ConnectionEvent::Nothing) => self.process_next(rest, turn),
            _ => Ok((used, event)),
        }
    }

    /// Handles the end of a message.
    pub(super) fn input_ended<'b>(
        &mut self,
        id: u32,
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<ConnectionEvent<'b>, ConnectionError> {
        let Some(stream) = self.streams.by_id(id) else {
            return Ok(ConnectionEvent::Nothing);
        };
        if stream.is_dead || stream.input == StreamInput::Ended {
            return Ok(ConnectionEvent::Nothing);
        }
        // RFC 9113 §8.1.1: a body that is shorter than Content-Length makes the message malformed.
        if stream.is_short() {
            turn.counters.malformed += 1;
            return self.fail_stream(id, ErrorCode::PROTOCOL_ERROR, turn);
        }
        let was_open = stream.input == StreamInput::Open;
        stream.input = StreamInput::Ended;
        stream.expects_continue = false;
        self.remove_if_complete(id, turn.out);
        Ok(match was_open {
            true => ConnectionEvent::End { stream: id },
            false => ConnectionEvent::Nothing,
        })
    }
}

impl H2Stream {
    /// Returns the window of a dropped frame, and of `unconsumed` bytes before it, so that a client that sends its
    /// whole body before it reads the response can finish.
    fn release_dropped(&mut self, head: FrameHead, unconsumed: u32, out: &mut Vec<u8>) {
        let len = head.len as u32 + unconsumed;
        if !head.has(flag::END_STREAM)
            && let Some(increment) = self.transport.window.release(len)
        {
            frame::put_window_update(self.id, increment, out);
        }
    }
}
