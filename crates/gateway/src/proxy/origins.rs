//! The registry of origins. Routes with equal origin settings share servers and connections, even across reloads.

mod control;
mod group_members;
mod origin_settings;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use lowroad_config::{
    BalanceConfig, OriginConfig, OriginProtocol, OriginServer, OriginTls, OriginUrl,
};
use lowroad_engine::WorkerHandle;
use lowroad_handler::operator_notice::OperatorNotice;
use lowroad_handler::upstream_status::UpstreamReport;
use lowroad_origin::group::{CircuitEvent, OperatorSettings};
use lowroad_origin::member_claims::{ClaimChange, ClaimSource, MemberClaims, SourceClaims};
use lowroad_origin::name_resolution::{
    FirstLookups, HostName, MemberFactory, PendingLookup, SystemResolver, system_lookups,
    watch_name,
};
use lowroad_origin::{
    ConnectionPool, LimitClaim, PoolLimits, ServerAddress, SharedConnections, Upstream,
    UpstreamTransport,
};

use tokio::runtime::Handle;

use super::checks::HealthChecks;
use super::dns::DnsResolver;
use super::endpoint_counters::EndpointCounters;
use super::link::OriginConnector;
pub use group_members::GroupMembers;
pub use origin_settings::check_tls;
use origin_settings::{
    OriginLocation, address_of, modification_times, retry, settings, tls_name, transport,
};

use super::live_changes::{ChangedMembers, LiveChanges};
use super::mirror::MirrorCounters;
use super::servers::{
    OnlyServer, OriginEndpoint, OriginGroup, OriginMembers, OriginServers, ReportedConnections,
    ServerConnections, SharedEndpoint,
};
use super::sticky::{SessionCounters, SessionKey, StickySessions};

/// The time after which idle connections are closed. It is shorter than the keep-alive timeout of common servers, so
/// that a server rarely closes a connection that is just being reused.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// All origins, including those of previous configurations. An origin that no route uses is dropped.
pub struct OriginRegistry {
    workers: Arc<[WorkerHandle]>,
    pools: Arc<OriginPools>,
    counters: Arc<CounterRegistry>,
    /// The key of sticky sessions without a configured secret; it exists as long as the process and its successors.
    session_key: Mutex<SessionKey>,
    /// The runtime beside the workers, for DNS.
    runtime: OnceLock<Handle>,
    session_counters: Arc<SessionCounters>,
    mirror_counters: Arc<MirrorCounters>,
    /// The changes of operators.
    changes: Arc<LiveChanges>,
    first_lookups: FirstLookups<LookupKey>,
    origins: Mutex<HashMap<(OriginConfig, ChangeTimes), Weak<OriginServers>>>,
    /// The origins of the configuration in force.
    in_force: Mutex<Vec<OriginInUse>>,
}

/// An origin with its servers, as long as a route uses them.
type OriginInUse = (OriginConfig, Weak<OriginServers>);

/// A host, a port, and the name servers.
type LookupKey = (String, u16, Vec<SocketAddr>);

/// The counters of all servers in use, by the name of the server. They survive a reload that changes the settings of the
/// server's origin, because its servers of both configurations exist for a moment.
#[derive(Default)]
struct CounterRegistry(Mutex<HashMap<String, Weak<EndpointCounters>>>);

impl CounterRegistry {
    fn get(&self, name: &str) -> Arc<EndpointCounters> {
        let mut all = lock(&self.0);
        if let Some(counters) = all.get(name).and_then(Weak::upgrade) {
            return counters;
        }
        all.retain(|_, counters| counters.strong_count() > 0);
        let counters = Arc::<EndpointCounters>::default();
        all.insert(name.to_owned(), Arc::downgrade(&counters));
        counters
    }
}

/// The connections of all origins to their servers.
struct OriginPools {
    workers: Arc<[WorkerHandle]>,
    connections: Mutex<HashMap<PoolKey, Weak<ServerConnections>>>,
}

/// The properties that all connections of a pool share. Origins with different names share none, since each has its own limit, and
/// an HTTP/2 connection keeps its place in the limit while it is idle.
#[derive(Clone, PartialEq, Eq, Hash)]
struct PoolKey {
    /// The name of the origin.
    origin: String,
    address: ServerAddress,
    tls: Option<TlsKey>,
    protocol: OriginProtocol,
}

/// The TLS settings by which pools differ.
type TlsKey = (String, OriginTls, ChangeTimes);

/// The modification times of files.
type ChangeTimes = Vec<Option<SystemTime>>;

/// How the servers of an origin are reached, apart from their addresses.
#[derive(Clone)]
struct OriginTransport {
    pools: Arc<OriginPools>,
    counters: Arc<CounterRegistry>,
    transport: UpstreamTransport,
    tls: Option<TlsKey>,
    protocol: OriginProtocol,
    connections_max: usize,
    /// The source address of connections; `None` if the system chooses it.
    from: Option<IpAddr>,
    /// The sticky sessions of the group.
    sticky: Option<Arc<StickySessions>>,
    /// The name of the origin.
    name: String,
    /// The host of the server.
    host: String,
    scheme: &'static str,
}

impl OriginRegistry {
    /// Creates an empty registry for these workers, of which there must be at least one.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub fn new(workers: &[WorkerHandle]) -> Result<OriginRegistry, String> {
        let workers: Arc<[WorkerHandle]> = workers.into();
        let mut session_key = SessionKey::default();
        getrandom::fill(&mut session_key).map_err(|error| format!("no random bytes: {error}"))?;
        Ok(OriginRegistry {
            session_key: Mutex::new(session_key),
            runtime: OnceLock::new(),
            session_counters: Arc::default(),
            mirror_counters: Arc::default(),
            changes: Arc::default(),
            first_lookups: FirstLookups::default(),
            pools: Arc::new(OriginPools {
                workers: workers.clone(),
                connections: Mutex::default(),
            }),
            workers,
            counters: Arc::default(),
            origins: Mutex::default(),
            in_force: Mutex::default(),
        })
    }

    pub(super) fn worker_handles(&self) -> &Arc<[WorkerHandle]> {
        &self.workers
    }

    pub(super) fn mirror_counters(&self) -> &Arc<MirrorCounters> {
        &self.mirror_counters
    }

    /// Sets the runtime for DNS, once; without one, only the system's resolver is used.
    pub fn set_runtime(&self, runtime: &Handle) {
        self.runtime.get_or_init(|| runtime.clone());
    }

    /// The resolver of a server's name, if the configuration names one, or the name is that of a service.
    fn dns_resolver(&self, origin: &OriginConfig, url: &OriginUrl) -> Option<DnsResolver> {
        let is_needed = !origin.resolvers.is_empty() || url.is_service();
        let runtime = self.runtime.get().filter(|_| is_needed)?;
        Some(DnsResolver::new(origin.resolvers.clone(), runtime.clone()))
    }

    /// The key of sticky sessions that have no configured secret.
    pub fn session_key(&self) -> SessionKey {
        *lock(&self.session_key)
    }

    /// Replaces the key by that of the process from which this one takes over, before any origin is created.
    pub fn set_session_key(&self, key: SessionKey) {
        *lock(&self.session_key) = key;
    }

    /// Counters of all origins by their names in the status.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let sessions = self.session_counters.list().into_iter();
        let lookups = [("lookups.delayed", system_lookups::delayed())];
        sessions
            .chain(self.mirror_counters.list())
            .chain(lookups)
            .collect()
    }

    /// Starts the look-ups of the names of a configuration's origins, which [`OriginRegistry::get`] waits for. All have the
    /// same deadline, so that slow names don't add up.
    pub fn begin_lookups<'o>(&self, origins: impl Iterator<Item = &'o OriginConfig>) {
        let mut begun = HashMap::new();
        for origin in origins.filter(|origin| !self.has(origin)) {
            for server in &origin.servers {
                let OriginLocation::Name(host, port) = OriginLocation::new(&server.url, None)
                else {
                    continue;
                };
                let dns = self.dns_resolver(origin, &server.url);
                let key = (host.clone(), port, origin.resolvers.clone());
                begun
                    .entry(key)
                    .or_insert_with(|| start_lookup(dns.as_ref(), &host, port));
            }
        }
        self.first_lookups.begin(begun.into_iter());
    }

    /// Whether the servers of an origin exist, so that no name has to be looked up.
    fn has(&self, origin: &OriginConfig) -> bool {
        let key = (origin.clone(), modification_times(&origin.tls));
        let origins = lock(&self.origins);
        origins
            .get(&key)
            .is_some_and(|servers| servers.strong_count() > 0)
    }

    /// Returns the servers of an origin: existing ones, if another route or configuration has the same settings.
    /// Waits for the look-ups of host names, and so may block briefly; a name that cannot be resolved is retried later.
    /// `notice` is called when servers are added or removed.
    ///
    /// # Errors
    /// TLS cannot be set up; the text is for the operator.
    pub fn get(
        &self,
        origin: &OriginConfig,
        notice: &OperatorNotice,
    ) -> Result<Arc<OriginServers>, String> {
        // Modification times are part of the key: a renewed certificate takes effect with the next reload.
        let key = (origin.clone(), modification_times(&origin.tls));
        if let Some(servers) = lock(&self.origins).get(&key).and_then(Weak::upgrade) {
            return Ok(servers);
        }
        // The lock is not held here, because names are resolved and files are read.
        let servers = Arc::new(OriginServers::new(
            &origin.name,
            origin.protocol,
            self.members(origin, notice)?,
        ));
        let mut origins = lock(&self.origins);
        // Removes the entries of origins that only old configurations used.
        origins.retain(|_, servers| servers.strong_count() > 0);
        origins.insert(key, Arc::downgrade(&servers));
        Ok(servers)
    }

    /// The state of all servers in use.
    pub fn status(&self) -> UpstreamReport {
        let in_use: Vec<_> = lock(&self.origins)
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        let (mut report, mut reported) = <(UpstreamReport, ReportedConnections)>::default();
        for servers in &in_use {
            report.append(servers.status(&mut reported));
        }
        // Servers with the same name share their counters, which must not be added up.
        let mut names = HashSet::new();
        for server in &mut report.servers {
            if !names.insert(server.server.clone()) {
                server.clear_counts();
            }
        }
        report
    }

    fn members(
        &self,
        origin: &OriginConfig,
        notice: &OperatorNotice,
    ) -> Result<OriginMembers, String> {
        let mut found = Vec::new();
        for server in &origin.servers {
            found.push((
                server,
                self.build_transport(origin, server)?,
                OriginLocation::new(&server.url, origin.from),
            ));
        }
        let added = self.added_members(origin)?;
        // A single fixed address without health checks needs no group, and so no selection, retry or lock per request.
        if let ([(_, transport, OriginLocation::Address(address))], None, true) =
            (&found[..], &origin.check, added.is_empty())
        {
            let endpoint = transport.create_endpoint(address.clone(), true);
            let state = self.changes.get(&origin.name, &address.to_string());
            return Ok(OriginMembers::One(OnlyServer::new(endpoint, state.mode)));
        }
        let circuit_notice = notice.clone();
        let on_circuit_event = move |endpoint: &Arc<OriginEndpoint>, event| {
            endpoint.counters.count_circuit_event(event);
            if let Some(text) = endpoint.circuit_text(event) {
                circuit_notice(&text, None);
            }
        };
        let upstream =
            Upstream::with_notice(settings(origin), retry(origin), Box::new(on_circuit_event));
        let checks = origin.check.as_ref().map(|check| {
            let workers = self.workers.clone();
            let checks = HealthChecks::new(origin, check, &upstream, workers, notice.clone());
            Arc::new(checks)
        });
        let sticky = origin
            .sticky
            .as_ref()
            .map(|sticky| StickySessions::new(sticky, &origin.name, &self.session_key()));
        let sticky = sticky.map(Arc::new);
        let changed = ChangedMembers {
            changes: self.changes.clone(),
            origin: origin.name.clone(),
            upstream: Arc::downgrade(&upstream),
        };
        let members = Arc::new(GroupMembers {
            claims: Arc::new(MemberClaims::new(&upstream)),
            changed,
            checks,
        });
        let mut name_watches = Vec::new();
        for (index, (server, mut transport, location)) in found.into_iter().enumerate() {
            transport.sticky = sticky.clone();
            let (host, port) = match location {
                OriginLocation::Address(address) => {
                    let source = ClaimSource::Configured(index);
                    members.set(source, server, &transport, address);
                    continue;
                }
                OriginLocation::Name(host, port) => (host, port),
            };
            let dns = self.dns_resolver(origin, &server.url);
            let key = (host.clone(), port, origin.resolvers.clone());
            let start = || start_lookup(dns.as_ref(), &host, port);
            let initial = self.first_lookups.wait(key, start);
            let name = HostName {
                weight: server.weight,
                backup: server.backup,
                initial,
                ..HostName::new(host, port)
            };
            let factory = OriginFactory {
                transport,
                members: members.clone(),
                url: server.url.to_string(),
                notice: notice.clone(),
            };
            let source = SourceClaims {
                claims: members.claims.clone(),
                source: ClaimSource::Name(index),
            };
            // One worker resolves all names; the others share the results.
            let worker_handle = &self.workers[0];
            name_watches.push(match dns {
                Some(dns) => {
                    let resolver = Arc::new(dns);
                    watch_name(source, name, resolver, factory, worker_handle)
                }
                None => {
                    let resolver = Arc::new(SystemResolver);
                    watch_name(source, name, resolver, factory, worker_handle)
                }
            });
        }
        for (server, mut transport, address) in added {
            transport.sticky = sticky.clone();
            members.set(ClaimSource::Operator, &server, &transport, address);
        }
        Ok(OriginMembers::Group(OriginGroup {
            hash: match &origin.balance {
                BalanceConfig::Hash(hash_by) => Some(hash_by.clone()),
                _ => None,
            },
            sticky,
            session_counters: self.session_counters.clone(),
            upstream,
            workers: self.workers.clone(),
            name_watches,
            members,
        }))
    }

    fn build_transport(
        &self,
        origin: &OriginConfig,
        server: &OriginServer,
    ) -> Result<OriginTransport, String> {
        let (transport, tls) = match tls_name(origin, server) {
            Some(name) => {
                let transport = transport(name, origin)?;
                let dates = modification_times(&origin.tls);
                (
                    transport,
                    Some((name.to_owned(), origin.tls.clone(), dates)),
                )
            }
            None => (UpstreamTransport::Plain, None),
        };
        Ok(OriginTransport {
            pools: self.pools.clone(),
            counters: self.counters.clone(),
            scheme: if tls.is_some() { "https" } else { "http" },
            transport,
            tls,
            protocol: origin.protocol,
            connections_max: origin.connections_max,
            from: origin.from,
            sticky: None,
            name: origin.name.clone(),
            host: server.url.authority(),
        })
    }
}

/// Starts the look-up of a name, by the system's resolver without `dns`.
fn start_lookup(dns: Option<&DnsResolver>, host: &str, port: u16) -> PendingLookup {
    match dns {
        Some(dns) => dns.start(host, port),
        None => system_lookups::request(host, port),
    }
}

impl OriginPools {
    fn get(
        &self,
        address: ServerAddress,
        transport: &OriginTransport,
    ) -> (Arc<ServerConnections>, LimitClaim) {
        let mut all = lock(&self.connections);
        let key = PoolKey {
            origin: transport.name.clone(),
            address,
            tls: transport.tls.clone(),
            protocol: transport.protocol,
        };
        if let Some(connections) = all.get(&key).and_then(Weak::upgrade) {
            // Shared by the configurations before and after a reload, and by routes with the same URL: the limit is the
            // largest of theirs.
            let limit = connections.pool.claim(transport.connections_max);
            return (connections, limit);
        }
        all.retain(|_, connections| connections.strong_count() > 0);
        let limits = PoolLimits {
            connections_max: transport.connections_max,
            // Routes already limit the number of requests.
            waiting_max: usize::MAX,
            idle_max: IDLE_MAX,
            age_max: Duration::MAX,
        };
        let connector = OriginConnector {
            transport: transport.transport.clone(),
            protocol: transport.protocol,
        };
        let pool =
            ConnectionPool::new(key.address.clone(), connector, limits, self.workers.clone());
        let limit = pool.claim(transport.connections_max);
        let shared = (transport.protocol != OriginProtocol::Http1).then(|| SharedEndpoint {
            connections: SharedConnections::new(self.workers.len()),
            prefers_h1: AtomicBool::new(false),
        });
        let pool = Arc::new(pool);
        let connections = Arc::new(ServerConnections { pool, shared });
        all.insert(key, Arc::downgrade(&connections));
        (connections, limit)
    }
}

impl OriginTransport {
    fn now_ms(&self) -> u64 {
        self.pools.workers[0].timers.now_ms()
    }

    /// The server at an address. With `is_only`, the origin has no other server, and its name (the URL) suffices in
    /// messages.
    fn create_endpoint(&self, address: ServerAddress, is_only: bool) -> Arc<OriginEndpoint> {
        let url = match &address {
            ServerAddress::Unix(_) => address.to_string(),
            ServerAddress::Tcp(address) | ServerAddress::TcpFrom { to: address, .. } => {
                format!("{}://{address}", self.scheme)
            }
        };
        // The address is shown as well if the origin has a configured name or several servers.
        let name = match is_only || self.name == url {
            true => format!("origin {}", self.name),
            false => format!("origin {} at {url}", self.name),
        };
        let (connections, limit) = self.pools.get(address, self);
        let counters = self.counters.get(&name);
        let (host, scheme) = (&self.host, self.scheme);
        let session_tag = self.sticky.as_ref().map_or(0, |it| it.tag_of(&name));
        let endpoint = OriginEndpoint::new(name, connections, limit, host, scheme, counters);
        Arc::new(endpoint.with_session_tag(session_tag))
    }
}

/// Creates servers for the addresses to which a host name resolves.
struct OriginFactory {
    transport: OriginTransport,
    members: Arc<GroupMembers>,
    url: String,
    notice: OperatorNotice,
}

impl MemberFactory<Arc<OriginEndpoint>> for OriginFactory {
    fn server_address(&self, address: SocketAddr) -> ServerAddress {
        address_of(address, self.transport.from)
    }

    fn create(&mut self, address: SocketAddr) -> Arc<OriginEndpoint> {
        let address = self.server_address(address);
        self.transport.create_endpoint(address, false)
    }

    fn operator_settings(&self, address: &ServerAddress) -> OperatorSettings {
        self.members.changed.settings(address)
    }

    fn on_change(&mut self, change: ClaimChange<Arc<OriginEndpoint>>, _: SocketAddr) {
        self.members.follow(change, self.transport.now_ms());
    }

    fn on_lookup_change(&mut self, failure: Option<&str>) {
        let origin = format!("origin {} at {}", self.transport.name, self.url);
        (self.notice)(&lookup_text(&origin, failure), None);
    }
}

/// The log line for when look-ups of a host name begin to fail, or to succeed again.
pub fn lookup_text(server: &str, failure: Option<&str>) -> String {
    match failure {
        Some(reason) => {
            format!("{server}: the name can't be resolved: {reason}; it will be retried")
        }
        None => format!("{server}: the name is resolved again"),
    }
}

/// The log line for a change of a server's circuit breaker. `None` for a recovery that affects one client only.
pub fn circuit_text(server: &str, event: CircuitEvent) -> Option<String> {
    match event {
        CircuitEvent::Ejected {
            for_ms,
            is_for_one_client,
        } => {
            let seconds = for_ms as f64 / 1000.0;
            let scope = match is_for_one_client {
                true => ", for one client only,",
                false => "",
            };
            Some(format!(
                "{server}: ejected for {seconds} s{scope} after failed requests"
            ))
        }
        CircuitEvent::Recovered {
            was_for_one_client: false,
        } => Some(format!(
            "{server}: a trial request succeeded, so the server gets requests again"
        )),
        CircuitEvent::Recovered { .. } => None,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
