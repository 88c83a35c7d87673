//! Name resolution: resolves a host name periodically, and adds and removes group members so that they equal the
//! resolved addresses.

mod first_lookups;
mod resolved_members;
pub mod system_lookups;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lowroad_engine::WorkerHandle;
use lowroad_engine::tasks::TaskHandle;

use crate::address::ServerAddress;
use crate::group::{NewMember, NoMember, OperatorSettings};
use crate::member_claims::{ClaimChange, SourceClaims};
pub use first_lookups::{FirstLookups, PendingLookup};
use resolved_members::ResolvedMembers;

/// Resolves host names.
pub trait NameResolver: Send + Sync + 'static {
    /// Resolves a name once, for a task of the worker of `worker_handle`.
    ///
    /// # Errors
    /// The resolution failed.
    fn resolve(
        &self,
        name: &HostName,
        worker_handle: &WorkerHandle,
    ) -> impl Future<Output = io::Result<NameAnswer>> + Send;
}

/// A server to which a name resolves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedServer {
    /// The address.
    pub address: SocketAddr,
    /// The weight; `None`: that of the name.
    pub weight: Option<u32>,
    /// Whether the server is used only if the others are unavailable.
    pub is_backup: bool,
}

/// The answer of a resolver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameAnswer {
    /// The servers, in any order.
    pub servers: Vec<ResolvedServer>,
    /// How long the answer may be used; `None` if the resolver does not know.
    pub ttl: Option<Duration>,
}

impl From<Vec<SocketAddr>> for NameAnswer {
    fn from(addresses: Vec<SocketAddr>) -> NameAnswer {
        let server = |address| ResolvedServer {
            address,
            weight: None,
            is_backup: false,
        };
        NameAnswer {
            servers: addresses.into_iter().map(server).collect(),
            ttl: None,
        }
    }
}

impl NameAnswer {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| server.address).collect()
    }
}

/// The system's resolver, getaddrinfo(3): `/etc/hosts`, `nsswitch.conf`, DNS. It blocks a thread of
/// [`system_lookups`], and does not return the TTL.
pub struct SystemResolver;

impl NameResolver for SystemResolver {
    async fn resolve(&self, name: &HostName, _: &WorkerHandle) -> io::Result<NameAnswer> {
        let lookup = system_lookups::request(&name.host, name.port);
        lookup
            .await
            .unwrap_or_else(|_| Err(io::Error::other("no thread for the look-up")))
    }
}

/// A host name and its resolution settings.
#[derive(Clone, Debug)]
pub struct HostName {
    /// The host.
    pub host: Arc<str>,
    /// The port of all addresses.
    pub port: u16,
    /// The pause between look-ups, if the answer has no time to live.
    pub interval: Duration,
    /// The pause after a failed look-up while the name has no member.
    pub retry_interval: Duration,
    /// Time limit of a look-up.
    pub timeout: Duration,
    /// An address is removed after this many successive answers without it: some DNS servers return only a part of the
    /// addresses each time.
    pub misses_max: u32,
    /// The maximum number of addresses that become members.
    pub addresses_max: usize,
    /// The weight of each member.
    pub weight: u32,
    /// Whether the members are backups, which are used only if too few primary members are healthy.
    pub backup: bool,
    /// The answer of an earlier look-up: its servers become members immediately, and the next look-up is due when it
    /// expires.
    pub initial: NameAnswer,
}

impl HostName {
    /// Settings for members that are not backups, with a look-up every 10 s.
    pub fn new(host: impl Into<Arc<str>>, port: u16) -> HostName {
        HostName {
            host: host.into(),
            port,
            interval: Duration::from_secs(10),
            retry_interval: Duration::from_secs(1),
            timeout: Duration::from_secs(5),
            misses_max: 2,
            addresses_max: 64,
            weight: 1,
            backup: false,
            initial: NameAnswer::default(),
        }
    }
}

/// Creates and releases the targets (connection pools) of resolved members.
pub trait MemberFactory<P>: Send + 'static {
    /// The address in the form of the group's other members.
    fn server_address(&self, address: SocketAddr) -> ServerAddress {
        ServerAddress::Tcp(address).canonical()
    }

    /// The operator's settings of the member at an address.
    fn operator_settings(&self, _address: &ServerAddress) -> OperatorSettings {
        OperatorSettings::default()
    }

    /// Creates the target for a new address.
    fn create(&mut self, address: SocketAddr) -> P;

    /// Called when members have changed: health checks may begin or end. Idle connections of a removed member must be
    /// closed now, and connections in use when they are returned.
    fn on_change(&mut self, change: ClaimChange<P>, address: SocketAddr);

    /// Called when look-ups have begun to fail, with the reason, or with `None` when they succeed again.
    fn on_lookup_change(&mut self, _failure: Option<&str>) {}
}

/// The counters and the last error of a name's resolution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolveStatus {
    /// Successful look-ups.
    pub answers: u64,
    /// Failed look-ups.
    pub failures: u64,
    /// The error of the last look-up, if it failed.
    pub error: Option<String>,
}

/// A name that is resolved periodically. Dropping the value stops the look-ups; the members are not removed.
pub struct NameWatch {
    _task: TaskHandle,
    host: Arc<str>,
    status: Arc<Mutex<ResolveStatus>>,
}

impl NameWatch {
    /// Describes the failure of the last look-up, if it failed.
    pub fn failure(&self) -> Option<String> {
        let reason = self.status().error?;
        Some(format!(
            "the name {} can't be resolved: {reason}",
            self.host
        ))
    }

    /// The state of the resolution.
    pub fn status(&self) -> ResolveStatus {
        let status = self.status.lock();
        status.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Explains why a group has no member for a request. If the group is empty, names failed look-ups as the reason.
pub fn explain_absence(no_member: NoMember, name_watches: &[NameWatch]) -> String {
    let failures: Vec<String> = match no_member {
        NoMember::Empty => name_watches.iter().filter_map(NameWatch::failure).collect(),
        _ => Vec::new(),
    };
    match failures.is_empty() {
        true => no_member.to_string(),
        false => failures.join(", "),
    }
}

/// Starts the periodic resolution of a name, which claims its addresses by `claims`, on the worker of `worker_handle`. The
/// resolution ends with the group.
pub fn watch_name<P, R, S>(
    claims: SourceClaims<P>,
    name: HostName,
    resolver: Arc<R>,
    mut factory: S,
    worker_handle: &WorkerHandle,
) -> NameWatch
where
    P: Clone + Send + Sync + 'static,
    R: NameResolver,
    S: MemberFactory<P>,
{
    let status: Arc<Mutex<ResolveStatus>> = Arc::default();
    let mut members = ResolvedMembers::new(name.misses_max, name.addresses_max);
    // With addresses from an earlier look-up, the group is usable immediately.
    let has_addresses = !name.initial.servers.is_empty();
    // Members are added now, before the first request, and not after the first look-up of the task.
    if has_addresses {
        let now_ms = worker_handle.timers.now_ms();
        apply(
            &claims,
            &name,
            &name.initial,
            &mut members,
            &mut factory,
            now_ms,
        );
    }
    let (task_worker, task_status) = (worker_handle.clone(), status.clone());
    let host = name.host.clone();
    let task = worker_handle.tasks.spawn(async move {
        let mut has_members = has_addresses;
        let mut is_failing = false;
        if has_addresses {
            // The addresses are recent, so the first look-up is due when they expire.
            let pause = name.initial.ttl.unwrap_or(name.interval);
            task_worker.timers.sleep(pause).await;
        }
        // The task has only a weak reference, since a strong one would keep the group alive.
        while claims.upstream().strong_count() > 0 {
            let lookup = resolver.resolve(&name, &task_worker);
            let answer = task_worker.timers.timeout(name.timeout, lookup).await;
            let answer = answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            // An empty answer counts as a failure: removing all members would fail every request.
            let answer = answer.and_then(or_no_address);
            let Some(upstream) = claims.upstream().upgrade() else {
                return;
            };
            record_resolution(&task_status, &answer);
            let failure = answer.as_ref().err().map(ToString::to_string);
            // Only the change is reported, not each failure of a long outage.
            if failure.is_some() != is_failing {
                is_failing = failure.is_some();
                factory.on_lookup_change(failure.as_deref());
            }
            let mut ttl = None;
            if let Ok(answer) = answer {
                let now_ms = task_worker.timers.now_ms();
                apply(&claims, &name, &answer, &mut members, &mut factory, now_ms);
                ttl = answer.ttl;
                has_members = true;
            }
            // Released during the pause, so that the group can be dropped.
            drop(upstream);
            // Without members requests fail, so the look-up is retried sooner.
            let pause = match has_members {
                // A server that is missing in an answer gets requests until the next one.
                true if members.has_misses() => {
                    ttl.map_or(name.interval, |it| it.min(name.interval))
                }
                true => ttl.unwrap_or(name.interval),
                false => name.retry_interval,
            };
            task_worker.timers.sleep(pause).await;
        }
    });
    NameWatch {
        _task: task,
        host,
        status,
    }
}

/// Treats an empty answer as a failure, so that the known members are not removed.
fn or_no_address(answer: NameAnswer) -> io::Result<NameAnswer> {
    match answer.servers.is_empty() {
        // Treated as a failure: an empty answer would remove all members.
        true => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the name has no address",
        )),
        false => Ok(answer),
    }
}

fn record_resolution(shared_status: &Mutex<ResolveStatus>, answer: &io::Result<NameAnswer>) {
    let mut status = shared_status.lock().unwrap_or_else(PoisonError::into_inner);
    match answer {
        Ok(_) => status.answers += 1,
        Err(_) => status.failures += 1,
    }
    status.error = answer.as_ref().err().map(ToString::to_string);
}

/// Applies an answer to the group.
fn apply<P: Clone>(
    claims: &SourceClaims<P>,
    name: &HostName,
    answer: &NameAnswer,
    members: &mut ResolvedMembers,
    factory: &mut impl MemberFactory<P>,
    now_ms: u64,
) {
    let removed = members.update(&answer.addresses());
    // New members are added first, so that the group is never empty in between. Servers that stay may have got another
    // weight or priority.
    for address in members.iter() {
        // A server that is missing in this answer keeps its weight.
        let Some(server) = answer.servers.iter().find(|it| it.address == address) else {
            continue;
        };
        let at = factory.server_address(address);
        let new = NewMember {
            name: address.to_string().into(),
            weight: server.weight.unwrap_or(name.weight),
            backup: name.backup || server.is_backup,
            operator: factory.operator_settings(&at),
        };
        let change = claims.set(at, new, || factory.create(address), now_ms);
        factory.on_change(change, address);
    }
    for address in removed {
        let change = claims.release(&factory.server_address(address));
        factory.on_change(change, address);
    }
}
