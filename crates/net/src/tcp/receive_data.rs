//! Delivers data to the service: directly from the frame if possible, otherwise through a buffer.

use super::connection::{OutOfOrderSegment, PendingInput, TcpConnection};
use super::end::end;
use crate::bytes::{before, len32};
use crate::context::{StackContext, StackCore};
use crate::stack_api::{ConnectionEnd, ConnectionId, LinkDevice, SMALL, TcpService};

/// A window that grew by this much is advertised by an ACK of its own.
const UPDATE_LEN: i32 = 16_384;
/// Lingering close: input is dropped for this long after the peer acknowledged the FIN, then the connection is reset.
/// A reset at once could make the peer drop the response before it is read (RFC 9112 §9.6).
const LINGER_US: u64 = 2_000_000;

/// Delivers data that arrived in order.
pub(crate) fn deliver<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    id: ConnectionId,
    bytes: &[u8],
) {
    let core = &mut *cx.core;
    let Some(it) = core.table.get_mut(id) else {
        return;
    };
    it.unacked = it.unacked.saturating_add(1);
    if it.is_closing {
        // `heard_us` is the time of the FIN's ACK: it is not updated afterwards.
        if it.is_fin_acked && core.now_us.saturating_sub(it.heard_us) > LINGER_US {
            core.counters.data_after_close += 1;
            cx.reset(id.index);
            return end(cx, service, id.index, ConnectionEnd::Closed);
        }
        // Data for a closed service are dropped, but acknowledged.
        it.rcv_nxt = it.rcv_nxt.wrapping_add(len32(bytes.len()));
        return;
    }
    if let Some(waiting) = &mut it.waiting {
        let count = waiting.append(bytes, &mut core.pool);
        it.rcv_nxt = it.rcv_nxt.wrapping_add(len32(count));
        // The peer retransmits the dropped part once the window is open.
        if count < bytes.len() {
            it.ack_now = true;
            core.counters.input_dropped += 1;
        }
        return offer(cx, service, id);
    }
    // Advanced before the callback, so that the response carries the ACK of the request.
    it.rcv_nxt = it.rcv_nxt.wrapping_add(len32(bytes.len()));
    let taken = service.input(cx, id, bytes);
    if let Some(rest) = bytes.get(taken..)
        && !rest.is_empty()
    {
        keep(cx.core, id, rest);
    }
}

/// Buffers the bytes that the service did not take.
fn keep(core: &mut StackCore, id: ConnectionId, rest: &[u8]) {
    let Some(it) = core.table.get_mut(id) else {
        return;
    };
    if it.is_closing {
        return;
    }
    let mut kept = 0;
    if let Some(mut buffer) = core.pool.small() {
        kept = rest.len().min(SMALL);
        buffer[..kept].copy_from_slice(&rest[..kept]);
        it.waiting = Some(PendingInput {
            buffer,
            start: 0,
            end: kept,
        });
    }
    let dropped = rest.len() - kept;
    if dropped > 0 {
        // No buffer: the bytes were not received after all, and the peer retransmits them.
        it.rcv_nxt = it.rcv_nxt.wrapping_sub(len32(dropped));
        it.ack_now = true;
        core.counters.input_dropped += 1;
    }
}

/// Delivers the unread input.
pub(crate) fn offer<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    id: ConnectionId,
) {
    let Some(it) = cx.core.table.get_mut(id) else {
        return;
    };
    it.wants_input = false;
    let Some(mut waiting) = it.waiting.take() else {
        return;
    };
    let taken = service.input(cx, id, waiting.bytes());
    waiting.start = (waiting.start + taken).min(waiting.end);
    let core = &mut *cx.core;
    let is_all = waiting.start == waiting.end;
    match core.table.get_mut(id) {
        Some(it) if !it.is_closing && !is_all => {
            // A service that took no bytes must not ask again at once: `flush` would not end.
            it.wants_input &= taken > 0;
            it.waiting = Some(waiting);
        }
        _ => core.pool.give(waiting.buffer),
    }
    if taken > 0 {
        update_window(core, id);
    }
}

/// Schedules an ACK if the window grew much beyond the advertised one.
pub(crate) fn update_window(core: &mut StackCore, id: ConnectionId) {
    if let Some(it) = core.table.get_mut(id) {
        let end = it.rcv_nxt.wrapping_add(it.window());
        if end.wrapping_sub(it.rcv_end).cast_signed() >= UPDATE_LEN {
            it.ack_now = true;
            core.mark(id.index);
        }
    }
}

/// Keeps an out-of-order segment if there is room.
pub(crate) fn keep_early(core: &mut StackCore, index: u32, seq: u32, bytes: &[u8]) {
    let Some(it) = core.table.at_mut(index) else {
        return;
    };
    // RFC 5681 §4.2: the sender detects losses by immediate ACKs of out-of-order data.
    it.ack_now = true;
    let is_known = |early: &OutOfOrderSegment| early.seq == seq && early.len >= bytes.len();
    // A retransmission of a kept segment must not take another slot.
    if bytes.is_empty() || it.early.iter().flatten().any(is_known) {
        return;
    }
    let place = it.early.iter_mut().find(|place| place.is_none());
    if let Some(place) = place
        && bytes.len() <= SMALL
        && let Some(mut buffer) = core.pool.spare()
    {
        buffer[..bytes.len()].copy_from_slice(bytes);
        *place = Some(OutOfOrderSegment {
            seq,
            len: bytes.len(),
            buffer,
        });
        it.early_count += 1;
        core.counters.out_of_order_kept += 1;
    } else {
        core.counters.out_of_order_dropped += 1;
    }
}

/// Delivers the kept segments that are now in order.
pub(crate) fn catch_up<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    id: ConnectionId,
) {
    loop {
        let core = &mut *cx.core;
        let Some(it) = core.table.get_mut(id) else {
            return;
        };
        let Some(early) = take_due(it) else {
            return;
        };
        let old = it.rcv_nxt.wrapping_sub(early.seq) as usize;
        let Some(fresh) = early.buffer.get(old..early.len).filter(|it| !it.is_empty()) else {
            core.pool.give(early.buffer);
            continue;
        };
        // A filled gap is acknowledged at once (RFC 5681 §4.2).
        let mut count = fresh.len();
        it.ack_now = true;
        match &mut it.waiting {
            _ if it.is_closing => core.pool.give(early.buffer),
            Some(waiting) => {
                count = waiting.append(fresh, &mut core.pool);
                core.pool.give(early.buffer);
            }
            None => {
                it.waiting = Some(PendingInput {
                    buffer: early.buffer,
                    start: old,
                    end: early.len,
                });
            }
        }
        it.rcv_nxt = it.rcv_nxt.wrapping_add(len32(count));
        offer(cx, service, id);
    }
}

fn take_due(it: &mut TcpConnection) -> Option<OutOfOrderSegment> {
    let rcv_nxt = it.rcv_nxt;
    let is_due = |early: &OutOfOrderSegment| !before(rcv_nxt, early.seq);
    let place = it
        .early
        .iter_mut()
        .find(|place| place.as_ref().is_some_and(is_due))?;
    it.early_count -= 1;
    place.take()
}
