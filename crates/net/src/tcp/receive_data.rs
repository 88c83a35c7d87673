//! Delivers data to the service: directly from the frame if possible, otherwise from a buffer.

use super::connection::{OutOfOrderSegment, PendingInput, TcpConnection};
use super::end::end;
use crate::bytes::{before, len32};
use crate::context::{StackContext, StackCore};
use crate::stack_api::{ConnectionEnd, ConnectionId, LinkDevice, SMALL, TcpService};

/// A window that grew by this much is advertised by a separate ACK.
const UPDATE_LEN: i32 = 16_384;
/// Lingering close: input is dropped for this long after the peer acknowledged the FIN; later input resets the
/// connection. An immediate reset could make the peer drop the response before it is read (RFC 9112 §9.6).
const LINGER_US: u64 = 2_000_000;

/// Delivers data that arrived in order.
pub(crate) fn deliver<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    id: ConnectionId,
    bytes: &[u8],
) {
    let core = &mut *cx.core;
    let Some(connection) = core.table.get_mut(id) else {
        return;
    };
    connection.unacked = connection.unacked.saturating_add(1);
    if connection.is_closing {
        // `last_received_us` is not updated after the ACK of the FIN, so it is the time of that ACK.
        if connection.is_fin_acked
            && core.now_us.saturating_sub(connection.last_received_us) > LINGER_US
        {
            core.counters.data_after_close += 1;
            cx.reset(id.index);
            return end(cx, service, id.index, ConnectionEnd::Closed);
        }
        // Data for a closed service is dropped, but acknowledged.
        connection.rcv_nxt = connection.rcv_nxt.wrapping_add(len32(bytes.len()));
        return;
    }
    if let Some(waiting) = &mut connection.waiting {
        let count = waiting.append(bytes, &mut core.pool);
        connection.rcv_nxt = connection.rcv_nxt.wrapping_add(len32(count));
        // The peer retransmits the dropped bytes once the window is open.
        if count < bytes.len() {
            connection.ack_now = true;
            core.counters.input_dropped += 1;
        }
        return deliver_unread(cx, service, id);
    }
    // `rcv_nxt` is advanced before the callback, so that the response acknowledges the request.
    connection.rcv_nxt = connection.rcv_nxt.wrapping_add(len32(bytes.len()));
    let consumed = service.input(cx, id, bytes);
    if let Some(rest) = bytes.get(consumed..)
        && !rest.is_empty()
    {
        buffer_unread(cx.core, id, rest);
    }
}

/// Buffers the bytes that the service did not consume.
fn buffer_unread(core: &mut StackCore, id: ConnectionId, rest: &[u8]) {
    let Some(connection) = core.table.get_mut(id) else {
        return;
    };
    if connection.is_closing {
        return;
    }
    let mut stored_len = 0;
    if let Some(mut buffer) = core.pool.small() {
        stored_len = rest.len().min(SMALL);
        buffer[..stored_len].copy_from_slice(&rest[..stored_len]);
        connection.waiting = Some(PendingInput {
            buffer,
            start: 0,
            end: stored_len,
        });
    }
    let dropped = rest.len() - stored_len;
    if dropped > 0 {
        // There is no buffer for these bytes: `rcv_nxt` is moved back, so that the peer retransmits them.
        connection.rcv_nxt = connection.rcv_nxt.wrapping_sub(len32(dropped));
        connection.ack_now = true;
        core.counters.input_dropped += 1;
    }
}

/// Delivers the unread input.
pub(crate) fn deliver_unread<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    id: ConnectionId,
) {
    let Some(connection) = cx.core.table.get_mut(id) else {
        return;
    };
    connection.wants_input = false;
    let Some(mut waiting) = connection.waiting.take() else {
        return;
    };
    let consumed = service.input(cx, id, waiting.bytes());
    waiting.start = (waiting.start + consumed).min(waiting.end);
    let core = &mut *cx.core;
    let is_all = waiting.start == waiting.end;
    match core.table.get_mut(id) {
        Some(connection) if !connection.is_closing && !is_all => {
            // A service that consumed no bytes is not called again immediately: `flush` would not end.
            connection.wants_input &= consumed > 0;
            connection.waiting = Some(waiting);
        }
        _ => core.pool.release(waiting.buffer),
    }
    if consumed > 0 {
        update_window(core, id);
    }
}

/// Schedules an ACK if the window grew much beyond the advertised one.
pub(crate) fn update_window(core: &mut StackCore, id: ConnectionId) {
    if let Some(connection) = core.table.get_mut(id) {
        let end = connection.rcv_nxt.wrapping_add(connection.window());
        if end.wrapping_sub(connection.rcv_end).cast_signed() >= UPDATE_LEN {
            connection.ack_now = true;
            core.mark(id.index);
        }
    }
}

/// Stores an out-of-order segment if there is room.
pub(crate) fn store_out_of_order(core: &mut StackCore, index: u32, seq: u32, bytes: &[u8]) {
    let Some(connection) = core.table.at_mut(index) else {
        return;
    };
    // RFC 5681 §4.2: immediate ACKs of out-of-order data let the sender detect losses.
    connection.ack_now = true;
    let is_known = |segment: &OutOfOrderSegment| segment.seq == seq && segment.len >= bytes.len();
    // A retransmission of a stored segment must not occupy another slot.
    if bytes.is_empty() || connection.out_of_order.iter().flatten().any(is_known) {
        return;
    }
    let slot = connection
        .out_of_order
        .iter_mut()
        .find(|slot| slot.is_none());
    if let Some(slot) = slot
        && bytes.len() <= SMALL
        && let Some(mut buffer) = core.pool.take_spare()
    {
        buffer[..bytes.len()].copy_from_slice(bytes);
        *slot = Some(OutOfOrderSegment {
            seq,
            len: bytes.len(),
            buffer,
        });
        connection.out_of_order_count += 1;
        core.counters.out_of_order_kept += 1;
    } else {
        core.counters.out_of_order_dropped += 1;
    }
}

/// Delivers the stored segments that are now in order.
pub(crate) fn drain_in_order<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    id: ConnectionId,
) {
    loop {
        let core = &mut *cx.core;
        let Some(connection) = core.table.get_mut(id) else {
            return;
        };
        let Some(segment) = take_in_order(connection) else {
            return;
        };
        let overlap = connection.rcv_nxt.wrapping_sub(segment.seq) as usize;
        let Some(new_bytes) = segment
            .buffer
            .get(overlap..segment.len)
            .filter(|bytes| !bytes.is_empty())
        else {
            core.pool.release(segment.buffer);
            continue;
        };
        // After a gap was filled, an ACK is sent immediately (RFC 5681 §4.2).
        let mut count = new_bytes.len();
        connection.ack_now = true;
        match &mut connection.waiting {
            _ if connection.is_closing => core.pool.release(segment.buffer),
            Some(waiting) => {
                count = waiting.append(new_bytes, &mut core.pool);
                core.pool.release(segment.buffer);
            }
            None => {
                connection.waiting = Some(PendingInput {
                    buffer: segment.buffer,
                    start: overlap,
                    end: segment.len,
                });
            }
        }
        connection.rcv_nxt = connection.rcv_nxt.wrapping_add(len32(count));
        deliver_unread(cx, service, id);
    }
}

fn take_in_order(connection: &mut TcpConnection) -> Option<OutOfOrderSegment> {
    let rcv_nxt = connection.rcv_nxt;
    let is_due = |segment: &OutOfOrderSegment| !before(rcv_nxt, segment.seq);
    let slot = connection
        .out_of_order
        .iter_mut()
        .find(|slot| slot.as_ref().is_some_and(is_due))?;
    connection.out_of_order_count -= 1;
    slot.take()
}
