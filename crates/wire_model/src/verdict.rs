//! The verdict about a frame, and the segments without data that answer one.

use alloc::vec::Vec;

use crate::connection::Connection;
use crate::reply::Reply;
use lowroad_wire::frame::{ACK, FIN, Segment};
use lowroad_wire::reason::Reason;
use lowroad_wire::world::World;

/// The verdict about a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Reply with this frame.
    Reply(Vec<u8>),
    /// Reply with these frames, in order.
    Flight(Vec<Vec<u8>>),
    /// Migrate the connection to the kernel, with this segment as the first.
    Up(Reason),
    /// Migrate the connection with this frame as the first segment: it has the data that was buffered.
    UpInstead(Reason, Vec<u8>),
    /// Drop the frame.
    Drop(Reason),
    /// Pass the frame to the kernel unchanged.
    Pass(Reason),
}

/// An acknowledgement without data. It does not acknowledge a request with an answer in flight. A client with a part
/// of a flight would reject a lower sequence number, so its own acknowledgement number is used.
pub(crate) fn acknowledge(
    world: &mut impl World,
    segment: &Segment<'_>,
    connection: &Connection,
    reason: Reason,
) -> Verdict {
    let (mut seq, ack, flags) = connection.acknowledged();
    if connection.is_of_flight(segment.ack) {
        seq = segment.ack;
    }
    bare(world, segment, connection, reason, (seq, ack, flags))
}

/// Sends FIN, for the first time or again.
pub(crate) fn finish(
    world: &mut impl World,
    segment: &Segment<'_>,
    connection: &Connection,
) -> Verdict {
    let seq = connection.snd_nxt.wrapping_sub(1);
    bare(
        world,
        segment,
        connection,
        Reason::TcpFin,
        (seq, connection.rcv_nxt, FIN | ACK),
    )
}

/// Sends a segment without data.
pub(crate) fn bare(
    world: &mut impl World,
    segment: &Segment<'_>,
    connection: &Connection,
    reason: Reason,
    (seq, ack, flags): (u32, u32, u8),
) -> Verdict {
    let options = connection.reply_options(world, segment);
    let reply = Reply {
        seq,
        ack,
        flags,
        window: connection.own_window(),
        options: &options,
        payload: &[],
    };
    replied(world, reason, reply.write(segment))
}

pub(crate) fn replied(world: &mut impl World, reason: Reason, frame: Vec<u8>) -> Verdict {
    world.count(reason);
    Verdict::Reply(frame)
}

/// Sends one or several segments with data.
pub(crate) fn sent(world: &mut impl World, reason: Reason, mut frames: Vec<Vec<u8>>) -> Verdict {
    world.count(reason);
    match frames.len() {
        1 => Verdict::Reply(frames.remove(0)),
        _ => Verdict::Flight(frames),
    }
}

pub(crate) fn counted(world: &mut impl World, verdict: Verdict) -> Verdict {
    if let Verdict::Up(reason) | Verdict::Drop(reason) | Verdict::Pass(reason) = verdict {
        world.count(reason);
    }
    verdict
}
