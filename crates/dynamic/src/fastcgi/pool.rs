//! The connections to one FastCGI server. It knows nothing of requests.
//!
//! A connection that is kept holds one of php-fpm's processes, whether there is something to do or
//! not. So a connection is kept only while none of ours waits to be heard, which is how one looks
//! that no process has accepted; and one that was idle for two seconds is closed, for others who
//! use the same server.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lowroad_config::Upstream;
use lowroad_http::status::Status;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::link::{Io, Link};
use super::shared::Shared;
use crate::Failure;

/// How long a connection is kept without use.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// Between two tries when the server's queue of new connections is full.
const QUEUE_PAUSE: Duration = Duration::from_millis(10);
/// How long a server may think about whether it multiplexes.
const ASK_MAX: Duration = Duration::from_secs(5);

/// One pool for each server, whatever number of routes and sites use it.
#[derive(Default)]
pub struct Pools(Mutex<HashMap<String, Arc<Pool>>>);

impl Pools {
    /// No pools.
    pub fn new() -> Pools {
        Pools::default()
    }

    /// The pool of the server at `address`, with at least so many connections.
    pub fn get(&self, address: &Upstream, connections_max: usize) -> Arc<Pool> {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = pools
            .entry(name_of(address))
            .or_insert_with(|| Arc::new(Pool::new(address.clone())));
        pool.grow(connections_max);
        pool.clone()
    }
}

/// Connections to one server.
pub struct Pool {
    address: Upstream,
    name: String,
    permits: Arc<Semaphore>,
    /// Held while a connection to share is opened: the others wait for it and share it.
    opening: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many permits there are in all.
    connections_max: usize,
    /// The one used last is at the end.
    idle: Vec<(Link, Instant)>,
    /// Connections in use from which nothing has been heard yet.
    unheard: usize,
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
    /// It was used before.
    pub kept: bool,
    /// Until something is heard from it.
    pub unheard: Option<Unheard>,
    permit: OwnedSemaphorePermit,
}

/// A connection that nothing has been heard from.
pub struct Unheard(Arc<Pool>);

impl Drop for Unheard {
    fn drop(&mut self) {
        self.0.lock().unheard -= 1;
    }
}

impl Pool {
    fn new(address: Upstream) -> Pool {
        Pool {
            name: name_of(&address),
            address,
            permits: Arc::new(Semaphore::new(0)),
            opening: tokio::sync::Mutex::new(()),
            state: Mutex::new(State::default()),
        }
    }

    fn grow(&self, connections_max: usize) {
        let mut state = self.lock();
        let more = connections_max.saturating_sub(state.connections_max);
        self.permits.add_permits(more);
        state.connections_max += more;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether requests share connections; so it is once the server has said so.
    pub fn multiplexes(&self) -> bool {
        self.lock().multiplexing == Multiplexing::Yes
    }

    /// Waits for a connection of one's own: one that was kept, unless it must be `fresh`, or a new
    /// one.
    ///
    /// # Errors
    /// There is no connection to be had.
    pub async fn lease(self: &Arc<Self>, fresh: bool) -> Result<Lease, Failure> {
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        if !fresh && let Some(link) = self.take_idle() {
            return Ok(Lease {
                link,
                kept: true,
                unheard: None,
                permit,
            });
        }
        self.lock().unheard += 1;
        let unheard = Unheard(self.clone());
        Ok(Lease {
            link: self.connect().await?,
            kept: false,
            unheard: Some(unheard),
            permit,
        })
    }

    /// Gives a connection back on which all was said.
    pub fn give_back(self: &Arc<Self>, lease: Lease) {
        let Lease {
            link,
            unheard,
            permit,
            ..
        } = lease;
        drop(unheard);
        let mut state = self.lock();
        if state.unheard == 0 && state.multiplexing != Multiplexing::Yes {
            state.idle.push((link, Instant::now()));
            if !std::mem::replace(&mut state.reaping, true) {
                tokio::spawn(self.clone().reap());
            }
        }
        drop(state);
        drop(permit);
    }

    fn take_idle(&self) -> Option<Link> {
        loop {
            let (mut link, _) = self.lock().idle.pop()?;
            if link.is_idle() {
                return Some(link);
            }
        }
    }

    async fn reap(self: Arc<Self>) {
        loop {
            tokio::time::sleep(IDLE_MAX / 2).await;
            let mut state = self.lock();
            state.idle.retain(|(_, since)| since.elapsed() < IDLE_MAX);
            if state.idle.is_empty() {
                state.reaping = false;
                return;
            }
        }
    }

    /// A connection that several requests share, if the server can do that: one with room, or a
    /// new one.
    ///
    /// # Errors
    /// There is no connection to be had.
    pub async fn shared(self: &Arc<Self>, fresh: bool) -> Result<Arc<Shared>, Failure> {
        if let Some(shared) = self.lock().with_room(fresh) {
            return Ok(shared);
        }
        let _opening = self.opening.lock().await;
        // Another request may have brought one meanwhile.
        if let Some(shared) = self.lock().with_room(false) {
            return Ok(shared);
        }
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        let shared = Shared::start(self.connect().await?, permit);
        self.lock().shared.push(shared.clone());
        Ok(shared)
    }

    async fn connect(&self) -> Result<Link, Failure> {
        let refused = |error: io::Error| {
            let hint = match error.kind() {
                io::ErrorKind::PermissionDenied => "may this user write to the socket?",
                _ => "does it run, and listen there?",
            };
            let detail = format!("can't connect to {}: {error}; {hint}", self.name);
            Failure::new(Status::BAD_GATEWAY, detail)
        };
        let socket: Box<dyn Io> = match &self.address {
            Upstream::Unix(path) => loop {
                match UnixStream::connect(path).await {
                    // Its queue is full; whoever waits here has an end to his patience.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        tokio::time::sleep(QUEUE_PAUSE).await;
                    }
                    socket => break Box::new(socket.map_err(refused)?),
                }
            },
            Upstream::Tcp(address) => {
                let socket = TcpStream::connect(address).await.map_err(refused)?;
                // A request goes out in one piece, its body as it comes.
                socket.set_nodelay(true).map_err(refused)?;
                Box::new(socket)
            }
        };
        Ok(Link::new(socket))
    }

    /// Asks, once, whether the server multiplexes. Called when it has answered something; nobody
    /// waits for it.
    pub fn ask_once(self: &Arc<Self>) {
        let mut state = self.lock();
        if state.multiplexing != Multiplexing::Unknown {
            return;
        }
        state.multiplexing = Multiplexing::No;
        let pool = self.clone();
        tokio::spawn(async move {
            let asked = tokio::time::timeout(ASK_MAX, pool.ask()).await;
            if let Ok(Some(true)) = asked {
                let mut state = pool.lock();
                state.multiplexing = Multiplexing::Yes;
                state.idle.clear();
            }
        });
    }

    /// On a connection of its own: php-fpm closes it after the answer.
    async fn ask(&self) -> Option<bool> {
        let mut link = self.connect().await.ok()?;
        super::ask(&mut link).await
    }
}

impl State {
    /// `fresh` = all that are there are closed for new requests.
    fn with_room(&mut self, fresh: bool) -> Option<Arc<Shared>> {
        self.shared.retain(|shared| !shared.is_over());
        if fresh {
            self.shared.clear();
        }
        self.shared.iter().find(|shared| shared.has_room()).cloned()
    }
}

fn name_of(address: &Upstream) -> String {
    match address {
        Upstream::Unix(path) => format!("FastCGI server unix:{}", path.display()),
        Upstream::Tcp(address) => format!("FastCGI server {address}"),
    }
}
