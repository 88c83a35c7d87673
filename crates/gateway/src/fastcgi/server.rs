//! One FastCGI server: its connection pool, and whether it multiplexes.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Poll, ready};
use std::time::Duration;

use lowroad_engine::WorkerHandle;
use lowroad_engine::upstream_socket::UpstreamSocket;
use lowroad_handler::HandlerFailure;
use lowroad_http::status::StatusCode;
use lowroad_origin::{
    AcquireTimeouts, Connection, ConnectionPool, PoolConnector, PoolLimits, PoolUnavailable,
    ServerAddress, SharedConnections,
};

use super::link::FastCgiLink;
use super::multiplexed_link::MultiplexedLink;
use super::record::{self, FastCgiEvent};

/// The idle time limit of connections.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// Time limit for FCGI_GET_VALUES.
const ASK_MAX: Duration = Duration::from_secs(5);

/// An exclusive connection.
pub type FastCgiLease = lowroad_origin::Lease<FastCgiConnector>;

/// The servers by address, shared by all routes and sites. An unused server is dropped.
#[derive(Clone)]
pub struct FastCgiServers {
    workers: Arc<[WorkerHandle]>,
    servers: Arc<Mutex<HashMap<ServerAddress, Weak<FastCgiServer>>>>,
}

impl FastCgiServers {
    /// No servers yet, for these workers, at least one.
    pub fn new(workers: &[WorkerHandle]) -> FastCgiServers {
        FastCgiServers {
            workers: workers.into(),
            servers: Arc::default(),
        }
    }

    /// The server at `address`, with a bound of at least this many connections.
    pub(super) fn get(&self, address: ServerAddress, connections_max: usize) -> Arc<FastCgiServer> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let server = servers.get(&address).and_then(Weak::upgrade);
        let server = server.unwrap_or_else(|| {
            // Servers of old configurations leave no entries behind.
            servers.retain(|_, server| server.strong_count() > 0);
            let new = Arc::new(FastCgiServer::new(address.clone(), self.workers.clone()));
            servers.insert(address, Arc::downgrade(&new));
            new
        });
        // Routes of different configurations share the pool, so the largest bound applies.
        server.pool.raise(connections_max);
        server
    }

    /// The workers.
    pub(super) fn workers(&self) -> &Arc<[WorkerHandle]> {
        &self.workers
    }
}

/// A FastCGI server.
pub struct FastCgiServer {
    name: String,
    /// Its connection pool.
    pub pool: Arc<ConnectionPool<FastCgiConnector>>,
    /// Its multiplexed connections.
    shared: SharedConnections<MultiplexedLink>,
    /// Whether FCGI_GET_VALUES was sent.
    was_probed: AtomicBool,
    /// Whether it multiplexes, by its own report.
    multiplexes: AtomicBool,
}

/// No connection was available for a request, so the server has not seen it.
pub struct ServerUnreachable {
    /// The failure of the request.
    pub failure: HandlerFailure,
    /// Whether the server is unreachable; otherwise all connections are in use.
    pub is_absent: bool,
}

/// Opens FastCGI connections on sockets.
pub struct FastCgiConnector;

impl PoolConnector for FastCgiConnector {
    type PooledConnection = FastCgiLink;

    async fn open(&self, socket: UpstreamSocket, _: &WorkerHandle) -> io::Result<FastCgiLink> {
        Ok(FastCgiLink::new(socket))
    }
}

impl Connection for FastCgiLink {
    /// No system call if it is.
    fn is_idle(&mut self) -> bool {
        self.is_quiet()
    }

    fn socket(&mut self) -> &mut UpstreamSocket {
        self.socket_mut()
    }
}

impl FastCgiServer {
    fn new(address: ServerAddress, workers: Arc<[WorkerHandle]>) -> FastCgiServer {
        let limits = PoolLimits {
            // Raised by `get` for each route.
            connections_max: 0,
            // Routes already bound the number of requests.
            waiting_max: usize::MAX,
            idle_max: IDLE_MAX,
            age_max: Duration::MAX,
        };
        let (name, count) = (format!("FastCGI server {address}"), workers.len());
        FastCgiServer {
            name,
            pool: Arc::new(ConnectionPool::new(
                address,
                FastCgiConnector,
                limits,
                workers,
            )),
            shared: SharedConnections::new(count),
            was_probed: AtomicBool::new(false),
            multiplexes: AtomicBool::new(false),
        }
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether requests share connections: after the server has reported that it multiplexes.
    pub fn multiplexes(&self) -> bool {
        self.multiplexes.load(Relaxed)
    }

    /// Leases an exclusive connection: an idle one, unless it must be `fresh`, or a new one.
    ///
    /// # Errors
    /// No connection is available in time.
    pub async fn lease(
        &self,
        worker: usize,
        fresh: bool,
        timeouts: AcquireTimeouts,
    ) -> Result<FastCgiLease, ServerUnreachable> {
        // Without an await first: an idle connection is the common case.
        let idle_lease = (!fresh).then(|| self.pool.try_lease(worker));
        if let Some(lease) = idle_lease.flatten() {
            return Ok(lease);
        }
        let leased = self.pool.lease(worker, fresh, timeouts).await;
        leased.map_err(|unavailable| self.unreachable(&unavailable, timeouts))
    }

    /// A multiplexed connection, of a server that supports it.
    ///
    /// # Errors
    /// No connection is available in time.
    pub async fn lease_shared(
        &self,
        worker: usize,
        fresh: bool,
        timeouts: AcquireTimeouts,
    ) -> Result<Arc<MultiplexedLink>, ServerUnreachable> {
        let start = MultiplexedLink::start;
        let pool = &self.pool;
        let leased = self.shared.get(pool, worker, fresh, timeouts, start).await;
        leased.map_err(|unavailable| self.unreachable(&unavailable, timeouts))
    }

    fn unreachable(
        &self,
        unavailable: &PoolUnavailable,
        timeouts: AcquireTimeouts,
    ) -> ServerUnreachable {
        let name = &self.name;
        let (status, detail) = match unavailable {
            PoolUnavailable::TooManyWait | PoolUnavailable::NoneFree => {
                let ms = timeouts.total.as_millis();
                let detail = format!(
                    "no connection to {name} was free within {ms} ms; the server is overloaded, \
                     or the route's connections are too few"
                );
                (StatusCode::SERVICE_UNAVAILABLE, detail)
            }
            PoolUnavailable::ConnectTimeout => {
                let ms = timeouts.connecting.as_millis();
                let detail = format!(
                    "connecting to {name} took longer than {ms} ms; the server is overloaded, or \
                     its host is unreachable"
                );
                (StatusCode::SERVICE_UNAVAILABLE, detail)
            }
            PoolUnavailable::Failed(error) => {
                let hint = match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        "check that this user may write to the socket"
                    }
                    _ => "check that it runs and listens there",
                };
                let detail = format!("can't connect to {name}: {error}; {hint}");
                (StatusCode::BAD_GATEWAY, detail)
            }
        };
        // A full pool means that the server is reachable and busy.
        let is_absent = matches!(
            unavailable,
            PoolUnavailable::ConnectTimeout | PoolUnavailable::Failed(_)
        );
        ServerUnreachable {
            failure: HandlerFailure::new(status, detail),
            is_absent,
        }
    }

    /// Asks the server once whether it multiplexes, in a task. Called after a first response, so that an unreachable
    /// server is not asked.
    pub fn probe_once(self: &Arc<Self>, worker: usize) {
        // The load avoids the write of the swap once it is set: this runs after every request.
        if self.was_probed.load(Relaxed) || self.was_probed.swap(true, Relaxed) {
            return;
        }
        let (server, worker_handle) = (self.clone(), self.pool.worker_handle(worker).clone());
        let tasks = worker_handle.tasks.clone();
        let probe = async move {
            let probe_result = worker_handle
                .timers
                .timeout(ASK_MAX, server.probe_multiplexing(worker))
                .await;
            if let Ok(Some(true)) = probe_result {
                // Exclusive idle connections are not needed any more, and each occupies a process of the server.
                server.multiplexes.store(true, Relaxed);
                server.pool.disable_reuse();
            }
        };
        tasks.spawn(probe).detach();
    }

    /// Sends FCGI_GET_VALUES on a separate connection, since php-fpm closes it after its reply.
    async fn probe_multiplexing(&self, worker: usize) -> Option<bool> {
        let timeouts = AcquireTimeouts::from_total(ASK_MAX);
        let mut link = self.pool.connect(worker, timeouts).await.ok()?;
        query_multiplexing(&mut link).await
    }
}

/// Sends FCGI_GET_VALUES; `None` without a valid reply.
async fn query_multiplexing(link: &mut FastCgiLink) -> Option<bool> {
    let mut query = Vec::new();
    record::write_get_values(&mut query);
    let mut written = 0;
    poll_fn(|context| {
        while written < query.len() {
            match ready!(link.poll_write(context, &query[written..], &[])) {
                Ok(len @ 1..) => written += len,
                _ => return Poll::Ready(None),
            }
        }
        loop {
            match link.event() {
                Ok(Some((FastCgiEvent::Multiplexes(can_multiplex), _))) => {
                    return Poll::Ready(Some(can_multiplex));
                }
                Ok(None) => {}
                // Any other record, before the reply, is a protocol violation.
                _ => return Poll::Ready(None),
            }
            if ready!(link.poll_read(context)).is_err() {
                return Poll::Ready(None);
            }
        }
    })
    .await
}
