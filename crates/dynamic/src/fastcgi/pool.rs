//! The connections to one FastCGI server. It knows nothing of requests.
//!
//! A connection is in the epoll of one worker, and is mostly used by that again. How many there may
//! be is counted over all workers. Which are kept is told in `stock`.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lowroad_config::Upstream;
use lowroad_engine::Local;
use lowroad_engine::outgoing::{Outgoing, Remote};
use lowroad_engine::tasks::Tasks;
use lowroad_http::status::Status;

use super::link::Link;
use super::permits::{Permit, Permits};
use super::shared::Shared;
use super::stock::{CROWDED, IDLE_MAX, Stock};
use crate::Failure;

/// Between two tries when the server's queue of new connections is full.
const QUEUE_PAUSE: Duration = Duration::from_millis(10);
/// How long a server may think about whether it multiplexes.
const ASK_MAX: Duration = Duration::from_secs(5);

/// One pool for each server, whatever number of routes and sites use it.
pub struct Pools {
    workers: Arc<[Local]>,
    pools: Mutex<HashMap<String, Arc<Pool>>>,
}

impl Pools {
    /// No pools, for these workers, at least one.
    pub fn new(workers: &[Local]) -> Pools {
        Pools {
            workers: workers.into(),
            pools: Mutex::default(),
        }
    }

    /// The pool of the server at `address`, with at least so many connections.
    pub fn get(&self, address: &Upstream, connections_max: usize) -> Arc<Pool> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = pools
            .entry(name_of(address))
            .or_insert_with(|| Arc::new(Pool::new(address.clone(), self.workers.clone())));
        pool.grow(connections_max);
        pool.clone()
    }
}

/// Connections to one server.
pub struct Pool {
    address: Upstream,
    name: String,
    workers: Arc<[Local]>,
    permits: Arc<Permits>,
    /// Held while a connection to share is opened: the others wait for it and share it.
    opening: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

struct State {
    /// How many permits there are in all.
    connections_max: usize,
    stock: Stock<Link>,
    /// A task looks whether the server is crowded.
    watching: bool,
    /// A task closes idle connections.
    reaping: bool,
    multiplexing: Multiplexing,
    /// Connections that carry several requests.
    shared: Vec<Arc<Shared>>,
}

/// Whether the server takes several requests on one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Multiplexing {
    #[default]
    Unknown,
    No,
    Yes,
}

/// A connection for one request at a time.
pub struct Lease {
    /// It.
    pub link: Link,
    /// Whose it is.
    pub worker: usize,
    /// The number of its use.
    number: u64,
    /// It was used before.
    pub kept: bool,
    /// Until something is heard from it.
    pub unheard: Option<Unheard>,
    permit: Permit,
}

impl Lease {
    fn kept((link, number): (Link, u64), worker: usize, permit: Permit) -> Lease {
        Lease {
            link,
            worker,
            number,
            kept: true,
            unheard: None,
            permit,
        }
    }
}

/// A connection that nothing has been heard from.
pub struct Unheard(Arc<Pool>, u64);

impl Drop for Unheard {
    fn drop(&mut self) {
        self.0.lock().stock.heard(self.1);
    }
}

impl Pool {
    fn new(address: Upstream, workers: Arc<[Local]>) -> Pool {
        let state = State {
            connections_max: 0,
            stock: Stock::new(workers.len()),
            watching: false,
            reaping: false,
            multiplexing: Multiplexing::default(),
            shared: Vec::new(),
        };
        Pool {
            name: name_of(&address),
            address,
            permits: Arc::new(Permits::new(workers.len())),
            workers,
            opening: tokio::sync::Mutex::new(()),
            state: Mutex::new(state),
        }
    }

    fn grow(&self, connections_max: usize) {
        let mut state = self.lock();
        let more = connections_max.saturating_sub(state.connections_max);
        self.permits.add(more);
        state.connections_max += more;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Those of a worker.
    pub fn tasks(&self, worker: usize) -> &Tasks {
        &self.local(worker).tasks
    }

    fn local(&self, worker: usize) -> &Local {
        &self.workers[self.number_of(worker)]
    }

    fn number_of(&self, worker: usize) -> usize {
        worker % self.workers.len()
    }

    /// Whether requests share connections; so it is once the server has said so.
    pub fn multiplexes(&self) -> bool {
        self.lock().multiplexing == Multiplexing::Yes
    }

    /// Waits for a connection of one's own, on this worker: one that was kept, unless it must be
    /// `fresh`, or a new one.
    ///
    /// # Errors
    /// There is no connection to be had.
    pub async fn lease(self: &Arc<Self>, worker: usize, fresh: bool) -> Result<Lease, Failure> {
        let permit = self.permits.acquire(self.number_of(worker)).await;
        if !fresh && let Some(idle) = self.take_idle(worker) {
            return Ok(Lease::kept(idle, worker, permit));
        }
        let unheard = self.begin_unheard();
        Ok(Lease {
            link: self.connect(worker).await?,
            worker,
            number: unheard.1,
            kept: false,
            unheard: Some(unheard),
            permit,
        })
    }

    /// The same, if one that was kept can be had without waiting.
    pub fn lease_now(self: &Arc<Self>, worker: usize) -> Option<Lease> {
        let permit = self.permits.try_acquire(self.number_of(worker))?;
        let idle = self.take_idle(worker)?;
        Some(Lease::kept(idle, worker, permit))
    }

    fn begin_unheard(self: &Arc<Self>) -> Unheard {
        let mut state = self.lock();
        let number = state.stock.begin(Instant::now());
        if !std::mem::replace(&mut state.watching, true) {
            tokio::spawn(self.clone().watch());
        }
        Unheard(self.clone(), number)
    }

    /// Gives a connection back on which all was said.
    pub fn give_back(self: &Arc<Self>, lease: Lease) {
        let Lease {
            link,
            worker,
            number,
            unheard,
            permit,
            ..
        } = lease;
        drop(unheard);
        let mut state = self.lock();
        let kept = match state.multiplexing {
            Multiplexing::Yes => Err(link),
            _ => {
                let worker = self.number_of(worker);
                state.stock.put(worker, number, link, Instant::now())
            }
        };
        if kept.is_ok() && !std::mem::replace(&mut state.reaping, true) {
            tokio::spawn(self.clone().reap());
        }
        drop(state);
        drop(kept);
        drop(permit);
    }

    /// One of the worker's own, or another's that has one to spare.
    fn take_idle(&self, worker: usize) -> Option<(Link, u64)> {
        let worker = self.number_of(worker);
        loop {
            let (mut link, number) = self.lock().stock.take(worker)?;
            if link.is_idle() && link.move_to(&self.workers[worker].sources).is_ok() {
                return Some((link, number));
            }
        }
    }

    /// Closes idle connections for new ones that may wait for the processes which these hold.
    async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(CROWDED).await;
            let mut state = self.lock();
            let close = state.stock.make_room(Instant::now());
            state.watching = close.is_some();
            drop(state);
            if close.is_none() {
                return;
            }
        }
    }

    /// Closes idle connections that nobody uses.
    async fn reap(self: Arc<Self>) {
        loop {
            tokio::time::sleep(IDLE_MAX / 2).await;
            let mut state = self.lock();
            let close = state.stock.take_old(Instant::now());
            state.reaping = close.is_some();
            drop(state);
            if close.is_none() {
                return;
            }
        }
    }

    /// A connection that several requests share, if the server can do that: one with room, or a
    /// new one. Another worker's only if there may be no more.
    ///
    /// # Errors
    /// There is no connection to be had.
    pub async fn shared(
        self: &Arc<Self>,
        worker: usize,
        fresh: bool,
    ) -> Result<Arc<Shared>, Failure> {
        let worker = self.number_of(worker);
        if let Some(shared) = self.lock().with_room(Some(worker), fresh) {
            return Ok(shared);
        }
        let _opening = self.opening.lock().await;
        // Another request may have brought one meanwhile.
        if let Some(shared) = self.lock().with_room(Some(worker), false) {
            return Ok(shared);
        }
        let permit = self.permits.try_acquire(worker);
        if permit.is_none()
            && let Some(shared) = self.lock().with_room(None, false)
        {
            return Ok(shared);
        }
        let permit = match permit {
            Some(permit) => permit,
            None => self.permits.acquire(worker).await,
        };
        let link = self.connect(worker).await?;
        let shared = Shared::start(link, permit, worker, self.tasks(worker));
        self.lock().shared.push(shared.clone());
        Ok(shared)
    }

    async fn connect(&self, worker: usize) -> Result<Link, Failure> {
        let refused = |error: io::Error| {
            let hint = match error.kind() {
                io::ErrorKind::PermissionDenied => "may this user write to the socket?",
                _ => "does it run, and listen there?",
            };
            let detail = format!("can't connect to {}: {error}; {hint}", self.name);
            Failure::new(Status::BAD_GATEWAY, detail)
        };
        let remote = match &self.address {
            Upstream::Unix(path) => Remote::Unix(path),
            Upstream::Tcp(address) => Remote::Tcp(*address),
        };
        loop {
            match Outgoing::connect(&self.local(worker).sources, remote).await {
                // Its queue is full; whoever waits here has an end to his patience.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(QUEUE_PAUSE).await;
                }
                socket => return Ok(Link::new(socket.map_err(refused)?)),
            }
        }
    }

    /// Asks, once, whether the server multiplexes. Called when it has answered something; nobody
    /// waits for it.
    pub fn ask_once(self: &Arc<Self>, worker: usize) {
        let mut state = self.lock();
        if state.multiplexing != Multiplexing::Unknown {
            return;
        }
        state.multiplexing = Multiplexing::No;
        let pool = self.clone();
        tokio::spawn(async move {
            let asked = tokio::time::timeout(ASK_MAX, pool.ask(worker)).await;
            if let Ok(Some(true)) = asked {
                let mut state = pool.lock();
                state.multiplexing = Multiplexing::Yes;
                let close = state.stock.clear();
                drop(state);
                drop(close);
            }
        });
    }

    /// On a connection of its own: php-fpm closes it after the answer.
    async fn ask(&self, worker: usize) -> Option<bool> {
        let mut link = self.connect(worker).await.ok()?;
        super::ask(&mut link).await
    }
}

impl State {
    /// One of this worker's, or anybody's; `fresh` = all that are there are closed for new requests.
    fn with_room(&mut self, worker: Option<usize>, fresh: bool) -> Option<Arc<Shared>> {
        self.shared.retain(|shared| !shared.is_over());
        if fresh {
            self.shared.clear();
        }
        let of = |shared: &Shared| worker.is_none_or(|worker| worker == shared.worker());
        let mut shared = self.shared.iter();
        shared
            .find(|shared| of(shared) && shared.has_room())
            .cloned()
    }
}

fn name_of(address: &Upstream) -> String {
    match address {
        Upstream::Unix(path) => format!("FastCGI server unix:{}", path.display()),
        Upstream::Tcp(address) => format!("FastCGI server {address}"),
    }
}
