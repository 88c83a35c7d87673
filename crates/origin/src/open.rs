//! What a pool needs to know of what it pools: how a connection is begun, and whether an idle one may
//! be used again. It knows nothing of bounds.

use std::future::Future;
use std::io;
use std::time::Duration;

use lowroad_engine::Local;
use lowroad_engine::outgoing::Outgoing;

use crate::Address;

/// Between two tries when a unix socket's queue of new connections is full.
const QUEUE_PAUSE: Duration = Duration::from_millis(10);

/// Makes connections of sockets.
pub trait Open: Send + Sync + 'static {
    /// What is made.
    type Connection: Connection;

    /// Makes a socket that has just connected ready for its first request, on the worker that lends
    /// `local`.
    ///
    /// # Errors
    /// It is of no use.
    fn open(
        &self,
        socket: Outgoing,
        local: &Local,
    ) -> impl Future<Output = io::Result<Self::Connection>> + Send;
}

/// A connection in a pool. Dropped, it is closed.
pub trait Connection: Send + 'static {
    /// Whether an idle one is still there, and quiet as it must be. Looked at before each use.
    fn is_idle(&mut self) -> bool;

    /// Its socket, which another worker may take over.
    fn socket(&mut self) -> &mut Outgoing;
}

/// Why there is no connection to be had.
#[derive(Debug)]
pub enum Unavailable {
    /// As many as may wait for one already.
    TooManyWait,
    /// None became free in time.
    NoneFree,
    /// A new one did not come about in time.
    ConnectTimeout,
    /// A new one failed.
    Failed(io::Error),
}

/// A new connection.
pub(crate) async fn connect<O: Open>(
    opener: &O,
    address: &Address,
    local: &Local,
) -> io::Result<O::Connection> {
    loop {
        match Outgoing::connect(&local.sources, address.remote()).await {
            // Its queue is full. Whoever waits here has an end to his patience.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                local.timers.sleep(QUEUE_PAUSE).await;
            }
            socket => return opener.open(socket?, local).await,
        }
    }
}
