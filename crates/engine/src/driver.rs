//! What a worker needs of the machine: one trait, so that the same worker runs on epoll, later on
//! io_uring, and in the simulator.
//!
//! The operations try at once and say so when they could not; what a driver batches or defers below
//! them is its own affair. A driver knows nothing of HTTP.
//!
//! What tasks need of it is lent to them as a [`WorkerHandle`]: connections to elsewhere, which its
//! [`Network`](crate::network::Network) makes, timers of its time, and helpers.

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

/// Names one connection of a worker for as long as the worker runs: slot and generation, so that
/// news for a closed connection cannot reach its successor in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionToken {
    /// Place in the worker's table.
    pub slot: u32,
    /// How often the worker had accepted when it filled the place; at most [`GENERATION_MAX`].
    pub generation: u32,
}

impl ConnectionToken {
    /// That of no connection.
    pub const NOBODY: ConnectionToken = ConnectionToken {
        slot: u32::MAX,
        generation: 0,
    };
}

/// Where generations begin anew, at 1: drivers have uses for what is above.
pub const GENERATION_MAX: u32 = u32::MAX >> 1;

/// A listener by its place in the list that the worker was started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(pub u16);

/// A socket for datagrams by its number. Listeners have numbers of a different type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DatagramSocketId(pub u16);

/// What a wait brought.
#[derive(Debug)]
pub enum DriverEvent {
    /// Connections may be waiting at this listener.
    Acceptable(ListenerId),
    /// Something changed at a connection.
    Ready {
        /// Which connection.
        token: ConnectionToken,
        /// There may be bytes, or the end of them.
        readable: bool,
        /// There may be room for bytes.
        writable: bool,
        /// The peer has sent its last byte: read until the end shows.
        ended: bool,
        /// The connection is broken.
        broken: bool,
    },
    /// A send that [`SendOutcome::Underway`] told of is over.
    Sent(ConnectionToken, Box<SendCompletion>),
    /// A transfer started with [`IoDriver::start_file`], or a read with [`IoDriver::start_read`], got this far.
    File(ConnectionToken, FileSent),
    /// Something changed at a socket to elsewhere.
    Outgoing(SocketEvent),
    /// Datagrams may have arrived at this socket. Repeated with each wait until all are received.
    Datagrams(DatagramSocketId),
    /// A socket for datagrams that was full has room again.
    Room(DatagramSocketId),
}

/// What became of a send.
pub struct SendCompletion {
    /// What was to be sent, as it was.
    pub buffer: SendBuffer,
    /// How many bytes of it were taken, at least one; `None` if the connection is broken.
    pub taken: Option<usize>,
}

impl std::fmt::Debug for SendCompletion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Completion").field(&self.taken).finish()
    }
}

/// A connection just accepted.
pub struct AcceptedSocket<S> {
    /// The connection's socket.
    pub socket: S,
    /// Who is at the other end; the unspecified address for a Unix socket.
    pub peer: IpAddr,
    /// Its port; 0 for a Unix socket.
    pub peer_port: u16,
}

/// Why no connection was accepted.
#[derive(Debug, PartialEq, Eq)]
pub enum AcceptFailure {
    /// None is waiting.
    Empty,
    /// This one went away before we got it; the next may be fine.
    Gone,
    /// Descriptors or memory ran out (of the process or the machine).
    Exhausted,
}

/// What a receive brought.
#[derive(Debug, PartialEq, Eq)]
pub enum ReceiveOutcome<B> {
    /// Bytes, at least one.
    Bytes {
        /// They, in a buffer of the driver's: to be given back soon ([`IoDriver::give_back`]).
        lent: B,
        /// There may be more already.
        more: bool,
    },
    /// Nothing now.
    Empty,
    /// The peer has sent its last byte.
    End,
    /// The connection is broken.
    Broken,
}

/// What a send did.
#[derive(Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// So many bytes were taken, at least one.
    Bytes(usize),
    /// The same, and there is no room for more now; a writable event will follow.
    Filled(usize),
    /// No room now; a writable event will follow.
    Full,
    /// The driver has taken the buffer, which comes back with [`DriverEvent::SendOutcome`]. Nothing else may be sent over the
    /// connection until then.
    Underway,
    /// The connection is broken.
    Broken,
}

/// Sockets, files and clocks for one worker.
pub trait IoDriver {
    /// A connection's socket.
    type Socket;
    /// Bytes received, in a buffer of the driver's.
    type Lent: AsRef<[u8]>;
    /// A listening socket, made elsewhere.
    type Listener: Send + 'static;
    /// A socket for datagrams, made elsewhere.
    type Datagrams: Send + 'static;

    /// Waits until something happens or the time is over; appends what happened to `events`.
    /// `None` waits without end. Waits no longer than the next timer of [`IoDriver::worker_handle`] says, and
    /// wakes those that are due. Does not wait when it was notified before; only the worker asks
    /// the bell whether it was. Reads the clocks afterwards.
    fn wait(&mut self, timeout_ms: Option<u64>, events: &mut Vec<DriverEvent>);

    /// Monotonic time of the last wait in ms.
    fn now_ms(&self) -> u64;

    /// Monotonic time in µs, read now. Its origin is that of [`IoDriver::now_ms`], which may lag behind.
    fn now_us(&self) -> u64;

    /// Ends waits at this time of [`IoDriver::now_us`], until another is set; waits end at once while it is in the past. For
    /// deadlines of protocols over datagrams, for which [`IoDriver::wait`]'s timeout is too coarse: without a socket for
    /// datagrams it may do nothing.
    fn wake_at(&mut self, at_us: Option<u64>);

    /// Time of day in ms since 1970, read now. May jump either way.
    fn unix_ms(&self) -> u64;

    /// Starts to report connections that wait at a listener.
    ///
    /// # Errors
    /// When the machine has no room for one more.
    fn open_listener(&mut self, id: ListenerId, listener: Self::Listener) -> io::Result<()>;

    /// Takes one waiting connection.
    ///
    /// # Errors
    /// [`AcceptFailure`] says why there is none.
    fn accept(
        &mut self,
        listener: ListenerId,
    ) -> Result<AcceptedSocket<Self::Socket>, AcceptFailure>;

    /// Stops (`false`) or goes on (`true`) reporting connections that wait at a listener.
    fn listen(&mut self, listener: ListenerId, on: bool);

    /// Lets no new handshake begin at a listener; those under way still finish.
    fn refuse_new(&mut self, listener: ListenerId);

    /// Gives a listener back for good.
    fn close_listener(&mut self, listener: ListenerId);

    /// Reports what happens at the socket as events with this token, until it is dropped. News
    /// from before the call are reported too.
    ///
    /// # Errors
    /// When the machine has no room for one more.
    fn register(&mut self, socket: &Self::Socket, token: ConnectionToken) -> io::Result<()>;

    /// Receives what has come. Connections that are over soon need not be registered for it.
    fn receive(
        &mut self,
        socket: &Self::Socket,
        token: ConnectionToken,
    ) -> ReceiveOutcome<Self::Lent>;

    /// Takes back what a receive has lent.
    fn give_back(&mut self, lent: Self::Lent);

    /// Sends a start of `buffer`, which is not empty, without copying where that pays; `more` says that others follow
    /// at once. What can be said at once leaves the buffer where it is; else the driver takes it out of its place and
    /// keeps it until an [`DriverEvent::SendOutcome`] ([`SendOutcome::Underway`]).
    fn send(
        &mut self,
        socket: &Self::Socket,
        token: ConnectionToken,
        buffer: &mut SendBuffer,
        more: bool,
    ) -> SendOutcome;

    /// Starts sending a start of a file's range off the event loop; a [`DriverEvent::File`] follows.
    /// At most one transfer or send is under way per connection.
    ///
    /// # Errors
    /// When the transfer can't be started (too many under way, no descriptor).
    fn start_file(
        &mut self,
        socket: &Self::Socket,
        token: ConnectionToken,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> io::Result<()>;

    /// Starts reading a start of a file's range off the event loop, for whoever sends it in another form; a
    /// [`DriverEvent::File`] follows, which is [`FileSent::Read`] or why not.
    ///
    /// # Errors
    /// When the read can't be started (too many under way).
    fn start_read(
        &mut self,
        token: ConnectionToken,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> io::Result<()>;

    /// Has the kernel seal what is sent from now on over this socket, as a [layer](crate::layer) says. It can't be undone.
    ///
    /// # Errors
    /// The kernel does not do that; the socket is as it was.
    fn enable_kernel_tls(&mut self, socket: &Self::Socket, keys: &[u8]) -> io::Result<()>;

    /// Sends an alert of a layer over a socket for which the kernel seals: all of it or nothing. Once it is taken, it
    /// and all before it leave even if the connection is closed at once.
    fn send_alert(&mut self, socket: &Self::Socket, alert: &[u8]) -> SendOutcome;

    /// Bytes sent but not yet acknowledged by the peer.
    fn unacknowledged(&self, socket: &Self::Socket) -> usize;

    /// Sends the end of our bytes, behind what is under way; the peer's may still come.
    fn finish(&mut self, socket: &Self::Socket);

    /// Closes a connection. What is under way on it is given up, unless [`IoDriver::finish`] was called: then it still
    /// leaves. Either way no event tells of it, and the driver keeps what it needs until it is over.
    fn close(&mut self, socket: Self::Socket);

    /// Closes a connection by a reset: the peer sees that bytes are missing.
    fn reset(&mut self, socket: Self::Socket);

    /// Starts to report datagrams that arrive at a socket.
    ///
    /// # Errors
    /// When the machine has no room for one more.
    fn open_datagrams(&mut self, id: DatagramSocketId, socket: Self::Datagrams) -> io::Result<()>;

    /// Receives datagrams that have arrived, in place of the batch's contents. True if there may be more already.
    fn receive_datagrams(&mut self, id: DatagramSocketId, batch: &mut DatagramBatch) -> bool;

    /// Sends trains whose ranges are of `bytes`, and returns how many were taken; of the next one, `trains` keeps only the
    /// datagrams that were not. If it was not all, the socket is full: an [`DriverEvent::Room`] follows. As in any network, a
    /// datagram that was taken may be lost, on this host too ([`IoDriver::datagram_drops`]).
    fn send_datagrams(
        &mut self,
        id: DatagramSocketId,
        trains: &mut [DatagramTrain],
        bytes: &[u8],
    ) -> usize;

    /// What a socket for datagrams has lost on this host.
    fn datagram_drops(&self, id: DatagramSocketId) -> DatagramDrops;

    /// Closes a socket for datagrams, with all its protocol's connections.
    fn close_datagrams(&mut self, id: DatagramSocketId);

    /// What the worker lends to those who work on its thread.
    fn local(&self) -> &WorkerHandle;

    /// What wakes a wait of this driver: its bell.
    fn waker(&self) -> Arc<dyn WorkerNotify> {
        self.local().bell.clone()
    }
}
