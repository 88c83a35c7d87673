//! The FastCGI servers of a route, and the selection of one for each request: a single server, or a member of a group.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use lowroad_config::{BalanceConfig, FastCgiConfig, UpstreamAddress as At};
use lowroad_engine::WorkerHandle;
use lowroad_handler::operator_notice::OperatorNotice;
use lowroad_handler::origin_control::ServerMode;
use lowroad_http::status::StatusCode;
use lowroad_origin::group::{
    AttemptOutcome, BalancingPolicy, CircuitEvent, GroupSettings, MemberId, MemberStatus,
    NewMember, NoMember, OperatorSettings, PickRequest,
};
use lowroad_origin::member_claims::{ClaimChange, ClaimSource, MemberClaims, SourceClaims};
use lowroad_origin::name_resolution::{self, HostName, MemberFactory, NameWatch, SystemResolver};
use lowroad_origin::retry::{BodyReplay, FailureStage, ResponseProgress, RetryLimits};
use lowroad_origin::{AcquireTimeouts, ServerAddress, Upstream, UpstreamAttempt};

use super::server::{FastCgiServer, FastCgiServers, RouteServer};
use crate::proxy::live_changes::{SharedMode, member_mode};
use crate::proxy::origins::{circuit_text, lookup_text};
use crate::proxy::servers::server_mode;
use crate::script::exchange::ScriptFailure;

/// The connect timeout if other servers remain to be tried.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The FastCGI servers of a route.
pub struct BackendSet {
    /// The name of the servers in messages: `FastCGI server 127.0.0.1:9000`.
    name: String,
    workers: Arc<[WorkerHandle]>,
    members: BackendMembers,
}

enum BackendMembers {
    /// A single server at a fixed address.
    One {
        server: Arc<RouteServer>,
        mode: SharedMode,
    },
    Group {
        upstream: Arc<Upstream<Arc<RouteServer>>>,
        /// The tasks that resolve host names periodically.
        name_watches: Vec<NameWatch>,
        /// The state of the random selection among equal members.
        random_state: AtomicU64,
    },
}

/// An attempt at one server of a group.
pub(super) type BackendAttempt = UpstreamAttempt<Arc<RouteServer>>;

impl BackendSet {
    /// Creates the servers of a route. Resolves host names, and so may block briefly; a name that cannot be resolved is
    /// retried later.
    pub fn new(
        fastcgi: &FastCgiConfig,
        servers: &FastCgiServers,
        notice: &OperatorNotice,
    ) -> Arc<BackendSet> {
        let fixed = match &fastcgi.servers[..] {
            [only] => fixed_address(only),
            _ => None,
        };
        // A single fixed address needs no group, and so no selection, retry or lock per request.
        let members = match fixed {
            Some(address) => BackendMembers::One {
                mode: SharedMode::new(servers.changes().mode(&address)),
                server: servers.get(address, fastcgi.connections_max),
            },
            None => group(fastcgi, servers, notice),
        };
        let names: Vec<String> = fastcgi.servers.iter().map(At::to_string).collect();
        let backends = Arc::new(BackendSet {
            name: format!("FastCGI server {}", names.join(", ")),
            workers: servers.workers().clone(),
            members,
        });
        servers.changes().add_route(fastcgi, &backends);
        backends
    }

    /// The servers, with their status in the group if there are several.
    pub fn statuses(&self) -> Vec<(Arc<RouteServer>, Option<MemberStatus>)> {
        let upstream = match &self.members {
            BackendMembers::One { server, .. } => return vec![(server.clone(), None)],
            BackendMembers::Group { upstream, .. } => upstream,
        };
        let now_ms = self.worker_handle(0).timers.now_ms();
        upstream.with(|group| {
            let statuses = group.status(now_ms).into_iter();
            let with_server =
                statuses.filter_map(|it| Some((group.target(it.member)?.clone(), Some(it))));
            with_server.collect()
        })
    }

    /// Sets the operator's decision about the server at an address, if it is one of these.
    pub fn set_mode(&self, address: &str, mode: ServerMode) {
        let has_address = |it: &Arc<RouteServer>| it.server.address() == address;
        match &self.members {
            BackendMembers::One {
                server,
                mode: current,
            } => {
                if has_address(server) {
                    current.set(mode);
                }
            }
            BackendMembers::Group { upstream, .. } => {
                let now_ms = self.worker_handle(0).timers.now_ms();
                upstream.with(|group| {
                    if let Some(member) = group.find(has_address) {
                        group.set_mode(member, member_mode(mode), now_ms);
                    }
                });
            }
        }
    }

    /// The name of the servers in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The handle of a worker.
    pub fn worker_handle(&self, worker: usize) -> &WorkerHandle {
        &self.workers[worker % self.workers.len()]
    }

    /// The server, if the route has only one.
    pub fn only(&self) -> Option<&Arc<FastCgiServer>> {
        match &self.members {
            BackendMembers::One { server, .. } => Some(&server.server),
            BackendMembers::Group { .. } => None,
        }
    }

    /// Selects a server for a client's request, except those already tried.
    ///
    /// # Errors
    /// No server is available.
    pub fn choose(
        &self,
        tried: &[MemberId],
        worker: usize,
        client: IpAddr,
    ) -> Result<(Arc<FastCgiServer>, Option<BackendAttempt>), NoMember> {
        let (upstream, random_state) = match &self.members {
            BackendMembers::One { mode, .. } if !mode.get().is_in_rotation() => {
                return Err(NoMember::AllOutOfService);
            }
            BackendMembers::One { server, .. } => return Ok((server.server.clone(), None)),
            BackendMembers::Group {
                upstream,
                random_state,
                ..
            } => (upstream, random_state),
        };
        let now_ms = self.worker_handle(worker).timers.now_ms();
        let random = random_state.fetch_add(1, Relaxed);
        let request = PickRequest {
            key: None,
            client: Some(client),
            tried,
            session: None,
        };
        let attempt = upstream.attempt(&request, now_ms, random)?;
        Ok((attempt.target.server.clone(), Some(attempt)))
    }

    /// The timeouts for acquiring a connection, `time` in total.
    pub fn acquire_timeouts(&self, time: Duration) -> AcquireTimeouts {
        match self.members {
            // With a single server the whole time may be spent on connecting: there is no other to try.
            BackendMembers::One { .. } => AcquireTimeouts::from_total(time),
            BackendMembers::Group { .. } => AcquireTimeouts {
                connecting: CONNECT_MAX.min(time),
                ..AcquireTimeouts::from_total(time)
            },
        }
    }

    /// Whether another server may be tried after `tries` attempts, for a request that no server has received.
    pub fn may_try_another(&self, tries: usize, worker: usize) -> bool {
        let BackendMembers::Group { upstream, .. } = &self.members else {
            return false;
        };
        let stage = FailureStage {
            tries: u32::try_from(tries).unwrap_or(u32::MAX),
            // Nothing was sent, so only the retry budget and the number of attempts matter.
            is_idempotent: false,
            sent: false,
            body: BodyReplay::Whole,
            response: ResponseProgress::Nothing,
            timed_out: false,
        };
        let now_ms = self.worker_handle(worker).timers.now_ms();
        upstream.may_retry(&stage, now_ms).is_ok()
    }

    /// Explains why no server is available; for an empty group the reasons are failed name resolutions.
    pub fn explain_absence(&self, no_member: NoMember) -> String {
        let name_watches = match &self.members {
            BackendMembers::One { .. } => &[][..],
            BackendMembers::Group { name_watches, .. } => name_watches,
        };
        name_resolution::explain_absence(no_member, name_watches)
    }

    /// The health of each member, for status reports.
    pub fn text(&self) -> Option<String> {
        let (upstream, name_watches) = match &self.members {
            BackendMembers::One { mode, .. } => {
                let mode = mode.get();
                return (mode != ServerMode::Ready).then(|| format!("state {}", mode.as_str()));
            }
            BackendMembers::Group {
                upstream,
                name_watches,
                ..
            } => (upstream, name_watches),
        };
        let now_ms = self.worker_handle(0).timers.now_ms();
        let members = upstream.with(|group| group.status(now_ms));
        let describe = |status: &MemberStatus| {
            let state = match server_mode(status.mode) {
                ServerMode::Ready => String::new(),
                mode => format!("state {}, ", mode.as_str()),
            };
            format!(
                "{} {state}{}, {} requests",
                status.name, status.health, status.requests
            )
        };
        let failures = name_watches.iter().filter_map(NameWatch::failure);
        let lines: Vec<String> = members.iter().map(describe).chain(failures).collect();
        Some(lines.join("; "))
    }

    /// The server that a request would get now and the reason, for `explain`; `None` for a single server in rotation.
    pub fn describe_choice(&self) -> Option<String> {
        let (upstream, random_state) = match &self.members {
            BackendMembers::One { mode, .. } => {
                let is_out = !mode.get().is_in_rotation();
                return is_out.then(|| format!("{}: {}", self.name, NoMember::AllOutOfService));
            }
            BackendMembers::Group {
                upstream,
                random_state,
                ..
            } => (upstream, random_state),
        };
        let now_ms = self.worker_handle(0).timers.now_ms();
        Some(upstream.with(|group| {
            // The random state is not advanced: an explanation must not influence the next selection.
            let picked = group.preview(&PickRequest::default(), now_ms, random_state.load(Relaxed));
            let choice = picked.map(|(member, reason)| (group.target(member), reason));
            match choice {
                Ok((Some(member), reason)) => format!("{}: {reason}", member.server.name()),
                Ok((None, _)) => format!("{}: {}", self.name, NoMember::Empty),
                Err(no_member) => format!("{}: {}", self.name, self.explain_absence(no_member)),
            }
        }))
    }
}

/// The outcome of a failed request that is reported for its server.
pub fn outcome(script_failure: &ScriptFailure) -> AttemptOutcome {
    match script_failure.failure.status {
        // A bad output is the fault of the script, not of the server.
        _ if script_failure.is_output_bad => AttemptOutcome::Answered,
        StatusCode::BAD_GATEWAY => AttemptOutcome::Lost,
        StatusCode::GATEWAY_TIMEOUT => AttemptOutcome::TimedOut,
        StatusCode::SERVICE_UNAVAILABLE => AttemptOutcome::ServerError,
        // Other failures are caused by the client or by this server.
        _ => AttemptOutcome::Cancelled,
    }
}

fn group(
    fastcgi: &FastCgiConfig,
    servers: &FastCgiServers,
    notice: &OperatorNotice,
) -> BackendMembers {
    let retry = RetryLimits {
        // A request that waited for its full timeout is not retried.
        after_timeouts: false,
        ..RetryLimits::default()
    };
    let circuit_notice = notice.clone();
    let on_circuit_event = move |member: &Arc<RouteServer>, event| {
        // A single client could fill the log.
        let is_for_one_client = matches!(
            event,
            CircuitEvent::Ejected {
                is_for_one_client: true,
                ..
            }
        );
        if !is_for_one_client && let Some(text) = circuit_text(member.server.name(), event) {
            circuit_notice(&text, None);
        }
    };
    let upstream = Upstream::with_notice(
        settings(&fastcgi.balance),
        retry,
        Box::new(on_circuit_event),
    );
    let worker_handle = &servers.workers()[0];
    let claims = Arc::new(MemberClaims::new(&upstream));
    let mut name_watches = Vec::new();
    for (index, upstream_address) in fastcgi.servers.iter().enumerate() {
        let address = match (fixed_address(upstream_address), upstream_address) {
            (Some(address), _) => address,
            (None, At::Name { host, port }) => {
                let name = HostName {
                    // Members must exist before the first request; periodic resolution starts later.
                    initial: servers.look_up_first(host, *port),
                    ..HostName::new(host.as_str(), *port)
                };
                let factory = BackendFactory {
                    servers: servers.clone(),
                    connections_max: fastcgi.connections_max,
                    name: format!("FastCGI server {upstream_address}"),
                    notice: notice.clone(),
                    upstream: Arc::downgrade(&upstream),
                };
                let source = SourceClaims {
                    claims: claims.clone(),
                    source: ClaimSource::Name(index),
                };
                let resolver = Arc::new(SystemResolver);
                name_watches.push(name_resolution::watch_name(
                    source,
                    name,
                    resolver,
                    factory,
                    worker_handle,
                ));
                continue;
            }
            // Only names have no fixed address.
            (None, At::Unix(_) | At::Tcp(_)) => continue,
        };
        let new = NewMember {
            name: upstream_address.to_string().into(),
            weight: 1,
            backup: false,
            operator: servers.changes().settings(&address),
        };
        let source = ClaimSource::Configured(index);
        let create = || servers.get(address.clone(), fastcgi.connections_max);
        let now_ms = worker_handle.timers.now_ms();
        claims.set(source, address.clone(), new, create, now_ms);
    }
    BackendMembers::Group {
        upstream,
        name_watches,
        random_state: AtomicU64::new(0),
    }
}

/// The address of a server, unless it has a name.
fn fixed_address(server: &At) -> Option<ServerAddress> {
    let address = match server {
        At::Unix(path) => ServerAddress::Unix(path.clone()),
        At::Tcp(address) => ServerAddress::Tcp(*address),
        At::Name { .. } => return None,
    };
    Some(address.canonical())
}

fn settings(balance: &BalanceConfig) -> GroupSettings {
    let mut settings = GroupSettings {
        policy: match balance {
            // The configuration allows only these two policies for FastCGI.
            BalanceConfig::LeastConnections => BalancingPolicy::LeastConnections,
            _ => BalancingPolicy::RoundRobin,
        },
        ..GroupSettings::default()
    };
    // The group sets no limit: the pool and the routes already limit requests.
    settings.circuit.requests_max = u32::MAX;
    settings.circuit.pending_max = u32::MAX;
    settings
}

/// Creates servers for the addresses to which a host name resolves.
struct BackendFactory {
    servers: FastCgiServers,
    connections_max: usize,
    name: String,
    notice: OperatorNotice,
    upstream: Weak<Upstream<Arc<RouteServer>>>,
}

impl MemberFactory<Arc<RouteServer>> for BackendFactory {
    fn create(&mut self, address: SocketAddr) -> Arc<RouteServer> {
        let address = self.server_address(address);
        self.servers.get(address, self.connections_max)
    }

    fn operator_settings(&self, address: &ServerAddress) -> OperatorSettings {
        self.servers.changes().settings(address)
    }

    /// The connections of a removed member are closed when the last request drops the server.
    fn on_change(&mut self, change: ClaimChange<Arc<RouteServer>>, _: SocketAddr) {
        if let (ClaimChange::Added(member), Some(upstream)) = (change, self.upstream.upgrade()) {
            let now_ms = self.servers.workers()[0].timers.now_ms();
            self.servers.changes().apply(&upstream, member, now_ms);
        }
    }

    fn on_lookup_change(&mut self, failure: Option<&str>) {
        (self.notice)(&lookup_text(&self.name, failure), None);
    }
}
