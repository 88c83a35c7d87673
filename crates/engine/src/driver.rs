//! The interface between a worker and the operating system: one trait, so that the same worker runs on epoll and in the
//! simulator, and later on io_uring.
//!
//! Operations never block; one that can't be done immediately reports that. A driver may batch or defer system calls. A
//! driver knows no HTTP.
//!
//! Tasks use the driver through a [`WorkerHandle`]: for upstream connections, which an
//! [`UpstreamNetwork`](crate::upstream_network::UpstreamNetwork) opens, for timers in the driver's time, and for helper
//! threads.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::buffer::SendBuffer;
use crate::datagram_relay::{ProcessWorker, RelayOutcome};
use crate::datagrams::{DatagramBatch, DatagramDrops, DatagramTrain};
use crate::file::{FileSent, OpenFile};
use crate::mailbox::WorkerNotify;
use crate::upstream_network::SocketEvent;
use crate::worker_handle::WorkerHandle;

/// Identifies a connection of a worker by slot and generation, so that an event for a closed connection can't reach the
/// slot's next connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionToken {
    /// The index in the worker's table.
    pub slot: u32,
    /// The worker's number of accepted connections when the slot was filled; at most [`GENERATION_MAX`].
    pub generation: u32,
}

impl ConnectionToken {
    /// A token that identifies no connection.
    pub const NONE: ConnectionToken = ConnectionToken {
        slot: u32::MAX,
        generation: 0,
    };
}

/// The last generation; the next one is 1. Drivers use the bit above for other sockets.
pub const GENERATION_MAX: u32 = u32::MAX >> 1;

/// A listener, by its index in the worker's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(pub u16);

/// A datagram socket, by its number. Numbers of listeners are separate ([`ListenerId`]).
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
        /// There may be bytes to read, or the end of input.
        readable: bool,
        /// There may be room for more bytes.
        writable: bool,
        /// The peer has half-closed the connection: read until the end of input.
        ended: bool,
        /// The connection is broken.
        broken: bool,
    },
    /// A send that returned [`SendOutcome::Underway`] has ended.
    Sent(ConnectionToken, Box<SendCompletion>),
    /// The result of a transfer started with [`IoDriver::start_file`], or of a read started with
    /// [`IoDriver::start_read`].
    File(ConnectionToken, FileSent),
    /// The state of an upstream socket changed.
    UpstreamReady(SocketEvent),
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
    /// The process or the system is out of file descriptors or memory.
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
    /// The end of input: the peer has closed or half-closed the connection.
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
    type RecvBuffer: AsRef<[u8]>;
    /// A listening socket, opened by the caller.
    type Listener: Send + 'static;
    /// A datagram socket, opened by the caller.
    type Datagrams: Send + 'static;

    /// Waits until there are events or the timeout has elapsed, and appends the events to `events`. `None`: no timeout.
    /// Waits no longer than until the next timer of the worker's tasks, and wakes tasks with due timers. Returns
    /// immediately if a notification is pending; only the worker consumes it. Reads the clocks after the wait.
    fn wait(&mut self, timeout_ms: Option<u64>, events: &mut Vec<DriverEvent>);

    /// Monotonic time of the last wait, in ms.
    fn now_ms(&self) -> u64;

    /// Monotonic time in µs, read now. It counts from the same moment as [`IoDriver::now_ms`], which may lag behind.
    fn now_us(&self) -> u64;

    /// Sets a time, on the clock of [`IoDriver::now_us`], at which a wait ends. It stays set until it is replaced; once
    /// it has passed, every wait returns immediately. For deadlines of datagram protocols, for which the timeout of
    /// [`IoDriver::wait`] is too coarse; a driver without datagram sockets may ignore it.
    fn wake_at(&mut self, at_us: Option<u64>);

    /// Time of day in ms since 1970, read now. It may jump either way.
    fn unix_ms(&self) -> u64;

    /// Starts to report waiting connections at a listener.
    ///
    /// # Errors
    /// The kernel can't register another socket.
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
    fn refuse_handshakes(&mut self, listener: ListenerId);

    /// Stops listening until [`IoDriver::resume_listener`]; the listener keeps its address.
    fn suspend_listener(&mut self, listener: ListenerId);

    /// Listens again at a suspended listener, and accepts new handshakes.
    ///
    /// # Errors
    /// The address is in use by another program, or the kernel can't register the socket.
    fn resume_listener(&mut self, listener: ListenerId) -> io::Result<()>;

    /// Duplicates a listener, for another process.
    ///
    /// # Errors
    /// The listener is closed, or file descriptors ran out.
    fn share_listener(&self, listener: ListenerId) -> io::Result<Self::Listener>;

    /// Closes a listener.
    fn close_listener(&mut self, listener: ListenerId);

    /// Starts to report events of the socket, with this token, until the socket is closed. Events from before the call
    /// are reported too.
    ///
    /// # Errors
    /// The kernel can't register another socket.
    fn register(&mut self, socket: &Self::Socket, token: ConnectionToken) -> io::Result<()>;

    /// Receives available bytes. The socket need not be registered, so short-lived connections never are.
    fn receive(
        &mut self,
        socket: &Self::Socket,
        token: ConnectionToken,
    ) -> ReceiveOutcome<Self::RecvBuffer>;

    /// Returns the buffer of a receive.
    fn return_buffer(&mut self, buffer: Self::RecvBuffer);

    /// Sends as many bytes of `buffer`, which is not empty, as the socket accepts; without copying if that is cheaper.
    /// `more`: another send follows immediately (`MSG_MORE`). A driver that completes the send later takes the buffer,
    /// returns [`SendOutcome::Underway`], and gives the buffer back with a [`DriverEvent::Sent`].
    fn send(
        &mut self,
        socket: &Self::Socket,
        token: ConnectionToken,
        buffer: &mut SendBuffer,
        more: bool,
    ) -> SendOutcome;

    /// Starts to send a range of a file outside the event loop; a [`DriverEvent::File`] reports how many bytes of it
    /// were sent. A connection has at most one transfer or send in progress.
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

    /// Starts to read a range of a file outside the event loop, for content that is encrypted or framed before it is
    /// sent. A [`DriverEvent::File`] follows: [`FileSent::Read`], which may end before the range does, or a failure.
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

    /// Sends a TLS alert over a socket for which the kernel encrypts: completely or not at all. If it was sent, the
    /// alert and all earlier bytes are transmitted even if the connection is closed immediately afterwards.
    fn send_alert(&mut self, socket: &Self::Socket, alert: &[u8]) -> SendOutcome;

    /// The user ID of the process at the other end of a Unix socket; `None` if the driver does not know it.
    fn peer_user(&self, socket: &Self::Socket) -> Option<u32> {
        let _ = socket;
        None
    }

    /// Bytes that were sent and that the peer has not acknowledged.
    fn unacknowledged(&self, socket: &Self::Socket) -> usize;

    /// Half-closes the connection after the bytes in progress; the peer may still send.
    fn finish(&mut self, socket: &Self::Socket);

    /// Closes a connection. A send in progress is abandoned, unless [`IoDriver::finish`] was called: then the send
    /// still completes. In both cases no event reports the send, and the driver keeps its buffer until the send has
    /// ended.
    fn close(&mut self, socket: Self::Socket);

    /// Resets a connection, so that the peer sees that bytes are missing.
    fn reset(&mut self, socket: Self::Socket);

    /// Starts to report datagrams that arrive at a socket.
    ///
    /// # Errors
    /// The kernel can't register another socket.
    fn open_datagrams(&mut self, id: DatagramSocketId, socket: Self::Datagrams) -> io::Result<()>;

    /// Receives datagrams, which replace the batch's contents. True if there may be more.
    fn receive_datagrams(&mut self, id: DatagramSocketId, batch: &mut DatagramBatch) -> bool;

    /// Sends trains with ranges of `bytes`, and returns the number of trains that were sent completely; the next train
    /// keeps only its unsent datagrams. If trains remain, the socket is full: a [`DriverEvent::Room`] follows. As in
    /// any network, a sent datagram may be lost, also on this host ([`IoDriver::datagram_drops`]).
    fn send_datagrams(
        &mut self,
        id: DatagramSocketId,
        trains: &mut [DatagramTrain],
        bytes: &[u8],
    ) -> usize;

    /// The datagrams of a socket that were lost on this host.
    fn datagram_drops(&self, id: DatagramSocketId) -> DatagramDrops;

    /// Duplicates the sockets of an address, for another process.
    ///
    /// # Errors
    /// The sockets are closed, or file descriptors ran out.
    fn share_datagrams(&self, id: DatagramSocketId) -> io::Result<Self::Datagrams> {
        let _ = id;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The local address of a datagram socket.
    fn datagram_address(&self, id: DatagramSocketId) -> Option<SocketAddr> {
        let _ = id;
        None
    }

    /// Whether there are workers that receive no datagrams of this address from the kernel.
    fn spreads_datagrams(&self, id: DatagramSocketId) -> bool {
        let _ = id;
        false
    }

    /// Passes a datagram to a worker of another process.
    fn relay_datagram(
        &self,
        id: DatagramSocketId,
        to: ProcessWorker,
        train: &DatagramTrain,
        datagram: &[u8],
    ) -> RelayOutcome {
        let _ = (id, to, train, datagram);
        RelayOutcome::Ended
    }

    /// Receives from a relay of another process from now on, and no more from the socket.
    ///
    /// # Errors
    /// The kernel can't register another socket.
    fn receive_from_relay(&mut self, id: DatagramSocketId, relay: OwnedFd) -> io::Result<()> {
        let _ = (id, relay);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Closes a datagram socket, and with it all connections of the protocol that uses the socket.
    fn close_datagrams(&mut self, id: DatagramSocketId);

    /// The handle to the worker's tasks and timers, for code on the worker's thread.
    fn worker_handle(&self) -> &WorkerHandle;

    /// The driver's eventcount, with which other threads end its wait.
    fn waker(&self) -> Arc<dyn WorkerNotify> {
        self.worker_handle().event_count.clone()
    }
}
