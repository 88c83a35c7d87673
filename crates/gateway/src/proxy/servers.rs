//! The servers of an origin, and the selection of one for each request: a single server, or a member of a group.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lowroad_config::{HashBy, OriginProtocol};
use lowroad_engine::WorkerHandle;
use lowroad_handler::operator_notice::NoticeLimit;
use lowroad_handler::origin_control::ServerMode;
use lowroad_handler::upstream_status::{
    HealthCounts, UpstreamConnections, UpstreamFailure, UpstreamMember, UpstreamReport,
    UpstreamStatus,
};
use lowroad_handler::{HandlerRequest, HandlerResponse, RouteProbe};
use lowroad_http::fields::FieldLines;
use lowroad_origin::group::{
    CircuitEvent, MemberId, MemberMode, MemberStatus, NoMember, PickRequest, hash_of,
};
use lowroad_origin::name_resolution::{self, NameWatch};
use lowroad_origin::{ConnectionPool, LimitClaim, SharedConnections, Upstream, UpstreamAttempt};

use super::endpoint_counters::EndpointCounters;
use super::h2::H2Link;
use super::link::{OriginConnector, unix_s};
use super::live_changes::SharedMode;
use super::origins::{GroupMembers, circuit_text};
use super::sticky::{SessionCookie, SessionCounters, SessionServer, StickySessions};

/// An origin server at one address.
pub struct OriginEndpoint {
    /// The name of the server in the log: `origin http://127.0.0.1:3000`.
    pub name: Box<str>,
    /// The connections.
    pub connections: Arc<ServerConnections>,
    /// The limit on connections by the configuration.
    _limit: LimitClaim,
    /// The value of Host for requests that use the server's own name.
    pub host: Box<[u8]>,
    /// The scheme: `http` or `https`.
    pub scheme: &'static str,
    /// The number of requests, and durations. All servers with the same name share them, such as those before and
    /// after a reload that changes their origin.
    pub counters: Arc<EndpointCounters>,
    /// Limits the notices that another server is tried.
    pub retry_notices: NoticeLimit,
    /// The latest failure, for status reports.
    last_failure: Mutex<Option<UpstreamFailure>>,
    /// Limits the notices of ejections that concern one client: it could fill the log.
    ejection_notices: NoticeLimit,
    created: Instant,
    /// The tag in cookies of sticky sessions; 0 without them.
    pub session_tag: u64,
}

/// The connections of an origin to a server. After a reload, the server of the new configuration shares them with that of
/// the previous one.
pub struct ServerConnections {
    /// The connection pool.
    pub pool: Arc<ConnectionPool<OriginConnector>>,
    /// The connections with HTTP/2, unless only HTTP/1.1 is used.
    pub shared: Option<SharedEndpoint>,
}

/// The multiplexed connections to a server.
pub struct SharedEndpoint {
    /// The connections.
    pub connections: SharedConnections<H2Link>,
    /// Whether the server chose HTTP/1.1 the last time that it had the choice.
    pub prefers_h1: AtomicBool,
}

impl OriginEndpoint {
    /// Creates a server without recorded failures.
    pub fn new(
        name: String,
        connections: Arc<ServerConnections>,
        limit: LimitClaim,
        host: &str,
        scheme: &'static str,
        counters: Arc<EndpointCounters>,
    ) -> OriginEndpoint {
        OriginEndpoint {
            name: name.into(),
            connections,
            _limit: limit,
            host: host.as_bytes().into(),
            scheme,
            counters,
            retry_notices: NoticeLimit::default(),
            last_failure: Mutex::default(),
            ejection_notices: NoticeLimit::default(),
            created: Instant::now(),
            session_tag: 0,
        }
    }

    /// The server with a tag for sticky sessions.
    pub fn with_session_tag(self, session_tag: u64) -> OriginEndpoint {
        OriginEndpoint {
            session_tag,
            ..self
        }
    }

    /// The connection pool.
    pub fn pool(&self) -> &Arc<ConnectionPool<OriginConnector>> {
        &self.connections.pool
    }

    /// Records a failure, for status reports.
    pub fn record_failure(&self, reason: &str) {
        *self.last_failure() = Some(UpstreamFailure {
            reason: reason.to_owned(),
            unix_s: unix_s(),
        });
    }

    /// The latest failure.
    pub fn latest_failure(&self) -> Option<UpstreamFailure> {
        self.last_failure().clone()
    }

    /// The log line for a change of the server's circuit breaker; `None` to write nothing.
    pub fn circuit_text(&self, event: CircuitEvent) -> Option<String> {
        let text = circuit_text(&self.name, event)?;
        let CircuitEvent::Ejected {
            is_for_one_client, ..
        } = event
        else {
            return Some(text);
        };
        // The failure that ejects a server is recorded before its outcome.
        let text = match self.latest_failure() {
            Some(failure) => format!("{text}; the latest failure: {}", failure.reason),
            None => text,
        };
        match is_for_one_client {
            true => {
                let now_ms = self.created.elapsed().as_millis() as u64;
                self.ejection_notices.admit(&text, now_ms)
            }
            false => Some(text),
        }
    }

    fn last_failure(&self) -> MutexGuard<'_, Option<UpstreamFailure>> {
        self.last_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of the server, with its connections and its latest failure.
    fn status(
        &self,
        origin: &str,
        mode: ServerMode,
        member: Option<UpstreamMember>,
        reported: &mut ReportedConnections,
    ) -> UpstreamStatus {
        UpstreamStatus {
            origin: origin.to_owned(),
            server: self.name.to_string(),
            mode,
            member,
            requests: self.counters.requests(),
            connect_times: self.counters.connect_times(),
            response_times: self.counters.response_times(),
            connections: reported.counts_of(&self.connections),
            unrepeated: self.counters.unretried(),
            latest_failure: self.latest_failure(),
        }
    }
}

/// The connections that a report contains already: those of several servers are counted once.
#[derive(Default)]
pub struct ReportedConnections(HashSet<*const ServerConnections>);

impl ReportedConnections {
    /// The counts of connections; nothing if the report contains them.
    fn counts_of(&mut self, connections: &Arc<ServerConnections>) -> UpstreamConnections {
        if !self.0.insert(Arc::as_ptr(connections)) {
            return UpstreamConnections::default();
        }
        let counts = connections.pool.counts();
        UpstreamConnections {
            in_use: counts.in_use as u64,
            idle: counts.idle as u64,
            waiting: counts.waiting as u64,
            opened: counts.opened,
            reused: counts.reused,
            failed: counts.failed,
        }
    }
}

/// An attempt at one member of a group.
pub type OriginAttempt = UpstreamAttempt<Arc<OriginEndpoint>>;

/// The servers of an origin, which all routes to it share. Dropping this value ends the tasks of the group.
pub struct OriginServers {
    /// The origin's name in the log.
    pub name: Box<str>,
    /// The protocol to all servers.
    pub protocol: OriginProtocol,
    members: OriginMembers,
    random: AtomicU64,
}

/// The servers of an origin.
pub enum OriginMembers {
    /// A single server at a fixed address, without health checks.
    One(OnlyServer),
    /// A group of servers.
    Group(OriginGroup),
}

/// The single server of an origin.
pub struct OnlyServer {
    /// The server.
    pub endpoint: Arc<OriginEndpoint>,
    /// The operator's decision.
    pub mode: SharedMode,
}

impl OnlyServer {
    /// A server with this decision of the operator.
    pub fn new(endpoint: Arc<OriginEndpoint>, mode: ServerMode) -> OnlyServer {
        OnlyServer {
            endpoint,
            mode: SharedMode::new(mode),
        }
    }

    /// Whether the server gets no requests. Without a group there are no sticky sessions.
    fn is_out(&self) -> bool {
        !self.mode.get().is_in_rotation()
    }
}

/// A group of servers, with load balancing.
pub struct OriginGroup {
    /// The members.
    pub upstream: Arc<Upstream<Arc<OriginEndpoint>>>,
    /// The workers that run the health checks.
    pub workers: Arc<[WorkerHandle]>,
    /// The part of a request that is hashed, for consistent hashing.
    pub hash: Option<HashBy>,
    /// The sticky sessions.
    pub sticky: Option<Arc<StickySessions>>,
    /// The tasks that resolve host names periodically.
    pub name_watches: Vec<NameWatch>,
    /// The members by address.
    pub members: Arc<GroupMembers>,
    /// Counts how requests found their servers.
    pub session_counters: Arc<SessionCounters>,
}

impl OriginGroup {
    /// The member that a session cookie names.
    fn member_of(&self, read: SessionCookie) -> Option<MemberId> {
        let tag = read.tag()?;
        self.upstream
            .with(|group| group.find(|endpoint| endpoint.session_tag == tag))
    }
}

/// The operator's decision about a member.
pub fn server_mode(mode: MemberMode) -> ServerMode {
    // The two crates have no type in common.
    match mode {
        MemberMode::Ready => ServerMode::Ready,
        MemberMode::Drain => ServerMode::Drain,
        MemberMode::Down => ServerMode::Down,
        MemberMode::Force => ServerMode::Force,
    }
}

/// The state of a member, for status reports.
fn member(status: &MemberStatus, counts: HealthCounts) -> UpstreamMember {
    UpstreamMember {
        health: status.health.to_string(),
        is_available: status.health.is_available(),
        is_backup: status.backup,
        weight: status.weight,
        requests_now: status.requests,
        counts,
    }
}

impl OriginServers {
    /// Servers of the origin `name`.
    pub fn new(name: &str, protocol: OriginProtocol, members: OriginMembers) -> OriginServers {
        OriginServers {
            name: format!("origin {name}").into(),
            protocol,
            members,
            random: AtomicU64::new(random_seed()),
        }
    }

    /// The state of each server.
    pub fn status(&self, reported: &mut ReportedConnections) -> UpstreamReport {
        let group = match &self.members {
            OriginMembers::One(only) => {
                return UpstreamReport {
                    servers: vec![only.endpoint.status(
                        &self.name,
                        only.mode.get(),
                        None,
                        reported,
                    )],
                    faults: Vec::new(),
                };
            }
            OriginMembers::Group(group) => group,
        };
        // Only slow start and ejection times depend on the clock, so the clock of any worker is good enough.
        let now_ms = group.workers[0].timers.now_ms();
        let members = group.upstream.with(|group| {
            let with_endpoint =
                |status: MemberStatus| Some((group.target(status.member)?.clone(), status));
            group
                .status(now_ms)
                .into_iter()
                .filter_map(with_endpoint)
                .collect::<Vec<_>>()
        });
        let servers = members.iter().map(|(endpoint, status)| {
            let member = member(status, endpoint.counters.health());
            let mode = server_mode(status.mode);
            endpoint.status(&self.name, mode, Some(member), reported)
        });
        let faults = group.name_watches.iter().filter_map(NameWatch::failure);
        UpstreamReport {
            servers: servers.collect(),
            faults: faults
                .map(|reason| format!("{}: {reason}", self.name))
                .collect(),
        }
    }

    /// Explains why no server is available; for an empty group the reasons are failed name resolutions.
    pub fn explain_absence(&self, no_member: NoMember) -> String {
        let name_watches = self.group().map_or(&[][..], |group| &group.name_watches);
        name_resolution::explain_absence(no_member, name_watches)
    }

    /// The server that a request would get now, the reason and the protocol, for `explain`.
    pub fn describe_choice(&self, probe: &RouteProbe<'_>) -> Option<String> {
        let choice = self.describe_server(probe)?;
        Some(match self.protocol {
            OriginProtocol::Http1 => choice,
            OriginProtocol::H2 => format!("{choice}; over HTTP/2"),
            OriginProtocol::Auto => {
                format!("{choice}; over HTTP/2 if the server offers it by ALPN, else over HTTP/1.1")
            }
        })
    }

    fn describe_server(&self, probe: &RouteProbe<'_>) -> Option<String> {
        let group = match &self.members {
            OriginMembers::One(only) => {
                let name = &only.endpoint.name;
                return Some(match only.is_out() {
                    true => format!("{name}: {}", NoMember::AllOutOfService),
                    false => format!("{name}: the only server"),
                });
            }
            OriginMembers::Group(group) => group,
        };
        let key = group.hash.as_ref().and_then(|hash_by| key(hash_by, probe));
        let read = group.sticky.as_ref().map(|sticky| {
            let read = sticky.read(probe.fields.clone(), unix_s());
            (sticky.cookie(), read)
        });
        let session = read.and_then(|(_, read)| group.member_of(read));
        let now_ms = group.workers[0].timers.now_ms();
        // The counter is not advanced: an explanation must not influence the next selection.
        let random = mixed(self.random.load(Relaxed));
        Some(group.upstream.with(|group| {
            let pick = PickRequest {
                key,
                client: Some(probe.peer),
                tried: &[],
                session,
            };
            let picked = group.preview(&pick, now_ms, random);
            let choice = picked.map(|(member, reason)| (group.target(member), reason));
            match choice {
                Ok((Some(endpoint), reason)) => {
                    let read = read.map(|(name, read)| format!("; the cookie {name} {read}"));
                    format!("{}: {reason}{}", endpoint.name, read.unwrap_or_default())
                }
                Ok((None, _)) => format!("{}: {}", self.name, NoMember::Empty),
                Err(no_member) => format!("{}: {}", self.name, self.explain_absence(no_member)),
            }
        }))
    }

    /// The servers.
    pub fn members(&self) -> &OriginMembers {
        &self.members
    }

    /// The group; `None` for a single server.
    pub fn group(&self) -> Option<&OriginGroup> {
        match &self.members {
            OriginMembers::One(_) => None,
            OriginMembers::Group(group) => Some(group),
        }
    }

    /// The session cookie of a request; `None` without sticky sessions.
    pub fn session(&self, request: &HandlerRequest) -> Option<SessionCookie> {
        let group = self.group()?;
        let sticky = group.sticky.as_ref()?;
        let counters = &group.session_counters;
        Some(sticky.read_counted(request.fields(), unix_s(), counters))
    }

    /// Adds the session cookie to the response of a server, if the request needs another one than `read`.
    pub fn complete_session(
        &self,
        read: Option<SessionCookie>,
        request: &HandlerRequest,
        endpoint: &OriginEndpoint,
        response: &mut HandlerResponse,
    ) {
        let Some((read, group)) = read.zip(self.group()) else {
            return;
        };
        if let Some(sticky) = &group.sticky {
            let server = SessionServer {
                tag: endpoint.session_tag,
                is_named_known: group.member_of(read).is_some(),
                unix_s: unix_s(),
                is_https: request.is_https(),
            };
            sticky.complete(read, &server, response, &group.session_counters);
        }
    }

    /// Selects the server for a request, except those already tried. `session`: that of [`OriginServers::session`].
    ///
    /// # Errors
    /// [`NoMember`]
    pub fn choose(
        &self,
        request: &HandlerRequest,
        session: Option<SessionCookie>,
        tried: &[MemberId],
        worker: usize,
    ) -> Result<(Arc<OriginEndpoint>, Option<OriginAttempt>), NoMember> {
        let group = match &self.members {
            // A single server needs neither a lock nor a report per request.
            OriginMembers::One(only) if only.is_out() => return Err(NoMember::AllOutOfService),
            OriginMembers::One(only) => return Ok((only.endpoint.clone(), None)),
            OriginMembers::Group(group) => group,
        };
        let key = group.hash.as_ref().and_then(|hash_by| {
            let probe = RouteProbe {
                target: request.target(),
                peer: request.peer,
                fields: request.fields(),
            };
            key(hash_by, &probe)
        });
        let now_ms = group.workers[worker % group.workers.len()].timers.now_ms();
        // Relaxed suffices: the values only have to be distinct.
        let random = mixed(self.random.fetch_add(1, Relaxed));
        let pick = PickRequest {
            key,
            client: Some(request.peer),
            tried,
            session: session.and_then(|read| group.member_of(read)),
        };
        let attempt = group.upstream.attempt(&pick, now_ms, random)?;
        Ok((attempt.target.clone(), Some(attempt)))
    }
}

/// The key of a request for consistent hashing.
fn key(hash_by: &HashBy, probe: &RouteProbe<'_>) -> Option<u64> {
    let fields = &probe.fields;
    match hash_by {
        HashBy::Url => Some(hash_of(probe.target)),
        // IPv4-mapped addresses hash like IPv4: a client gets the same server from every listener.
        HashBy::Address => Some(match probe.peer.to_canonical() {
            IpAddr::V4(address) => hash_of(&address.octets()),
            IpAddr::V6(address) => hash_of(&address.octets()),
        }),
        HashBy::Header(name) => {
            let is_named =
                |(field_name, _): &(&[u8], &[u8])| field_name.eq_ignore_ascii_case(name.as_bytes());
            let (_, value) = fields.clone().find(is_named)?;
            Some(hash_of(value))
        }
        HashBy::Cookie(name) => {
            let first = cookies(fields.clone(), name.as_bytes()).next()?;
            Some(hash_of(first))
        }
    }
}

/// The values of the cookies with this name, in their order.
pub fn cookies<'r>(fields: FieldLines<'r>, name: &[u8]) -> impl Iterator<Item = &'r [u8]> {
    let lines = fields.filter(|(field, _)| field.eq_ignore_ascii_case(b"cookie"));
    let pairs = lines.flat_map(|(_, value)| value.split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let value = pair.trim_ascii().strip_prefix(name)?;
        // The name must end here: `id` is also the beginning of `id2`.
        value.strip_prefix(b"=")
    })
}

/// A seed that differs between processes: several proxies must not make the same random choices.
pub fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Mixes the bits of a number (the finalizer of SplitMix64).
pub fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_those_with_exactly_the_name() {
        let lines = FieldLines::new(b"Cookie: a=1; id=x=y;b\r\ncookie: id=z; c=\r\n");
        let found = |name: &str| cookies(lines.clone(), name.as_bytes()).collect::<Vec<_>>();
        assert_eq!(found("id"), [&b"x=y"[..], b"z"]);
        assert_eq!(found("c"), [b""]);
        assert!(found("b").is_empty() && found("i").is_empty());
    }
}
