//! The interface between a worker and the machine: one trait, so that the same worker runs on epoll and in the
//! simulator, and later on io_uring.
//!
//! Operations are tried at once and report when they would block; a driver may batch or defer system calls as it
//! likes. A driver knows no HTTP.
//!
//! Tasks use the driver through a [`WorkerHandle`]: upstream connections, which an
//! [`UpstreamNetwork`](crate::upstream_network::UpstreamNetwork) makes, timers in the driver's time, and helper
//! threads.

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use crate::buffer::SendBuffer;
use crate::datagrams::{DatagramBatch, DatagramDrops, DatagramTrain};
use crate::file::{FileSent, OpenFile};
use crate::mailbox::WorkerNotify;
use crate::upstream_network::SocketEvent;
use crate::worker_handle::WorkerHandle;

/// Identifies a connection of a worker, by slot and generation, so that an event for a closed connection cannot reach
/// its successor in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionToken {
    /// The index in the worker's table.
    pub slot: u32,
    /// The worker's number of accepted connections when the slot was filled; at most [`GENERATION_MAX`].
    pub generation: u32,
}

impl ConnectionToken {
    /// The token of no connection.
    pub const NOBODY: ConnectionToken = ConnectionToken {
        slot: u32::MAX,
        generation: 0,
    };
}

/// The last generation; the next one is 1. Drivers use the bit above for other sockets.
pub const GENERATION_MAX: u32 = u32::MAX >> 1;

/// A listener, by its index in the worker's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(pub u16);

/// A datagram socket, by its number; a separate type from [`ListenerId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DatagramSocketId(pub u16);

/// An event that a wait returns.
#[derive(Debug)]
pub enum DriverEvent {
    /// Connections may be waiting to be accepted at this listener.
    Acceptable(ListenerId),
    /// The state of a connection's socket changed.
    Ready {
        /// The connection.
        token: ConnectionToken,
        /// There may be bytes to read, or the end of them.
        readable: bool,
        /// There may be room for more bytes.
        writable: bool,
        /// The peer has sent its last byte: read until the end.
        ended: bool,
        /// The connection is broken.
        broken: bool,
    },
    /// A send that returned [`SendOutcome::Underway`] has ended.
    Sent(ConnectionToken, Box<SendCompletion>),
    /// The progress of a transfer started with [`IoDriver::start_file`], or of a read started with
    /// [`IoDriver::start_read`].
    File(ConnectionToken, FileSent),
    /// The state of an upstream socket changed.
    Outgoing(SocketEvent),
    /// Datagrams may have arrived at this socket. Repeated by each wait until all are received.
    Datagrams(DatagramSocketId),
    /// A datagram socket that was full has room again.
    Room(DatagramSocketId),
}

/// The result of a send that the driver completed later.
pub struct SendCompletion {
    /// The buffer, unchanged.
    pub buffer: SendBuffer,
    /// The number of bytes of it that were sent, at least one; `None` if the connection is broken.
    pub sent_len: Option<usize>,
}

impl std::fmt::Debug for SendCompletion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Completion").field(&self.sent_len).finish()
    }
}

/// A newly accepted connection.
pub struct AcceptedSocket<S> {
    /// The connection's socket.
    pub socket: S,
    /// The client's address; unspecified for a Unix socket.
    pub peer: IpAddr,
    /// The client's port; 0 for a Unix socket.
    pub peer_port: u16,
}

/// Why no connection was accepted.
#[derive(Debug, PartialEq, Eq)]
pub enum AcceptFailure {
    /// No connection is waiting.
    Empty,
    /// This connection was aborted before it was accepted; the next may be fine.
    Gone,
    /// The process or the machine is out of descriptors or memory.
    Exhausted,
}

/// The result of a receive.
#[derive(Debug, PartialEq, Eq)]
pub enum ReceiveOutcome<B> {
    /// Bytes, at least one.
    Bytes {
        /// The bytes, in a buffer of the driver: to be returned soon ([`IoDriver::return_buffer`]).
        buffer: B,
        /// There may be more to receive.
        more: bool,
    },
    /// There are no bytes now.
    Empty,
    /// The peer has sent its last byte.
    End,
    /// The connection is broken.
    Broken,
}

/// The result of a send.
#[derive(Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// This many bytes were sent, at least one.
    Bytes(usize),
    /// This many bytes were sent, and the socket is full; a writable event will follow.
    Filled(usize),
    /// The socket is full; a writable event will follow.
    Full,
    /// The driver has taken the buffer and returns it with [`DriverEvent::Sent`]. Nothing else may be sent on the
    /// connection until then.
    Underway,
    /// The connection is broken.
    Broken,
}

/// Sockets, files and clocks for one worker.
pub trait IoDriver {
    /// A connection's socket.
    type Socket;
    /// Received bytes, in a buffer of the driver.
    type Lent: AsRef<[u8]>;
    /// A listening socket, opened by the caller.
    type Listener: Send + 'static;
    /// A datagram socket, opened by the caller.
    type Datagrams: Send + 'static;

    /// Waits until there are events or the timeout has elapsed, and appends the events to `events`. `None`: no
    /// timeout. Waits no longer than until the next timer of the worker's tasks, and wakes tasks with due timers.
    /// Returns at once if the worker was notified before; only the worker consumes the notification. Reads the clocks
    /// afterwards.
    fn wait(&mut self, timeout_ms: Option<u64>, events: &mut Vec<DriverEvent>);

    /// Monotonic time of the last wait, in ms.
    fn now_ms(&self) -> u64;

    /// Monotonic time in µs, read now. It has the origin of [`IoDriver::now_ms`], which may lag behind.
    fn now_us(&self) -> u64;

    /// Ends waits at this time of [`IoDriver::now_us`], until another is set; waits end at once while it is in the
    /// past. For deadlines of datagram protocols, for which the timeout of [`IoDriver::wait`] is too coarse; a driver
    /// without datagram sockets may ignore it.
    fn wake_at(&mut self, at_us: Option<u64>);

    /// Time of day in ms since 1970, read now. It may jump either way.
    fn unix_ms(&self) -> u64;

    /// Starts to report waiting connections at a listener.
    ///
    /// # Errors
    /// The machine has no room for another socket.
    fn open_listener(&mut self, id: ListenerId, listener: Self::Listener) -> io::Result<()>;

    /// Accepts one waiting connection.
    ///
    /// # Errors
    /// [`AcceptFailure`] is the reason why there is none.
    fn accept(
        &mut self,
        listener: ListenerId,
    ) -> Result<AcceptedSocket<Self::Socket>, AcceptFailure>;

    /// Stops (`false`) or resumes (`true`) reporting the connections that wait at a listener.
    fn listen(&mut self, listener: ListenerId, on: bool);

    /// Refuses new handshakes at a listener; those in progress still finish.
    fn refuse_new(&mut self, listener: ListenerId);

    /// Closes a listener.
    fn close_listener(&mut self, listener: ListenerId);

    /// Reports events of the socket with this token until it is dropped, including events from before the call.
    ///
    /// # Errors
    /// The machine has no room for another socket.
    fn register(&mut self, socket: &Self::Socket, token: ConnectionToken) -> io::Result<()>;

    /// Receives available bytes. Short-lived connections need not be registered for it.
    fn receive(
        &mut self,
        socket: &Self::Socket,
        token: ConnectionToken,
    ) -> ReceiveOutcome<Self::Lent>;

    /// Returns the buffer of a receive.
    fn return_buffer(&mut self, buffer: Self::Lent);

    /// Sends the start of `buffer`, which is not empty, without copying where that is cheaper; `more`: further bytes
    /// follow at once. If the result is known at once, the buffer stays; otherwise the driver takes it out and keeps
    /// it until a [`DriverEvent::Sent`] ([`SendOutcome::Underway`]).
    fn send(
        &mut self,
        socket: &Self::Socket,
        token: ConnectionToken,
        buffer: &mut SendBuffer,
        more: bool,
    ) -> SendOutcome;

    /// Starts to send the start of a file's range outside the event loop; a [`DriverEvent::File`] follows. A
    /// connection has at most one transfer or send in progress.
    ///
    /// # Errors
    /// The transfer can't be started (too many in progress, no descriptor).
    fn start_file(
        &mut self,
        socket: &Self::Socket,
        token: ConnectionToken,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> io::Result<()>;

    /// Starts to read the start of a file's range outside the event loop, for content that is encrypted or framed
    /// before it is sent; a [`DriverEvent::File`] follows, which is [`FileSent::Read`] or a failure.
    ///
    /// # Errors
    /// The read can't be started (too many in progress).
    fn start_read(
        &mut self,
        token: ConnectionToken,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> io::Result<()>;

    /// Lets the kernel encrypt all later bytes of this socket, with these keys from a
    /// [`TlsSession`](crate::tls_session::TlsSession). It can't be undone.
    ///
    /// # Errors
    /// The kernel does not support this; the socket is unchanged.
    fn enable_kernel_tls(&mut self, socket: &Self::Socket, keys: &[u8]) -> io::Result<()>;

    /// Sends a TLS alert over a socket for which the kernel encrypts: all of it or nothing. Once it is sent, it and all
    /// earlier bytes leave even if the connection is closed at once.
    fn send_alert(&mut self, socket: &Self::Socket, alert: &[u8]) -> SendOutcome;

    /// Bytes that were sent and that the peer has not acknowledged.
    fn unacknowledged(&self, socket: &Self::Socket) -> usize;

    /// Half-closes the connection behind the bytes in progress; the peer may still send.
    fn finish(&mut self, socket: &Self::Socket);

    /// Closes a connection. A send in progress is abandoned, unless [`IoDriver::finish`] was called: then it still
    /// completes. Either way no event reports it, and the driver keeps the needed memory until it has ended.
    fn close(&mut self, socket: Self::Socket);

    /// Resets a connection, so that the peer sees that bytes are missing.
    fn reset(&mut self, socket: Self::Socket);

    /// Starts to report datagrams that arrive at a socket.
    ///
    /// # Errors
    /// The machine has no room for another socket.
    fn open_datagrams(&mut self, id: DatagramSocketId, socket: Self::Datagrams) -> io::Result<()>;

    /// Receives datagrams, which replace the batch's contents. True if there may be more.
    fn receive_datagrams(&mut self, id: DatagramSocketId, batch: &mut DatagramBatch) -> bool;

    /// Sends trains with ranges of `bytes`, and returns the number of trains that were sent completely; the
    /// next one keeps only its unsent datagrams. If trains remain, the socket is full: a [`DriverEvent::Room`]
    /// follows. As in any network, a sent datagram may be lost, also on this host ([`IoDriver::datagram_drops`]).
    fn send_datagrams(
        &mut self,
        id: DatagramSocketId,
        trains: &mut [DatagramTrain],
        bytes: &[u8],
    ) -> usize;

    /// The datagrams of a socket that were lost on this host.
    fn datagram_drops(&self, id: DatagramSocketId) -> DatagramDrops;

    /// Closes a datagram socket and with it all connections of its protocol.
    fn close_datagrams(&mut self, id: DatagramSocketId);

    /// The handle for tasks and other users on the worker's thread.
    fn local(&self) -> &WorkerHandle;

    /// Wakes a wait of this driver: its eventcount.
    fn waker(&self) -> Arc<dyn WorkerNotify> {
        self.local().event_count.clone()
    }
}
