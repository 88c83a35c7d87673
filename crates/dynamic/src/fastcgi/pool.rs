//! The connections to one FastCGI server. It knows nothing of requests.
//!
//! A connection is in the epoll of one worker, and is mostly used by that again. How many there may
//! be is counted over all workers. Which are kept is told in `stock`.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lowroad_config::Upstream;
use lowroad_engine::Local;
use lowroad_engine::outgoing::{Outgoing, Remote};
use lowroad_http::status::Status;

use super::link::Link;
use super::permits::{Permit, Permits};
use super::shared::Shared;
use super::stock::{CROWDED_MS, IDLE_MAX_MS, Stock};
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

/// What a pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// How many connections there may be.
    pub connections_max: usize,
    /// How many more may be used.
    pub free: usize,
    /// How many are kept without use.
    pub idle: usize,
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

    /// What it has now.
    pub fn counts(&self) -> Counts {
        let state = self.lock();
        Counts {
            connections_max: state.connections_max,
            free: self.permits.free(),
            idle: state.stock.len(),
        }
    }

    /// What a worker lends.
    pub fn local(&self, worker: usize) -> &Local {
        &self.workers[self.number_of(worker)]
    }

    fn now_ms(&self, worker: usize) -> u64 {
        self.local(worker).timers.now_ms()
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
        let (number, now_ms) = (self.number_of(worker), self.now_ms(worker));
        let permit = self.permits.acquire(number, now_ms).await;
        if !fresh && let Some(idle) = self.take_idle(worker) {
            return Ok(Lease::kept(idle, worker, permit));
        }
        let unheard = self.begin_unheard(worker);
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

    fn begin_unheard(self: &Arc<Self>, worker: usize) -> Unheard {
        let mut state = self.lock();
        let number = state.stock.begin(self.now_ms(worker));
        let begin = !std::mem::replace(&mut state.watching, true);
        drop(state);
        if begin {
            self.look_again(worker, WATCHING);
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
                let now_ms = self.now_ms(worker);
                let worker = self.number_of(worker);
                state.stock.put(worker, number, link, now_ms)
            }
        };
        let begin = kept.is_ok() && !std::mem::replace(&mut state.reaping, true);
        drop(state);
        if begin {
            self.look_again(worker, REAPING);
        }
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

    /// Closes idle connections again and again, until there is nothing more to look at.
    fn look_again(self: &Arc<Self>, worker: usize, look: Look) {
        // From now on, whether the task is ever polled or not.
        let mut looking = Looking {
            pool: self.clone(),
            look,
            over: false,
        };
        let local = self.local(worker);
        let timers = local.timers.clone();
        let again = async move {
            loop {
                timers.sleep(look.pause).await;
                if !looking.look(timers.now_ms()) {
                    return;
                }
            }
        };
        local.tasks.spawn(again).detach();
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
            None => self.permits.acquire(worker, self.now_ms(worker)).await,
        };
        let link = self.connect(worker).await?;
        let shared = Shared::start(link, permit, worker, self.local(worker));
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
                    self.local(worker).timers.sleep(QUEUE_PAUSE).await;
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
        drop(state);
        let (pool, local) = (self.clone(), self.local(worker).clone());
        let tasks = local.tasks.clone();
        let asking = async move {
            let asked = local.timers.timeout(ASK_MAX, pool.ask(worker)).await;
            if let Ok(Some(true)) = asked {
                let mut state = pool.lock();
                state.multiplexing = Multiplexing::Yes;
                let close = state.stock.clear();
                drop(state);
                drop(close);
            }
        };
        tasks.spawn(asking).detach();
    }

    /// On a connection of its own: php-fpm closes it after the answer.
    async fn ask(&self, worker: usize) -> Option<bool> {
        let mut link = self.connect(worker).await.ok()?;
        super::ask(&mut link).await
    }
}

/// What a task of the pool looks after.
#[derive(Clone, Copy)]
struct Look {
    pause: Duration,
    /// What is to be closed; `None` when there is nothing left to look after.
    close: fn(&mut Stock<Link>, u64) -> Option<Vec<Link>>,
    /// Whether there is such a task.
    flag: fn(&mut State) -> &mut bool,
}

/// Idle connections are closed for new ones that may wait for the processes which these hold.
const WATCHING: Look = Look {
    pause: Duration::from_millis(CROWDED_MS),
    close: Stock::make_room,
    flag: |state| &mut state.watching,
};

/// Idle connections are closed that nobody uses.
const REAPING: Look = Look {
    pause: Duration::from_millis(IDLE_MAX_MS / 2),
    close: Stock::take_old,
    flag: |state| &mut state.reaping,
};

/// A task that looks. If it ends with its worker, another worker may begin one.
struct Looking {
    pool: Arc<Pool>,
    look: Look,
    over: bool,
}

impl Looking {
    /// Whether there is something left to look after.
    fn look(&mut self, now_ms: u64) -> bool {
        let mut state = self.pool.lock();
        let close = (self.look.close)(&mut state.stock, now_ms);
        if close.is_none() {
            // While nobody can begin the next.
            *(self.look.flag)(&mut state) = false;
            self.over = true;
        }
        drop(state);
        close.is_some()
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        if !self.over {
            *(self.look.flag)(&mut self.pool.lock()) = false;
        }
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
