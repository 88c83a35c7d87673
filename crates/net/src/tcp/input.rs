//! A segment of a known connection (RFC 9293 §3.10.7). Segments that are next in order, without SYN, FIN or RST, take
//! a fast path.

use super::ack::{AckOutcome, acknowledged};
use super::connection::{HandshakeState, TcpConnection};
use super::end::end;
use super::segment::{ACK, FIN, PSH, RST, SYN, TcpSegment};
use super::time_wait::ClosedConnection;
use super::{receive_data, syn_sent};
use crate::bytes::len32;
use crate::context::StackContext;
use crate::stack_api::{ConnectionEnd, ConnectionId, LinkDevice, TcpService};

/// The new data of a segment.
struct NewData<'f> {
    /// The sequence number of the first new byte.
    seq: u32,
    payload: &'f [u8],
    fin: bool,
}

/// Processes a segment of the connection at this index.
pub(crate) fn segment<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    index: u32,
    segment: &TcpSegment<'_>,
) {
    let id = cx.core.table.id(index);
    let now_us = cx.core.now_us;
    let Some(it) = cx.core.table.at_mut(index) else {
        return;
    };
    // Header prediction: one test for all conditions of the common case.
    let is_plain = it.state == HandshakeState::Open
        && segment.flags & !PSH == ACK
        && segment.seq == it.rcv_nxt
        && !it.is_fin_received
        && it.early_count == 0
        && len32(segment.payload.len()) <= it.window_left();
    let fresh = match is_plain {
        true => NewData {
            seq: segment.seq,
            payload: segment.payload,
            fin: false,
        },
        false => match check(cx, service, id, segment) {
            Some(fresh) => fresh,
            None => return,
        },
    };
    // Looked up again: `check` may have ended the connection.
    let Some(it) = cx.core.table.at_mut(index) else {
        return;
    };
    heard(it, now_us);
    // In the order of RFC 9293 §3.10.7.4: the ACK, the data, the FIN.
    match acknowledged(cx.core, index, segment) {
        AckOutcome::Bad => {
            cx.core.counters.acks_unacceptable += 1;
            return cx.challenge(index);
        }
        AckOutcome::All => service.sent(cx, id),
        AckOutcome::Some => {}
    }
    if !fresh.payload.is_empty() || fresh.fin {
        data(cx, service, id, &fresh);
    }
    finish(cx, service, id);
    cx.core.mark(index);
}

fn heard(it: &mut TcpConnection, now_us: u64) {
    // In FIN-WAIT-2 the idle timeout must expire even if the peer keeps sending.
    if it.is_fin_acked {
        return;
    }
    // RFC 5681 §4.1: after an idle period the old window is no longer validated.
    if now_us - it.heard_us > it.rtt.timeout_us() && it.flight() == 0 {
        it.congestion.restart(it.mss);
    }
    it.heard_us = now_us;
}

/// Processes data and FIN, in order or out of order.
fn data<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    id: ConnectionId,
    fresh: &NewData<'_>,
) {
    let Some(it) = cx.core.table.get_mut(id) else {
        return;
    };
    let end = fresh.seq.wrapping_add(len32(fresh.payload.len()));
    if fresh.fin {
        it.early_fin = Some(end);
        it.ack_now = true;
    }
    if fresh.seq != it.rcv_nxt {
        // Kept until the gap is filled; the duplicate ACK reports it.
        return receive_data::keep_early(cx.core, id.index, fresh.seq, fresh.payload);
    }
    let was_early = it.early_count > 0;
    if !fresh.payload.is_empty() {
        receive_data::deliver(cx, service, id, fresh.payload);
    }
    if was_early {
        receive_data::catch_up(cx, service, id);
    }
    // Looked up again: the callbacks may have ended the connection.
    if let Some(it) = cx.core.table.get_mut(id)
        && it.early_fin == Some(it.rcv_nxt)
    {
        it.early_fin = None;
        it.is_fin_received = true;
        it.ack_now = true;
        it.rcv_nxt = it.rcv_nxt.wrapping_add(1);
        // Kept segments behind the FIN are invalid.
        it.drop_early(&mut cx.core.pool);
        // A service that has closed already expects no end of input.
        if !it.is_closing {
            service.finished(cx, id);
        }
    }
}

/// Ends the connection if both FINs are sent and acknowledged.
fn finish<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    id: ConnectionId,
) {
    let Some(it) = cx.core.table.get(id) else {
        return;
    };
    if !it.is_fin_received || !it.is_fin_acked {
        return;
    }
    // LAST-ACK: the peer closed first and keeps TIME-WAIT itself.
    if it.is_passive_close {
        return end(cx, service, id.index, ConnectionEnd::Closed);
    }
    let over = ClosedConnection {
        key: it.key,
        rcv_nxt: it.rcv_nxt,
        snd_nxt: it.snd_nxt,
    };
    // The ACK of the peer's FIN; TIME_WAIT repeats it if it gets lost.
    cx.send_ack(id.index);
    let now_us = cx.core.now_us;
    let displaces = cx.core.time_wait.insert(over, now_us);
    cx.core.counters.time_wait_displaced += u64::from(displaces);
    end(cx, service, id.index, ConnectionEnd::Closed);
}

/// Checks a segment that isn't on the fast path. Returns the data to be processed.
#[inline(never)]
fn check<'f, L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    id: ConnectionId,
    segment: &TcpSegment<'f>,
) -> Option<NewData<'f>> {
    let index = id.index;
    let it = cx.core.table.at_mut(index)?;
    // RFC 9293 §3.10.7.3 has separate rules for SYN-SENT.
    if it.state == HandshakeState::SynSent {
        syn_sent::segment(cx, service, id, segment);
        return None;
    }
    if it.state == HandshakeState::SynReceived && syn_sent::completes(it, segment) {
        syn_sent::opened(cx, service, id, segment);
    }
    let it = cx.core.table.get_mut(id)?;
    let old = it.rcv_nxt.wrapping_sub(segment.seq).cast_signed();
    let window = it.window_left();
    let is_ahead = old < 0 && old.unsigned_abs() > window;
    let is_old = old > 0 && segment.len() <= old.unsigned_abs();
    // The order of the checks is that of RFC 9293 §3.10.7.4: RST, SYN, ACK.
    if segment.flags & RST != 0 {
        reset(cx, service, index, old, window);
        return None;
    }
    // RFC 5961 §4.2: a SYN on an open connection gets a challenge ACK.
    if segment.flags & SYN != 0 {
        match it.state {
            HandshakeState::SynReceived => cx.send_syn(index),
            _ => cx.challenge(index),
        }
        return None;
    }
    if is_ahead || is_old || segment.flags & ACK == 0 || it.state != HandshakeState::Open {
        cx.core.counters.segments_outside += 1;
        if segment.flags & ACK != 0 && it_was_sent_again(is_old, segment) {
            // The peer may have missed our ACK, and its ACK may be newer than the last one seen.
            acknowledge_old(cx, service, id, segment);
        }
        cx.challenge(index);
        return None;
    }
    let it = cx.core.table.get_mut(id)?;
    // The part that overlaps with received data is cut off (RFC 9293 §3.10.7.4).
    let skipped = usize::try_from(old.max(0)).ok()?;
    let payload = segment.payload.get(skipped..).unwrap_or_default();
    let seq = segment.seq.wrapping_add(len32(skipped));
    let ahead = seq.wrapping_sub(it.rcv_nxt);
    let room = window.saturating_sub(ahead) as usize;
    let fin = segment.flags & FIN != 0 && payload.len() <= room && !it.is_fin_received;
    let payload = payload.get(..room).unwrap_or(payload);
    // A FIN ends the data.
    let payload = if it.is_fin_received { &[] } else { payload };
    // Data were already received or do not fit: the peer needs to learn the current state.
    it.ack_now |= payload.len() < segment.payload.len();
    Some(NewData { seq, payload, fin })
}

fn it_was_sent_again(is_old: bool, segment: &TcpSegment<'_>) -> bool {
    is_old && segment.len() > 0
}

/// Processes the ACK of a retransmitted segment.
fn acknowledge_old<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    id: ConnectionId,
    segment: &TcpSegment<'_>,
) {
    if let AckOutcome::All = acknowledged(cx.core, id.index, segment) {
        service.sent(cx, id);
    }
    finish(cx, service, id);
    cx.core.mark(id.index);
}

/// A reset ends the connection only with exactly the next sequence number (RFC 5961 §3.2).
fn reset<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    index: u32,
    old: i32,
    window: u32,
) {
    // RFC 5961 §3.2: only an exact sequence number resets the connection; others within the window get a challenge ACK.
    if old == 0 {
        return end(cx, service, index, ConnectionEnd::Reset);
    }
    cx.core.counters.resets_ignored += 1;
    if old < 0 && old.unsigned_abs() <= window {
        cx.challenge(index);
    }
}
