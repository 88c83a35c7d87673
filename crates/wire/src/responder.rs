//! What is done with a segment, by the state of its connection: RFC 9293 §3.10.7 for a server that
//! never has more than one segment under way. It keeps nothing but the table.

use alloc::vec::Vec;

use crate::answer::{choose, may_answer, write};
use crate::connection::{Connection, State, Table, UnderWay, WINDOW};
use crate::frame::{ACK, FIN, NotTaken, RST, SYN, Segment};
use crate::handshake::{self, Opened};
use crate::reason::Reason;
use crate::reply::Reply;
use crate::world::{Mode, Socket, World};

/// What becomes of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This frame goes back.
    Reply(Vec<u8>),
    /// The connection goes to the server above, which takes this segment for its first.
    Up(Reason),
    /// Nobody sees it any more.
    Drop(Reason),
    /// The server above sees it as if nobody were here.
    Pass(Reason),
}

/// The rules with their table.
#[derive(Clone, Debug)]
pub struct Responder<T> {
    table: T,
}

impl<T: Table> Responder<T> {
    /// With a table.
    pub fn new(table: T) -> Responder<T> {
        Responder { table }
    }

    /// The table, for who looks.
    pub fn table(&mut self) -> &mut T {
        &mut self.table
    }

    /// A frame comes.
    pub fn frame(&mut self, world: &mut impl World, frame: &[u8]) -> Verdict {
        if world.mode() == Mode::Off {
            return Verdict::Pass(Reason::PassOther);
        }
        let verdict = match Segment::parse(frame) {
            Ok(segment) if world.is_served(segment.tuple.local_port) => {
                return self.segment(world, &segment);
            }
            Ok(_) | Err(NotTaken::Other) => Verdict::Pass(Reason::PassOther),
            Err(NotTaken::NotPlain) => Verdict::Pass(Reason::PassFragment),
        };
        counted(world, verdict)
    }

    /// A segment to one of our ports comes.
    pub fn segment(&mut self, world: &mut impl World, segment: &Segment<'_>) -> Verdict {
        let known = self.table.get(&segment.tuple).copied();
        let is_syn = segment.flags & (SYN | ACK) == SYN;
        let is_kernels = known.is_some_and(|known| known.state == State::Kernel);
        if is_kernels && !is_syn {
            return counted(world, Verdict::Pass(Reason::PassKernel));
        }
        if world.verify_sums() && !segment.has_right_sum() {
            return counted(world, Verdict::Drop(Reason::DropSum));
        }
        if is_syn {
            return match handshake::on_syn(world, &mut self.table, segment) {
                Ok(frame) => replied(world, Reason::TcpSyn, frame),
                Err(reason) => counted(world, Verdict::Pass(reason)),
            };
        }
        if let Err(verdict) = self.find_or_open(world, segment, known.as_ref()) {
            return counted(world, verdict);
        }
        match self
            .table
            .get(&segment.tuple)
            .map(|connection| connection.state)
        {
            None => Verdict::Drop(Reason::PassUnknown),
            Some(State::Handed) => self.on_handed(world, segment),
            Some(_) => self.on_ours(world, segment),
        }
    }

    /// Sees to it that the segment's connection is in the table, or says why it can't be.
    fn find_or_open(
        &mut self,
        world: &mut impl World,
        segment: &Segment<'_>,
        known: Option<&Connection>,
    ) -> Result<(), Verdict> {
        let opened = match known {
            Some(known) if known.rcv_nxt == segment.seq => return Ok(()),
            // The client may have begun anew from the same port. Its cookie alone says so only where
            // the segment can't be a late one of this connection.
            Some(known) => {
                let near = known
                    .rcv_nxt
                    .wrapping_sub(segment.seq)
                    .wrapping_add(u32::from(WINDOW));
                handshake::open(
                    world,
                    &mut self.table,
                    segment,
                    near > 2 * u32::from(WINDOW),
                )
            }
            None => match handshake::open(world, &mut self.table, segment, false) {
                Opened::No => self.ask_above(world, segment)?,
                opened => opened,
            },
        };
        match opened {
            Opened::Now(reason) => world.count(reason),
            Opened::Early => return Err(Verdict::Drop(Reason::TcpEarly)),
            Opened::No if known.is_none() => return Err(Verdict::Pass(Reason::PassUnknown)),
            Opened::No => {}
        }
        Ok(())
    }

    /// Of no connection of ours: the server above may have it. Only where it could not, the cookie is
    /// looked at.
    fn ask_above(&mut self, world: &impl World, segment: &Segment<'_>) -> Result<Opened, Verdict> {
        if !segment.is_plain_ack() {
            return Ok(Opened::No);
        }
        match world.socket(&segment.tuple) {
            Socket::None => Ok(Opened::No),
            Socket::Listener => Ok(handshake::open(world, &mut self.table, segment, true)),
            Socket::Connection => {
                let marker = Connection {
                    state: State::Kernel,
                    rcv_nxt: 0,
                    snd_nxt: 0,
                    can: crate::options::Abilities {
                        mss: 0,
                        scale: None,
                        sack: false,
                    },
                    under_way: None,
                };
                // Without room for the marker it is asked again.
                let _ = self.table.put(&segment.tuple, marker);
                Err(Verdict::Pass(Reason::PassKernel))
            }
        }
    }

    /// The server above may not have taken the connection yet: then only the segment that it is to
    /// begin with may come through, for it takes any for the first.
    fn on_handed(&mut self, world: &mut impl World, segment: &Segment<'_>) -> Verdict {
        let socket = world.socket(&segment.tuple);
        let connection = self.table.get(&segment.tuple).expect("just found");
        if socket == Socket::Connection {
            connection.state = State::Kernel;
            return counted(world, Verdict::Pass(Reason::PassKernel));
        }
        let is_it = segment.seq == connection.rcv_nxt && segment.ack == connection.snd_nxt;
        match is_it && segment.is_plain_ack() {
            true => counted(world, Verdict::Up(Reason::TcpHanded)),
            false => counted(world, Verdict::Drop(Reason::DropHanded)),
        }
    }

    /// A segment of a connection of ours.
    fn on_ours(&mut self, world: &mut impl World, segment: &Segment<'_>) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        if segment.flags & RST != 0 {
            return self.on_reset(world, segment);
        }
        // RFC 5961 §4.2
        if segment.flags & SYN != 0 {
            return acknowledge(world, segment, connection, Reason::TcpChallenge);
        }
        if segment.flags & ACK == 0 {
            return counted(world, Verdict::Drop(Reason::TcpAck));
        }
        if segment.seq != connection.rcv_nxt {
            return self.on_other_seq(world, segment);
        }
        let is_acknowledged = segment.ack == connection.snd_nxt;
        if !segment.payload.is_empty() {
            if connection.state != State::Open {
                return self.reset(world, segment, Reason::TcpClosed);
            }
            if !is_acknowledged {
                return counted(world, Verdict::Drop(Reason::DropPipelined));
            }
            return self.on_request(world, segment);
        }
        if segment.flags & FIN != 0 {
            // Where our answer is under way yet, the FIN comes again, with its acknowledgement.
            if connection.state == State::Done || !is_acknowledged {
                return counted(world, Verdict::Drop(Reason::TcpFin));
            }
            return on_fin(world, segment, connection);
        }
        if is_acknowledged {
            connection.under_way = None;
            if connection.state == State::Done {
                self.table.remove(&segment.tuple);
            }
        }
        counted(world, Verdict::Drop(Reason::TcpAck))
    }

    /// A request at `rcv_nxt`, with everything of ours acknowledged.
    fn on_request(&mut self, world: &mut impl World, segment: &Segment<'_>) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let chosen = may_answer(world, segment).and_then(|()| choose(world, segment, connection));
        let answer = match chosen {
            Ok(answer) => answer,
            Err(reason) => {
                connection.state = State::Handed;
                return counted(world, Verdict::Up(reason));
            }
        };
        let frame = write(&answer, segment, connection, connection.snd_nxt);
        connection.rcv_nxt = segment.end();
        connection.snd_nxt = connection.snd_nxt.wrapping_add(answer.len());
        connection.under_way = Some(UnderWay {
            id: answer.id,
            len: answer.bytes.len(),
            request_len: segment.payload.len(),
        });
        if answer.closes {
            connection.state = State::Closing;
        }
        replied(world, Reason::AnswerHit, frame)
    }

    /// Not at `rcv_nxt`: from the past or from the future.
    fn on_other_seq(&mut self, world: &mut impl World, segment: &Segment<'_>) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let before = connection.rcv_nxt.wrapping_sub(segment.seq);
        if let Some(under_way) = connection.under_way
            && usize::try_from(before) == Ok(under_way.request_len)
            && segment.payload.len() >= under_way.request_len
        {
            // There may be more behind it, for clients put together what they send again; that is
            // for when this is acknowledged.
            return self.on_same_request(world, &segment.cut(under_way.request_len), under_way);
        }
        let has_fin = segment.flags & FIN != 0;
        let is_empty = segment.payload.is_empty();
        match connection.state {
            // Our FIN, or the acknowledgement of the client's, was lost.
            State::Done if before == 1 && has_fin => match segment.ack == connection.snd_nxt {
                true => acknowledge(world, segment, connection, Reason::TcpFin),
                false => finish(world, segment, connection),
            },
            State::Open if before == 1 && segment.payload.len() <= 1 && !has_fin => {
                acknowledge(world, segment, connection, Reason::TcpProbe)
            }
            _ if is_empty && !has_fin => counted(world, Verdict::Drop(Reason::TcpAck)),
            _ if before.cast_signed() > 0 => {
                acknowledge(world, segment, connection, Reason::TcpOld)
            }
            _ => acknowledge(world, segment, connection, Reason::TcpEarly),
        }
    }

    /// The last request once more. The client may have the answer already, or not, so nobody else may
    /// answer it: it gets the same bytes again, or the end.
    fn on_same_request(
        &mut self,
        world: &mut impl World,
        segment: &Segment<'_>,
        under_way: UnderWay,
    ) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        match choose(world, segment, connection) {
            Ok(answer) if answer.id == under_way.id && answer.bytes.len() == under_way.len => {
                let seq = connection.snd_nxt.wrapping_sub(answer.len());
                let frame = write(&answer, segment, connection, seq);
                replied(world, Reason::AnswerAgain, frame)
            }
            Err(Reason::UpWindow) => counted(world, Verdict::Drop(Reason::UpWindow)),
            _ => self.reset(world, segment, Reason::TcpGone),
        }
    }

    /// RFC 5961 §3.2: only a reset at the very number is believed.
    fn on_reset(&mut self, world: &mut impl World, segment: &Segment<'_>) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        match segment.seq.wrapping_sub(connection.rcv_nxt) {
            0 => self.table.remove(&segment.tuple),
            beside if beside < u32::from(WINDOW) => {
                return acknowledge(world, segment, connection, Reason::TcpChallenge);
            }
            _ => {}
        }
        counted(world, Verdict::Drop(Reason::TcpReset))
    }

    /// The end of what can be done here: the client finds out at once.
    fn reset(&mut self, world: &mut impl World, segment: &Segment<'_>, reason: Reason) -> Verdict {
        let connection = *self.table.get(&segment.tuple).expect("just found");
        self.table.remove(&segment.tuple);
        bare(
            world,
            segment,
            &connection,
            reason,
            (segment.ack, segment.end(), RST | ACK),
        )
    }
}

/// FIN at `rcv_nxt`, without data, with everything of ours acknowledged.
fn on_fin(world: &mut impl World, segment: &Segment<'_>, connection: &mut Connection) -> Verdict {
    connection.rcv_nxt = connection.rcv_nxt.wrapping_add(1);
    connection.under_way = None;
    let was = core::mem::replace(&mut connection.state, State::Done);
    if was == State::Closing {
        return acknowledge(world, segment, connection, Reason::TcpFin);
    }
    connection.snd_nxt = connection.snd_nxt.wrapping_add(1);
    finish(world, segment, connection)
}

fn acknowledge(
    world: &mut impl World,
    segment: &Segment<'_>,
    connection: &Connection,
    reason: Reason,
) -> Verdict {
    bare(
        world,
        segment,
        connection,
        reason,
        (connection.snd_nxt, connection.rcv_nxt, ACK),
    )
}

/// Our FIN, for the first time or once more.
fn finish(world: &mut impl World, segment: &Segment<'_>, connection: &Connection) -> Verdict {
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
fn bare(
    world: &mut impl World,
    segment: &Segment<'_>,
    connection: &Connection,
    reason: Reason,
    (seq, ack, flags): (u32, u32, u8),
) -> Verdict {
    let reply = Reply {
        seq,
        ack,
        flags,
        window: connection.own_window(),
        options: &[],
        payload: &[],
    };
    replied(world, reason, reply.write(segment))
}

fn replied(world: &mut impl World, reason: Reason, frame: Vec<u8>) -> Verdict {
    world.count(reason);
    Verdict::Reply(frame)
}

fn counted(world: &mut impl World, verdict: Verdict) -> Verdict {
    if let Verdict::Up(reason) | Verdict::Drop(reason) | Verdict::Pass(reason) = verdict {
        world.count(reason);
    }
    verdict
}
