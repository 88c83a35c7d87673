//! The interface between tasks and a driver's upstream side: connections that the driver makes for tasks.
//!
//! Tasks own their connections and move between threads, so this side of a driver is shared and called without the
//! worker. As on the other side, operations are tried at once; tasks wait for readiness events, which the driver's
//! wait returns. [`upstream_socket`](crate::upstream_socket) makes futures of both. The module knows neither tasks nor
//! the bytes.

use std::any::Any;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use crate::buffer::SendBuffer;
use crate::driver::SendCompletion;

/// Identifies one upstream socket, by slot and generation, so that an event for a closed socket cannot reach its
/// successor.
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
    /// There may be bytes, or the end of them, or an error.
    pub readable: bool,
    /// There may be room, or an error; connecting may have ended.
    pub writable: bool,
    /// The peer has sent its last byte, or the connection is broken: no further event is needed to read up to that.
    pub ended: bool,
}

/// The destination of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectTarget<'a> {
    /// A Unix socket.
    Unix(&'a Path),
    /// A host and port.
    Tcp(SocketAddr),
    /// The same, from a source address that need not be one of this machine's.
    TcpFrom {
        /// The destination.
        to: SocketAddr,
        /// The source.
        from: IpAddr,
    },
}

/// Makes upstream connections for one worker.
pub trait UpstreamNetwork: Send + Sync {
    /// Starts to connect. Events of the socket are reported with this identifier until it is dropped.
    ///
    /// # Errors
    /// The system's error; `WouldBlock` if a Unix socket's backlog is full.
    fn connect(&self, to: ConnectTarget<'_>, id: SourceId) -> io::Result<PendingConnect>;

    /// Adopts a connection that another worker made: its events are reported with this identifier from now on,
    /// including the current readiness.
    ///
    /// # Errors
    /// The system's error, or a socket of another network; the connection is of no use then.
    fn adopt(&self, socket: &mut dyn NetworkSocket, id: SourceId) -> io::Result<()>;
}

/// A connection that is established or in progress.
pub struct PendingConnect {
    /// The socket.
    pub socket: Box<dyn NetworkSocket>,
    /// It is established. Otherwise a writable event follows, after which [`NetworkSocket::connected`] has the result.
    pub connected: bool,
}

/// The result of a send on an upstream connection.
#[derive(Debug, PartialEq, Eq)]
pub enum UpstreamSendOutcome {
    /// This many bytes were sent, at least one.
    Bytes(usize),
    /// The network has the buffer, see [`NetworkSocket::sent`].
    Underway,
}

/// An upstream connection. Dropping it closes it.
pub trait NetworkSocket: Any + Send {
    /// The result of connecting.
    ///
    /// # Errors
    /// The reason of the failure.
    fn connected(&mut self) -> io::Result<()>;

    /// Receives into `buffer`, which is not empty; 0 at the end. A short receive has emptied the socket: an event
    /// reports later bytes.
    ///
    /// # Errors
    /// `WouldBlock`: there are no bytes now, and an event will follow. Otherwise the connection is broken.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sends the start of `buffer`, which is not empty. If the result is known at once, the buffer stays; otherwise
    /// the network takes it out and returns it by [`NetworkSocket::sent`], after a writable event. Nothing else may be
    /// sent until then.
    ///
    /// # Errors
    /// `WouldBlock`: there is no room now, and an event will follow. Otherwise the connection is broken.
    fn send(&mut self, buffer: &mut SendBuffer) -> io::Result<UpstreamSendOutcome>;

    /// Returns the buffer of a send, once that has ended.
    fn sent(&mut self) -> Option<SendCompletion> {
        None
    }

    /// Sends the start of borrowed bytes, at least one, if the network knows the result at once: then they need not be
    /// copied. `None` if it does not.
    ///
    /// # Errors
    /// As of [`NetworkSocket::send`].
    fn send_at_once(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let _ = pieces;
        Ok(None)
    }

    /// Half-closes the connection; the peer may still send.
    ///
    /// # Errors
    /// The connection is broken.
    fn finish(&mut self) -> io::Result<()>;

    /// A query whether the peer has read all sent bytes; `None` if the network can't know. It keeps the connection
    /// open.
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
