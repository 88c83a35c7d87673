//! The state of a connection, and the table of connections.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::flight::{RecoveryState, WITHHELD};
use lowroad_wire::frame::{ACK, FourTuple, SegmentView};
use lowroad_wire::options::{TIMESTAMPS_LEN, TcpOptions, TcpTimestamps, WINDOW_SCALE};
use lowroad_wire::segment_context::SegmentContext;
use lowroad_wire::width::{lower, sequence};

/// The advertised window, equal to that of a new socket in Linux.
pub const WINDOW: u16 = 64_240;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// Established: requests are answered here.
    Open,
    /// This side has sent FIN.
    Closing,
    /// Both sides have sent FIN. The entry is kept to acknowledge a retransmitted FIN of the client.
    Done,
    /// The connection has ended. Only its handshake is remembered, a late copy of which must not open the connection
    /// again.
    Ended,
    /// In migration to the kernel: the segment at `rcv_nxt` was passed to a listener, possibly more than once.
    Migrating,
    /// The kernel owns the connection.
    Kernel,
    /// The SYN was passed to the kernel, to find out whether the server admits the client; the kernel may own the
    /// connection.
    AwaitingAdmission,
}

/// The answer in flight: the data before `snd_nxt` that the client has not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlightAnswer {
    /// The publication of the response.
    pub id: u32,
    /// The length in bytes, without FIN.
    pub len: usize,
    /// The number of bytes of the request that stay unacknowledged while the answer is in flight: all, or only the last
    /// byte if the answer has several segments.
    pub request_len: usize,
}

/// A TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelConnection {
    /// The state.
    pub state: ConnectionState,
    /// The next sequence number of the client.
    pub rcv_nxt: u32,
    /// The next sequence number of this side.
    pub snd_nxt: u32,
    /// The negotiated options.
    pub tcp_options: TcpOptions,
    /// If timestamps are used, the offset of this side's timestamps from the clock, in milliseconds.
    pub clock_offset: Option<u32>,
    /// The answer in flight.
    pub in_flight: Option<InFlightAnswer>,
    /// How often the answer was retransmitted after an acknowledgement of a part.
    pub part_repeats: u8,
    /// The loss recovery of an answer with several segments.
    pub recovery: RecoveryState,
    /// Bits of the initial sequence number, by which a late copy of the handshake is recognized.
    pub handshake: u16,
    /// The time since which there is no listener for a connection in migration.
    pub no_listener_since_ns: Option<u64>,
}

impl ModelConnection {
    /// Whether the connection is established or half-closed by this side, so that only the client can end it.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.state, ConnectionState::Open | ConnectionState::Closing)
    }

    /// The sequence number, acknowledgement number and flags of an acknowledgement without data. It does not
    /// acknowledge the request of an answer in flight: otherwise the client would not retransmit the request if the
    /// answer was lost.
    pub(crate) fn acknowledged(&self) -> (u32, u32, u8) {
        let Some(in_flight) = self.in_flight else {
            return (self.snd_nxt, self.rcv_nxt, ACK);
        };
        // FIN occupies one sequence number.
        let fin = u32::from(self.state == ConnectionState::Closing);
        (
            self.snd_nxt.wrapping_sub(sequence(in_flight.len) + fin),
            self.rcv_nxt.wrapping_sub(sequence(in_flight.request_len)),
            ACK,
        )
    }

    /// The length of the answer in flight, with FIN, that this number acknowledges. An older number gives a large
    /// result.
    pub(crate) fn acknowledged_part(&self, ack: u32) -> u32 {
        ack.wrapping_sub(self.acknowledged().0)
    }

    /// The number of sequence numbers that the answer in flight occupies.
    pub(crate) fn in_flight_len(&self) -> u32 {
        self.snd_nxt.wrapping_sub(self.acknowledged().0)
    }

    /// Whether the answer in flight has several segments.
    pub(crate) fn is_flight(&self) -> bool {
        self.in_flight
            .is_some_and(|in_flight| in_flight.request_len == WITHHELD)
    }

    /// Whether this number is within a flight, including its start and end.
    pub(crate) fn is_flight_ack(&self, ack: u32) -> bool {
        self.is_flight() && self.acknowledged_part(ack) <= self.in_flight_len()
    }

    /// An entry for a connection that the kernel owns.
    #[must_use]
    pub fn kernel_owned() -> ModelConnection {
        ModelConnection::marker(ConnectionState::Kernel)
    }

    /// An entry that has only a state.
    pub(crate) fn marker(state: ConnectionState) -> ModelConnection {
        ModelConnection {
            state,
            rcv_nxt: 0,
            snd_nxt: 0,
            tcp_options: TcpOptions {
                mss: 0,
                scale: None,
                sack: false,
            },
            clock_offset: None,
            in_flight: None,
            part_repeats: 0,
            recovery: RecoveryState::default(),
            handshake: 0,
            no_listener_since_ns: None,
        }
    }

    /// The options of a reply to this segment.
    pub(crate) fn reply_options(
        &self,
        context: &impl SegmentContext,
        segment: &SegmentView<'_>,
    ) -> Vec<u8> {
        // RFC 7323 §3.2: replies echo the segment's timestamp.
        let echo = TcpTimestamps::read(segment.options).map_or(0, |received| received.value);
        let timestamps = self.clock_offset.map(|offset| TcpTimestamps {
            value: now_ms(context).wrapping_add(offset),
            echo,
        });
        timestamps.map_or(Vec::new(), |timestamps| timestamps.write().to_vec())
    }

    /// The length of the options of replies.
    pub(crate) fn reply_options_len(&self) -> usize {
        self.clock_offset.map_or(0, |_| TIMESTAMPS_LEN)
    }

    /// The window field of a segment to the client.
    #[must_use]
    pub fn receive_window(&self) -> u16 {
        own_window(&self.tcp_options)
    }
}

/// The window field for a client with these options; a SYN-ACK's window is never scaled.
pub(crate) fn own_window(tcp_options: &TcpOptions) -> u16 {
    match tcp_options.scale {
        // The window scale applies to all segments after the handshake (RFC 7323 §2.2).
        Some(_) => WINDOW >> WINDOW_SCALE,
        None => WINDOW,
    }
}

/// The clock for timestamps.
pub(crate) fn now_ms(context: &impl SegmentContext) -> u32 {
    lower(context.now_ns() / 1_000_000)
}

/// A half-open connection: a SYN that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingHandshake {
    /// The client's initial sequence number.
    pub client_isn: u32,
    /// The initial sequence number of this side.
    pub isn: u32,
    /// The options of the SYN.
    pub tcp_options: TcpOptions,
    /// The time at which the SYN arrived.
    pub at_ns: u64,
}

/// Buffered data of a client, see `buffered`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferedSegment {
    /// The sequence number of the first byte.
    pub seq: u32,
    /// The data.
    pub bytes: Vec<u8>,
    /// The length of the first segment.
    pub first_len: usize,
    /// Whether FIN follows.
    pub has_fin: bool,
}

/// The connection table. Any entry may be lost at any time. If possible, connections that have ended are kept for some
/// seconds, as the client may not have received the FIN.
pub trait ModelTable {
    /// The connection of a client.
    fn get(&mut self, tuple: &FourTuple) -> Option<&mut ModelConnection>;
    /// Inserts or replaces a connection; false if there is no room.
    fn insert(&mut self, tuple: &FourTuple, connection: ModelConnection) -> bool;
    /// Removes a connection.
    fn remove(&mut self, tuple: &FourTuple);
    /// Stores a SYN that was answered. Losing the entry in a flood is harmless, as the cookie encodes nearly the same.
    fn remember(&mut self, tuple: &FourTuple, handshake: PendingHandshake);
    /// The stored SYN of a client.
    fn recall(&self, tuple: &FourTuple) -> Option<PendingHandshake>;
    /// Removes a stored SYN.
    fn forget(&mut self, tuple: &FourTuple);
    /// Buffers early data, and replaces the buffer of this connection.
    fn set_buffered(&mut self, tuple: &FourTuple, buffered: BufferedSegment);
    /// Removes the buffer, if it still exists.
    fn take_buffered(&mut self, tuple: &FourTuple) -> Option<BufferedSegment>;
    /// Whether a SYN of this tuple may be among those displaced in the last seconds. Each displaced SYN permits one
    /// connection to be opened by a cookie, and a call that returns true consumes one such permit.
    fn consume_forgotten(&mut self, tuple: &FourTuple, now_ns: u64) -> bool;
}

/// A table of limited size, for tests and small systems. If it is full, connections that have ended are removed.
#[derive(Clone, Debug, Default)]
pub struct BoundedTable {
    capacity: usize,
    connections: BTreeMap<FourTuple, ModelConnection>,
    half_open: BTreeMap<FourTuple, PendingHandshake>,
    buffered: BTreeMap<FourTuple, BufferedSegment>,
    /// The number of displaced SYNs.
    forgotten: usize,
    forgotten_ns: u64,
}

/// How long a displaced SYN counts: clients retransmit after 1 s and 3 s.
const FORGOTTEN_LIFE_NS: u64 = 8_000_000_000;

impl BoundedTable {
    /// A table for this many connections.
    #[must_use]
    pub fn new(capacity: usize) -> BoundedTable {
        BoundedTable {
            capacity,
            ..BoundedTable::default()
        }
    }

    /// Displaces all stored SYNs, like a flood.
    pub fn displace_half_open(&mut self, now_ns: u64) {
        let count = self.half_open.len();
        self.half_open.clear();
        self.count_forgotten(count, now_ns);
    }

    fn count_forgotten(&mut self, count: usize, now_ns: u64) {
        if !self.has_recent_forgotten(now_ns) {
            self.forgotten = 0;
        }
        self.forgotten += count;
        self.forgotten_ns = now_ns;
    }

    fn has_recent_forgotten(&self, now_ns: u64) -> bool {
        now_ns.wrapping_sub(self.forgotten_ns) <= FORGOTTEN_LIFE_NS
    }

    fn make_room(&mut self) -> bool {
        if self.connections.len() >= self.capacity {
            let should_retain = |_: &FourTuple, connection: &mut ModelConnection| {
                !matches!(
                    connection.state,
                    ConnectionState::Done
                        | ConnectionState::Ended
                        | ConnectionState::Kernel
                        | ConnectionState::AwaitingAdmission
                )
            };
            self.connections.retain(should_retain);
        }
        self.connections.len() < self.capacity
    }
}

impl ModelTable for BoundedTable {
    fn get(&mut self, tuple: &FourTuple) -> Option<&mut ModelConnection> {
        self.connections.get_mut(tuple)
    }

    fn insert(&mut self, tuple: &FourTuple, connection: ModelConnection) -> bool {
        let fits = self.connections.contains_key(tuple) || self.make_room();
        if fits {
            self.connections.insert(*tuple, connection);
        }
        fits
    }

    fn remove(&mut self, tuple: &FourTuple) {
        self.connections.remove(tuple);
    }

    fn remember(&mut self, tuple: &FourTuple, handshake: PendingHandshake) {
        let is_full = self.half_open.len() >= self.capacity;
        if is_full && !self.half_open.contains_key(tuple) {
            // Any entry may be displaced, as the cookie replaces it.
            self.half_open.pop_first();
            self.count_forgotten(1, handshake.at_ns);
        }
        self.half_open.insert(*tuple, handshake);
    }

    fn recall(&self, tuple: &FourTuple) -> Option<PendingHandshake> {
        self.half_open.get(tuple).copied()
    }

    fn forget(&mut self, tuple: &FourTuple) {
        self.half_open.remove(tuple);
    }

    fn set_buffered(&mut self, tuple: &FourTuple, buffered: BufferedSegment) {
        if self.buffered.len() >= self.capacity {
            self.buffered.pop_first();
        }
        self.buffered.insert(*tuple, buffered);
    }

    fn take_buffered(&mut self, tuple: &FourTuple) -> Option<BufferedSegment> {
        self.buffered.remove(tuple)
    }

    fn consume_forgotten(&mut self, _: &FourTuple, now_ns: u64) -> bool {
        // Each displaced SYN permits one connection to be opened by a cookie.
        let is_available = self.forgotten > 0 && self.has_recent_forgotten(now_ns);
        self.forgotten -= usize::from(is_available);
        is_available
    }
}
