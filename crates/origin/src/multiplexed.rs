//! Multiplexed connections: concurrent requests share a connection, for protocols that support it. The protocol drives
//! the connections; this module chooses a connection for a request, and decides when to open another.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_engine::WorkerHandle;
use lowroad_limits::{ConcurrencyLimit, Permit};

use crate::connector::{PoolConnector, PoolUnavailable};
use crate::pool::{AcquireTimeouts, ConnectionPool, Lease};

/// A connection that can have several concurrent requests.
pub trait MultiplexedConnection: Send + Sync {
    /// The worker that drives the connection.
    fn worker(&self) -> usize;

    /// Whether the connection can take another request.
    fn has_room(&self) -> bool;

    /// Whether the server allows requests on the connection, apart from those in progress.
    fn allows_requests(&self) -> bool {
        true
    }

    /// Waits until the number of requests that the server allows is known.
    fn settle(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Whether the connection is closed.
    fn is_closed(&self) -> bool;

    /// The number of requests in progress, including those that wait for room.
    fn requests(&self) -> usize;
}

/// A connection for one request.
pub enum SharedOrLease<S, O: PoolConnector> {
    /// A multiplexed connection. Without room, the request waits at the connection.
    Shared(Arc<S>),
    /// A connection that turned out not to be multiplexed.
    Lease(Lease<O>),
}

/// The multiplexed connections to one server. They count as connections of the server's pool.
pub struct SharedConnections<S> {
    /// A single permit to open a connection: other requests wait, and then share the new connection.
    opening: Arc<ConcurrencyLimit>,
    connections: Mutex<Vec<Arc<S>>>,
}

impl<S: MultiplexedConnection> SharedConnections<S> {
    /// No connections, for this number of workers.
    pub fn new(workers: usize) -> SharedConnections<S> {
        SharedConnections {
            opening: ConcurrencyLimit::queued(1, workers, usize::MAX),
            connections: Mutex::default(),
        }
    }

    /// Returns a connection with room, or opens a connection, which `start` runs on its worker. A connection of another
    /// worker is used only if the pool's limit is reached. `fresh`: existing connections get no new requests.
    ///
    /// # Errors
    /// [`PoolUnavailable`]
    pub async fn get<O: PoolConnector>(
        &self,
        pool: &ConnectionPool<O>,
        worker: usize,
        fresh: bool,
        timeouts: AcquireTimeouts,
        start: impl FnOnce(O::PooledConnection, Permit, usize, &WorkerHandle) -> Arc<S>,
    ) -> Result<Arc<S>, PoolUnavailable> {
        let worker = pool.worker_index(worker);
        // Fast path: needs no permit to open a connection.
        if let Some(shared) = self.find_with_room(Some(worker), fresh) {
            return Ok(shared);
        }
        let mut connecting = false;
        let acquisition = async {
            // Connections are opened one at a time: a burst of requests needs one connection, and not one for each.
            let opening = self.opening.acquire(worker, pool.now_ms(worker)).await;
            let _opening = opening.map_err(|_| PoolUnavailable::TooManyWait)?;
            // Another request may have opened a connection in the meantime.
            if let Some(shared) = self.find_with_room(Some(worker), false) {
                return Ok(shared);
            }
            // A new connection on this worker is preferred to an existing one of another worker, since it avoids
            // messages between workers.
            let permit = pool.bound().try_acquire_on(worker);
            if permit.is_none()
                && let Some(shared) = self.find_with_room(None, false)
            {
                return Ok(shared);
            }
            let permit = match permit {
                Some(permit) => permit,
                // The limit is reached, and no connection has room: wait until a connection is closed or returned.
                None => pool.permit(worker).await?,
            };
            connecting = true;
            let connection = pool.connect(worker, timeouts).await?;
            let shared = start(connection, permit, worker, pool.worker_handle(worker));
            // Published before the permit to open is freed, so that the waiting requests find the connection.
            self.publish(&shared);
            Ok(shared)
        };
        // Boxed, as in `ConnectionPool::lease`.
        let acquired = Box::pin(pool.with_timeout(worker, timeouts.total, acquisition)).await;
        acquired.unwrap_or(Err(match connecting {
            true => PoolUnavailable::ConnectTimeout,
            false => PoolUnavailable::NoneFree,
        }))
    }

    /// Like [`SharedConnections::get`], for a protocol that is negotiated when a connection is opened: `start` returns the
    /// lease if the connection is not multiplexed. If the limit is reached, the connection with the fewest requests is
    /// returned, in which the request waits for room.
    ///
    /// # Errors
    /// [`PoolUnavailable`]
    pub async fn get_or_lease<O: PoolConnector>(
        &self,
        pool: &Arc<ConnectionPool<O>>,
        worker: usize,
        timeouts: AcquireTimeouts,
        start: impl FnOnce(Lease<O>) -> Result<Arc<S>, Lease<O>>,
    ) -> Result<SharedOrLease<S, O>, PoolUnavailable> {
        let worker = pool.worker_index(worker);
        if let Some(shared) = self.try_get(worker) {
            return Ok(SharedOrLease::Shared(shared));
        }
        let mut connecting = false;
        let acquisition = async {
            // As in `get`: a burst of requests needs one connection.
            let opening = self.opening.acquire(worker, pool.now_ms(worker)).await;
            let _opening = opening.map_err(|_| PoolUnavailable::TooManyWait)?;
            if let Some(shared) = self.try_get(worker) {
                return Ok(SharedOrLease::Shared(shared));
            }
            let permit = match pool.bound().try_acquire_on(worker) {
                Some(permit) => permit,
                None => match self.find_least_loaded(worker) {
                    Some(shared) => return Ok(SharedOrLease::Shared(shared)),
                    None => pool.permit(worker).await?,
                },
            };
            connecting = true;
            let lease = pool.open_lease(worker, permit, timeouts).await?;
            Ok(match start(lease) {
                Ok(shared) => {
                    self.publish(&shared);
                    // With the permit to open: the waiting requests don't open connections that they may not need, nor
                    // do they use the connection beyond the server's limit.
                    shared.settle().await;
                    SharedOrLease::Shared(shared)
                }
                Err(lease) => SharedOrLease::Lease(lease),
            })
        };
        // Boxed, as in `ConnectionPool::lease`.
        let acquired = Box::pin(pool.with_timeout(worker, timeouts.total, acquisition)).await;
        acquired.unwrap_or(Err(match connecting {
            true => PoolUnavailable::ConnectTimeout,
            false => PoolUnavailable::NoneFree,
        }))
    }

    /// Offers a connection to other requests.
    pub fn publish(&self, shared: &Arc<S>) {
        self.lock().push(shared.clone());
    }

    /// A connection of this worker with room; does not wait.
    pub fn try_get(&self, worker: usize) -> Option<Arc<S>> {
        self.find_with_room(Some(worker), false)
    }

    /// The connection with the fewest requests, preferably of this worker.
    fn find_least_loaded(&self, worker: usize) -> Option<Arc<S>> {
        let mut connections = self.lock();
        connections.retain(|connection| !connection.is_closed());
        let load = |it: &&Arc<S>| {
            let is_foreign = it.worker() != worker;
            (
                !it.has_room(),
                !it.allows_requests(),
                is_foreign,
                it.requests(),
            )
        };
        connections.iter().min_by_key(load).cloned()
    }

    /// A connection with room, of this worker, or of any worker if `None`.
    fn find_with_room(&self, worker: Option<usize>, fresh: bool) -> Option<Arc<S>> {
        let mut connections = self.lock();
        connections.retain(|connection| !connection.is_closed());
        if fresh {
            // The connections are only removed from the list: requests in progress have their own references.
            connections.clear();
        }
        let is_on_worker =
            |connection: &S| worker.is_none_or(|worker| worker == connection.worker());
        let mut connections = connections.iter();
        connections
            .find(|connection| is_on_worker(connection) && connection.has_room())
            .cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<S>>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
