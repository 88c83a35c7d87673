//! A FastCGI server: its connection pool, and whether it multiplexes.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Poll, ready};
use std::time::Duration;

use lowroad_config::{FastCgiConfig, UpstreamAddress};
use lowroad_engine::WorkerHandle;
use lowroad_engine::upstream_socket::UpstreamSocket;
use lowroad_handler::HandlerFailure;
use lowroad_handler::operator_notice::NoticeLimit;
use lowroad_http::status::StatusCode;
use lowroad_origin::name_resolution::{FirstLookups, NameAnswer, system_lookups};
use lowroad_origin::{
    AcquireTimeouts, Connection, ConnectionPool, LimitClaim, PoolConnector, PoolLimits,
    PoolUnavailable, ServerAddress, SharedConnections,
};

use super::control::FastCgiChanges;
use super::link::FastCgiLink;
use super::multiplexed_link::MultiplexedLink;
use super::record::{self, FastCgiEvent};
use crate::proxy::connect_errors::pool_refusal;

/// The time after which idle connections are closed.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// The timeout of FCGI_GET_VALUES.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// An exclusive connection.
pub type FastCgiLease = lowroad_origin::Lease<FastCgiConnector>;

/// All servers by address; routes and sites share them. A server that no route uses is dropped.
#[derive(Clone)]
pub struct FastCgiServers {
    workers: Arc<[WorkerHandle]>,
    servers: Arc<Mutex<HashMap<ServerAddress, Weak<FastCgiServer>>>>,
    first_lookups: Arc<FirstLookups<(String, u16)>>,
    changes: Arc<FastCgiChanges>,
}

impl FastCgiServers {
    /// Creates an empty set for these workers, of which there must be at least one.
    pub fn new(workers: &[WorkerHandle]) -> FastCgiServers {
        FastCgiServers {
            workers: workers.into(),
            servers: Arc::default(),
            first_lookups: Arc::default(),
            changes: Arc::default(),
        }
    }

    /// Starts the look-ups of the names of a configuration's servers, with one deadline for all.
    pub fn begin_lookups<'c>(&self, routes: impl Iterator<Item = &'c FastCgiConfig>) {
        let names = routes.flat_map(|fastcgi| &fastcgi.servers);
        let names = names.filter_map(|server| match server {
            UpstreamAddress::Name { host, port } => Some((host.clone(), *port)),
            UpstreamAddress::Unix(_) | UpstreamAddress::Tcp(_) => None,
        });
        self.first_lookups.begin(names.map(|(host, port)| {
            let lookup = system_lookups::request(&host, port);
            ((host, port), lookup)
        }));
    }

    /// The first servers of a name. Blocks until the deadline of the look-ups.
    pub(super) fn look_up_first(&self, host: &str, port: u16) -> NameAnswer {
        let start = || system_lookups::request(host, port);
        self.first_lookups.wait((host.to_owned(), port), start)
    }

    /// The server at `address`, for a route that may use `connections_max` connections to it.
    pub(super) fn get(&self, address: ServerAddress, connections_max: usize) -> Arc<RouteServer> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let server = servers.get(&address).and_then(Weak::upgrade);
        let server = server.unwrap_or_else(|| {
            // Removes the entries of servers that only old configurations used.
            servers.retain(|_, server| server.strong_count() > 0);
            let new = Arc::new(FastCgiServer::new(address.clone(), self.workers.clone()));
            servers.insert(address, Arc::downgrade(&new));
            new
        });
        // Routes, also those of the configuration before a reload, share the pool: the largest of their limits applies.
        let limit = server.pool.claim(connections_max);
        Arc::new(RouteServer {
            server,
            _limit: limit,
        })
    }

    /// The changes of operators.
    pub(super) fn changes(&self) -> &Arc<FastCgiChanges> {
        &self.changes
    }

    /// The workers.
    pub(super) fn workers(&self) -> &Arc<[WorkerHandle]> {
        &self.workers
    }
}

/// A server that a route uses.
pub(super) struct RouteServer {
    /// The server, which other routes share.
    pub server: Arc<FastCgiServer>,
    /// The limit on connections by the route.
    _limit: LimitClaim,
}

/// A FastCGI server.
pub struct FastCgiServer {
    name: String,
    /// The connection pool.
    pub pool: Arc<ConnectionPool<FastCgiConnector>>,
    /// The multiplexed connections.
    shared: SharedConnections<MultiplexedLink>,
    /// Whether FCGI_GET_VALUES was sent.
    was_probed: AtomicBool,
    /// Whether the server has reported that it multiplexes.
    multiplexes: AtomicBool,
    /// Limits the notices that another server is tried.
    pub retry_notices: Arc<NoticeLimit>,
}

/// No connection was available, so the server has not received the request.
pub struct ServerUnreachable {
    /// The failure of the request.
    pub failure: HandlerFailure,
    /// True if no connection could be established; false if all connections are in use.
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
    /// Makes no system call if the connection is idle.
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
            // `FastCgiServers::get` claims the limit of each route.
            connections_max: 0,
            // Routes already limit the number of requests.
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
            retry_notices: Arc::default(),
        }
    }

    /// The name of the server in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of the server, with port or with `unix:`.
    pub fn address(&self) -> &str {
        self.name.rsplit(' ').next().unwrap_or_default()
    }

    /// Whether requests share connections: true after the server has reported that it multiplexes.
    pub fn multiplexes(&self) -> bool {
        self.multiplexes.load(Relaxed)
    }

    /// Leases an exclusive connection: an idle one if possible (unless `fresh`), otherwise a new one.
    ///
    /// # Errors
    /// No connection became available in time.
    pub async fn lease(
        &self,
        worker: usize,
        fresh: bool,
        timeouts: AcquireTimeouts,
    ) -> Result<FastCgiLease, ServerUnreachable> {
        // An idle connection is the common case, so the pool is tried without await first.
        let idle_lease = (!fresh).then(|| self.pool.try_lease(worker));
        if let Some(lease) = idle_lease.flatten() {
            return Ok(lease);
        }
        let leased = self.pool.lease(worker, fresh, timeouts).await;
        leased.map_err(|unavailable| self.unreachable(&unavailable, timeouts))
    }

    /// Leases a multiplexed connection.
    ///
    /// # Errors
    /// No connection became available in time.
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
        // If the pool is exhausted, the server is reachable but busy.
        let is_absent = matches!(
            unavailable,
            PoolUnavailable::ConnectTimeout | PoolUnavailable::Failed(_)
        );
        ServerUnreachable {
            failure: HandlerFailure {
                reason: pool_refusal(unavailable),
                ..HandlerFailure::new(status, detail)
            },
            is_absent,
        }
    }

    /// Asks the server in a task whether it multiplexes; does so once. Called after the first response, so that an
    /// unreachable server is not asked.
    pub fn probe_once(self: &Arc<Self>, worker: usize) {
        // The load comes first to avoid the write of the swap, since this runs after every request.
        if self.was_probed.load(Relaxed) || self.was_probed.swap(true, Relaxed) {
            return;
        }
        let (server, worker_handle) = (self.clone(), self.pool.worker_handle(worker).clone());
        let tasks = worker_handle.tasks.clone();
        let probe = async move {
            let probe_result = worker_handle
                .timers
                .timeout(PROBE_TIMEOUT, server.probe_multiplexing(worker))
                .await;
            if let Ok(Some(true)) = probe_result {
                // Idle exclusive connections are no longer needed, and each occupies a process of the server.
                server.multiplexes.store(true, Relaxed);
                server.pool.disable_reuse();
            }
        };
        tasks.spawn(probe).detach();
    }

    /// Sends FCGI_GET_VALUES on a separate connection, because php-fpm closes the connection after its reply.
    async fn probe_multiplexing(&self, worker: usize) -> Option<bool> {
        let timeouts = AcquireTimeouts::from_total(PROBE_TIMEOUT);
        // The limit does not count this connection: a probe must not take one from a request.
        let mut link = self.pool.connect(worker, timeouts).await.ok()?;
        query_multiplexing(&mut link).await
    }
}

/// Sends FCGI_GET_VALUES, and waits for the reply; `None` if there is no valid reply.
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
                // Any other record before the reply violates the protocol.
                _ => return Poll::Ready(None),
            }
            if ready!(link.poll_read(context)).is_err() {
                return Poll::Ready(None);
            }
        }
    })
    .await
}
