//! The ACK of a segment: removes acknowledged data, updates the window, and detects losses (RFC 9293 §3.10.7.4, RFC
//! 6675, RFC 6582).

use super::congestion::RecoveryMode;
use super::connection::{NEVER, TcpConnection};
use super::segment::{FIN, TcpSegment};
use crate::bytes::before;
use crate::context::StackCore;

/// Duplicate ACKs that indicate a loss (RFC 5681 §3.2).
const DUP_ACKS: u32 = 3;

/// The result of an ACK.
pub(crate) enum AckOutcome {
    /// It acknowledges data that were never sent.
    Bad,
    /// It acknowledges all queued data.
    All,
    /// Data are left, or there were none.
    Some,
}

/// Processes the ACK of a segment.
pub(crate) fn acknowledged(
    core: &mut StackCore,
    index: u32,
    segment: &TcpSegment<'_>,
) -> AckOutcome {
    let Some(it) = core.table.at_mut(index) else {
        return AckOutcome::Some;
    };
    // Modulo 2^32, like all comparisons of sequence numbers.
    let acked = segment.ack.wrapping_sub(it.snd_una);
    // In unsigned arithmetic an old ACK appears as a large number.
    if acked > it.flight() {
        let age = acked.wrapping_neg();
        // An old ACK within a window's distance may be delayed; others are forged (RFC 5961 §5.2).
        return match age <= it.snd_wnd_max.max(65_535) {
            true => AckOutcome::Some,
            false => AckOutcome::Bad,
        };
    }
    let is_same = update_window(it, segment);
    if acked == 0 {
        if it.flight() > 0 {
            let is_bare = is_same && segment.payload.is_empty() && segment.flags & FIN == 0;
            let recovers = duplicate(it, segment, is_bare);
            core.counters.recoveries += u64::from(recovers);
        }
        return AckOutcome::Some;
    }
    let flight = it.flight();
    let was = it.queue.len();
    it.snd_una = segment.ack;
    // Progress: the backoff of the timeout starts again.
    it.retries = 0;
    it.is_fin_acked = it.is_fin_sent && segment.ack == it.snd_nxt;
    it.queue.consume(&mut core.pool, acked as usize);
    // Slow-reader attack: ACKs of a few bytes don't count as progress, so the connection can be evicted.
    // At least a segment, or all that was queued.
    if acked >= it.mss.into() || it.queue.len() == 0 {
        it.moved(core.now_us);
    }
    it.rtt.acked(segment.ack, core.now_us);
    // The common case: no sign of loss, so neither the scoreboard nor the options are read.
    if it.congestion.mode == RecoveryMode::Open && it.board.is_empty() && segment.options.is_empty()
    {
        it.congestion.dup_acks = 0;
        it.congestion.acked(acked, flight, it.mss);
    } else {
        let recovers = recovering(it, segment, acked, flight);
        core.counters.recoveries += u64::from(recovers);
    }
    // RFC 6298 §5.2 and §5.3: the timer stops without data in flight, and restarts with an ACK of new data.
    it.resend_at_us = match it.flight() {
        0 => NEVER,
        _ => core.now_us + it.rtt.timeout_us(),
    };
    match was > 0 && it.queue.len() == 0 && it.is_told {
        true => AckOutcome::All,
        false => AckOutcome::Some,
    }
}

/// Updates the send window if the segment is recent. Returns whether it is unchanged.
fn update_window(it: &mut TcpConnection, segment: &TcpSegment<'_>) -> bool {
    // RFC 9293 §3.10.7.4: SND.WL1 and SND.WL2 keep an old segment from setting the window.
    let is_news = before(it.snd_wl1, segment.seq)
        || (it.snd_wl1 == segment.seq && !before(segment.ack, it.snd_wl2));
    if !is_news {
        return true;
    }
    let window = u32::from(segment.window) << it.scale;
    it.snd_wl1 = segment.seq;
    it.snd_wl2 = segment.ack;
    let was = core::mem::replace(&mut it.snd_wnd, window);
    it.snd_wnd_max = it.snd_wnd_max.max(window);
    if was == 0 && window > 0 && it.flight() > 0 {
        // Data beyond a closed window were dropped by the peer.
        it.congestion.send_again(it.snd_una, it.snd_nxt);
    }
    // The window has opened: no probe is needed.
    if was == 0 && window > 0 && it.flight() == 0 {
        it.resend_at_us = NEVER;
    }
    was == window
}

/// Processes an ACK without new data. Returns whether a recovery begins.
fn duplicate(it: &mut TcpConnection, segment: &TcpSegment<'_>, is_bare: bool) -> bool {
    let is_duplicate = match it.has_sack {
        // RFC 6675: an ACK is a duplicate if it brings new SACK blocks; else by the rules of RFC 5681 §2.
        true => it.board.read(segment.options, it.snd_una, it.snd_nxt),
        false => is_bare,
    };
    if !is_duplicate {
        return false;
    }
    it.congestion.dup_acks = it.congestion.dup_acks.saturating_add(1);
    finds_loss(it)
}

/// Enters recovery if the peer has enough later data (RFC 6675 §5). Returns whether it did.
fn finds_loss(it: &mut TcpConnection) -> bool {
    let mss = u32::from(it.mss);
    let flight = it.flight();
    // Early retransmit (RFC 5827): with little data in flight three duplicate ACKs can't arrive.
    let segments = flight.div_ceil(mss);
    let enough = match it.has_sack && it.unsent() == 0 && segments < 4 {
        true => segments.saturating_sub(1).max(1),
        false => DUP_ACKS,
    };
    // A delayed ACK reports two segments at once, so bytes are counted as well as ACKs.
    let later = it.board.total().div_ceil(mss);
    if it.congestion.mode != RecoveryMode::Open || later.max(it.congestion.dup_acks.into()) < enough
    {
        return false;
    }
    it.congestion.enter_recovery(it.snd_una, it.snd_nxt, it.mss);
    true
}

/// Processes new acknowledged data during or near a recovery. Returns whether a recovery begins.
fn recovering(it: &mut TcpConnection, segment: &TcpSegment<'_>, acked: u32, flight: u32) -> bool {
    it.board.advance(it.snd_una);
    if it.has_sack {
        it.board.read(segment.options, it.snd_una, it.snd_nxt);
    }
    let congestion = &mut it.congestion;
    if congestion.mode == RecoveryMode::Open {
        congestion.dup_acks = 0;
        congestion.acked(acked, flight, it.mss);
        return !it.board.is_empty() && finds_loss(it);
    }
    // A full ACK ends the recovery (RFC 6582 §3.2).
    if !before(it.snd_una, congestion.recover) {
        congestion.recovered();
        return !it.board.is_empty() && finds_loss(it);
    }
    // Slow start after a timeout (RFC 5681 §3.1).
    if congestion.mode == RecoveryMode::Loss {
        congestion.acked(acked, flight, it.mss);
    }
    if congestion.mode == RecoveryMode::Recovery && it.board.is_empty() {
        // Partial ACK: the next segment is lost too (RFC 6582 §3.2).
        let segments = acked.div_ceil(it.mss.into()).min(255) as u8;
        congestion.dup_acks = congestion.dup_acks.saturating_sub(segments);
        congestion.resent = it.snd_una;
    }
    // Acknowledged bytes are not sent again.
    if before(congestion.resent, it.snd_una) {
        congestion.resent = it.snd_una;
    }
    false
}
