//! Buffered segments: data that a client sends before it has acknowledged the answer, namely its next requests or its
//! FIN. They stay unacknowledged until the client has acknowledged the answer. So they are processed without waiting
//! for the client's timer, which still runs as long as any part may be lost.

use alloc::vec::Vec;

use crate::connection::{BufferedSegment, ModelConnection, ModelTable, WINDOW};
use lowroad_wire::frame::{ACK, FIN, PSH, SegmentView, len_of};

/// The most bytes buffered for a connection.
const HELD_LEN_MAX: usize = 1400;
/// Shorter data cannot be a request.
const HELD_LEN_MIN: usize = 8;
/// Clients may split segments when they retransmit, but into no smaller ones (Linux: `tcp_min_snd_mss`).
pub(crate) const REPEAT_LEN_MIN: usize = 48;

/// The result of processing a segment beyond `rcv_nxt`.
pub(crate) enum AheadKind {
    /// It is not related to the buffer.
    NotOurs,
    /// It continues the buffer, and was added.
    Held,
    /// It acknowledges the answer: the buffer can be processed.
    Taken(BufferedInput),
}

/// The buffered data as one segment that arrives now.
pub(crate) struct BufferedInput {
    /// The frame of that segment.
    pub(crate) frame: Vec<u8>,
    /// It arrived in several segments, of which the first alone would not be recognized as a retransmission of the
    /// request.
    pub(crate) is_pieced: bool,
}

/// Buffers the segment from its byte `skip` on, if that is at `rcv_nxt` or continues the buffer.
pub(crate) fn hold(
    table: &mut impl ModelTable,
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
    skip: usize,
) -> bool {
    let Some(payload) = segment.payload.get(skip..) else {
        return false;
    };
    // The number of the first byte after the skipped ones.
    let seq = segment.end().wrapping_sub(len_of(payload));
    let kept = table
        .take_held(&segment.tuple)
        .filter(|held| seq != connection.rcv_nxt && held.seq == connection.rcv_nxt);
    let mut held = match kept {
        Some(held) => held,
        None if seq == connection.rcv_nxt => BufferedSegment {
            seq,
            bytes: Vec::new(),
            first_len: 0,
            has_fin: false,
        },
        None => return false,
    };
    let follows = held.seq.wrapping_add(len_of(&held.bytes)) == seq && !held.has_fin;
    // Only contiguous data, so that it can be passed on as one segment.
    let fits = follows && held.bytes.len() + payload.len() <= HELD_LEN_MAX;
    if fits {
        if held.bytes.is_empty() {
            held.first_len = payload.len();
        }
        held.bytes.extend(payload);
        held.has_fin = segment.flags & FIN != 0;
    }
    table.hold(&segment.tuple, held);
    fits
}

/// Processes a segment beyond `rcv_nxt`.
pub(crate) fn on_ahead(
    table: &mut impl ModelTable,
    segment: &SegmentView<'_>,
    connection: &mut ModelConnection,
) -> AheadKind {
    let has_more = !segment.payload.is_empty() || segment.flags & FIN != 0;
    let is_ahead = segment.seq.wrapping_sub(connection.rcv_nxt) <= u32::from(WINDOW);
    let is_acceptable = connection.acknowledged_part(segment.ack) <= connection.under_way_len();
    if !is_ahead || !is_acceptable || has_more && !hold(table, segment, connection, 0) {
        return AheadKind::NotOurs;
    }
    let not_taken = if has_more {
        AheadKind::Held
    } else {
        AheadKind::NotOurs
    };
    // The answer is not acknowledged completely yet.
    if segment.ack != connection.snd_nxt {
        return not_taken;
    }
    connection.under_way = None;
    take(table, segment, connection).map_or(not_taken, AheadKind::Taken)
}

fn take(
    table: &mut impl ModelTable,
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
) -> Option<BufferedInput> {
    let held = table.take_held(&segment.tuple)?;
    let is_next = held.seq == connection.rcv_nxt;
    let is_fin = held.bytes.is_empty() && held.has_fin;
    if !is_next || !is_fin && held.bytes.len() < HELD_LEN_MIN {
        table.hold(&segment.tuple, held);
        return None;
    }
    let psh = if is_fin { 0 } else { PSH };
    let fin = if held.has_fin { FIN } else { 0 };
    Some(BufferedInput {
        frame: segment.with(held.seq, ACK | psh | fin, &held.bytes),
        is_pieced: held.first_len < held.bytes.len().min(REPEAT_LEN_MIN),
    })
}
