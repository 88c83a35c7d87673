//! What a user of the stack sees: what it gives, and what it is called with.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use crate::steering::Share;

/// What a stack is made with. All memory is taken at the start.
pub struct Settings {
    /// The device's address.
    pub mac: [u8; 6],
    /// The device's MTU, 576 to 1500.
    pub mtu: u16,
    /// Where to get the address from.
    pub address: Address,
    /// The ports that are listened on.
    pub ports: Vec<u16>,
    /// TCP connections at once, TIME_WAIT not counted.
    pub connections_max: usize,
    /// Buffers of [`SMALL`] bytes, for input that waits and for heads.
    pub small_buffers: usize,
    /// Buffers of [`LARGE`] bytes, for pages.
    pub large_buffers: usize,
    /// A connection on which nothing has come for so long is ended; or nothing has moved since the peer keeps its
    /// window closed.
    pub idle_timeout_ms: u32,
    /// Of a good source, new at each start: initial sequence numbers, cookies, hashes of tables.
    pub secret: [u8; 32],
    /// Where the machine's connections are shared by several cores, each with a stack of its own: this one's share.
    /// All else of these settings is per core; the resets and challenges of a second are shared out.
    pub share: Option<Share>,
}

/// Where the address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// By DHCP (RFC 2131).
    Dhcp,
    /// From the operator.
    Static {
        /// The machine's.
        address: Ipv4Addr,
        /// 0 to 32.
        prefix_len: u8,
        /// Where what is not near goes.
        gateway: Option<Ipv4Addr>,
    },
    /// From another core's stack, by [`crate::Stack::set_address`].
    Told,
}

/// A frame as the device got it.
#[derive(Clone, Copy)]
pub struct Received<'f> {
    /// From the Ethernet header on, without the frame's checksum.
    pub frame: &'f [u8],
    /// The device vouches for the sums of TCP and UDP, so they are not verified again.
    pub sum_is_good: bool,
}

/// What the device does by itself.
#[derive(Clone, Copy, Default)]
pub struct Offload {
    /// It completes the sum of TCP ([`Frame::partial_sum`]).
    pub sum: bool,
    /// It cuts long segments into short ones ([`Frame::cut_len`]); needs `sum`.
    pub segmentation: bool,
}

/// A frame to be sent: `head`, then `copied`, then `lasting`. `head` and `copied` together are no longer than a
/// frame of the MTU; with [`Frame::cut_len`], `lasting` is up to 60 KB.
pub struct Frame<'f> {
    /// Headers; copied before the call returns.
    pub head: &'f [u8],
    /// Copied too.
    pub copied: &'f [u8],
    /// Stays where it is for as long as the machine runs, so the device may read it from there.
    pub lasting: &'static [u8],
    /// The device completes the TCP sum, which begins at the TCP header: the header's offset in the frame.
    /// The field itself holds the sum of the pseudo header, not inverted.
    pub partial_sum: Option<u16>,
    /// The device cuts it into segments with so many bytes of payload each.
    pub cut_len: Option<u16>,
}

/// Where frames go. What can't be sent now is lost, as on any wire, and counted by the device.
pub trait Link {
    /// Sends a frame.
    fn send(&mut self, frame: &Frame<'_>);
    /// What the device does by itself; always the same.
    fn offload(&self) -> Offload;
}

/// A connection; never that of another, however long it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// Its place in the table, below `connections_max`: for the user's own arrays.
    pub index: u32,
    /// How often the place was taken before.
    pub generation: u32,
}

/// Something to be sent. What is queued is sent in order, and again when it gets lost.
#[derive(Clone, Copy)]
pub enum Piece<'p> {
    /// Copied into the stack's buffers; at most [`LARGE`] bytes.
    Copied(&'p [u8]),
    /// Sent from where it is, never copied. `sums` is empty, or what [`crate::sums`] gives for `bytes`.
    Lasting {
        /// What to send.
        bytes: &'static [u8],
        /// Their sums.
        sums: &'static [u16],
    },
}

/// Bytes of a small buffer.
pub const SMALL: usize = 2048;
/// Bytes of a large buffer.
pub const LARGE: usize = 65_536;

/// Bytes of input that wait for the service: [`SMALL`] in any case, so many where a large buffer can be spared.
pub const WAITING_MAX: usize = 16_384;

/// No buffer, or no place in the connection's queue, is free. Nothing of the piece was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both sides have said all.
    Closed,
    /// The peer has reset it, or refused it.
    Reset,
    /// Nothing came from the peer for too long.
    TimedOut,
}

/// Who has opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The other side.
    pub peer: SocketAddrV4,
    /// Our port.
    pub port: u16,
    /// We have asked for it ([`Calls::connect`]).
    pub by_us: bool,
}

/// Whom the connections serve. Called from within [`crate::Stack`]; acts through `calls`.
pub trait Service {
    /// A connection is open.
    fn opened(&mut self, calls: &mut impl Calls, id: Id, opened: Opened);
    /// All bytes that have come in order and were not taken yet. Gives how many it takes; called again with the
    /// others when more come, or after [`Calls::resume`]. At most [`WAITING_MAX`] bytes wait; who takes none of so many
    /// gets no more.
    fn input(&mut self, calls: &mut impl Calls, id: Id, bytes: &[u8]) -> usize;
    /// The peer will send no more; what it has sent before was given, though maybe not all was taken. The connection can still send, until
    /// [`Calls::close`].
    fn finished(&mut self, calls: &mut impl Calls, id: Id);
    /// All that was queued has been acknowledged.
    fn sent(&mut self, calls: &mut impl Calls, id: Id);
    /// It is over; `id` means nothing from now on. Not called after [`Calls::abort`]. A connection that we have
    /// asked for may end without having been open.
    fn ended(&mut self, calls: &mut impl Calls, id: Id, end: End);
}

/// What a service can do with connections.
pub trait Calls {
    /// Microseconds since the start.
    fn now_us(&self) -> u64;
    /// Sends what comes after what was queued before. What several calls queue within one callback leaves in
    /// full segments when the callback ends.
    ///
    /// # Errors
    /// [`Full`]: try again after [`Service::sent`], or end the connection.
    fn send(&mut self, id: Id, piece: Piece<'_>) -> Result<(), Full>;
    /// Bytes that are queued and not yet acknowledged.
    fn unsent_len(&self, id: Id) -> usize;
    /// Bytes that have come and were not taken.
    fn waiting_len(&self, id: Id) -> usize;
    /// What the stack counts: names and numbers.
    fn counters(&self) -> Vec<(&'static str, u64)>;
    /// No more will be sent; a FIN follows what is queued. What waits and what still comes is thrown away. The
    /// connection stays until the peer's end, or the idle timeout. One that is not open yet is aborted.
    fn close(&mut self, id: Id);
    /// Ends it at once by a reset; [`Service::ended`] is not called.
    fn abort(&mut self, id: Id);
    /// Calls [`Service::input`] for what waits, after the present callback. Within a call of
    /// [`Service::input`] that takes nothing it does nothing.
    fn resume(&mut self, id: Id);
    /// Opens a connection to another machine.
    ///
    /// # Errors
    /// [`Full`]: no place in the table, or no address yet.
    fn connect(&mut self, to: SocketAddrV4) -> Result<Id, Full>;
}
