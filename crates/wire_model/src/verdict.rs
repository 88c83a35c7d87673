//! What becomes of a frame, and the segments without data that answer one. It knows no rules.

use alloc::vec::Vec;

use crate::connection::Connection;
use crate::reply::Reply;
use lowroad_wire::frame::{ACK, FIN, Segment};
use lowroad_wire::reason::Reason;
use lowroad_wire::world::World;

/// What becomes of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This frame goes back.
    Reply(Vec<u8>),
    /// These go back, in this order.
    Flight(Vec<Vec<u8>>),
    /// The connection goes to the server above, which takes this segment for its first.
    Up(Reason),
    /// The same with this frame for its first: it has what came earlier, and this one waited for.
    UpInstead(Reason, Vec<u8>),
    /// Nobody sees it any more.
    Drop(Reason),
    /// The server above sees it as if nobody were here.
    Pass(Reason),
}

/// A segment without data; it does not acknowledge a request whose answer is under way. Of a flight the client
/// has a part: it would not believe a number before that.
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

/// Our FIN, for the first time or once more.
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

/// A segment without data.
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

/// Segments with data: one, or several.
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
