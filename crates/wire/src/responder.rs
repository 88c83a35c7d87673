//! What is done with a segment, by the state of its connection: RFC 9293 §3.10.7 for a server that
//! never has more than one segment under way. It keeps nothing but the table.

use crate::answer::{again, choose, may_answer, write};
use crate::connection::{Connection, State, Table, UnderWay, WINDOW};
use crate::frame::{ACK, FIN, NotTaken, RST, SYN, Segment};
use crate::handshake::{self, Doubts, Relation};
use crate::held::{self, Ahead, REPEAT_LEN_MIN, Taken};
use crate::reason::Reason;
use crate::verdict::{Verdict, acknowledge, bare, counted, finish, replied};
use crate::world::{Mode, Socket, World};

/// How often an answer is sent for what costs less than its request.
const PARTS_MAX: u8 = 7;

/// A server that is away for so long is gone.
const LISTENER_WAIT_NS: u64 = 4_000_000_000;

/// The rules with their table.
#[derive(Clone, Debug)]
pub struct Responder<T> {
    table: T,
    doubts: Doubts,
}

impl<T: Table> Responder<T> {
    /// With a table.
    pub fn new(table: T) -> Responder<T> {
        let doubts = Doubts::default();
        Responder { table, doubts }
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
        let known = known.filter(|known| known.state != State::Over);
        let is_syn = segment.flags & (SYN | ACK) == SYN;
        let is_kernels =
            known.is_some_and(|known| matches!(known.state, State::Kernel | State::Asked));
        if is_kernels && !is_syn {
            if known.is_some_and(|known| known.state == State::Asked) {
                self.on_asked(world, segment);
            }
            return counted(world, Verdict::Pass(Reason::PassKernel));
        }
        if !segment.has_right_sum() {
            // What is not ours the server above looks at itself.
            return counted(
                world,
                match known {
                    Some(_) => Verdict::Drop(Reason::DropSum),
                    None => Verdict::Pass(Reason::DropSum),
                },
            );
        }
        if is_syn {
            return self.on_syn(world, segment, known.as_ref());
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

    fn on_syn(
        &mut self,
        world: &mut impl World,
        syn: &Segment<'_>,
        old: Option<&Connection>,
    ) -> Verdict {
        let reason = match handshake::on_syn(world, &mut self.table, syn) {
            Ok((reason, frame)) => return replied(world, reason, frame),
            Err(reason) => reason,
        };
        // The server above will answer it: what is left here of the client's port would keep what
        // follows from it. Of a live connection only its client can say that it is gone (RFC 5961 §4).
        let is_refused = !matches!(reason, Reason::PassSynForeign | Reason::PassSynSocket);
        match old.filter(|_| is_refused) {
            Some(old) if old.is_live() => {
                return acknowledge(world, syn, old, Reason::TcpChallenge);
            }
            Some(old) if old.state == State::Done => self.table.remove(&syn.tuple),
            _ => {}
        }
        if reason == Reason::PassUnadmitted {
            // Without room for the marker its client is not let in by this connection.
            let asked = Connection {
                rcv_nxt: world.rules(),
                ..Connection::marker(State::Asked)
            };
            let _ = self.table.put(&syn.tuple, asked);
        }
        counted(world, Verdict::Pass(reason))
    }

    /// Of a connection whose SYN was left to the server above: once its handshake is complete, the client
    /// is let in, and is who it says it is; unless its SYN passed other rules than those of now.
    fn on_asked(&mut self, world: &mut impl World, segment: &Segment<'_>) {
        let known = self.table.get(&segment.tuple);
        let is_by_these_rules = known.is_some_and(|asked| asked.rcv_nxt == world.rules());
        if !is_by_these_rules || world.socket(&segment.tuple) != Socket::Connection {
            return;
        }
        world.admit(&segment.tuple);
        world.count(Reason::TcpAdmitted);
        if let Some(connection) = self.table.get(&segment.tuple) {
            connection.state = State::Kernel;
        }
    }

    /// Sees to it that the segment's connection is in the table, or says why it can't be.
    fn find_or_open(
        &mut self,
        world: &mut impl World,
        segment: &Segment<'_>,
        known: Option<&Connection>,
    ) -> Result<(), Verdict> {
        let is_anew = |known: &Connection| {
            segment.seq != known.rcv_nxt
                && !known.is_live()
                && !handshake::is_of_handshake(segment, known)
        };
        match known {
            None => self.open_unknown(world, segment),
            Some(known) if is_anew(known) => {
                self.open_anew(world, segment, known);
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }

    /// The client may have begun another from the same port: no SYN of a live connection was answered. Its
    /// cookie alone says so only where the segment can't be a late one of this connection.
    fn open_anew(&mut self, world: &mut impl World, segment: &Segment<'_>, known: &Connection) {
        match handshake::relation(&mut self.table, segment) {
            Relation::Completes => world.count(Reason::TcpOpen),
            Relation::None if segment.is_plain_ack() && handshake::is_far(segment, known) => {
                let _ = self.open_by_cookie(world, segment);
            }
            _ => {}
        }
    }

    fn open_by_cookie(
        &mut self,
        world: &mut impl World,
        segment: &Segment<'_>,
    ) -> Result<(), Reason> {
        handshake::open_by_cookie(world, &mut self.table, &mut self.doubts, segment)?;
        world.count(Reason::TcpOpenCookie);
        Ok(())
    }

    /// Of no connection that is known: perhaps a handshake completes, perhaps the server above has it.
    /// Only where it could not, the cookie is looked at.
    fn open_unknown(
        &mut self,
        world: &mut impl World,
        segment: &Segment<'_>,
    ) -> Result<(), Verdict> {
        let relation = handshake::relation(&mut self.table, segment);
        if relation == Relation::Completes {
            world.count(Reason::TcpOpen);
            return Ok(());
        }
        if relation == Relation::Resets {
            return Err(Verdict::Drop(Reason::TcpReset));
        }
        let unknown = Verdict::Pass(Reason::PassUnknown);
        if !segment.is_plain_ack() {
            return Err(unknown);
        }
        // A listener would reset it. It comes again, or what it acknowledges is not lost.
        if relation == Relation::Overtakes {
            return Err(Verdict::Drop(Reason::DropEarly));
        }
        match world.socket(&segment.tuple) {
            Socket::None => Err(unknown),
            // Of one handshake, one of us looks at everything: else a guess would be good for two numbers.
            Socket::Listener if relation == Relation::Misses => {
                Err(Verdict::Drop(Reason::DropCookie))
            }
            Socket::Listener => {
                let opened = self.open_by_cookie(world, segment);
                opened.map_err(|reason| match reason {
                    Reason::PassUnknown => Verdict::Pass(reason),
                    _ => Verdict::Drop(reason),
                })
            }
            Socket::Connection | Socket::Handshake | Socket::TimeWait(_) => {
                // Without room for the marker it is asked again.
                let _ = self.table.put(&segment.tuple, Connection::of_kernel());
                Err(Verdict::Pass(Reason::PassKernel))
            }
        }
    }

    /// The server above may not have taken the connection yet: then only the segment that it is to
    /// begin with may come through, for it takes the numbers of any as those of the first.
    fn on_handed(&mut self, world: &mut impl World, segment: &Segment<'_>) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let is_next = segment.seq == connection.rcv_nxt;
        if segment.flags & RST != 0 {
            // If the server above has it, it knows what to do; else it is over.
            if is_next {
                connection.state = State::Over;
            }
            return counted(world, Verdict::Pass(Reason::TcpReset));
        }
        let socket = world.socket(&segment.tuple);
        if socket != Socket::None {
            connection.no_listener_since_ns = None;
        }
        let verdict = match socket {
            Socket::None => wait_for_listener(connection, world.now_ns()),
            Socket::Connection | Socket::Handshake => {
                connection.state = State::Kernel;
                Verdict::Pass(Reason::TcpKept)
            }
            Socket::TimeWait(_) => {
                world.end_time_wait(&segment.tuple);
                Verdict::Drop(Reason::DropTimeWait)
            }
            Socket::Listener if is_next && segment.ack == connection.snd_nxt => {
                Verdict::Up(Reason::TcpHanded)
            }
            Socket::Listener => Verdict::Drop(Reason::DropEarly),
        };
        counted(world, verdict)
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
            return counted(world, Verdict::Drop(Reason::DropOdd));
        }
        if let Some(under_way) = part_of(segment, connection) {
            return self.on_part(world, segment, under_way);
        }
        if segment.seq == connection.rcv_nxt {
            return self.on_expected(world, segment);
        }
        let mut known = *connection;
        let ahead = held::on_ahead(&mut self.table, segment, &mut known);
        if let Some(connection) = self.table.get(&segment.tuple) {
            *connection = known;
        }
        match ahead {
            Ahead::NotOurs => self.on_other_seq(world, segment),
            Ahead::Held => counted(world, Verdict::Drop(Reason::DropPipelined)),
            Ahead::Taken(Taken { frame, is_pieced }) => {
                let taken = Segment::parse(&frame).expect("as it was written");
                // Should the answer be lost, such a client might send only the first piece again, for ever.
                let verdict = match is_pieced && known.state == State::Open {
                    true => self.up(world, &taken, Reason::UpCut),
                    false => self.on_expected(world, &taken),
                };
                match verdict {
                    Verdict::Up(reason) => Verdict::UpInstead(reason, frame),
                    other => other,
                }
            }
        }
    }

    /// A segment at `rcv_nxt`.
    fn on_expected(&mut self, world: &mut impl World, segment: &Segment<'_>) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let is_acknowledged = segment.ack == connection.snd_nxt;
        if !segment.payload.is_empty() {
            if connection.state != State::Open {
                return self.reset(world, segment, Reason::TcpClosed);
            }
            if !is_acknowledged {
                return self.keep(world, segment, Reason::DropPipelined);
            }
            return self.on_request(world, segment);
        }
        if segment.flags & FIN != 0 {
            if connection.state == State::Done {
                return counted(world, Verdict::Drop(Reason::TcpFin));
            }
            if !is_acknowledged {
                return self.keep(world, segment, Reason::TcpFin);
            }
            return on_fin(world, segment, connection);
        }
        if is_acknowledged {
            connection.under_way = None;
            if connection.state == State::Done {
                connection.state = State::Over;
            }
        }
        counted(world, Verdict::Drop(Reason::TcpAck))
    }

    /// What comes before our answer is acknowledged is dropped, but held first.
    fn keep(&mut self, world: &mut impl World, segment: &Segment<'_>, reason: Reason) -> Verdict {
        let connection = *self.table.get(&segment.tuple).expect("just found");
        if connection.under_way.is_some() && connection.acknowledged_part(segment.ack) == 0 {
            held::hold(&mut self.table, segment, &connection, 0);
        }
        counted(world, Verdict::Drop(reason))
    }

    /// The server above gets the connection, from this segment on.
    fn up(&mut self, world: &mut impl World, segment: &Segment<'_>, reason: Reason) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        connection.state = State::Handed;
        if world.socket(&segment.tuple) == Socket::None {
            world.count(reason);
            let verdict = wait_for_listener(connection, world.now_ns());
            return counted(world, verdict);
        }
        counted(world, Verdict::Up(reason))
    }

    /// A request at `rcv_nxt`, with everything of ours acknowledged.
    fn on_request(&mut self, world: &mut impl World, segment: &Segment<'_>) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let chosen = may_answer(world, segment).and_then(|()| choose(world, segment, connection));
        let answer = match chosen {
            Ok(answer) => answer,
            Err(reason) => return self.up(world, segment, reason),
        };
        let frame = write(
            &answer,
            segment,
            connection,
            (connection.snd_nxt, segment.end()),
        );
        connection.rcv_nxt = segment.end();
        connection.snd_nxt = connection.snd_nxt.wrapping_add(answer.len());
        connection.parts = 0;
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
            && segment.payload.len() >= under_way.request_len.min(REPEAT_LEN_MIN)
            && connection.acknowledged_part(segment.ack) == 0
        {
            return self.on_same_request(world, segment, under_way);
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

    /// The last request once more, from a client that has nothing of the answer yet; perhaps with less
    /// of it, or with more behind it: clients cut anew what they send again, and put it together.
    fn on_same_request(
        &mut self,
        world: &mut impl World,
        segment: &Segment<'_>,
        under_way: UnderWay,
    ) -> Verdict {
        let connection = *self.table.get(&segment.tuple).expect("just found");
        let fin = usize::from(segment.flags & FIN != 0);
        if segment.payload.len() + fin > under_way.request_len {
            held::hold(&mut self.table, segment, &connection, under_way.request_len);
        }
        self.answer_again(world, &segment.cut(under_way.request_len), under_way)
    }

    /// The client has a part of the answer, which somebody on the way has cut. Its timer has nothing to wait
    /// for any more, so it gets the answer once more at once; but not for ever, because an
    /// acknowledgement costs less than a request. Then it is told that this is the end.
    fn on_part(
        &mut self,
        world: &mut impl World,
        segment: &Segment<'_>,
        under_way: UnderWay,
    ) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        if connection.parts == PARTS_MAX {
            return self.reset(world, segment, Reason::TcpGone);
        }
        connection.parts += 1;
        let mut bare = segment.cut(0);
        bare.seq = connection.rcv_nxt;
        self.answer_again(world, &bare, under_way)
    }

    /// The answer under way once more. The client may have it already, or a part, or not, so nobody else
    /// may answer that request: it gets the same again, fresh or not, as long as it is there, or the end.
    fn answer_again(
        &mut self,
        world: &mut impl World,
        segment: &Segment<'_>,
        under_way: UnderWay,
    ) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        match again(world, segment, connection, &under_way) {
            Ok(answer) => {
                let seq = connection.snd_nxt.wrapping_sub(answer.len());
                let frame = write(&answer, segment, connection, (seq, connection.rcv_nxt));
                replied(world, Reason::AnswerAgain, frame)
            }
            Err(Reason::UpWindow) => counted(world, Verdict::Drop(Reason::UpWindow)),
            Err(_) => self.reset(world, segment, Reason::TcpGone),
        }
    }

    /// RFC 5961 §3.2: a reset is believed at the number that we have acknowledged last, which is before a
    /// request whose answer is under way; or where it acknowledges that answer.
    fn on_reset(&mut self, world: &mut impl World, segment: &Segment<'_>) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let (_, edge, _) = connection.acknowledged();
        let acknowledges = segment.flags & ACK != 0 && segment.ack == connection.snd_nxt;
        match segment.seq.wrapping_sub(edge) {
            0 => connection.state = State::Over,
            _ if acknowledges && segment.seq == connection.rcv_nxt => {
                connection.state = State::Over;
            }
            beside if beside < u32::from(WINDOW) => {
                return acknowledge(world, segment, connection, Reason::TcpChallenge);
            }
            _ => {}
        }
        counted(world, Verdict::Drop(Reason::TcpReset))
    }

    /// The end of what can be done here: the client finds out at once.
    fn reset(&mut self, world: &mut impl World, segment: &Segment<'_>, reason: Reason) -> Verdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        connection.state = State::Over;
        bare(
            world,
            segment,
            connection,
            reason,
            (segment.ack, segment.end(), RST | ACK),
        )
    }
}

/// The answer of which the segment acknowledges a part.
fn part_of(segment: &Segment<'_>, connection: &Connection) -> Option<UnderWay> {
    let under_way = connection.under_way?;
    let begin = connection.acknowledged().1;
    let part = connection.acknowledged_part(segment.ack);
    let is_part = 0 < part && part < connection.under_way_len();
    let is_near = segment.seq.wrapping_sub(begin) <= u32::from(WINDOW);
    (is_part && is_near).then_some(under_way)
}

/// Nobody listens, as while a server is restarted: the client sends its segment again, to whoever listens
/// then.
fn wait_for_listener(connection: &mut Connection, now_ns: u64) -> Verdict {
    let since_ns = *connection.no_listener_since_ns.get_or_insert(now_ns);
    match now_ns.saturating_sub(since_ns) < LISTENER_WAIT_NS {
        true => Verdict::Drop(Reason::DropNoListener),
        false => Verdict::Up(Reason::TcpNoListener),
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
