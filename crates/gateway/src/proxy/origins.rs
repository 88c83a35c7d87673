//! The registry of origins across all configurations: routes with equal origin settings share servers and connections,
//! also across a reload.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use lowroad_config::{Balance, Origin, OriginServer, OriginTls, OriginUrl};
use lowroad_engine::Local;
use lowroad_handler::notice::Notice;
use lowroad_origin::group::{HealthSettings, MemberId, NewMember, Policy, Settings};
use lowroad_origin::names::{self, Name, Places, SystemResolver};
use lowroad_origin::retry::Retry;
use lowroad_origin::{Address, Limits, Pool, Transport, Upstream};

use super::checks::Checks;
use super::link::Links;
use super::servers::{Group, Members, Place, Servers};

/// The idle time limit of connections; shorter than the keep-alive timeout of common servers, so that a server rarely
/// closes a connection at the moment of its reuse.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// Bounded loads of consistent hashing: a server's maximum load in percent of its even share.
const HASH_LOAD_PERCENT_MAX: u32 = 125;

/// The origins of all configurations. An origin without users is dropped.
pub struct Origins {
    workers: Arc<[Local]>,
    pools: Arc<Pools>,
    known: Mutex<HashMap<(Origin, Dates), Weak<Servers>>>,
}

/// The pools, one for each address and TLS setting.
struct Pools {
    workers: Arc<[Local]>,
    known: Mutex<HashMap<PoolKey, Weak<Pool<Links>>>>,
}

/// The address and the TLS settings of connections.
type PoolKey = (Address, Option<TlsKey>);

/// The TLS settings that distinguish connections.
type TlsKey = (String, OriginTls, Dates);

/// Modification times of files.
type Dates = Vec<Option<SystemTime>>;

/// How a server is reached, independent of its address.
struct Way {
    pools: Arc<Pools>,
    transport: Transport,
    tls: Option<TlsKey>,
    connections_max: usize,
    /// The source address of its connections, if not the system's choice.
    from: Option<IpAddr>,
    /// The name of the origin.
    name: String,
    /// The host of the server.
    host: String,
    scheme: &'static str,
}

impl Origins {
    /// No origins yet, for these workers, at least one.
    pub fn new(workers: &[Local]) -> Origins {
        let workers: Arc<[Local]> = workers.into();
        Origins {
            pools: Arc::new(Pools {
                workers: workers.clone(),
                known: Mutex::default(),
            }),
            workers,
            known: Mutex::default(),
        }
    }

    /// Returns the servers of an origin: the existing ones, if another route or configuration has the same. Resolves
    /// names, and so may block for a short time; a name without an address is resolved again later. `notice` is called
    /// when servers are added or removed.
    ///
    /// # Errors
    /// TLS cannot be set up: a text for the operator.
    pub fn get(&self, origin: &Origin, notice: &Notice) -> Result<Arc<Servers>, String> {
        let key = (origin.clone(), dates(&origin.tls));
        if let Some(servers) = lock(&self.known).get(&key).and_then(Weak::upgrade) {
            return Ok(servers);
        }
        let servers = Arc::new(Servers::new(&origin.name, self.members(origin, notice)?));
        let mut known = lock(&self.known);
        known.retain(|_, servers| servers.strong_count() > 0);
        known.insert(key, Arc::downgrade(&servers));
        Ok(servers)
    }

    /// Status lines of all servers in use.
    pub fn status(&self) -> Vec<String> {
        let known: Vec<_> = lock(&self.known)
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        let mut lines: Vec<String> = known.iter().flat_map(|servers| servers.status()).collect();
        lines.sort_unstable();
        lines
    }

    fn members(&self, origin: &Origin, notice: &Notice) -> Result<Members, String> {
        let mut found = Vec::new();
        for server in &origin.servers {
            found.push((
                server,
                self.way(origin, server)?,
                Where::look_up(&server.url, origin.from),
            ));
        }
        // A single fixed address without health checks needs no group: no choice, no retry, and no lock per request.
        if let ([(_, way, Where::Address(address))], None) = (&found[..], &origin.check) {
            return Ok(Members::One(way.place(address.clone(), true)));
        }
        let upstream = Upstream::new(settings(origin), retry(origin));
        let checks = origin.check.as_ref().map(|check| {
            let workers = self.workers.clone();
            let checks = Checks::new(origin, check, &upstream, workers, notice.clone());
            Arc::new(checks)
        });
        let mut following = Vec::new();
        for (server, way, place) in found {
            let (host, port, first) = match place {
                Where::Address(address) => {
                    let new = NewMember {
                        name: server.url.to_string().into(),
                        weight: server.weight,
                        backup: server.backup,
                    };
                    let place = way.place(address, false);
                    let member = upstream
                        .with(|group| group.add(new, place, self.workers[0].timers.now_ms()));
                    checks.iter().for_each(|checks| checks.begin(member));
                    continue;
                }
                Where::Name(host, port, first) => (host, port, first),
            };
            let name = Name {
                weight: server.weight,
                backup: server.backup,
                first,
                ..Name::new(host, port)
            };
            let places = Found {
                way,
                checks: checks.clone(),
                url: server.url.to_string(),
                notice: notice.clone(),
            };
            let resolver = Arc::new(SystemResolver);
            let local = &self.workers[0];
            following.push(names::follow(&upstream, name, resolver, places, local));
        }
        Ok(Members::Group(Group {
            hash: match &origin.balance {
                Balance::Hash(by) => Some(by.clone()),
                _ => None,
            },
            upstream,
            workers: self.workers.clone(),
            following,
            checks,
        }))
    }

    fn way(&self, origin: &Origin, server: &OriginServer) -> Result<Way, String> {
        let (transport, tls) = match tls_name(origin, server) {
            Some(name) => {
                let transport = transport(name, &origin.tls)?;
                let dates = dates(&origin.tls);
                (transport, Some((name.clone(), origin.tls.clone(), dates)))
            }
            None => (Transport::Plain, None),
        };
        Ok(Way {
            pools: self.pools.clone(),
            scheme: if tls.is_some() { "https" } else { "http" },
            transport,
            tls,
            connections_max: origin.connections_max,
            from: origin.from,
            name: origin.name.clone(),
            host: server.url.authority(),
        })
    }
}

impl Pools {
    fn get(&self, address: Address, way: &Way) -> Arc<Pool<Links>> {
        let mut known = lock(&self.known);
        let key = (address, way.tls.clone());
        if let Some(pool) = known.get(&key).and_then(Weak::upgrade) {
            pool.raise(way.connections_max);
            return pool;
        }
        known.retain(|_, pool| pool.strong_count() > 0);
        let limits = Limits {
            connections_max: way.connections_max,
            // Routes already bound the number of requests.
            waiting_max: usize::MAX,
            idle_max: IDLE_MAX,
            age_max: Duration::MAX,
        };
        let links = Links(way.transport.clone());
        let pool = Pool::new(key.0.clone(), links, limits, self.workers.clone());
        let pool = Arc::new(pool);
        known.insert(key, Arc::downgrade(&pool));
        pool
    }
}

impl Way {
    /// The server at an address. `is_only` = it is the only one, so the origin's name (its URL) suffices.
    fn place(&self, address: Address, is_only: bool) -> Arc<Place> {
        let at = match &address {
            Address::Unix(_) => address.to_string(),
            Address::Tcp(address) | Address::TcpFrom { to: address, .. } => {
                format!("{}://{address}", self.scheme)
            }
        };
        // The address is added if the origin has a configured name, or several servers.
        let name = match is_only || self.name == at {
            true => format!("origin {}", self.name),
            false => format!("origin {} at {at}", self.name),
        };
        let pool = self.pools.get(address, self);
        Arc::new(Place::new(name, pool, &self.host, self.scheme))
    }
}

/// Creates servers for the resolved addresses of a name.
struct Found {
    way: Way,
    checks: Option<Arc<Checks>>,
    url: String,
    notice: Notice,
}

impl Places<Arc<Place>> for Found {
    fn come(&mut self, address: SocketAddr) -> Arc<Place> {
        self.way.place(address_of(address, self.way.from), false)
    }

    fn added(&mut self, member: MemberId, _: SocketAddr) {
        self.checks.iter().for_each(|checks| checks.begin(member));
    }

    /// The pool is dropped with the last request that uses it, so nothing needs to be closed here.
    fn gone(&mut self, member: MemberId, _: Arc<Place>) {
        self.checks.iter().for_each(|checks| checks.end(member));
    }

    fn lookup_changed(&mut self, failure: Option<&str>) {
        let origin = format!("origin {} at {}", self.way.name, self.url);
        (self.notice)(&lookup_text(&origin, failure));
    }
}

/// The log line for a name when its lookups begin to fail or succeed again.
pub fn lookup_text(server: &str, failure: Option<&str>) -> String {
    match failure {
        Some(why) => format!("{server}: the name can't be looked up: {why}; it is tried again"),
        None => format!("{server}: the name can be looked up again"),
    }
}

/// The location of a server.
enum Where {
    /// A fixed address.
    Address(Address),
    /// A host, a port, and its current addresses.
    Name(String, u16, Vec<SocketAddr>),
}

impl Where {
    /// Blocks during the resolution of a name.
    fn look_up(url: &OriginUrl, from: Option<IpAddr>) -> Where {
        let (host, port) = match url {
            OriginUrl::Unix(path) => return Where::Address(Address::Unix(path.clone())),
            OriginUrl::Http { host, port, .. } => (host, *port),
        };
        if let Ok(address) = host.parse::<IpAddr>() {
            let address = SocketAddr::new(address, port);
            return Where::Address(address_of(address, from));
        }
        Where::Name(host.clone(), port, names::look_up(host, port))
    }
}

fn address_of(to: SocketAddr, from: Option<IpAddr>) -> Address {
    match from {
        None => Address::Tcp(to),
        Some(from) => Address::TcpFrom { to, from },
    }
}

fn settings(origin: &Origin) -> Settings {
    let default = Settings::default();
    let health = origin.check.as_ref().map(|check| HealthSettings {
        rise: check.rise,
        fall: check.fall,
    });
    let mut circuit = default.circuit;
    // As many requests as connections, and as many waiters: the routes' bounds apply first.
    circuit.requests_max = u32::try_from(origin.connections_max).unwrap_or(u32::MAX);
    circuit.pending_max = circuit.requests_max;
    Settings {
        policy: match origin.balance {
            Balance::RoundRobin => Policy::RoundRobin,
            Balance::LeastConnections => Policy::LeastConnections,
            Balance::Random => Policy::RandomOfTwo,
            Balance::Hash(_) => Policy::ConsistentHash {
                load_percent_max: HASH_LOAD_PERCENT_MAX,
            },
        },
        health: health.unwrap_or(default.health),
        circuit,
        ..default
    }
}

fn retry(origin: &Origin) -> Retry {
    Retry {
        tries_max: origin.tries_max,
        budget_percent: origin.retry_percent,
        // A request that waited for its full timeout is not made to wait again.
        after_timeouts: false,
        ..Retry::default()
    }
}

/// Reads the TLS files of an origin's servers. Blocks.
///
/// # Errors
/// The same text as from `OriginRegistry`.
pub fn check_tls(origin: &Origin) -> Result<(), String> {
    let mut names = (origin.servers.iter()).filter_map(|server| tls_name(origin, server));
    match names.next() {
        Some(name) => transport(name, &origin.tls).map(drop),
        None => Ok(()),
    }
}

/// The name that a server's certificate must have, if TLS is used.
fn tls_name<'a>(origin: &'a Origin, server: &'a OriginServer) -> Option<&'a String> {
    match &server.url {
        OriginUrl::Http {
            encrypted: true,
            host,
            ..
        } => Some(origin.tls.name.as_ref().unwrap_or(host)),
        _ => None,
    }
}

#[cfg(feature = "tls")]
fn transport(name: &str, tls: &OriginTls) -> Result<Transport, String> {
    use lowroad_origin::tls::{Identity, Settings, Tls};
    let identity = tls.identity.clone();
    let settings = Settings {
        verify: tls.verify,
        authorities: tls.authorities.clone(),
        identity: identity.map(|(certificates, key)| Identity { certificates, key }),
        ..Settings::of(name)
    };
    let tls = Tls::new(&settings).map_err(|error| error.to_string())?;
    Ok(Transport::Tls(tls))
}

#[cfg(not(feature = "tls"))]
fn transport(_: &str, _: &OriginTls) -> Result<Transport, String> {
    let lacking = lowroad_config::Lacking(lowroad_config::Feature::Tls);
    Err(lacking.to_string())
}

/// Modification times of the TLS files: a replaced certificate makes a new origin.
fn dates(tls: &OriginTls) -> Dates {
    let identity = tls.identity.iter().flat_map(|(one, other)| [one, other]);
    let files = tls.authorities.iter().chain(identity);
    let date = |file: &PathBuf| file.metadata().and_then(|file| file.modified()).ok();
    files.map(date).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
