//! The interface between a connection pool and its protocol: how a connection is opened, and whether an idle connection
//! is reusable.

use std::future::Future;
use std::io;
use std::time::Duration;

use lowroad_engine::WorkerHandle;
use lowroad_engine::upstream_socket::UpstreamSocket;

use crate::ServerAddress;

/// The pause between attempts to connect while a unix socket's backlog is full.
const BACKLOG_FULL_PAUSE: Duration = Duration::from_millis(10);

/// Opens connections of a protocol.
pub trait PoolConnector: Send + Sync + 'static {
    /// The connection type.
    type PooledConnection: Connection;

    /// Prepares a newly connected socket for its first request, on the worker of `worker_handle`.
    ///
    /// # Errors
    /// The connection is unusable.
    fn open(
        &self,
        socket: UpstreamSocket,
        worker_handle: &WorkerHandle,
    ) -> impl Future<Output = io::Result<Self::PooledConnection>> + Send;
}

/// A pooled connection. Dropping the value closes the connection.
pub trait Connection: Send + 'static {
    /// Whether an idle connection is still open and has no unexpected input. Checked before each reuse.
    fn is_idle(&mut self) -> bool;

    /// The socket, which may be moved to another worker.
    fn socket(&mut self) -> &mut UpstreamSocket;
}

/// Why no connection is available.
#[derive(Debug)]
pub enum PoolUnavailable {
    /// Too many requests wait for a connection already.
    TooManyWait,
    /// No connection became free in time.
    NoneFree,
    /// A new connection was not established in time.
    ConnectTimeout,
    /// A new connection failed.
    Failed(io::Error),
}

/// Opens a new connection.
pub(crate) async fn connect<O: PoolConnector>(
    opener: &O,
    address: &ServerAddress,
    worker_handle: &WorkerHandle,
) -> io::Result<O::PooledConnection> {
    loop {
        match UpstreamSocket::connect(&worker_handle.sources, address.remote()).await {
            // connect(2) on a unix socket fails with EAGAIN while the backlog is full, and no readiness event follows.
            // So connecting is retried until the caller's timeout.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                worker_handle.timers.sleep(BACKLOG_FULL_PAUSE).await;
            }
            socket => return opener.open(socket?, worker_handle).await,
        }
    }
}
