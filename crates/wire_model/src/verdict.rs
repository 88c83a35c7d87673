//! The verdict on a frame, and replies without data.

use alloc::vec::Vec;

use crate::connection::ModelConnection;
use crate::reply::ModelReply;
use lowroad_wire::frame::{ACK, FIN, SegmentView};
use lowroad_wire::segment_context::SegmentContext;
use lowroad_wire::segment_reason::SegmentReason;

/// The verdict on a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentVerdict {
    /// Reply with this frame.
    Reply(Vec<u8>),
    /// Reply with these frames, in order.
    Flight(Vec<Vec<u8>>),
    /// Migrate the connection to the kernel, with this segment as the first.
    Migrate(SegmentReason),
    /// Migrate the connection, with this frame as the first segment, which contains the buffered data.
    MigrateWith(SegmentReason, Vec<u8>),
    /// Drop the frame.
    Drop(SegmentReason),
    /// Pass the frame to the kernel unchanged.
    Pass(SegmentReason),
}

/// Replies with an acknowledgement without data, which does not acknowledge the request of an answer in flight. A
/// client that has received part of a flight would reject a lower sequence number, so its own acknowledgement number is
/// used.
pub(crate) fn acknowledge(
    context: &mut impl SegmentContext,
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
    reason: SegmentReason,
) -> SegmentVerdict {
    let (mut seq, ack, flags) = connection.acknowledged();
    if connection.is_flight_ack(segment.ack) {
        seq = segment.ack;
    }
    let numbers = SegmentNumbers { seq, ack };
    send_empty(context, segment, connection, reason, numbers, flags)
}

/// Replies with FIN, for the first time or again.
pub(crate) fn finish(
    context: &mut impl SegmentContext,
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
) -> SegmentVerdict {
    // FIN occupies the last sequence number.
    let seq = connection.snd_nxt.wrapping_sub(1);
    send_empty(
        context,
        segment,
        connection,
        SegmentReason::TcpFin,
        SegmentNumbers {
            seq,
            ack: connection.rcv_nxt,
        },
        FIN | ACK,
    )
}

/// The sequence and acknowledgement numbers of a segment to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentNumbers {
    pub seq: u32,
    pub ack: u32,
}

/// Replies with a segment without data.
pub(crate) fn send_empty(
    context: &mut impl SegmentContext,
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
    reason: SegmentReason,
    numbers: SegmentNumbers,
    flags: u8,
) -> SegmentVerdict {
    let options = connection.reply_options(context, segment);
    let reply = ModelReply {
        seq: numbers.seq,
        ack: numbers.ack,
        flags,
        window: connection.receive_window(),
        options: &options,
        payload: &[],
    };
    reply_verdict(context, reason, reply.write(segment))
}

pub(crate) fn reply_verdict(
    context: &mut impl SegmentContext,
    reason: SegmentReason,
    frame: Vec<u8>,
) -> SegmentVerdict {
    context.count(reason);
    SegmentVerdict::Reply(frame)
}

/// Replies with one or several segments with data.
pub(crate) fn send_frames(
    context: &mut impl SegmentContext,
    reason: SegmentReason,
    mut frames: Vec<Vec<u8>>,
) -> SegmentVerdict {
    context.count(reason);
    match frames.len() {
        1 => SegmentVerdict::Reply(frames.remove(0)),
        _ => SegmentVerdict::Flight(frames),
    }
}

pub(crate) fn count_verdict(
    context: &mut impl SegmentContext,
    verdict: SegmentVerdict,
) -> SegmentVerdict {
    if let SegmentVerdict::Migrate(reason)
    | SegmentVerdict::Drop(reason)
    | SegmentVerdict::Pass(reason) = verdict
    {
        context.count(reason);
    }
    verdict
}
