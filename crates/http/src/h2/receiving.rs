//! Receives bodies: DATA frames, in pieces of any size, for the streams that accept them. Read RFC 9113 §6.1 and
//! §8.1.1.

use alloc::vec::Vec;

use super::Turn;
use super::connection::{Connection, Got};
use super::error::{Code, Fault};
use super::frame::{self, FrameHead, HEAD_LEN, flag};
use super::sending::WORTHWHILE_LEN;
use super::streams::{Input, Output, Stream, UNKNOWN};
use crate::refusal::Refusal;

/// The rest of a DATA frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    stream: u32,
    left: usize,
    pad_left: usize,
    is_end: bool,
    /// The content is discarded.
    is_dropped: bool,
}

impl Connection {
    /// Begins a DATA frame. Waits for the length of the padding, if there is any.
    pub(super) fn begin_data<'b>(
        &mut self,
        head: FrameHead,
        rest: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<(usize, Got<'b>), Fault> {
        let (mut used, mut left, mut pad_left) = (HEAD_LEN, head.len, 0);
        if head.has(flag::PADDED) {
            left = left.checked_sub(1).ok_or(frame::NO_PAD_LEN)?;
            // The frame begins only when the length of its padding has arrived.
            let Some(pad_len) = rest.get(HEAD_LEN) else {
                return Ok((0, Got::Nothing));
            };
            used += 1;
            pad_left = usize::from(*pad_len);
            left = left.checked_sub(pad_left).ok_or(frame::PADDING)?;
        }
        // Padding counts for flow control, too (RFC 9113 §6.1).
        if !self.window.take(head.len as u32) {
            let why = "more data than the connection's window allows";
            return Err(Fault::new(Code::FLOW_CONTROL_ERROR, why));
        }
        let is_end = head.has(flag::END_STREAM);
        // Frames without content use little or no window, so only this bounds them.
        if left == 0 && !is_end {
            self.glitch(1, turn)?;
        }
        let mut data = Data {
            stream: head.stream,
            left,
            pad_left,
            is_end,
            is_dropped: false,
        };
        let got = match self.accept_data(head, left as u64, turn)? {
            None => {
                // The caller will consume only content: return the window of the padding here.
                let padding = (head.len - left) as u32;
                self.give_back(head.stream, padding, turn.out);
                if self
                    .estimate
                    .came(head.len as u32, turn.settings.window_len_max)
                {
                    frame::put_ping(false, super::control::PING_ESTIMATE, turn.out);
                }
                Got::Nothing
            }
            Some(got) => {
                // No caller will return the window of dropped data.
                data.is_dropped = true;
                self.give_connection(head.len as u32, turn.out);
                got
            }
        };
        self.data = Some(data);
        Ok((used, got))
    }

    /// Checks whether a stream accepts data: `None`, or the result if it does not.
    fn accept_data(
        &mut self,
        head: FrameHead,
        len: u64,
        turn: &mut Turn<'_>,
    ) -> Result<Option<Got<'static>>, Fault> {
        let id = head.stream;
        let Some(stream) = self.streams.by_id(id) else {
            self.check_closed(id)?;
            // A few frames are expected after a reset; small ones could be a flood.
            if len < u64::from(WORTHWHILE_LEN) {
                self.glitch(1, turn)?;
            }
            return Ok(Some(Got::Nothing));
        };
        if stream.is_dead {
            return Ok(Some(Got::Nothing));
        }
        let code = match stream.input {
            Input::Ended => Code::STREAM_CLOSED,
            // RFC 9113 §8.1: DATA before the HEADERS of the response.
            Input::Head => Code::PROTOCOL_ERROR,
            _ if !stream.window.take(head.len as u32) => Code::FLOW_CONTROL_ERROR,
            // RFC 9113 §8.1.1: more content than Content-Length.
            _ if len > stream.to_come => {
                turn.counters.malformed += 1;
                Code::PROTOCOL_ERROR
            }
            // The handler of the tunnel is not chosen yet, and WebSocket clients send no data before the response (RFC
            // 8441 §5).
            Input::Open if stream.is_tunnel && stream.output == Output::Head && len > 0 => {
                turn.counters.malformed += 1;
                Code::PROTOCOL_ERROR
            }
            Input::Unwanted => {
                stream.subtract(len);
                stream.give_dropped(head, 0, turn.out);
                return Ok(Some(Got::Nothing));
            }
            Input::Open => {
                stream.subtract(len);
                stream.came += len;
                // A tunnel may carry any number of bytes.
                let is_limited = self.is_server && !stream.is_tunnel;
                let is_too_large = is_limited && stream.came > turn.settings.limits.body_len_max;
                if !is_too_large {
                    // With its padding, which `begin_data` returns at once.
                    stream.untaken += head.len as u32;
                    return Ok(None);
                }
                stream.input = Input::Unwanted;
                let untaken = core::mem::take(&mut stream.untaken);
                stream.give_dropped(head, untaken, turn.out);
                self.give_connection(untaken, turn.out);
                return Ok(Some(Got::Refused {
                    stream: id,
                    refusal: Refusal::BodyTooLarge,
                }));
            }
        };
        self.fail_stream(id, code, turn).map(Some)
    }

    pub(super) fn go_on_with_data<'b>(
        &mut self,
        rest: &'b [u8],
        turn: &mut Turn<'_>,
    ) -> Result<(usize, Got<'b>), Fault> {
        let Some(data) = &mut self.data else {
            return Ok((0, Got::Nothing));
        };
        if data.left > 0 {
            let part = rest.get(..data.left).unwrap_or(rest);
            data.left -= part.len();
            let got = match data.is_dropped || part.is_empty() {
                true => Got::Nothing,
                false => Got::Data {
                    stream: data.stream,
                    data: part,
                },
            };
            return Ok((part.len(), got));
        }
        let used = data.pad_left.min(rest.len());
        data.pad_left -= used;
        if data.pad_left > 0 {
            return Ok((used, Got::Nothing));
        }
        let (id, is_end) = (data.stream, data.is_end);
        self.data = None;
        let got = match is_end {
            true => self.input_ended(id, turn)?,
            false => Got::Nothing,
        };
        match (used, &got) {
            // The frame has ended without consuming bytes; the caller would wait for input, so process the next frame
            // now.
            (0, Got::Nothing) => self.once(rest, turn),
            _ => Ok((used, got)),
        }
    }

    /// Handles the end of a message.
    pub(super) fn input_ended<'b>(
        &mut self,
        id: u32,
        turn: &mut Turn<'_>,
    ) -> Result<Got<'b>, Fault> {
        let Some(stream) = self.streams.by_id(id) else {
            return Ok(Got::Nothing);
        };
        if stream.is_dead || stream.input == Input::Ended {
            return Ok(Got::Nothing);
        }
        // RFC 9113 §8.1.1: a body that is shorter than Content-Length makes the message malformed.
        if stream.to_come != UNKNOWN && stream.to_come > 0 {
            turn.counters.malformed += 1;
            return self.fail_stream(id, Code::PROTOCOL_ERROR, turn);
        }
        let was_wanted = stream.input == Input::Open;
        stream.input = Input::Ended;
        stream.expects = false;
        self.settle(id, turn.out);
        Ok(match was_wanted {
            true => Got::End { stream: id },
            false => Got::Nothing,
        })
    }
}

impl Stream {
    /// Returns the window of a dropped frame, and of `untaken` bytes before it, so that a client that sends its whole
    /// body before it reads the response can finish.
    fn give_dropped(&mut self, head: FrameHead, untaken: u32, out: &mut Vec<u8>) {
        let len = head.len as u32 + untaken;
        if !head.has(flag::END_STREAM)
            && let Some(increment) = self.window.give(len)
        {
            frame::put_window_update(self.id, increment, out);
        }
    }

    /// Subtracts received bytes from those announced.
    fn subtract(&mut self, len: u64) {
        if self.to_come != UNKNOWN {
            self.to_come -= len;
        }
    }
}
