//! Processes a segment of a known connection (RFC 9293 §3.10.7). Segments that are next in order and have no SYN, FIN
//! or RST take a fast path.

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
    let Some(connection) = cx.core.table.at_mut(index) else {
        return;
    };
    // Header prediction: one test for all conditions of the common case.
    let is_plain = connection.state == HandshakeState::Open
        && segment.flags & !PSH == ACK
        && segment.seq == connection.rcv_nxt
        && !connection.is_fin_received
        && connection.out_of_order_count == 0
        && len32(segment.payload.len()) <= connection.remaining_window();
    let new_data = match is_plain {
        true => NewData {
            seq: segment.seq,
            payload: segment.payload,
            fin: false,
        },
        false => match check(cx, service, id, segment) {
            Some(new_data) => new_data,
            None => return,
        },
    };
    // Looked up again: `check` may have ended the connection.
    let Some(connection) = cx.core.table.at_mut(index) else {
        return;
    };
    record_received(connection, now_us);
    // In the order of RFC 9293 §3.10.7.4: ACK, data, FIN.
    match acknowledged(cx.core, index, segment) {
        AckOutcome::Bad => {
            cx.core.counters.acks_unacceptable += 1;
            return cx.challenge(index);
        }
        AckOutcome::All => service.sent(cx, id),
        AckOutcome::Some => {}
    }
    if !new_data.payload.is_empty() || new_data.fin {
        data(cx, service, id, &new_data);
    }
    finish(cx, service, id);
    cx.core.mark(index);
}

fn record_received(connection: &mut TcpConnection, now_us: u64) {
    // In FIN-WAIT-2 the idle timeout must expire even if the peer keeps sending.
    if connection.is_fin_acked {
        return;
    }
    // RFC 5681 §4.1: after an idle period the congestion window is no longer validated.
    if now_us - connection.last_received_us > connection.rtt.timeout_us()
        && connection.flight() == 0
    {
        connection.congestion.restart(connection.mss);
    }
    connection.last_received_us = now_us;
}

/// Processes data and FIN, in or out of order.
fn data<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    id: ConnectionId,
    new_data: &NewData<'_>,
) {
    let Some(connection) = cx.core.table.get_mut(id) else {
        return;
    };
    let end = new_data.seq.wrapping_add(len32(new_data.payload.len()));
    if new_data.fin {
        connection.out_of_order_fin = Some(end);
        connection.ack_now = true;
    }
    if new_data.seq != connection.rcv_nxt {
        // The data is stored until the gap is filled; a duplicate ACK reports the gap.
        return receive_data::store_out_of_order(cx.core, id.index, new_data.seq, new_data.payload);
    }
    let had_out_of_order = connection.out_of_order_count > 0;
    if !new_data.payload.is_empty() {
        receive_data::deliver(cx, service, id, new_data.payload);
    }
    if had_out_of_order {
        receive_data::drain_in_order(cx, service, id);
    }
    // Looked up again: the callbacks may have ended the connection.
    if let Some(connection) = cx.core.table.get_mut(id)
        && connection.out_of_order_fin == Some(connection.rcv_nxt)
    {
        connection.out_of_order_fin = None;
        connection.is_fin_received = true;
        connection.ack_now = true;
        connection.rcv_nxt = connection.rcv_nxt.wrapping_add(1);
        // Stored segments after the FIN are invalid.
        connection.drop_out_of_order(&mut cx.core.pool);
        // A service that has closed the connection is not notified of the end of input.
        if !connection.is_closing {
            service.finished(cx, id);
        }
    }
}

/// Ends the connection if both FINs were sent and acknowledged.
fn finish<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    id: ConnectionId,
) {
    let Some(connection) = cx.core.table.get(id) else {
        return;
    };
    if !connection.is_fin_received || !connection.is_fin_acked {
        return;
    }
    // LAST-ACK: the peer closed first, and is the side that remains in TIME-WAIT.
    if connection.is_passive_close {
        return end(cx, service, id.index, ConnectionEnd::Closed);
    }
    let closed = ClosedConnection {
        key: connection.key,
        rcv_nxt: connection.rcv_nxt,
        snd_nxt: connection.snd_nxt,
    };
    // This ACK acknowledges the peer's FIN; if it gets lost, the TIME_WAIT entry repeats it.
    cx.send_ack(id.index);
    let now_us = cx.core.now_us;
    let displaces = cx.core.time_wait.insert(closed, now_us);
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
    let connection = cx.core.table.at_mut(index)?;
    // SYN-SENT has separate rules (RFC 9293 §3.10.7.3).
    if connection.state == HandshakeState::SynSent {
        syn_sent::segment(cx, service, id, segment);
        return None;
    }
    if connection.state == HandshakeState::SynReceived && syn_sent::completes(connection, segment) {
        syn_sent::opened(cx, service, id, segment);
    }
    let connection = cx.core.table.get_mut(id)?;
    let overlap = connection.rcv_nxt.wrapping_sub(segment.seq).cast_signed();
    let window = connection.remaining_window();
    let is_beyond_window = overlap < 0 && overlap.unsigned_abs() > window;
    let is_old = overlap > 0 && segment.len() <= overlap.unsigned_abs();
    // The checks are in the order of RFC 9293 §3.10.7.4: RST, SYN, ACK.
    if segment.flags & RST != 0 {
        reset(cx, service, index, overlap, window);
        return None;
    }
    // RFC 5961 §4.2: a SYN on an established connection causes a challenge ACK.
    if segment.flags & SYN != 0 {
        match connection.state {
            HandshakeState::SynReceived => cx.send_syn(index),
            _ => cx.challenge(index),
        }
        return None;
    }
    if is_beyond_window
        || is_old
        || segment.flags & ACK == 0
        || connection.state != HandshakeState::Open
    {
        cx.core.counters.segments_outside += 1;
        if segment.flags & ACK != 0 && is_retransmission(is_old, segment) {
            // The peer may have missed an ACK of this side, and its own ACK may be newer than the last one received.
            acknowledge_old(cx, service, id, segment);
        }
        cx.challenge(index);
        return None;
    }
    let connection = cx.core.table.get_mut(id)?;
    // The part that was already received is cut off (RFC 9293 §3.10.7.4).
    let skipped = usize::try_from(overlap.max(0)).ok()?;
    let payload = segment.payload.get(skipped..).unwrap_or_default();
    let seq = segment.seq.wrapping_add(len32(skipped));
    let gap = seq.wrapping_sub(connection.rcv_nxt);
    let room = window.saturating_sub(gap) as usize;
    let fin = segment.flags & FIN != 0 && payload.len() <= room && !connection.is_fin_received;
    let payload = payload.get(..room).unwrap_or(payload);
    // A FIN ends the data, so later data is ignored.
    let payload = if connection.is_fin_received {
        &[]
    } else {
        payload
    };
    // If some data was already received or does not fit, an ACK informs the peer of the current state.
    connection.ack_now |= payload.len() < segment.payload.len();
    Some(NewData { seq, payload, fin })
}

fn is_retransmission(is_old: bool, segment: &TcpSegment<'_>) -> bool {
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

/// A reset ends the connection only if it has exactly the next sequence number (RFC 5961 §3.2).
fn reset<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    index: u32,
    overlap: i32,
    window: u32,
) {
    // RFC 5961 §3.2: a reset with another sequence number within the window causes a challenge ACK.
    if overlap == 0 {
        return end(cx, service, index, ConnectionEnd::Reset);
    }
    cx.core.counters.resets_ignored += 1;
    if overlap < 0 && overlap.unsigned_abs() <= window {
        cx.challenge(index);
    }
}
