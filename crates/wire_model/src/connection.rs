//! What is kept of a connection, and the table of them. It knows no rules.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::flight::{Recovery, WITHHELD};
use lowroad_wire::frame::{ACK, Segment, Tuple};
use lowroad_wire::options::{Abilities, TIMESTAMPS_LEN, Timestamps, WINDOW_SCALE};
use lowroad_wire::width::{lower, sequence};
use lowroad_wire::world::World;

/// Advertised to clients: as much as a new socket of Linux advertises by default.
pub const WINDOW: u16 = 64_240;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// Answered here.
    Open,
    /// We have sent FIN.
    Closing,
    /// Both sides have sent FIN; kept to acknowledge the client's again.
    Done,
    /// Nothing is left of it but its handshake, which must not open it again.
    Over,
    /// The segment at `rcv_nxt` is on its way to a listener, perhaps not for the first time.
    Handed,
    /// The server above has it.
    Kernel,
    /// The same, if it takes it: its SYN was left to it to see whether it lets its client in.
    Asked,
}

/// The answer that is under way: what `snd_nxt` counts and the client has not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnderWay {
    /// The response's publication.
    pub id: u32,
    /// Bytes of it, without FIN.
    pub len: usize,
    /// Bytes of the request that are not acknowledged by anything else: all, or the last one if the answer
    /// takes several segments.
    pub request_len: usize,
}

/// One TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// How far it has come.
    pub state: ConnectionState,
    /// The client's next number.
    pub rcv_nxt: u32,
    /// Ours.
    pub snd_nxt: u32,
    /// What the client can do.
    pub can: Abilities,
    /// If both sides send timestamps: the offset of ours from the clock, in milliseconds.
    pub clock_offset: Option<u32>,
    /// The answer that is under way.
    pub under_way: Option<UnderWay>,
    /// How often it was sent for less than its request.
    pub parts: u8,
    /// What of it was lost, if it takes several segments.
    pub recovery: Recovery,
    /// Of our first number, so that a late copy of its handshake does not open it again.
    pub handshake: u16,
    /// It is handed up, and since then nobody listens.
    pub no_listener_since_ns: Option<u64>,
}

impl Connection {
    /// Only its client can say that it is gone.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.state, ConnectionState::Open | ConnectionState::Closing)
    }

    /// Numbers and flags of an acknowledgement without data. A request whose answer is under way is not
    /// acknowledged by anything but the answer: else, if that gets lost, it would not come again.
    pub(crate) fn acknowledged(&self) -> (u32, u32, u8) {
        let Some(under_way) = self.under_way else {
            return (self.snd_nxt, self.rcv_nxt, ACK);
        };
        let fin = u32::from(self.state == ConnectionState::Closing);
        (
            self.snd_nxt.wrapping_sub(sequence(under_way.len) + fin),
            self.rcv_nxt.wrapping_sub(sequence(under_way.request_len)),
            ACK,
        )
    }

    /// How much of the answer under way this number acknowledges; FIN counts. Less than nothing is a large
    /// number.
    pub(crate) fn acknowledged_part(&self, ack: u32) -> u32 {
        ack.wrapping_sub(self.acknowledged().0)
    }

    /// How much of our numbers is under way.
    pub(crate) fn under_way_len(&self) -> u32 {
        self.snd_nxt.wrapping_sub(self.acknowledged().0)
    }

    /// Whether the answer under way takes several segments.
    pub(crate) fn is_flight(&self) -> bool {
        self.under_way
            .is_some_and(|under_way| under_way.request_len == WITHHELD)
    }

    /// Whether this number acknowledges a flight or a part of it, or begins it.
    pub(crate) fn is_of_flight(&self, ack: u32) -> bool {
        self.is_flight() && self.acknowledged_part(ack) <= self.under_way_len()
    }

    /// The server above has it: nothing else is known.
    #[must_use]
    pub fn of_kernel() -> Connection {
        Connection::marker(ConnectionState::Kernel)
    }

    /// Only whose it is.
    pub(crate) fn marker(state: ConnectionState) -> Connection {
        Connection {
            state,
            rcv_nxt: 0,
            snd_nxt: 0,
            can: Abilities {
                mss: 0,
                scale: None,
                sack: false,
            },
            clock_offset: None,
            under_way: None,
            parts: 0,
            recovery: Recovery::default(),
            handshake: 0,
            no_listener_since_ns: None,
        }
    }

    /// The options of a segment that answers this one.
    pub(crate) fn reply_options(&self, world: &impl World, segment: &Segment<'_>) -> Vec<u8> {
        let echo = Timestamps::read(segment.options).map_or(0, |theirs| theirs.value);
        let timestamps = self.clock_offset.map(|offset| Timestamps {
            value: now_ms(world).wrapping_add(offset),
            echo,
        });
        timestamps.map_or(Vec::new(), |timestamps| timestamps.write().to_vec())
    }

    /// Length of these options.
    pub(crate) fn reply_options_len(&self) -> usize {
        self.clock_offset.map_or(0, |_| TIMESTAMPS_LEN)
    }

    /// The window for a segment to the client, as it stands in the header.
    #[must_use]
    pub fn own_window(&self) -> u16 {
        own_window(&self.can)
    }
}

/// The window for a segment to a client that can do this; a SYN-ACK's is not scaled.
pub(crate) fn own_window(can: &Abilities) -> u16 {
    match can.scale {
        Some(_) => WINDOW >> WINDOW_SCALE,
        None => WINDOW,
    }
}

/// The clock for timestamps.
pub(crate) fn now_ms(world: &impl World) -> u32 {
    lower(world.now_ns() / 1_000_000)
}

/// A SYN that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOpen {
    /// The client's first number.
    pub client_isn: u32,
    /// Ours.
    pub isn: u32,
    /// What the SYN said.
    pub can: Abilities,
    /// When it came.
    pub at_ns: u64,
}

/// What a client has sent before it has acknowledged our answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The number of the first byte.
    pub seq: u32,
    /// Data.
    pub bytes: Vec<u8>,
    /// How much of it came first.
    pub first_len: usize,
    /// FIN follows.
    pub has_fin: bool,
}

/// Where connections are kept. It may forget any of them at any time; those that are over it keeps for
/// some seconds if it can, because a client may not have our FIN.
pub trait Table {
    /// That of the client.
    fn get(&mut self, tuple: &Tuple) -> Option<&mut Connection>;
    /// Puts one in, in the place of that of the same name; false if there is no room.
    fn put(&mut self, tuple: &Tuple, connection: Connection) -> bool;
    /// Takes one out.
    fn remove(&mut self, tuple: &Tuple);
    /// A SYN that was answered. What a flood of them displaces is no loss: the cookie says nearly
    /// the same.
    fn remember(&mut self, tuple: &Tuple, what: HalfOpen);
    /// The SYN that was remembered.
    fn recall(&self, tuple: &Tuple) -> Option<HalfOpen>;
    /// That one is not needed any more.
    fn forget(&mut self, tuple: &Tuple);
    /// Holds what came too early, in the place of what it held of this connection.
    fn hold(&mut self, tuple: &Tuple, what: Held);
    /// Takes that out, if it is there yet.
    fn take_held(&mut self, tuple: &Tuple) -> Option<Held>;
    /// Whether a SYN of this tuple may be among those that were displaced in the last seconds; each may
    /// come by its cookie once, and this counts as that one.
    fn may_be_forgotten(&mut self, tuple: &Tuple, now_ns: u64) -> bool;
}

/// A table that is as large as it may be, for tests and small machines. When it is full, connections
/// that are over make room.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    places: usize,
    connections: BTreeMap<Tuple, Connection>,
    half_open: BTreeMap<Tuple, HalfOpen>,
    held: BTreeMap<Tuple, Held>,
    /// How many SYNs were displaced, and when the last was.
    forgotten: usize,
    forgotten_ns: u64,
}

/// Clients repeat what is lost after 1 s and 3 s.
const FORGOTTEN_LIFE_NS: u64 = 8_000_000_000;

impl Connections {
    /// With this many places.
    #[must_use]
    pub fn new(places: usize) -> Connections {
        Connections {
            places,
            ..Connections::default()
        }
    }

    /// A flood displaces all SYNs that are remembered.
    pub fn displace_half_open(&mut self, now_ns: u64) {
        let count = self.half_open.len();
        self.half_open.clear();
        self.count_forgotten(count, now_ns);
    }

    fn count_forgotten(&mut self, count: usize, now_ns: u64) {
        if !self.was_just_forgotten(now_ns) {
            self.forgotten = 0;
        }
        self.forgotten += count;
        self.forgotten_ns = now_ns;
    }

    fn was_just_forgotten(&self, now_ns: u64) -> bool {
        now_ns.wrapping_sub(self.forgotten_ns) <= FORGOTTEN_LIFE_NS
    }

    fn make_room(&mut self) -> bool {
        if self.connections.len() >= self.places {
            let over = |_: &Tuple, one: &mut Connection| {
                !matches!(
                    one.state,
                    ConnectionState::Done
                        | ConnectionState::Over
                        | ConnectionState::Kernel
                        | ConnectionState::Asked
                )
            };
            self.connections.retain(over);
        }
        self.connections.len() < self.places
    }
}

impl Table for Connections {
    fn get(&mut self, tuple: &Tuple) -> Option<&mut Connection> {
        self.connections.get_mut(tuple)
    }

    fn put(&mut self, tuple: &Tuple, connection: Connection) -> bool {
        let fits = self.connections.contains_key(tuple) || self.make_room();
        if fits {
            self.connections.insert(*tuple, connection);
        }
        fits
    }

    fn remove(&mut self, tuple: &Tuple) {
        self.connections.remove(tuple);
    }

    fn remember(&mut self, tuple: &Tuple, what: HalfOpen) {
        let is_full = self.half_open.len() >= self.places;
        if is_full && !self.half_open.contains_key(tuple) {
            self.half_open.pop_first();
            self.count_forgotten(1, what.at_ns);
        }
        self.half_open.insert(*tuple, what);
    }

    fn recall(&self, tuple: &Tuple) -> Option<HalfOpen> {
        self.half_open.get(tuple).copied()
    }

    fn forget(&mut self, tuple: &Tuple) {
        self.half_open.remove(tuple);
    }

    fn hold(&mut self, tuple: &Tuple, what: Held) {
        if self.held.len() >= self.places {
            self.held.pop_first();
        }
        self.held.insert(*tuple, what);
    }

    fn take_held(&mut self, tuple: &Tuple) -> Option<Held> {
        self.held.remove(tuple)
    }

    fn may_be_forgotten(&mut self, _: &Tuple, now_ns: u64) -> bool {
        let may_be = self.forgotten > 0 && self.was_just_forgotten(now_ns);
        self.forgotten -= usize::from(may_be);
        may_be
    }
}
