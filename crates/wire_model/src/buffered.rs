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
    pub(crate) is_segmented: bool,
}

/// Buffers the segment from its byte `skip` on, if that is at `rcv_nxt` or continues the buffer.
pub(crate) fn append(
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
    let existing = table
        .take_buffered(&segment.tuple)
        .filter(|buffered| seq != connection.rcv_nxt && buffered.seq == connection.rcv_nxt);
    let mut buffered = match existing {
        Some(buffered) => buffered,
        None if seq == connection.rcv_nxt => BufferedSegment {
            seq,
            bytes: Vec::new(),
            first_len: 0,
            has_fin: false,
        },
        None => return false,
    };
    let is_contiguous =
        buffered.seq.wrapping_add(len_of(&buffered.bytes)) == seq && !buffered.has_fin;
    // Only contiguous data, so that it can be passed on as one segment.
    let fits = is_contiguous && buffered.bytes.len() + payload.len() <= HELD_LEN_MAX;
    if fits {
        if buffered.bytes.is_empty() {
            buffered.first_len = payload.len();
        }
        buffered.bytes.extend(payload);
        buffered.has_fin = segment.flags & FIN != 0;
    }
    table.set_buffered(&segment.tuple, buffered);
    fits
}

/// Processes a segment beyond `rcv_nxt`.
pub(crate) fn on_early_segment(
    table: &mut impl ModelTable,
    segment: &SegmentView<'_>,
    connection: &mut ModelConnection,
) -> AheadKind {
    let has_data_or_fin = !segment.payload.is_empty() || segment.flags & FIN != 0;
    let is_in_window = segment.seq.wrapping_sub(connection.rcv_nxt) <= u32::from(WINDOW);
    let is_acceptable = connection.acknowledged_part(segment.ack) <= connection.in_flight_len();
    if !is_in_window || !is_acceptable || has_data_or_fin && !append(table, segment, connection, 0)
    {
        return AheadKind::NotOurs;
    }
    let fallback = if has_data_or_fin {
        AheadKind::Held
    } else {
        AheadKind::NotOurs
    };
    // The answer is not acknowledged completely yet.
    if segment.ack != connection.snd_nxt {
        return fallback;
    }
    connection.in_flight = None;
    take_ready(table, segment, connection).map_or(fallback, AheadKind::Taken)
}

fn take_ready(
    table: &mut impl ModelTable,
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
) -> Option<BufferedInput> {
    let buffered = table.take_buffered(&segment.tuple)?;
    let is_next = buffered.seq == connection.rcv_nxt;
    let is_fin = buffered.bytes.is_empty() && buffered.has_fin;
    if !is_next || !is_fin && buffered.bytes.len() < HELD_LEN_MIN {
        table.set_buffered(&segment.tuple, buffered);
        return None;
    }
    let psh = if is_fin { 0 } else { PSH };
    let fin = if buffered.has_fin { FIN } else { 0 };
    Some(BufferedInput {
        frame: segment.build_frame(buffered.seq, ACK | psh | fin, &buffered.bytes),
        is_segmented: buffered.first_len < buffered.bytes.len().min(REPEAT_LEN_MIN),
    })
}
