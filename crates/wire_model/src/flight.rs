//! Loss recovery for a flight, which is an answer of several segments (here: parts). Decides which parts are
//! retransmitted when a segment shows that the client lacks some (RFC 5681 §3.2, RFC 5827, RFC 6582). The functions
//! work on numbers only, without frames, responses or the table.
//!
//! All parts acknowledge the request except its last byte. So the client's retransmission timer runs until it has
//! received the whole answer, and this side needs no timer.

use lowroad_wire::ebpf_header;
use lowroad_wire::segment_reason::SegmentReason;

#[cfg(test)]
mod tests;

/// Maximum number of parts of a flight: the initial window of RFC 6928.
pub const PARTS_MAX: u32 = ebpf_header::PARTS_MAX;
/// The number of bytes of a request that are not acknowledged during a flight. Every request is longer.
pub(crate) const WITHHELD: usize = 1;
/// Maximum number of retransmissions without progress, as input that triggers one may cost the client less than a
/// request.
pub(crate) const RETRANSMITS_MAX: u8 = 7;
/// Maximum distance between a segment's start and the end of the request, if the segment belongs to the request.
pub(crate) const BEHIND_MAX: i32 = 1500;
/// The number of parts retransmitted after the client's timer has fired: sufficient for an immediate acknowledgement.
const TIMER_PARTS: u32 = 2;

/// The segmentation of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlightPlan {
    /// The length in bytes, without FIN.
    pub(crate) len: u32,
    /// The number of bytes in each part except the last.
    pub(crate) segment_len: u32,
}

/// The phase of recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RecoveryPhase {
    /// No part was retransmitted.
    #[default]
    None,
    /// Fast retransmit: the client sent duplicate acknowledgements.
    Fast,
    /// The client's retransmission timer has fired.
    Timer,
}

/// The state of the loss recovery. Reset for each flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryState {
    /// The bytes of the answer that the client has acknowledged.
    acked: u32,
    duplicates: u8,
    phase: RecoveryPhase,
    /// The client's window, as of the last progress or window update.
    window: u16,
    /// How often parts were retransmitted since the last progress.
    repeats: u8,
}

/// The acknowledgement information of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckInfo {
    /// The number of bytes of the answer that the segment acknowledges.
    pub(crate) part: u32,
    /// The distance from the segment's start to the end of the request.
    pub(crate) distance: i32,
    /// The length of the segment's data.
    pub(crate) len: i32,
    /// Whether the segment has FIN.
    pub(crate) has_fin: bool,
    /// The window field.
    pub(crate) window: u16,
    /// Whether the segment has TCP options other than timestamps (such as SACK).
    pub(crate) has_options: bool,
}

/// The action after a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlightAction {
    /// Retransmit parts.
    Retransmit {
        /// The first part.
        first: u32,
        /// The number of parts.
        count: u32,
    },
    /// Reset the connection, after too many retransmissions.
    Reset,
    /// Send an acknowledgement without data.
    Acknowledge(SegmentReason),
    /// Do nothing.
    Drop(SegmentReason),
}

impl FlightPlan {
    pub(crate) fn parts(self) -> u32 {
        self.len.div_ceil(self.segment_len)
    }

    /// The number of the part that contains this byte.
    fn part_at(self, acked: u32) -> u32 {
        acked / self.segment_len
    }

    /// Retransmits up to `count` parts, starting with the part that contains this byte; the last part if only the FIN
    /// is missing.
    fn repeat(self, acked: u32, count: u32) -> FlightAction {
        let first = self.part_at(acked).min(self.parts() - 1);
        let count = count.min(self.parts() - first);
        FlightAction::Retransmit { first, count }
    }

    /// The number of duplicate acknowledgements after which a part counts as lost: three, or fewer if few parts are
    /// outstanding (early retransmit, RFC 5827).
    fn duplicates_of_loss(self, acked: u32) -> u32 {
        let outstanding = self.parts().saturating_sub(self.part_at(acked));
        outstanding.saturating_sub(1).clamp(1, 3)
    }
}

impl AckInfo {
    /// Whether the segment is near the end of the request; otherwise it is too old or beyond the window.
    pub(crate) fn is_near(&self, window: u16) -> bool {
        (-i32::from(window)..=BEHIND_MAX).contains(&self.distance)
    }

    /// The offset of the segment's data that is beyond the request, if there is any; that data is buffered.
    pub(crate) fn excess_offset(&self) -> Option<usize> {
        let has_excess = self.len + i32::from(self.has_fin) > self.distance;
        let has_content = self.len > 0 || self.has_fin;
        (has_content && has_excess).then(|| usize::try_from(self.distance).unwrap_or(0))
    }

    /// Whether the segment is a retransmission by the client's timer: it contains the withheld byte.
    fn is_repeat(&self) -> bool {
        1 <= self.distance && self.distance <= self.len
    }

    fn is_bare(&self) -> bool {
        self.len == 0 && !self.has_fin
    }
}

/// Decides the action for a segment of a client that lacks parts of the flight.
pub(crate) fn on_segment(
    flight: FlightPlan,
    recovery: &mut RecoveryState,
    ack_info: &AckInfo,
) -> FlightAction {
    if ack_info.is_bare() {
        on_bare_ack(flight, recovery, ack_info)
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
        return FlightAction::Reset;
    }
    // The maximum is kept, as acknowledgements that alternate are no progress.
    recovery.acked = recovery.acked.max(part);
    recovery.duplicates = 0;
    recovery.phase = RecoveryPhase::Timer;
    flight.repeat(part, TIMER_PARTS)
}

fn on_bare_ack(
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

/// The number of parts to retransmit after progress. In recovery, a partial acknowledgement means that the next part is
/// lost, too (RFC 6582). Progress within a part triggers no retransmission: otherwise a client could multiply the
/// traffic by acknowledging each byte separately (ACK division).
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

/// Handles an acknowledgement without progress. Without SACK, only a changed window distinguishes a window update from
/// a duplicate.
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
    // One retransmission per loss; in recovery, progress triggers the next.
    if recovery.phase != RecoveryPhase::None || !is_loss {
        return no_action;
    }
    if !allow_repeat(recovery) {
        return FlightAction::Reset;
    }
    recovery.phase = RecoveryPhase::Fast;
    flight.repeat(ack_info.part, 1)
}

/// Whether parts may be retransmitted without progress; counts the retransmission.
fn allow_repeat(recovery: &mut RecoveryState) -> bool {
    let is_allowed = recovery.repeats < RETRANSMITS_MAX;
    recovery.repeats += u8::from(is_allowed);
    is_allowed
}
