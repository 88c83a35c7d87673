//! Connection pool: the connections to one server, for all workers.
//!
//! A connection's socket belongs to one worker's driver, and is preferably reused there. The bound on connections
//! covers all workers. `idle_connections` decides which connections are kept.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lowroad_engine::WorkerHandle;
use lowroad_limits::{ConcurrencyLimit, Permit};

use crate::ServerAddress;
use crate::connector::{self, Connection, PoolConnector, PoolUnavailable};
use crate::idle_connections::{ConnectionUse, IdleConnections};
use crate::idle_reaper::{self, ReaperTarget};

/// The bounds of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Concurrent connections of all workers. May be raised.
    pub connections_max: usize,
    /// Waiters for a connection.
    pub waiting_max: usize,
    /// The time after which an idle connection is closed.
    pub idle_max: Duration,
    /// The age beyond which a connection is not kept.
    pub age_max: Duration,
}

/// Acquire timeouts: how long a request waits for a connection.
#[derive(Clone, Copy, Debug)]
pub struct AcquireTimeouts {
    /// The total wait.
    pub total: Duration,
    /// The part of it for a new connection to be established.
    pub connecting: Duration,
}

impl AcquireTimeouts {
    /// The same timeout for the whole wait and for establishing a connection.
    pub fn from_total(total: Duration) -> AcquireTimeouts {
        AcquireTimeouts {
            total,
            connecting: total,
        }
    }
}

/// The pool's current state and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolCounters {
    /// The bound on connections.
    pub connections_max: usize,
    /// Free permits below the bound.
    pub free: usize,
    /// Idle connections.
    pub idle: usize,
    /// Waiters for a connection.
    pub waiting: usize,
    /// Connections opened so far.
    pub opened: u64,
    /// Reuses of idle connections.
    pub reused: u64,
    /// Idle connections that turned out to be closed by the server.
    pub stale: u64,
    /// Failed attempts to connect.
    pub failed: u64,
}

/// A connection pool for one server.
pub struct ConnectionPool<O: PoolConnector> {
    address: ServerAddress,
    opener: O,
    age_ms_max: u64,
    idle_max: Duration,
    workers: Arc<[WorkerHandle]>,
    bound: Arc<ConcurrencyLimit>,
    state: Mutex<PoolState<O::PooledConnection>>,
}

/// The mutable state, behind the pool's lock.
pub struct PoolState<C> {
    pub idle: IdleConnections<C>,
    pub idle_ms_max: u64,
    /// Whether returned connections are closed instead of kept.
    closes_returned: bool,
    /// Whether a task checks for a crowded server.
    pub watching: bool,
    /// Whether a task closes expired idle connections.
    pub reaping: bool,
    opened: u64,
    /// Idle connections taken for reuse, and how many of them were closed already.
    reuse_attempts: u64,
    stale: u64,
    failed: u64,
}

/// A connection leased to one request. Dropping it closes the connection; [`ConnectionPool::release`] may keep it.
pub struct Lease<O: PoolConnector> {
    /// Present until the server's first bytes. Dropped before the connection, since the pool may observe its socket
    /// until then.
    unproven: Option<UnprovenConnection<O>>,
    /// The leased connection.
    pub connection: O::PooledConnection,
    /// The worker of the request.
    pub worker: usize,
    /// Whether the connection is reused: the server may have closed it in the meantime.
    pub is_reused: bool,
    connection_use: ConnectionUse,
    /// `None` after [`Lease::detach`].
    permit: Option<Permit>,
}

impl<O: PoolConnector> Lease<O> {
    fn reused(
        connection: O::PooledConnection,
        connection_use: ConnectionUse,
        worker: usize,
        permit: Permit,
    ) -> Lease<O> {
        Lease {
            connection,
            worker,
            is_reused: true,
            connection_use,
            unproven: None,
            permit: Some(permit),
        }
    }

    /// Frees the permit, since the connection becomes a tunnel. It must not be returned to the pool.
    pub fn detach(&mut self) {
        self.permit = None;
    }

    /// Records that the server has sent bytes: one of its processes has accepted the connection.
    pub fn mark_proven(&mut self) {
        self.unproven = None;
    }
}

/// A new connection without any bytes from the server so far.
struct UnprovenConnection<O: PoolConnector> {
    pool: Arc<ConnectionPool<O>>,
    number: u64,
}

impl<O: PoolConnector> Drop for UnprovenConnection<O> {
    fn drop(&mut self) {
        self.pool.lock().idle.mark_proven(self.number);
    }
}

impl<O: PoolConnector> ConnectionPool<O> {
    /// An empty pool for `address` and at least one worker.
    pub fn new(
        address: ServerAddress,
        opener: O,
        limits: PoolLimits,
        workers: Arc<[WorkerHandle]>,
    ) -> ConnectionPool<O> {
        let count = workers.len();
        let state = PoolState {
            idle: IdleConnections::new(count),
            idle_ms_max: duration_ms(limits.idle_max),
            closes_returned: false,
            watching: false,
            reaping: false,
            opened: 0,
            reuse_attempts: 0,
            stale: 0,
            failed: 0,
        };
        ConnectionPool {
            address,
            opener,
            age_ms_max: duration_ms(limits.age_max),
            idle_max: limits.idle_max,
            bound: ConcurrencyLimit::queued(limits.connections_max, count, limits.waiting_max),
            workers,
            state: Mutex::new(state),
        }
    }

    /// Raises the bound to `connections_max`, if it is lower.
    pub fn raise(&self, connections_max: usize) {
        self.bound.raise(connections_max);
    }

    /// Closes all idle connections, and from now on each returned one.
    pub fn disable_reuse(&self) {
        let mut state = self.lock();
        state.closes_returned = true;
        // Closing is a system call for each socket: drop the connections after the lock.
        let to_close = state.idle.clear();
        drop(state);
        drop(to_close);
    }

    /// The server's address.
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// The current state and counters.
    pub fn counts(&self) -> PoolCounters {
        let connections_max = self.bound.max();
        let state = self.lock();
        PoolCounters {
            connections_max,
            free: connections_max.saturating_sub(self.bound.in_use()),
            idle: state.idle.len(),
            waiting: self.bound.waiting(),
            opened: state.opened,
            reused: state.reuse_attempts - state.stale,
            stale: state.stale,
            failed: state.failed,
        }
    }

    /// The handle of a worker.
    pub fn worker_handle(&self, worker: usize) -> &WorkerHandle {
        &self.workers[self.worker_index(worker)]
    }

    /// The bound on connections of all workers.
    pub(crate) fn bound(&self) -> &Arc<ConcurrencyLimit> {
        &self.bound
    }

    pub(crate) fn now_ms(&self, worker: usize) -> u64 {
        self.worker_handle(worker).timers.now_ms()
    }

    pub(crate) fn worker_index(&self, worker: usize) -> usize {
        worker % self.workers.len()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, PoolState<O::PooledConnection>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leases an idle connection, if that is possible without waiting.
    pub fn try_lease(self: &Arc<Self>, worker: usize) -> Option<Lease<O>> {
        // The permit is dropped again if there is no idle connection: opening one needs to wait.
        let permit = self.bound.try_acquire_on(self.worker_index(worker))?;
        let (connection, connection_use) = self.take_idle(worker)?;
        Some(Lease::reused(connection, connection_use, worker, permit))
    }

    /// Waits for a connection on this worker: an idle one, unless it must be `fresh`, or a new one.
    ///
    /// # Errors
    /// [`PoolUnavailable`]
    pub async fn lease(
        self: &Arc<Self>,
        worker: usize,
        fresh: bool,
        timeouts: AcquireTimeouts,
    ) -> Result<Lease<O>, PoolUnavailable> {
        // The slow path is boxed: inline, its large future would be part of each caller's and be copied with it,
        // though most requests find an idle connection in `try_lease`.
        Box::pin(self.wait_for_lease(worker, fresh, timeouts)).await
    }

    async fn wait_for_lease(
        self: &Arc<Self>,
        worker: usize,
        fresh: bool,
        timeouts: AcquireTimeouts,
    ) -> Result<Lease<O>, PoolUnavailable> {
        let mut connecting = false;
        let acquisition = async {
            let permit = self.permit(worker).await?;
            if !fresh && let Some((connection, connection_use)) = self.take_idle(worker) {
                return Ok(Lease::reused(connection, connection_use, worker, permit));
            }
            // From here a timeout is a failure of the server (`ConnectTimeout`), before it is a full pool (`NoneFree`).
            connecting = true;
            // Registered before connecting: the wait in the server's backlog counts as silence.
            let unproven = self.begin_unproven(worker);
            let mut connection = self.connect(worker, timeouts).await?;
            let reception = connection.socket().reception();
            let number = unproven.1.number;
            self.lock().idle.set_reception(number, reception);
            Ok(Lease {
                connection,
                worker,
                is_reused: false,
                connection_use: unproven.1,
                unproven: Some(unproven.0),
                permit: Some(permit),
            })
        };
        let leased = self.with_timeout(worker, timeouts.total, acquisition).await;
        leased.unwrap_or(Err(match connecting {
            true => PoolUnavailable::ConnectTimeout,
            false => PoolUnavailable::NoneFree,
        }))
    }

    /// Returns a connection after a complete exchange, and keeps it if the rules of `idle_connections` allow.
    pub fn release(self: &Arc<Self>, lease: Lease<O>) {
        let Lease {
            connection,
            worker,
            connection_use,
            unproven,
            permit,
            ..
        } = lease;
        // Before the idle list is searched: a crowded server is crowded no more if this was the silent connection.
        drop(unproven);
        let now_ms = self.now_ms(worker);
        // Bounds the age of connections, even of busy ones.
        let is_old = now_ms.saturating_sub(connection_use.opened_ms) >= self.age_ms_max;
        let mut state = self.lock();
        let insert_result = match state.closes_returned || is_old {
            true => Err(connection),
            false => {
                let worker = self.worker_index(worker);
                state
                    .idle
                    .insert(worker, connection_use, connection, now_ms)
            }
        };
        // At most one reaper task runs; the flag is set under the lock, so that two workers cannot start one each.
        let starts_reaper = insert_result.is_ok() && !std::mem::replace(&mut state.reaping, true);
        drop(state);
        if starts_reaper {
            // Started outside of the lock, which the task takes itself.
            idle_reaper::begin(self, worker, ReaperTarget::idle(self.idle_max));
        }
        drop(insert_result);
        // Freed last: a waiter that gets the permit finds the connection among the idle ones.
        drop(permit);
    }

    pub(crate) async fn permit(&self, worker: usize) -> Result<Permit, PoolUnavailable> {
        let (index, now_ms) = (self.worker_index(worker), self.now_ms(worker));
        let permit = self.bound.acquire(index, now_ms).await;
        permit.map_err(|_| PoolUnavailable::TooManyWait)
    }

    /// Opens a connection outside of the bound: for callers with a permit, and for health checks.
    ///
    /// # Errors
    /// [`PoolUnavailable::ConnectTimeout`] or [`PoolUnavailable::Failed`]
    pub async fn connect(
        &self,
        worker: usize,
        // Counts on drop: a caller's timeout or cancellation drops this future at the await.
        timeouts: AcquireTimeouts,
    ) -> Result<O::PooledConnection, PoolUnavailable> {
        let mut failure_guard = ConnectFailures {
            // Also counts attempts that a timeout drops.
            pool: self,
            is_connected: false,
        };
        let opening = connector::connect(&self.opener, &self.address, self.worker_handle(worker));
        // A separate timer only if it can expire before the total one.
        let opened = match timeouts.connecting < timeouts.total {
            true => {
                self.with_timeout(worker, timeouts.connecting, opening)
                    .await
            }
            false => Some(opening.await),
        };
        let opened = opened.ok_or(PoolUnavailable::ConnectTimeout)?;
        let opened = opened.map_err(PoolUnavailable::Failed)?;
        failure_guard.is_connected = true;
        self.lock().opened += 1;
        Ok(opened)
    }

    /// Runs `work` with a timeout; `None` after it.
    pub(crate) async fn with_timeout<T>(
        &self,
        worker: usize,
        time: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let timers = &self.worker_handle(worker).timers;
        timers.timeout(time, work).await.ok()
    }

    fn begin_unproven(self: &Arc<Self>, worker: usize) -> (UnprovenConnection<O>, ConnectionUse) {
        let mut state = self.lock();
        let connection_use = state.idle.begin(self.now_ms(worker));
        // At most one task checks for crowding; it is started under the same rule as the reaper.
        let starts_reaper = !std::mem::replace(&mut state.watching, true);
        drop(state);
        let unproven = UnprovenConnection {
            pool: self.clone(),
            number: connection_use.number,
        };
        if starts_reaper {
            idle_reaper::begin(self, worker, ReaperTarget::crowd());
        }
        (unproven, connection_use)
    }

    /// Takes an idle connection: one of the worker, or of another worker if it has none.
    fn take_idle(&self, worker: usize) -> Option<(O::PooledConnection, ConnectionUse)> {
        let worker = self.worker_index(worker);
        let sources = &self.workers[worker].sources;
        loop {
            let mut state = self.lock();
            let (mut connection, connection_use) = state.idle.take(worker)?;
            state.reuse_attempts += 1;
            drop(state);
            // The server may have closed it while it was idle; a socket of another worker moves to this worker's
            // driver.
            if connection.is_idle() && connection.socket().move_to(sources).is_ok() {
                return Some((connection, connection_use));
            }
            // Closed or unusable: it is dropped here, and the next idle one is tried.
            self.lock().stale += 1;
        }
    }
}

/// Counts a failed connection attempt, also one that is dropped by a timeout or a cancelled request.
struct ConnectFailures<'a, O: PoolConnector> {
    pool: &'a ConnectionPool<O>,
    is_connected: bool,
}

impl<O: PoolConnector> Drop for ConnectFailures<'_, O> {
    fn drop(&mut self) {
        if !self.is_connected {
            self.pool.lock().failed += 1;
        }
    }
}

fn duration_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
