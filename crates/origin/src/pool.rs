//! The connections to one server, for all workers. It knows nothing of requests.
//!
//! A connection's socket is in one worker's driver, and is mostly used by that again. How many there
//! may be is counted over all workers. Which are kept is told in `idle`.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lowroad_engine::Local;
use lowroad_limits::{ConcurrencyLimit, Permit};

use crate::Address;
use crate::idle::{Idle, Use};
use crate::open::{self, Connection, Open, Unavailable};
use crate::tending::{self, Look};

/// What bounds a pool.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time, over all workers. May be raised.
    pub connections_max: usize,
    /// How many may wait for one.
    pub waiting_max: usize,
    /// How long one is kept without use.
    pub idle_max: Duration,
    /// How old one may be to be kept.
    pub age_max: Duration,
}

/// How long somebody waits for a connection.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// In all.
    pub total: Duration,
    /// Of it, for a new one to come about.
    pub connecting: Duration,
}

impl Patience {
    /// So long, whatever is waited for.
    pub fn of(total: Duration) -> Patience {
        Patience {
            total,
            connecting: total,
        }
    }
}

/// What a pool has and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// How many connections there may be.
    pub connections_max: usize,
    /// How many more may be used.
    pub free: usize,
    /// How many are kept without use.
    pub idle: usize,
    /// How many wait for one.
    pub waiting: usize,
    /// How many were opened so far.
    pub opened: u64,
    /// How often one that was kept was used again.
    pub reused: u64,
    /// How often one that was kept was found to be closed.
    pub stale: u64,
    /// How many did not come about.
    pub failed: u64,
}

/// Connections to one server.
pub struct Pool<O: Open> {
    address: Address,
    opener: O,
    age_ms_max: u64,
    idle_max: Duration,
    workers: Arc<[Local]>,
    bound: Arc<ConcurrencyLimit>,
    state: Mutex<State<O::Connection>>,
}

/// What changes.
pub struct State<C> {
    pub idle: Idle<C>,
    pub idle_ms_max: u64,
    /// What is given back is closed.
    keeps_none: bool,
    /// A task looks whether the server is crowded.
    pub watching: bool,
    /// A task closes idle connections.
    pub reaping: bool,
    opened: u64,
    /// How many were taken of those that were kept, and how many of them were of no use.
    taken: u64,
    stale: u64,
    failed: u64,
}

/// A connection for one request at a time. Dropped, it is closed; [`Pool::give_back`] may keep it.
pub struct Lease<O: Open> {
    /// Until something is heard from it. Dropped before it, as the pool may watch it until then.
    unheard: Option<Unheard<O>>,
    /// It.
    pub connection: O::Connection,
    /// Where it is used.
    pub worker: usize,
    /// It was used before: its server may have closed it when nobody looked.
    pub kept: bool,
    of: Use,
    /// Until it is detached.
    permit: Option<Permit>,
}

impl<O: Open> Lease<O> {
    fn again((connection, of): (O::Connection, Use), worker: usize, permit: Permit) -> Lease<O> {
        Lease {
            connection,
            worker,
            kept: true,
            of,
            unheard: None,
            permit: Some(permit),
        }
    }

    /// It is used for something else than requests from now on, and is none of those that there may be. It must not be given back.
    pub fn detach(&mut self) {
        self.permit = None;
    }

    /// Something was heard from it: a process of the server works at it.
    pub fn heard(&mut self) {
        self.unheard = None;
    }
}

/// A connection that nothing has been heard from.
struct Unheard<O: Open> {
    pool: Arc<Pool<O>>,
    number: u64,
}

impl<O: Open> Drop for Unheard<O> {
    fn drop(&mut self) {
        self.pool.lock().idle.heard(self.number);
    }
}

impl<O: Open> Pool<O> {
    /// No connections yet, to `address`, for these workers, at least one.
    pub fn new(address: Address, opener: O, limits: Limits, workers: Arc<[Local]>) -> Pool<O> {
        let count = workers.len();
        let state = State {
            idle: Idle::new(count),
            idle_ms_max: ms_of(limits.idle_max),
            keeps_none: false,
            watching: false,
            reaping: false,
            opened: 0,
            taken: 0,
            stale: 0,
            failed: 0,
        };
        Pool {
            address,
            opener,
            age_ms_max: ms_of(limits.age_max),
            idle_max: limits.idle_max,
            bound: ConcurrencyLimit::queued(limits.connections_max, count, limits.waiting_max),
            workers,
            state: Mutex::new(state),
        }
    }

    /// Allows as many as `connections_max`, if it were fewer until now.
    pub fn raise(&self, connections_max: usize) {
        self.bound.raise(connections_max);
    }

    /// Closes the idle ones, and from now on each that is given back.
    pub fn keep_none(&self) {
        let mut state = self.lock();
        state.keeps_none = true;
        let close = state.idle.clear();
        drop(state);
        drop(close);
    }

    /// Where they lead.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What it has now, and did.
    pub fn counts(&self) -> Counts {
        let connections_max = self.bound.max();
        let state = self.lock();
        Counts {
            connections_max,
            free: connections_max.saturating_sub(self.bound.under_way()),
            idle: state.idle.len(),
            waiting: self.bound.waiting(),
            opened: state.opened,
            reused: state.taken - state.stale,
            stale: state.stale,
            failed: state.failed,
        }
    }

    /// What a worker lends.
    pub fn local(&self, worker: usize) -> &Local {
        &self.workers[self.number_of(worker)]
    }

    /// The bound over all workers.
    pub(crate) fn bound(&self) -> &Arc<ConcurrencyLimit> {
        &self.bound
    }

    pub(crate) fn now_ms(&self, worker: usize) -> u64 {
        self.local(worker).timers.now_ms()
    }

    pub(crate) fn number_of(&self, worker: usize) -> usize {
        worker % self.workers.len()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State<O::Connection>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that was kept, if one can be had without waiting.
    pub fn lease_now(self: &Arc<Self>, worker: usize) -> Option<Lease<O>> {
        let permit = self.bound.try_acquire_on(self.number_of(worker))?;
        let idle = self.take_idle(worker)?;
        Some(Lease::again(idle, worker, permit))
    }

    /// Waits for a connection on this worker: one that was kept, unless it must be `fresh`, or a new
    /// one.
    ///
    /// # Errors
    /// [`Unavailable`]
    pub async fn lease(
        self: &Arc<Self>,
        worker: usize,
        fresh: bool,
        patience: Patience,
    ) -> Result<Lease<O>, Unavailable> {
        // Apart: else who asks has room for all of it, and it is copied, though most find one that was kept.
        Box::pin(self.wait_for_lease(worker, fresh, patience)).await
    }

    async fn wait_for_lease(
        self: &Arc<Self>,
        worker: usize,
        fresh: bool,
        patience: Patience,
    ) -> Result<Lease<O>, Unavailable> {
        let mut connecting = false;
        let leasing = async {
            let permit = self.permit(worker).await?;
            if !fresh && let Some(idle) = self.take_idle(worker) {
                return Ok(Lease::again(idle, worker, permit));
            }
            connecting = true;
            let unheard = self.begin_unheard(worker);
            let mut connection = self.connect(worker, patience).await?;
            let reception = connection.socket().reception();
            let number = unheard.1.number;
            self.lock().idle.connected(number, reception);
            Ok(Lease {
                connection,
                worker,
                kept: false,
                of: unheard.1,
                unheard: Some(unheard.0),
                permit: Some(permit),
            })
        };
        let leased = self.in_time(worker, patience.total, leasing).await;
        leased.unwrap_or(Err(match connecting {
            true => Unavailable::ConnectTimeout,
            false => Unavailable::NoneFree,
        }))
    }

    /// Gives a connection back on which all was said.
    pub fn give_back(self: &Arc<Self>, lease: Lease<O>) {
        let Lease {
            connection,
            worker,
            of,
            unheard,
            permit,
            ..
        } = lease;
        drop(unheard);
        let now_ms = self.now_ms(worker);
        let is_old = now_ms.saturating_sub(of.opened_ms) >= self.age_ms_max;
        let mut state = self.lock();
        let kept = match state.keeps_none || is_old {
            true => Err(connection),
            false => {
                let worker = self.number_of(worker);
                state.idle.put(worker, of, connection, now_ms)
            }
        };
        let begin = kept.is_ok() && !std::mem::replace(&mut state.reaping, true);
        drop(state);
        if begin {
            tending::begin(self, worker, Look::idle(self.idle_max));
        }
        drop(kept);
        // Whoever gets it now finds the connection.
        drop(permit);
    }

    pub(crate) async fn permit(&self, worker: usize) -> Result<Permit, Unavailable> {
        let (number, now_ms) = (self.number_of(worker), self.now_ms(worker));
        let permit = self.bound.acquire(number, now_ms).await;
        permit.map_err(|_| Unavailable::TooManyWait)
    }

    /// A new connection, not counted by the bound: for who has leave, and for a question between.
    ///
    /// # Errors
    /// [`Unavailable::ConnectTimeout`] or [`Unavailable::Failed`]
    pub async fn connect(
        &self,
        worker: usize,
        patience: Patience,
    ) -> Result<O::Connection, Unavailable> {
        let mut failing = Failing {
            pool: self,
            over: false,
        };
        let opening = open::connect(&self.opener, &self.address, self.local(worker));
        let opened = match patience.connecting < patience.total {
            true => self.in_time(worker, patience.connecting, opening).await,
            false => Some(opening.await),
        };
        let opened = opened.ok_or(Unavailable::ConnectTimeout)?;
        let opened = opened.map_err(Unavailable::Failed)?;
        failing.over = true;
        self.lock().opened += 1;
        Ok(opened)
    }

    /// `None` if it takes longer.
    pub(crate) async fn in_time<T>(
        &self,
        worker: usize,
        time: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let timers = &self.local(worker).timers;
        timers.timeout(time, work).await.ok()
    }

    fn begin_unheard(self: &Arc<Self>, worker: usize) -> (Unheard<O>, Use) {
        let mut state = self.lock();
        let of = state.idle.begin(self.now_ms(worker));
        let begin = !std::mem::replace(&mut state.watching, true);
        drop(state);
        let unheard = Unheard {
            pool: self.clone(),
            number: of.number,
        };
        if begin {
            tending::begin(self, worker, Look::crowd());
        }
        (unheard, of)
    }

    /// One of the worker's own, or another's that has one to spare.
    fn take_idle(&self, worker: usize) -> Option<(O::Connection, Use)> {
        let worker = self.number_of(worker);
        let sources = &self.workers[worker].sources;
        loop {
            let mut state = self.lock();
            let (mut connection, of) = state.idle.take(worker)?;
            state.taken += 1;
            drop(state);
            if connection.is_idle() && connection.socket().move_to(sources).is_ok() {
                return Some((connection, of));
            }
            self.lock().stale += 1;
        }
    }
}

/// Counts what does not come about, for whatever reason.
struct Failing<'a, O: Open> {
    pool: &'a Pool<O>,
    over: bool,
}

impl<O: Open> Drop for Failing<'_, O> {
    fn drop(&mut self) {
        if !self.over {
            self.pool.lock().failed += 1;
        }
    }
}

fn ms_of(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
