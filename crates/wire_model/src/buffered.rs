//! Buffered segments: data that a client sends before it has acknowledged the answer, namely its next requests or its
//! FIN. The buffer is processed when the client acknowledges the answer, without waiting for a retransmission. Until
//! then its data is not acknowledged, so that the client's retransmission timer runs as long as any part of the answer
//! may be lost.

use alloc::vec::Vec;

use crate::connection::{BufferedSegment, ModelConnection, ModelTable, WINDOW};
use lowroad_wire::frame::{ACK, FIN, PSH, SegmentView, len_of};

/// Maximum number of bytes buffered for a connection.
const BUFFERED_LEN_MAX: usize = 1400;
/// Shorter data can't be a request.
const BUFFERED_LEN_MIN: usize = 8;
/// Minimum length of a segment into which a client may split data when it retransmits (Linux: `tcp_min_snd_mss`).
pub(crate) const RETRANSMIT_LEN_MIN: usize = 48;

/// The result of processing a segment beyond `rcv_nxt`.
pub(crate) enum EarlySegment {
    /// The segment is not related to the buffer.
    Unrelated,
    /// The segment continues the buffer, and was added.
    Buffered,
    /// The segment acknowledges the answer: the buffer can be processed.
    Ready(BufferedInput),
}

/// The buffered data, as a segment that is processed as if it arrived now.
pub(crate) struct BufferedInput {
    /// The frame of the segment.
    pub(crate) frame: Vec<u8>,
    /// The data arrived in several segments. If the client retransmitted only the first segment, it would not be
    /// recognized as the request.
    pub(crate) is_segmented: bool,
}

/// Buffers the segment's data from the byte `skip` on, if this byte is at `rcv_nxt` or continues the buffer.
pub(crate) fn append(
    table: &mut impl ModelTable,
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
    skip: usize,
) -> bool {
    let Some(payload) = segment.payload.get(skip..) else {
        return false;
    };
    // The sequence number of the first byte after the skipped bytes.
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
    // Only contiguous data is buffered, so that it can be processed as one segment.
    let fits = is_contiguous && buffered.bytes.len() + payload.len() <= BUFFERED_LEN_MAX;
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
) -> EarlySegment {
    let has_data_or_fin = !segment.payload.is_empty() || segment.flags & FIN != 0;
    let is_in_window = segment.seq.wrapping_sub(connection.rcv_nxt) <= u32::from(WINDOW);
    let is_acceptable = connection.acknowledged_part(segment.ack) <= connection.in_flight_len();
    if !is_in_window || !is_acceptable || has_data_or_fin && !append(table, segment, connection, 0)
    {
        return EarlySegment::Unrelated;
    }
    let fallback = if has_data_or_fin {
        EarlySegment::Buffered
    } else {
        EarlySegment::Unrelated
    };
    // The answer is not acknowledged completely yet.
    if segment.ack != connection.snd_nxt {
        return fallback;
    }
    connection.in_flight = None;
    take_ready(table, segment, connection).map_or(fallback, EarlySegment::Ready)
}

fn take_ready(
    table: &mut impl ModelTable,
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
) -> Option<BufferedInput> {
    let buffered = table.take_buffered(&segment.tuple)?;
    let is_next = buffered.seq == connection.rcv_nxt;
    let is_fin = buffered.bytes.is_empty() && buffered.has_fin;
    if !is_next || !is_fin && buffered.bytes.len() < BUFFERED_LEN_MIN {
        table.set_buffered(&segment.tuple, buffered);
        return None;
    }
    let psh = if is_fin { 0 } else { PSH };
    let fin = if buffered.has_fin { FIN } else { 0 };
    Some(BufferedInput {
        frame: segment.build_frame(buffered.seq, ACK | psh | fin, &buffered.bytes),
        is_segmented: buffered.first_len < buffered.bytes.len().min(RETRANSMIT_LEN_MIN),
    })
}
