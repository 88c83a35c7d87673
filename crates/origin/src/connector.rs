//! The interface between a pool and its protocol: how a connection is opened, and whether an idle one is reusable.

use std::future::Future;
use std::io;
use std::time::Duration;

use lowroad_engine::WorkerHandle;
use lowroad_engine::upstream_socket::UpstreamSocket;

use crate::ServerAddress;

/// The pause between attempts while a unix socket's backlog is full.
const QUEUE_PAUSE: Duration = Duration::from_millis(10);

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

/// A pooled connection. Dropping it closes it.
pub trait Connection: Send + 'static {
    /// Whether an idle connection is still open and has no unexpected input. Checked before each reuse.
    fn is_idle(&mut self) -> bool;

    /// Its socket, which may move to another worker.
    fn socket(&mut self) -> &mut UpstreamSocket;
}

/// The reason why no connection is available.
#[derive(Debug)]
pub enum PoolUnavailable {
    /// The queue of waiters is full.
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
            // The caller's timeout bounds the loop.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                worker_handle.timers.sleep(QUEUE_PAUSE).await;
            }
            socket => return opener.open(socket?, worker_handle).await,
        }
    }
}
