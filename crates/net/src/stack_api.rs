//! The interface of the stack: settings, frames, and the traits of the link and the service.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use crate::steering::FlowShare;

/// Settings of a stack. All memory is allocated at the start.
pub struct StackSettings {
    /// The device's address.
    pub mac: [u8; 6],
    /// The device's MTU, 576 to 1500.
    pub mtu: u16,
    /// The source of the local IP address.
    pub address: AddressSource,
    /// The ports with a listener.
    pub ports: Vec<u16>,
    /// The maximum number of TCP connections, excluding those in TIME_WAIT.
    pub connections_max: usize,
    /// The number of buffers of [`SMALL`] bytes, for unread input and response heads.
    pub small_buffers: usize,
    /// The number of buffers of [`LARGE`] bytes, for response bodies.
    pub large_buffers: usize,
    /// A connection ends after this time without input, or without progress while the peer's window is closed.
    pub idle_timeout_ms: u32,
    /// A secret from a cryptographic random source, new at each start: for initial sequence numbers, SYN cookies and
    /// hash tables.
    pub secret: [u8; 32],
    /// This core's share, if several cores, each with its own stack, share the connections of one address. All other
    /// settings are per core; the rate limits of resets and challenge ACKs are divided by the number of cores.
    pub share: Option<FlowShare>,
}

/// The source of the local IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// By DHCP (RFC 2131).
    Dhcp,
    /// Configured by the operator.
    Static {
        /// The local IP address.
        address: Ipv4Addr,
        /// The number of bits of the network prefix, 0 to 32.
        prefix_len: u8,
        /// The router for other networks.
        gateway: Option<Ipv4Addr>,
    },
    /// From the stack of another core, by `TcpStack::set_address`.
    OtherCore,
}

/// A frame as received from the device.
#[derive(Clone, Copy)]
pub struct ReceivedFrame<'f> {
    /// From the Ethernet header on, without the frame's checksum.
    pub frame: &'f [u8],
    /// The device has verified the TCP or UDP checksum.
    pub sum_is_good: bool,
}

/// Offloads of the device.
#[derive(Clone, Copy, Default)]
pub struct DeviceOffload {
    /// Checksum offload: the device completes the TCP checksum (`OutgoingFrame::partial_sum`).
    pub sum: bool,
    /// Segmentation offload: the device splits long segments (`OutgoingFrame::segment_len`); requires `sum`.
    pub segmentation: bool,
}

/// A frame to be sent: `head`, then `copied`, then `static_bytes`.
///
/// `head` and `copied` together fit into a frame of the MTU; with `OutgoingFrame::segment_len`, `static_bytes` may have
/// up to 60 KB.
pub struct OutgoingFrame<'f> {
    /// Headers; copied before the call returns.
    pub head: &'f [u8],
    /// Payload that is copied before the call returns.
    pub copied: &'f [u8],
    /// Payload in static memory, from which the device may read later.
    pub static_bytes: &'static [u8],
    /// The offset of the TCP header, if the device completes the checksum. The checksum field then holds the sum of the
    /// pseudo header, not inverted.
    pub partial_sum: Option<u16>,
    /// The payload bytes of each segment into which the device splits the frame.
    pub segment_len: Option<u16>,
}

/// The sending side of the device. A frame that can't be sent now is dropped and counted by the device.
pub trait LinkDevice {
    /// Sends a frame.
    fn send(&mut self, frame: &OutgoingFrame<'_>);
    /// The device's offloads; they never change.
    fn offload(&self) -> DeviceOffload;
}

/// A connection's identifier, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// Index in the table, below `connections_max`; can index the service's own arrays.
    pub index: u32,
    /// The number of earlier connections at this index.
    pub generation: u32,
}

/// Data to be sent. The stack sends it in order and retransmits it after losses.
#[derive(Clone, Copy)]
pub enum SendPiece<'p> {
    /// Copied into the stack's buffers; at most [`LARGE`] bytes.
    Copied(&'p [u8]),
    /// Static bytes, sent without copying. `sums` is empty, or the result of [`crate::sums`] for `bytes`.
    Lasting {
        /// The bytes to send.
        bytes: &'static [u8],
        /// The checksums of `bytes`, or empty.
        sums: &'static [u16],
    },
}

/// Bytes of a small buffer.
pub const SMALL: usize = 2048;
/// Bytes of a large buffer.
pub const LARGE: usize = 65_536;

/// Maximum number of unread input bytes of a connection. It is available if a large buffer is free; otherwise a small
/// buffer limits unread input to [`SMALL`] bytes.
pub const WAITING_MAX: usize = 16_384;

/// There is no free buffer, or no free place in the connection's queue. No byte was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendQueueFull;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// Both sides sent their FIN.
    Closed,
    /// The peer reset or refused the connection.
    Reset,
    /// The peer was silent for too long.
    TimedOut,
}

/// A new connection, and which side opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionInitiator {
    /// The peer's address and port.
    pub peer: SocketAddrV4,
    /// The local port.
    pub port: u16,
    /// Opened by this side (`StackCalls::connect`).
    pub is_active_open: bool,
}

/// The application. `TcpStack` calls it; it acts through the `calls` argument.
pub trait TcpService {
    /// A connection was established.
    fn opened(
        &mut self,
        calls: &mut impl StackCalls,
        id: ConnectionId,
        opened: ConnectionInitiator,
    );
    /// Delivers all unread bytes; returns how many were consumed. Called again with the remainder when more bytes
    /// arrive, or after `StackCalls::resume`. At most [`WAITING_MAX`] bytes are buffered, so the window closes if the
    /// service consumes none.
    fn input(&mut self, calls: &mut impl StackCalls, id: ConnectionId, bytes: &[u8]) -> usize;
    /// The peer sent its FIN. All its data was delivered, though some may still be unread. The connection can still
    /// send, until `StackCalls::close`.
    fn finished(&mut self, calls: &mut impl StackCalls, id: ConnectionId);
    /// All queued data is acknowledged.
    fn sent(&mut self, calls: &mut impl StackCalls, id: ConnectionId);
    /// The connection ended; `id` is invalid from now on. Not called after `StackCalls::abort`. An outgoing connection
    /// may end without having been established.
    fn ended(&mut self, calls: &mut impl StackCalls, id: ConnectionId, end: ConnectionEnd);
}

/// The operations of a service on connections.
pub trait StackCalls {
    /// Microseconds since the start.
    fn now_us(&self) -> u64;
    /// Queues data. The data of several calls within one callback is sent in full segments when the callback returns.
    ///
    /// # Errors
    /// `SendQueueFull`: try again after `TcpService::sent`, or end the connection.
    fn send(&mut self, id: ConnectionId, piece: SendPiece<'_>) -> Result<(), SendQueueFull>;
    /// The number of bytes that are queued or sent, but not acknowledged.
    fn unsent_len(&self, id: ConnectionId) -> usize;
    /// The number of unread bytes.
    fn waiting_len(&self, id: ConnectionId) -> usize;
    /// Names and values of the stack's counters.
    fn counters(&self) -> Vec<(&'static str, u64)>;
    /// Sends a FIN after the queued data. Unread and later input is dropped. The connection exists until the peer's FIN
    /// or the idle timeout. A connection that isn't established yet is aborted.
    fn close(&mut self, id: ConnectionId);
    /// Resets the connection immediately; `TcpService::ended` is not called.
    fn abort(&mut self, id: ConnectionId);
    /// Calls `TcpService::input` for unread bytes after the current callback. Has no effect within a call of
    /// `TcpService::input` that consumes no bytes.
    fn resume(&mut self, id: ConnectionId);
    /// Opens a connection to another host.
    ///
    /// # Errors
    /// `SendQueueFull`: no free slot in the table, no free port, or no address yet.
    fn connect(&mut self, to: SocketAddrV4) -> Result<ConnectionId, SendQueueFull>;
}
