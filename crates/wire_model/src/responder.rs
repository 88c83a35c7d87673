//! What is done with a segment, by the state of its connection: RFC 9293 §3.10.7 for a server that
//! never has more than one answer under way. It keeps nothing but the table. What begins a connection is in
//! `opening`, what ours do is in `ours` and `requests`.

use crate::connection::{Connection, ConnectionState, Table};
use crate::handshake::{self, Doubts};
use crate::verdict::{Verdict, acknowledge, counted, replied};
use lowroad_wire::frame::{ACK, NotTaken, RST, SYN, Segment};
use lowroad_wire::reason::Reason;
use lowroad_wire::world::{Mode, Socket, World};

mod opening;
mod ours;
mod requests;

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
                match segment.has_right_header_sum() {
                    true => return self.segment(world, &segment),
                    // RFC 1122 §3.2.1.2: such a packet gets no answer; the kernel drops it.
                    false => Verdict::Pass(Reason::DropSum),
                }
            }
            Ok(_) | Err(NotTaken::Other) => Verdict::Pass(Reason::PassOther),
            Err(NotTaken::NotPlain) => Verdict::Pass(Reason::PassFragment),
        };
        counted(world, verdict)
    }

    /// A segment to one of our ports comes.
    pub fn segment(&mut self, world: &mut impl World, segment: &Segment<'_>) -> Verdict {
        let known = self.table.get(&segment.tuple).copied();
        let known = known.filter(|known| known.state != ConnectionState::Over);
        let is_syn = segment.flags & (SYN | ACK) == SYN;
        let is_kernels = known.is_some_and(|known| {
            matches!(
                known.state,
                ConnectionState::Kernel | ConnectionState::Asked
            )
        });
        if is_kernels && !is_syn {
            if known.is_some_and(|known| known.state == ConnectionState::Asked) {
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
            Some(ConnectionState::Handed) => self.on_handed(world, segment),
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
            Some(old) if old.state == ConnectionState::Done => self.table.remove(&syn.tuple),
            _ => {}
        }
        if reason == Reason::PassUnadmitted {
            // Without room for the marker its client is not let in by this connection.
            let asked = Connection {
                rcv_nxt: world.rules(),
                ..Connection::marker(ConnectionState::Asked)
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
            connection.state = ConnectionState::Kernel;
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
                connection.state = ConnectionState::Over;
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
                connection.state = ConnectionState::Kernel;
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
