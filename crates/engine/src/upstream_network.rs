//! The interface through which tasks open upstream connections by the worker's driver.
//!
//! Tasks own their connections and move between threads, so this part of a driver is shared, and called without the
//! worker. Operations never block: if one would block, the task waits for a readiness event, which the driver's wait
//! returns. [`upstream_socket`](crate::upstream_socket) makes futures of operations and events.

use std::any::Any;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use crate::buffer::SendBuffer;
use crate::driver::SendCompletion;

/// Identifies an upstream socket by slot and generation, so that an event for a closed socket can't reach the slot's
/// next socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceId {
    /// The index in the worker's table.
    pub slot: u32,
    /// Counts the sockets added to the table; at most [`GENERATION_MAX`](crate::driver::GENERATION_MAX).
    pub generation: u32,
}

/// A readiness event of an upstream socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketEvent {
    /// The socket.
    pub id: SourceId,
    /// There may be bytes, the end of input, or an error.
    pub readable: bool,
    /// There may be room or an error, or connecting has ended.
    pub writable: bool,
    /// The peer has half-closed the connection, or it is broken; the rest can be read without further events.
    pub ended: bool,
}

/// The destination of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectTarget<'a> {
    /// A Unix socket.
    Unix(&'a Path),
    /// A host and port.
    Tcp(SocketAddr),
    /// A host and port, from a source address that need not be one of this host's.
    TcpFrom {
        /// The destination.
        to: SocketAddr,
        /// The source.
        from: IpAddr,
    },
}

/// Opens upstream connections for one worker.
pub trait UpstreamNetwork: Send + Sync {
    /// Starts to connect. Events are reported with `id` until the socket is dropped.
    ///
    /// # Errors
    /// The system's error; `WouldBlock` if a Unix socket's backlog is full.
    fn connect(&self, to: ConnectTarget<'_>, id: SourceId) -> io::Result<PendingConnect>;

    /// Adopts a connection of another worker. From now on this worker reports the events of the connection with `id`,
    /// including the current readiness.
    ///
    /// # Errors
    /// The system's error, or the socket belongs to another network; the connection can't be used then.
    fn adopt(&self, socket: &mut dyn NetworkSocket, id: SourceId) -> io::Result<()>;
}

/// A connection that is established or being established.
pub struct PendingConnect {
    /// The socket.
    pub socket: Box<dyn NetworkSocket>,
    /// The connection is established. Otherwise a writable event follows, after which [`NetworkSocket::connected`]
    /// returns the result.
    pub connected: bool,
}

/// The result of a send on an upstream connection.
#[derive(Debug, PartialEq, Eq)]
pub enum UpstreamSendOutcome {
    /// This many bytes were sent, at least one.
    Bytes(usize),
    /// The network has taken the buffer, see [`NetworkSocket::sent`].
    Underway,
}

/// An upstream connection. Dropping it closes it.
pub trait NetworkSocket: Any + Send {
    /// The result of connecting.
    ///
    /// # Errors
    /// The reason of the failure.
    fn connected(&mut self) -> io::Result<()>;

    /// Receives into `buffer`, which is not empty; returns 0 at the end of input. After a short receive the socket is
    /// empty, and an event reports later bytes.
    ///
    /// # Errors
    /// `WouldBlock`: there are no bytes now, and an event will follow. Otherwise the connection is broken.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sends as many bytes of `buffer`, which is not empty, as the socket accepts. A network that completes the send
    /// later takes the buffer, and returns it by [`NetworkSocket::sent`] after a writable event. Nothing else may be
    /// sent until then.
    ///
    /// # Errors
    /// `WouldBlock`: there is no room now, and an event will follow. Otherwise the connection is broken.
    fn send(&mut self, buffer: &mut SendBuffer) -> io::Result<UpstreamSendOutcome>;

    /// Returns the buffer of a send that has ended.
    fn sent(&mut self) -> Option<SendCompletion> {
        None
    }

    /// Sends borrowed bytes, at least one, as far as the socket accepts them. `None` if the network completes sends
    /// later: then the bytes have to be copied.
    ///
    /// # Errors
    /// Those of [`NetworkSocket::send`].
    fn send_at_once(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let _ = pieces;
        Ok(None)
    }

    /// Half-closes the connection; the peer may still send.
    ///
    /// # Errors
    /// The connection is broken.
    fn finish(&mut self) -> io::Result<()>;

    /// A function that returns whether the peer has read all sent bytes; `None` if the network can't know. The function
    /// keeps the connection open.
    fn reception(&self) -> Option<PeerReception> {
        None
    }
}

/// Returns whether the peer's program has read all sent bytes.
pub type PeerReception = Box<dyn Fn() -> bool + Send>;

/// A network that refuses all connections.
pub struct NoNetwork;

impl UpstreamNetwork for NoNetwork {
    fn connect(&self, _: ConnectTarget<'_>, _: SourceId) -> io::Result<PendingConnect> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn adopt(&self, _: &mut dyn NetworkSocket, _: SourceId) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
