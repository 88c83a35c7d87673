//! Connection pool: the connections to one server, for all workers.
//!
//! The socket of a connection belongs to the driver of one worker, and is preferably reused there. The limit on
//! connections is for all workers together. `idle_connections` decides which connections are kept for reuse.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lowroad_engine::WorkerHandle;
use lowroad_limits::{ConcurrencyLimit, Permit};

use crate::ServerAddress;
use crate::connector::{self, Connection, PoolConnector, PoolUnavailable};
use crate::idle_connections::{ConnectionUse, IdleConnections};
use crate::idle_reaper::{self, ReaperTarget};
use crate::limit_claims::{LimitClaim, LimitClaims};

/// The limits of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// The maximum number of connections of all workers, until it is raised or claimed.
    pub connections_max: usize,
    /// The maximum number of requests that wait for a connection.
    pub waiting_max: usize,
    /// The time after which an idle connection is closed.
    pub idle_max: Duration,
    /// The age beyond which a connection is not kept for reuse.
    pub age_max: Duration,
}

/// Acquire timeouts: how long a request waits for a connection.
#[derive(Clone, Copy, Debug)]
pub struct AcquireTimeouts {
    /// The limit of the total wait.
    pub total: Duration,
    /// The limit of the time to establish a new connection, which is a part of the total wait.
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
    /// The limit on connections.
    pub connections_max: usize,
    /// Connections with a request, and open ones with HTTP/2; more than the limit for some time after it was lowered.
    pub in_use: usize,
    /// Idle connections.
    pub idle: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// Connections opened so far.
    pub opened: u64,
    /// Reuses of idle connections.
    pub reused: u64,
    /// Idle connections that the server had closed when they were to be reused.
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
    claims: Arc<LimitClaims>,
    state: Mutex<PoolState<O::PooledConnection>>,
}

/// The mutable state, behind the pool's lock.
pub struct PoolState<C> {
    pub idle: IdleConnections<C>,
    pub idle_ms_max: u64,
    /// Whether returned connections are closed instead of kept.
    closes_returned: bool,
    /// Whether an idle reaper for a crowded server is running.
    pub is_crowd_reaper_running: bool,
    /// Whether an idle reaper for expired connections is running.
    pub is_idle_reaper_running: bool,
    opened: u64,
    /// Idle connections taken for reuse; `stale` is how many of them the server had closed.
    reuse_attempts: u64,
    stale: u64,
    failed: u64,
}

/// A connection that is leased to one request. Dropping the lease closes the connection; [`ConnectionPool::release`]
/// may keep the connection for reuse.
pub struct Lease<O: PoolConnector> {
    /// Present until the server has sent its first bytes. Declared before `connection`, and so dropped before it, since
    /// the pool may observe the socket until then.
    unproven: Option<UnprovenConnection<O>>,
    /// The leased connection.
    pub connection: O::PooledConnection,
    /// The worker of the request.
    pub worker: usize,
    /// Whether the connection is reused, so that the server may have closed it in the meantime.
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

    /// Frees the permit, since the connection becomes a tunnel. The lease must not be released to the pool afterwards.
    pub fn detach(&mut self) {
        self.permit = None;
    }

    /// Records that the server has sent bytes, so that one of its processes must have accepted the connection.
    pub fn mark_proven(&mut self) {
        self.unproven = None;
    }
}

/// A new connection on which the server has not sent any bytes yet.
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
    /// An empty pool for `address`. There must be at least one worker.
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
            is_crowd_reaper_running: false,
            is_idle_reaper_running: false,
            opened: 0,
            reuse_attempts: 0,
            stale: 0,
            failed: 0,
        };
        let bound = ConcurrencyLimit::queued(limits.connections_max, count, limits.waiting_max);
        ConnectionPool {
            address,
            opener,
            age_ms_max: duration_ms(limits.age_max),
            idle_max: limits.idle_max,
            claims: LimitClaims::new(bound.clone()),
            bound,
            workers,
            state: Mutex::new(state),
        }
    }

    /// Claims a limit of `connections_max` connections for a user of the pool, until the claim is dropped. The pool's limit
    /// is the largest claim. Connections above a lowered limit end with their requests.
    pub fn claim(&self, connections_max: usize) -> LimitClaim {
        self.claims.add(connections_max)
    }

    /// Closes all idle connections, and from now on each connection that is returned.
    pub fn disable_reuse(&self) {
        let mut state = self.lock();
        state.closes_returned = true;
        // The connections are dropped after unlocking, since closing a socket is a system call.
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
            in_use: self.bound.in_use(),
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

    /// The limit on connections of all workers.
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

    /// Leases an idle connection if there is one; does not wait.
    pub fn try_lease(self: &Arc<Self>, worker: usize) -> Option<Lease<O>> {
        // If there is no idle connection, the permit is dropped again, since opening a connection needs to wait.
        let permit = self.bound.try_acquire_on(self.worker_index(worker))?;
        let (connection, connection_use) = self.take_idle(worker)?;
        Some(Lease::reused(connection, connection_use, worker, permit))
    }

    /// Waits for a connection on this worker: an idle one, or a new one. With `fresh`, it must be a new one.
    ///
    /// # Errors
    /// [`PoolUnavailable`]
    pub async fn lease(
        self: &Arc<Self>,
        worker: usize,
        fresh: bool,
        timeouts: AcquireTimeouts,
    ) -> Result<Lease<O>, PoolUnavailable> {
        // The slow path is boxed, since its large future would otherwise be part of the caller's future, although most
        // requests find an idle connection with `try_lease`.
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
            // Idle connections hold no permit, so the reuse of one needs a permit, too.
            let permit = self.permit(worker).await?;
            if !fresh && let Some((connection, connection_use)) = self.take_idle(worker) {
                return Ok(Lease::reused(connection, connection_use, worker, permit));
            }
            // From here on, a timeout is a failure of the server (`ConnectTimeout`); before, the pool was full
            // (`NoneFree`).
            connecting = true;
            self.open_lease(worker, permit, timeouts).await
        };
        let leased = self.with_timeout(worker, timeouts.total, acquisition).await;
        leased.unwrap_or(Err(match connecting {
            true => PoolUnavailable::ConnectTimeout,
            false => PoolUnavailable::NoneFree,
        }))
    }

    /// Leases a new connection to the owner of a permit. The caller enforces `timeouts.total`.
    pub(crate) async fn open_lease(
        self: &Arc<Self>,
        worker: usize,
        permit: Permit,
        timeouts: AcquireTimeouts,
    ) -> Result<Lease<O>, PoolUnavailable> {
        // Registered before connecting, since the time in the server's backlog counts as silence.
        let (unproven, connection_use) = self.begin_unproven(worker);
        let mut connection = self.connect(worker, timeouts).await?;
        let reception = connection.socket().reception();
        self.lock()
            .idle
            .set_reception(connection_use.number, reception);
        Ok(Lease {
            connection,
            worker,
            is_reused: false,
            connection_use,
            unproven: Some(unproven),
            permit: Some(permit),
        })
    }

    /// Returns a connection to the pool after a complete exchange. It is kept for reuse if `idle_connections` allows
    /// this, or closed.
    pub fn release(self: &Arc<Self>, lease: Lease<O>) {
        let Lease {
            connection,
            worker,
            connection_use,
            unproven,
            permit,
            ..
        } = lease;
        // Dropped before the connection is inserted: if this was the only silent connection, the server is no longer
        // crowded.
        drop(unproven);
        let now_ms = self.now_ms(worker);
        // Limits the age of connections, also of those that are never idle for long.
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
        // Only one such reaper task may run: the flag is set under the lock, so that two workers cannot start one each.
        let starts_reaper =
            insert_result.is_ok() && !std::mem::replace(&mut state.is_idle_reaper_running, true);
        drop(state);
        if starts_reaper {
            // Started after unlocking, since the task locks the state itself.
            idle_reaper::begin(self, worker, ReaperTarget::idle(self.idle_max));
        }
        drop(insert_result);
        // Freed last, so that a waiter that gets the permit finds the connection among the idle ones.
        drop(permit);
    }

    pub(crate) async fn permit(&self, worker: usize) -> Result<Permit, PoolUnavailable> {
        let (index, now_ms) = (self.worker_index(worker), self.now_ms(worker));
        let permit = self.bound.acquire(index, now_ms).await;
        permit.map_err(|_| PoolUnavailable::TooManyWait)
    }

    /// Opens a connection that the limit does not count: for callers with a permit, and for health checks.
    ///
    /// # Errors
    /// [`PoolUnavailable::ConnectTimeout`] or [`PoolUnavailable::Failed`]
    pub async fn connect(
        &self,
        worker: usize,
        // The caller enforces `timeouts.total`.
        timeouts: AcquireTimeouts,
    ) -> Result<O::PooledConnection, PoolUnavailable> {
        let mut failure_guard = ConnectFailures {
            // Counts a failure when dropped, so that attempts that end by a timeout or a cancellation are counted, too.
            pool: self,
            is_connected: false,
        };
        let opening = connector::connect(&self.opener, &self.address, self.worker_handle(worker));
        // A separate timer is needed only if it can expire before the total timeout.
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

    /// Runs `work` with a timeout; `None` if it expired.
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
        // Only one reaper task for crowding may run, as in `release`.
        let starts_reaper = !std::mem::replace(&mut state.is_crowd_reaper_running, true);
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

    /// Takes an idle connection of this worker; if there is none, one of another worker.
    fn take_idle(&self, worker: usize) -> Option<(O::PooledConnection, ConnectionUse)> {
        let worker = self.worker_index(worker);
        let sources = &self.workers[worker].sources;
        loop {
            let mut state = self.lock();
            let (mut connection, connection_use) = state.idle.take(worker)?;
            state.reuse_attempts += 1;
            // Unlocked before the check, which may be a system call.
            drop(state);
            // The server may have closed the connection while it was idle. A socket of another worker is moved to this
            // worker's driver.
            if connection.is_idle() && connection.socket().move_to(sources).is_ok() {
                return Some((connection, connection_use));
            }
            // The connection is closed or unusable: it is dropped here, and the next idle one is tried.
            self.lock().stale += 1;
        }
    }
}

/// Counts a failed connection attempt when it is dropped, also by a timeout or by the cancellation of the request.
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
