//! What a driver does towards elsewhere: connections that it makes for tasks.
//!
//! Tasks own their connections and move between threads, so this side of a driver is shared and
//! called without the worker. As on the other side, operations try at once; waiting is done with
//! news, which the driver's wait brings. [`outgoing`](crate::outgoing) makes futures of both. It
//! knows nothing of tasks, nor what the bytes mean.

use std::any::Any;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use crate::buffer::SendBuffer;
use crate::driver::SendCompletion;

/// Names one socket to elsewhere; slot and generation, so that news of a closed one cannot reach its
/// successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceId {
    /// Place in the worker's table.
    pub slot: u32,
    /// How often a place was filled before; at most [`GENERATION_MAX`](crate::driver::GENERATION_MAX).
    pub generation: u32,
}

/// What happened at a socket to elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketEvent {
    /// Which.
    pub id: SourceId,
    /// There may be bytes, or the end of them, or an error.
    pub readable: bool,
    /// There may be room, or an error; the connection may have come about.
    pub writable: bool,
    /// The peer has sent its last byte, or the connection is broken: no further news is needed to
    /// read up to that.
    pub ended: bool,
}

/// Where a connection leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectTarget<'a> {
    /// To a unix socket.
    Unix(&'a Path),
    /// To a host and port.
    Tcp(SocketAddr),
    /// The same, from an address that need not be one of this machine's interfaces.
    TcpFrom {
        /// Where it leads.
        to: SocketAddr,
        /// Where it comes from.
        from: IpAddr,
    },
}

/// Makes connections to elsewhere for one worker.
pub trait UpstreamNetwork: Send + Sync {
    /// Begins to connect. What happens at the socket is told as news with this name, until it is
    /// dropped.
    ///
    /// # Errors
    /// What the system says; `WouldBlock` where a unix socket's queue is full.
    fn connect(&self, to: ConnectTarget<'_>, id: SourceId) -> io::Result<PendingConnect>;

    /// Tells the news of a connection that another worker made: with this name from now on. What
    /// happened before is told anew.
    ///
    /// # Errors
    /// What the system says, or it is not of this kind; the connection is of no use then.
    fn adopt(&self, socket: &mut dyn NetworkSocket, id: SourceId) -> io::Result<()>;
}

/// A connection that is there or comes about.
pub struct PendingConnect {
    /// It.
    pub socket: Box<dyn NetworkSocket>,
    /// It is there. Else news of room come, and [`NetworkSocket::connected`] is to be asked.
    pub connected: bool,
}

/// What a send to elsewhere did.
#[derive(Debug, PartialEq, Eq)]
pub enum UpstreamSendOutcome {
    /// So many bytes were taken, at least one.
    Bytes(usize),
    /// The network has the buffer, see [`NetworkSocket::sent`].
    Underway,
}

/// A connection to elsewhere. Dropped, it is closed.
pub trait NetworkSocket: Any + Send {
    /// Whether connecting has come to a good end.
    ///
    /// # Errors
    /// Why not.
    fn connected(&mut self) -> io::Result<()>;

    /// Receives into `into`, which is not empty; 0 at the end. Less than there was room for is all
    /// that there was: news come of what follows.
    ///
    /// # Errors
    /// `WouldBlock`: there is nothing now, and news will come. Else the connection is broken.
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize>;

    /// Sends a start of `buffer`, which is not empty. What can be said at once leaves the buffer where it is; else the
    /// network takes it out of its place and gives it back by [`NetworkSocket::sent`], when news of room have come. Nothing else
    /// may be sent until then.
    ///
    /// # Errors
    /// `WouldBlock`: there is no room now, and news will come. Else the connection is broken.
    fn send(&mut self, buffer: &mut SendBuffer) -> io::Result<UpstreamSendOutcome>;

    /// Gives back what a send has taken, once that is over.
    fn sent(&mut self) -> Option<SendCompletion> {
        None
    }

    /// Sends a start of bytes that are not ours to keep, at least one, where the network can say at once how many were taken:
    /// then they need not be copied. `None` where it can't.
    ///
    /// # Errors
    /// As of [`NetworkSocket::send`].
    fn send_at_once(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let _ = pieces;
        Ok(None)
    }

    /// Sends the end of our bytes; the peer's may still come.
    ///
    /// # Errors
    /// The connection is broken.
    fn finish(&mut self) -> io::Result<()>;

    /// Whom to ask whether what was sent has been read; `None` where nobody knows. It keeps the connection open.
    fn reception(&self) -> Option<PeerReception> {
        None
    }
}

/// Says whether the other side's program has read all that was sent.
pub type PeerReception = Box<dyn Fn() -> bool + Send>;

/// A world without sockets: none can be made.
pub struct NoNetwork;

impl UpstreamNetwork for NoNetwork {
    fn connect(&self, _: ConnectTarget<'_>, _: SourceId) -> io::Result<PendingConnect> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn adopt(&self, _: &mut dyn NetworkSocket, _: SourceId) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
