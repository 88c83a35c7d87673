//! Frames that change the state of the connection or a stream, without carrying a message. Read RFC 9113 §5.4, §6.4 to
//! §6.9, RFC 9218 §7.1.

use alloc::vec::Vec;

use super::ConnectionTurn;
use super::connection::{ConnectionEvent, H2Connection};
use super::error::{ConnectionError, ErrorCode};
use super::frame::{self, FrameHead, flag};
use super::settings::TABLE_LEN;
use crate::streams::{GoawayState, Priority};

/// The two kinds of PING that are sent differ in their payloads, so that their acknowledgements can be distinguished.
pub(super) const PING_ESTIMATE: [u8; 8] = *b"estimate";
const PING_GOAWAY: [u8; 8] = *b"leaving.";
/// The last stream of a GOAWAY that only announces the shutdown (RFC 9113 §6.8).
const ANY_STREAM: u32 = 0x7fff_ffff;

impl H2Connection {
    /// Counts glitches (legal but useless frames), and ends the connection if there are too many.
    pub(super) fn glitch(
        &mut self,
        count: u32,
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<(), ConnectionError> {
        turn.counters.glitches += 1;
        let rate = turn.settings.glitches;
        let credit = core::mem::take(&mut self.glitch_credit);
        // Sent DATA compensates for window updates.
        self.glitches.refund(u64::from(credit), rate);
        match self.glitches.charge(u64::from(count), rate, turn.now_ms) {
            true => Ok(()),
            false => Err(ConnectionError::calm("too many frames of little use")),
        }
    }

    /// Counts a stream that ended early, by the peer's reset or after a stream error.
    pub(super) fn count_reset(
        &mut self,
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<(), ConnectionError> {
        // Rapid reset: a client that opens and resets streams keeps within the stream limit, but causes unlimited work.
        match self.resets.charge(1, turn.settings.resets, turn.now_ms) {
            true => Ok(()),
            false => Err(ConnectionError::calm("too many streams were reset")),
        }
    }

    /// Handles a stream error of the peer: resets the stream.
    pub(super) fn fail_stream<'b>(
        &mut self,
        id: u32,
        code: ErrorCode,
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<ConnectionEvent<'b>, ConnectionError> {
        match code {
            ErrorCode::REFUSED_STREAM => turn.counters.refused += 1,
            _ => turn.counters.faults += 1,
        }
        // This reset counts like the peer's own resets, since the peer can provoke it, for example by a window
        // overflow.
        self.count_reset(turn)?;
        frame::put_reset(id, code, turn.out);
        self.reset_streams.add(id);
        Ok(match self.streams.by_id(id).is_some() {
            true => {
                self.mark_dead(id);
                ConnectionEvent::Reset { stream: id, code }
            }
            false => ConnectionEvent::Nothing,
        })
    }

    /// Whether a stream is idle. After the final GOAWAY no stream counts as idle, since ignored streams may have begun.
    fn is_idle_id(&self, id: u32) -> bool {
        let has_begun = id <= self.last_id || self.is_server && self.goaway == GoawayState::Gone;
        !has_begun || id.is_multiple_of(2)
    }

    /// Checks that a stream that is not in the table existed before, so that a frame for it may be ignored.
    pub(super) fn check_closed(&self, id: u32) -> Result<(), ConnectionError> {
        if self.is_idle_id(id) {
            return Err(ConnectionError::protocol("a frame for an idle stream"));
        }
        // Frames that the peer sent before it received RST_STREAM are ignored (RFC 9113 §5.1).
        match self.reset_streams.contains(id) || self.goaway == GoawayState::Gone {
            true => Ok(()),
            false => {
                let reason = "a frame for a closed stream";
                Err(ConnectionError::new(ErrorCode::STREAM_CLOSED, reason))
            }
        }
    }

    /// Like `H2Connection::check_closed`, for frames that are allowed at any time after the end of a stream.
    fn check_begun(&self, id: u32) -> Result<(), ConnectionError> {
        match self.is_idle_id(id) {
            true => Err(ConnectionError::protocol("a frame for an idle stream")),
            false => Ok(()),
        }
    }

    pub(super) fn handle_reset<'b>(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<ConnectionEvent<'b>, ConnectionError> {
        self.check_begun(head.stream)?;
        turn.counters.resets += 1;
        self.count_reset(turn)?;
        // Both sides may have reset the stream at the same time.
        let alive = self.streams.by_id(head.stream).filter(|it| !it.is_dead);
        if alive.is_none() {
            return Ok(ConnectionEvent::Nothing);
        }
        self.mark_dead(head.stream);
        Ok(ConnectionEvent::Reset {
            stream: head.stream,
            code: ErrorCode(frame::word(payload)),
        })
    }

    pub(super) fn window_update<'b>(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<ConnectionEvent<'b>, ConnectionError> {
        // Sent DATA compensates for window updates, see `data_send`.
        self.glitch(1, turn)?;
        // The upper bit is reserved (RFC 9113 §6.9).
        let increment = (frame::word(payload) & 0x7fff_ffff) as i32;
        if head.stream == 0 {
            if increment == 0 {
                return Err(ConnectionError::protocol("a window increment of 0"));
            }
            // RFC 9113 §6.9.1: on the connection, an overflow is a connection error.
            let window = self.send_window.checked_add(increment);
            self.send_window = window.ok_or(WINDOW_TOO_LARGE)?;
            return Ok(ConnectionEvent::Nothing);
        }
        let Some(slot) = self.streams.find(head.stream) else {
            self.check_begun(head.stream)?;
            return Ok(ConnectionEvent::Nothing);
        };
        let stream = self.streams.get(slot);
        if stream.is_dead {
            return Ok(ConnectionEvent::Nothing);
        }
        let code = match stream.transport.send_window.checked_add(increment) {
            // RFC 9113 §6.9: an increment of 0 is a stream error.
            _ if increment == 0 => ErrorCode::PROTOCOL_ERROR,
            // RFC 9113 §6.9.1: a window must not exceed 2^31-1.
            None => ErrorCode::FLOW_CONTROL_ERROR,
            Some(window) => {
                stream.transport.send_window = window;
                self.enqueue(slot);
                return Ok(ConnectionEvent::Nothing);
            }
        };
        self.fail_stream(head.stream, code, turn)
    }

    pub(super) fn settings<'b>(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<ConnectionEvent<'b>, ConnectionError> {
        if head.has(flag::ACK) {
            self.unacknowledged = self.unacknowledged.saturating_sub(1);
            self.glitch(1, turn)?;
            return Ok(ConnectionEvent::Nothing);
        }
        // The cost grows with the number of streams, since the window of each is adjusted.
        self.glitch(1 + self.streams.len() as u32 / 8, turn)?;
        let previous = self.peer;
        self.peer.take(payload, !self.is_server)?;
        // This side's encoder uses no dynamic table, but must acknowledge that the peer has reduced the table (RFC 7541
        // §4.2).
        self.must_confirm_table_len |=
            self.peer.table_len < TABLE_LEN.min(previous.table_len as usize) as u32;
        let change = i64::from(self.peer.window_len) - i64::from(previous.window_len);
        if change != 0 {
            self.change_windows(change)?;
        }
        // RFC 9113 §6.5.3: settings are acknowledged after they are applied.
        frame::put_settings_ack(turn.out);
        Ok(ConnectionEvent::Nothing)
    }

    fn change_windows(&mut self, change: i64) -> Result<(), ConnectionError> {
        let slots: Vec<u16> = self.streams.slots().collect();
        for slot in slots {
            let stream = self.streams.get(slot);
            // RFC 9113 §6.9.2: the change applies to open streams, and may make a window negative.
            let window = i64::from(stream.transport.send_window) + change;
            stream.transport.send_window = i32::try_from(window).map_err(|_| WINDOW_TOO_LARGE)?;
            match stream.can_send() {
                true => self.enqueue(slot),
                // A smaller window may block a stream that is queued.
                false => self.queue.remove(&mut self.streams, slot),
            }
        }
        Ok(())
    }

    pub(super) fn ping<'b>(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<ConnectionEvent<'b>, ConnectionError> {
        let data: [u8; 8] = payload.first_chunk().copied().unwrap_or_default();
        self.glitch(1, turn)?;
        match (head.has(flag::ACK), data) {
            // PING and SETTINGS floods: each frame causes output, so each is counted as a glitch (see above).
            (false, _) => frame::put_ping(true, data, turn.out),
            (true, PING_ESTIMATE) => {
                if self.estimate.handle_ping_ack(turn.settings.window_len_max) {
                    self.window.grow(self.estimate.size.saturating_mul(2));
                }
            }
            (true, PING_GOAWAY) => self.send_final_goaway(turn.out),
            (true, _) => {}
        }
        Ok(ConnectionEvent::Nothing)
    }

    pub(super) fn handle_goaway<'b>(&mut self, payload: &[u8]) -> ConnectionEvent<'b> {
        // The upper bit is reserved (RFC 9113 §6.8).
        let last_id = frame::word(payload) & 0x7fff_ffff;
        self.peer_last_id = Some(last_id);
        ConnectionEvent::GoneAway {
            last_id,
            code: ErrorCode(frame::word(payload.get(4..).unwrap_or_default())),
        }
    }

    pub(super) fn priority_update<'b>(
        &mut self,
        payload: &[u8],
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<ConnectionEvent<'b>, ConnectionError> {
        if !self.is_server {
            return Err(ConnectionError::protocol("PRIORITY_UPDATE from a server"));
        }
        self.glitch(1, turn)?;
        let id = frame::word(payload) & 0x7fff_ffff;
        if id.is_multiple_of(2) {
            return Err(ConnectionError::protocol(
                "PRIORITY_UPDATE for a stream that clients can't open",
            ));
        }
        let priority = Priority::parse(payload.get(4..).unwrap_or_default());
        if let Some(slot) = self.streams.find(id) {
            self.queue.change(&mut self.streams, slot, priority);
        } else if id > self.last_id {
            self.early_priorities.add(id, priority);
        }
        Ok(ConnectionEvent::Nothing)
    }

    /// Announces the shutdown (RFC 9113 §6.8): streams that the client opens before it receives GOAWAY are still
    /// accepted. After a round trip, or after `H2Connection::send_final_goaway`, new streams are ignored.
    pub(super) fn drain(&mut self, out: &mut Vec<u8>) {
        if self.goaway == GoawayState::No {
            self.goaway = GoawayState::Announced;
            frame::put_goaway(ANY_STREAM, ErrorCode::NO_ERROR, "", out);
            // The acknowledgement of the PING shows that the client has received the GOAWAY.
            frame::put_ping(false, PING_GOAWAY, out);
        }
    }

    /// Writes the final GOAWAY: new streams are ignored.
    pub(super) fn send_final_goaway(&mut self, out: &mut Vec<u8>) {
        if self.goaway != GoawayState::Gone {
            self.goaway = GoawayState::Gone;
            frame::put_goaway(self.last_id, ErrorCode::NO_ERROR, "", out);
        }
    }
}

const WINDOW_TOO_LARGE: ConnectionError =
    ConnectionError::new(ErrorCode::FLOW_CONTROL_ERROR, "a window that is too large");
