//! Processes the ACK of a segment: removes acknowledged data, updates the window, and detects losses (RFC 9293
//! §3.10.7.4, RFC 6675, RFC 6582).

use super::congestion::RecoveryMode;
use super::connection::{NEVER, TcpConnection};
use super::segment::{FIN, TcpSegment};
use crate::bytes::before;
use crate::context::StackCore;

/// The number of duplicate ACKs that indicate a loss (RFC 5681 §3.2).
const DUP_ACKS: u32 = 3;

/// The result of an ACK.
pub(crate) enum AckOutcome {
    /// The ACK acknowledges data that was never sent, or is older than a window.
    Bad,
    /// The ACK acknowledges all queued data.
    All,
    /// Some queued data is not acknowledged yet, or none was queued.
    Some,
}

/// Processes the ACK of a segment.
pub(crate) fn acknowledged(
    core: &mut StackCore,
    index: u32,
    segment: &TcpSegment<'_>,
) -> AckOutcome {
    let Some(connection) = core.table.at_mut(index) else {
        return AckOutcome::Some;
    };
    // The difference is computed modulo 2^32, like all comparisons of sequence numbers.
    let acked = segment.ack.wrapping_sub(connection.snd_una);
    // In unsigned arithmetic an old ACK appears as a large number.
    if acked > connection.flight() {
        let age = acked.wrapping_neg();
        // An old ACK within the distance of a window may be delayed; others are forged (RFC 5961 §5.2).
        return match age <= connection.snd_wnd_max.max(65_535) {
            true => AckOutcome::Some,
            false => AckOutcome::Bad,
        };
    }
    let is_window_unchanged = update_window(connection, segment);
    if acked == 0 {
        if connection.flight() > 0 {
            let is_bare =
                is_window_unchanged && segment.payload.is_empty() && segment.flags & FIN == 0;
            let recovers = duplicate(connection, segment, is_bare);
            core.counters.recoveries += u64::from(recovers);
        }
        return AckOutcome::Some;
    }
    let flight = connection.flight();
    let queued_before = connection.queue.len();
    connection.snd_una = segment.ack;
    // Progress: reset the backoff of the retransmission timeout.
    connection.retries = 0;
    connection.is_fin_acked = connection.is_fin_sent && segment.ack == connection.snd_nxt;
    connection.queue.consume(&mut core.pool, acked as usize);
    // Only an ACK of at least a segment, or of all queued data, counts as progress. Otherwise a slow-reading client
    // that acknowledges a few bytes at a time could not be evicted.
    if acked >= connection.mss.into() || connection.queue.len() == 0 {
        connection.record_progress(core.now_us);
    }
    connection.rtt.acked(segment.ack, core.now_us);
    // The common case: there is no sign of loss, so neither the scoreboard nor the options are read.
    if connection.congestion.mode == RecoveryMode::Open
        && connection.board.is_empty()
        && segment.options.is_empty()
    {
        connection.congestion.dup_acks = 0;
        connection.congestion.acked(acked, flight, connection.mss);
    } else {
        let recovers = recovering(connection, segment, acked, flight);
        core.counters.recoveries += u64::from(recovers);
    }
    // RFC 6298 §5.2 and §5.3: the timer is stopped if no data is in flight, and restarted by an ACK of new data.
    connection.resend_at_us = match connection.flight() {
        0 => NEVER,
        _ => core.now_us + connection.rtt.timeout_us(),
    };
    match queued_before > 0 && connection.queue.len() == 0 && connection.is_service_notified {
        true => AckOutcome::All,
        false => AckOutcome::Some,
    }
}

/// Updates the send window if the segment is recent. Returns whether the window is unchanged.
fn update_window(connection: &mut TcpConnection, segment: &TcpSegment<'_>) -> bool {
    // RFC 9293 §3.10.7.4: SND.WL1 and SND.WL2 prevent an old segment from setting the window.
    let is_recent = before(connection.snd_wl1, segment.seq)
        || (connection.snd_wl1 == segment.seq && !before(segment.ack, connection.snd_wl2));
    if !is_recent {
        return true;
    }
    let window = u32::from(segment.window) << connection.scale;
    connection.snd_wl1 = segment.seq;
    connection.snd_wl2 = segment.ack;
    let previous_window = core::mem::replace(&mut connection.snd_wnd, window);
    connection.snd_wnd_max = connection.snd_wnd_max.max(window);
    if previous_window == 0 && window > 0 && connection.flight() > 0 {
        // The peer has dropped data beyond its closed window.
        connection
            .congestion
            .send_again(connection.snd_una, connection.snd_nxt);
    }
    // The window has opened, so no probe is needed.
    if previous_window == 0 && window > 0 && connection.flight() == 0 {
        connection.resend_at_us = NEVER;
    }
    previous_window == window
}

/// Processes an ACK that acknowledges no new data. Returns whether a recovery starts.
fn duplicate(connection: &mut TcpConnection, segment: &TcpSegment<'_>, is_bare: bool) -> bool {
    let is_duplicate = match connection.has_sack {
        // RFC 6675: with SACK, an ACK is a duplicate if it has new SACK blocks; otherwise by the rules of RFC 5681 §2.
        true => connection
            .board
            .read(segment.options, connection.snd_una, connection.snd_nxt),
        false => is_bare,
    };
    if !is_duplicate {
        return false;
    }
    connection.congestion.dup_acks = connection.congestion.dup_acks.saturating_add(1);
    detect_loss(connection)
}

/// Enters recovery if the peer has received enough later data (RFC 6675 §5). Returns whether it did.
fn detect_loss(connection: &mut TcpConnection) -> bool {
    let mss = u32::from(connection.mss);
    let flight = connection.flight();
    // Early retransmit (RFC 5827): with little data in flight, three duplicate ACKs can't arrive.
    let segments = flight.div_ceil(mss);
    let threshold = match connection.has_sack && connection.unsent() == 0 && segments < 4 {
        true => segments.saturating_sub(1).max(1),
        false => DUP_ACKS,
    };
    // A delayed ACK reports two segments, so SACKed bytes are counted as well as ACKs.
    let sacked_segments = connection.board.total().div_ceil(mss);
    if connection.congestion.mode != RecoveryMode::Open
        || sacked_segments.max(connection.congestion.dup_acks.into()) < threshold
    {
        return false;
    }
    connection
        .congestion
        .enter_recovery(connection.snd_una, connection.snd_nxt, connection.mss);
    true
}

/// Processes an ACK of new data during a recovery or shortly after it. Returns whether a recovery starts.
fn recovering(
    connection: &mut TcpConnection,
    segment: &TcpSegment<'_>,
    acked: u32,
    flight: u32,
) -> bool {
    connection.board.advance(connection.snd_una);
    if connection.has_sack {
        connection
            .board
            .read(segment.options, connection.snd_una, connection.snd_nxt);
    }
    let congestion = &mut connection.congestion;
    if congestion.mode == RecoveryMode::Open {
        congestion.dup_acks = 0;
        congestion.acked(acked, flight, connection.mss);
        return !connection.board.is_empty() && detect_loss(connection);
    }
    // A full ACK ends the recovery (RFC 6582 §3.2).
    if !before(connection.snd_una, congestion.recover) {
        congestion.recovered();
        return !connection.board.is_empty() && detect_loss(connection);
    }
    // Slow start after a timeout (RFC 5681 §3.1).
    if congestion.mode == RecoveryMode::Loss {
        congestion.acked(acked, flight, connection.mss);
    }
    if congestion.mode == RecoveryMode::Recovery && connection.board.is_empty() {
        // Partial ACK: the next segment was lost, too (RFC 6582 §3.2).
        let segments = acked.div_ceil(connection.mss.into()).min(255) as u8;
        congestion.dup_acks = congestion.dup_acks.saturating_sub(segments);
        congestion.resent = connection.snd_una;
    }
    // Acknowledged bytes are not retransmitted.
    if before(congestion.resent, connection.snd_una) {
        congestion.resent = connection.snd_una;
    }
    false
}
