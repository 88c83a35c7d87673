//! Loss recovery for an answer of several segments, the flight: evaluates segments of a client that lacks parts of it
//! (RFC 5681 §3.2, RFC 5827, RFC 6582). Works with numbers only, without frames, responses or the table.
//!
//! All segments of the answer acknowledge the request except its last byte. So the client's retransmission timer runs
//! until it has acknowledged the whole answer, and this side needs none.

use lowroad_wire::ebpf_header;
use lowroad_wire::segment_reason::SegmentReason;

#[cfg(test)]
mod tests;

/// The most segments of a flight: the initial window of RFC 6928.
pub const PARTS_MAX: u32 = ebpf_header::PARTS_MAX;
/// The bytes of a request that are not acknowledged during a flight. Every request is longer.
pub(crate) const WITHHELD: usize = 1;
/// How often an answer is sent again without progress, on input that costs less than its request.
pub(crate) const AGAIN_MAX: u8 = 7;
/// The largest distance before the end of the request at which a segment can still belong to it.
pub(crate) const BEHIND_MAX: i32 = 1500;
/// The parts sent again at a time after the client's timer has fired: enough for an immediate acknowledgement.
const TIMER_PARTS: u32 = 2;

/// The segmentation of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlightPlan {
    /// The length in bytes, without FIN.
    pub(crate) len: u32,
    /// The bytes of each part except the last.
    pub(crate) segment_len: u32,
}

/// The phase of recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RecoveryPhase {
    /// No part was sent again.
    #[default]
    None,
    /// Fast retransmit: the client sent duplicate acknowledgements.
    Fast,
    /// The client's timer has fired.
    Timer,
}

/// The state of the loss recovery. Reset for each flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryState {
    /// The bytes of the answer that the client has acknowledged.
    acked: u32,
    duplicates: u8,
    phase: RecoveryPhase,
    /// The client's window at that time.
    window: u16,
    /// How often parts were sent again since the last progress.
    repeats: u8,
}

/// The acknowledgement information of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckInfo {
    /// The bytes of the answer that it acknowledges.
    pub(crate) part: u32,
    /// The distance of its start before the end of the request.
    pub(crate) distance: i32,
    /// The length of its data.
    pub(crate) len: i32,
    /// Whether it has FIN.
    pub(crate) has_fin: bool,
    /// The window field.
    pub(crate) window: u16,
    /// Whether it has TCP options besides timestamps.
    pub(crate) has_options: bool,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlightAction {
    /// Send parts again.
    Again {
        /// The first part.
        first: u32,
        /// The number of parts.
        count: u32,
    },
    /// Reset the connection: the answer was sent again often enough.
    Enough,
    /// Send an acknowledgement without data.
    Acknowledge(SegmentReason),
    /// Do nothing.
    Drop(SegmentReason),
}

impl FlightPlan {
    pub(crate) fn parts(self) -> u32 {
        self.len.div_ceil(self.segment_len)
    }

    /// The part in which this byte is.
    fn part_at(self, acked: u32) -> u32 {
        acked / self.segment_len
    }

    /// Sends up to `count` parts from this byte on; the last part if only the FIN is missing.
    fn repeat(self, acked: u32, count: u32) -> FlightAction {
        let first = self.part_at(acked).min(self.parts() - 1);
        let count = count.min(self.parts() - first);
        FlightAction::Again { first, count }
    }

    /// The number of duplicate acknowledgements by which a part counts as lost. With few parts outstanding there
    /// cannot be three (early retransmit, RFC 5827).
    fn duplicates_of_loss(self, acked: u32) -> u32 {
        let outstanding = self.parts().saturating_sub(self.part_at(acked));
        outstanding.saturating_sub(1).clamp(1, 3)
    }
}

impl AckInfo {
    /// Whether it belongs to the time of this request.
    pub(crate) fn is_near(&self, window: u16) -> bool {
        (-i32::from(window)..=BEHIND_MAX).contains(&self.distance)
    }

    /// The offset from which on its data goes beyond the request, if it does; that data is buffered.
    pub(crate) fn excess_offset(&self) -> Option<usize> {
        let has_excess = self.len + i32::from(self.has_fin) > self.distance;
        let has_content = self.len > 0 || self.has_fin;
        (has_content && has_excess).then(|| usize::try_from(self.distance).unwrap_or(0))
    }

    /// Whether it is a retransmission by the client's timer: it has the withheld byte.
    fn is_repeat(&self) -> bool {
        1 <= self.distance && self.distance <= self.len
    }

    fn is_bare(&self) -> bool {
        self.len == 0 && !self.has_fin
    }
}

/// The action for a segment of a client that lacks parts of the flight.
pub(crate) fn on_segment(
    flight: FlightPlan,
    recovery: &mut RecoveryState,
    ack_info: &AckInfo,
) -> FlightAction {
    if ack_info.is_bare() {
        on_acknowledged(flight, recovery, ack_info)
    } else if ack_info.is_repeat() {
        on_timer(flight, recovery, ack_info.part)
    } else if ack_info.len == 0 {
        FlightAction::Drop(SegmentReason::TcpFin)
    } else if ack_info.distance > ack_info.len {
        FlightAction::Acknowledge(SegmentReason::TcpOld)
    } else {
        FlightAction::Drop(SegmentReason::DropPipelined)
    }
}

fn on_timer(flight: FlightPlan, recovery: &mut RecoveryState, part: u32) -> FlightAction {
    if flight.part_at(part) > flight.part_at(recovery.acked) {
        recovery.repeats = 0;
    }
    if !allow_repeat(recovery) {
        return FlightAction::Enough;
    }
    // An acknowledgement that moves back and forth is no progress.
    recovery.acked = recovery.acked.max(part);
    recovery.duplicates = 0;
    recovery.phase = RecoveryPhase::Timer;
    flight.repeat(part, TIMER_PARTS)
}

fn on_acknowledged(
    flight: FlightPlan,
    recovery: &mut RecoveryState,
    ack_info: &AckInfo,
) -> FlightAction {
    let no_action = FlightAction::Drop(SegmentReason::TcpAck);
    match ack_info.part.cmp(&recovery.acked) {
        core::cmp::Ordering::Less => no_action,
        core::cmp::Ordering::Equal => on_duplicate(flight, recovery, ack_info),
        core::cmp::Ordering::Greater => match on_progress(flight, recovery, ack_info) {
            0 => no_action,
            count => flight.repeat(ack_info.part, count),
        },
    }
}

/// The number of parts to send after progress. An acknowledgement does not cover the parts after a lost one, so in
/// recovery the next possibly missing one is sent (RFC 6582). Progress within a part triggers no sending, since each
/// byte could otherwise be acknowledged separately to multiply the traffic.
fn on_progress(flight: FlightPlan, recovery: &mut RecoveryState, ack_info: &AckInfo) -> u32 {
    let is_new_part = flight.part_at(ack_info.part) > flight.part_at(recovery.acked);
    recovery.acked = ack_info.part;
    recovery.duplicates = 0;
    recovery.window = ack_info.window;
    if !is_new_part {
        return 0;
    }
    recovery.repeats = 0;
    match recovery.phase {
        RecoveryPhase::None => 0,
        RecoveryPhase::Fast => 1,
        RecoveryPhase::Timer => TIMER_PARTS,
    }
}

/// Handles a repeated acknowledgement. Without SACK, a window update looks the same except for its window.
fn on_duplicate(
    flight: FlightPlan,
    recovery: &mut RecoveryState,
    ack_info: &AckInfo,
) -> FlightAction {
    let no_action = FlightAction::Drop(SegmentReason::TcpAck);
    if !ack_info.has_options && ack_info.window != recovery.window {
        recovery.window = ack_info.window;
        return no_action;
    }
    recovery.duplicates = recovery.duplicates.saturating_add(1);
    let is_loss = u32::from(recovery.duplicates) == flight.duplicates_of_loss(ack_info.part);
    // One retransmission for each loss; in recovery, progress triggers the next.
    if recovery.phase != RecoveryPhase::None || !is_loss {
        return no_action;
    }
    if !allow_repeat(recovery) {
        return FlightAction::Enough;
    }
    recovery.phase = RecoveryPhase::Fast;
    flight.repeat(ack_info.part, 1)
}

/// Whether parts may be sent again without progress; counts the attempt.
fn allow_repeat(recovery: &mut RecoveryState) -> bool {
    let is_allowed = recovery.repeats < AGAIN_MAX;
    recovery.repeats += u8::from(is_allowed);
    is_allowed
}
