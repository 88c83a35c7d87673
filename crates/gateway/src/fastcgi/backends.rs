//! Which server of a route gets a request: the one that there is, or one of a group that can stand for one another. Knows
//! neither requests nor what is spoken with servers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use lowroad_config::{Balance, FastCgi, Upstream as At};
use lowroad_engine::Local;
use lowroad_handler::notice::Notice;
use lowroad_http::status::Status;
use lowroad_origin::group::{
    MemberId, NewMember, NoMember, Outcome, PickRequest, Policy, Settings,
};
use lowroad_origin::names::{self, Following, Name, Places, SystemResolver};
use lowroad_origin::retry::{Body, Failed, Retry, Seen};
use lowroad_origin::{Address, Attempt, Patience, Upstream};

use super::server::{Server, Servers};
use crate::proxy::origins::lookup_text;
use crate::script::talk::Stopped;

/// How long a connection may take to come about where another server can be asked.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The servers of a route.
pub struct Backends {
    /// How they are called in messages: `FastCGI server 127.0.0.1:9000`.
    name: String,
    workers: Arc<[Local]>,
    members: Members,
}

enum Members {
    /// One, at one address that is never looked up.
    One(Arc<Server>),
    Group {
        upstream: Arc<Upstream<Arc<Server>>>,
        /// Lets their names be looked up.
        following: Vec<Following>,
        /// Where several would do.
        drawn: AtomicU64,
    },
}

/// A try of one of several servers.
pub type Try = Attempt<Arc<Server>>;

impl Backends {
    /// Those that a route names. Looks names up, and so may block for a short time; a name without an address is looked
    /// up again.
    pub fn new(fastcgi: &FastCgi, servers: &Servers, notice: &Notice) -> Backends {
        let members = match &fastcgi.servers[..] {
            [At::Unix(path)] => {
                Members::One(servers.get(Address::Unix(path.clone()), fastcgi.connections_max))
            }
            [At::Tcp(address)] => {
                Members::One(servers.get(Address::Tcp(*address), fastcgi.connections_max))
            }
            _ => group(fastcgi, servers, notice),
        };
        let names: Vec<String> = fastcgi.servers.iter().map(At::to_string).collect();
        Backends {
            name: format!("FastCGI server {}", names.join(", ")),
            workers: servers.workers().clone(),
            members,
        }
    }

    /// How they are called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a worker lends.
    pub fn local(&self, worker: usize) -> &Local {
        &self.workers[worker % self.workers.len()]
    }

    /// The server, where there is one.
    pub fn only(&self) -> Option<&Arc<Server>> {
        match &self.members {
            Members::One(server) => Some(server),
            Members::Group { .. } => None,
        }
    }

    /// Selects a server for a client's request, other than those already tried.
    ///
    /// # Errors
    /// There is none.
    pub fn choose(
        &self,
        tried: &[MemberId],
        worker: usize,
        client: IpAddr,
    ) -> Result<(Arc<Server>, Option<Try>), NoMember> {
        let (upstream, drawn) = match &self.members {
            Members::One(server) => return Ok((server.clone(), None)),
            Members::Group {
                upstream, drawn, ..
            } => (upstream, drawn),
        };
        let now_ms = self.local(worker).timers.now_ms();
        let random = drawn.fetch_add(1, Relaxed);
        let request = PickRequest {
            key: None,
            client: Some(client),
            tried,
        };
        let attempt = upstream.attempt(&request, now_ms, random)?;
        Ok((attempt.place.clone(), Some(attempt)))
    }

    /// How long one waits for a connection, of at most `time` in all.
    pub fn patience(&self, time: Duration) -> Patience {
        match self.members {
            Members::One(_) => Patience::of(time),
            Members::Group { .. } => Patience {
                connecting: CONNECT_MAX.min(time),
                ..Patience::of(time)
            },
        }
    }

    /// Whether another server may be asked for a request of which no server has seen anything, after so many tries.
    pub fn may_go_on(&self, tries: usize, worker: usize) -> bool {
        let Members::Group { upstream, .. } = &self.members else {
            return false;
        };
        let failed = Failed {
            tries: u32::try_from(tries).unwrap_or(u32::MAX),
            is_idempotent: false,
            sent: false,
            body: Body::Whole,
            seen: Seen::Nothing,
            timed_out: false,
        };
        let now_ms = self.local(worker).timers.now_ms();
        upstream.may_retry(&failed, now_ms).is_ok()
    }

    /// Why no server can be chosen: that a name has no address yet explains an empty group.
    pub fn explain_absence(&self, none: NoMember) -> String {
        let following = match &self.members {
            Members::One(_) => &[][..],
            Members::Group { following, .. } => following,
        };
        names::explain_absence(none, following)
    }

    /// Each server of a group and how it stands, for people.
    pub fn text(&self) -> Option<String> {
        let Members::Group {
            upstream,
            following,
            ..
        } = &self.members
        else {
            return None;
        };
        let now_ms = self.local(0).timers.now_ms();
        let all = upstream.with(|group| group.status(now_ms));
        let one = |one: &lowroad_origin::group::Status| {
            format!("{} {}, {} requests", one.name, one.standing, one.requests)
        };
        let failures = following.iter().filter_map(Following::failure);
        let lines: Vec<String> = all.iter().map(one).chain(failures).collect();
        Some(lines.join("; "))
    }

    /// Which server a request would be given to now, and why that one, for people; `None` where there is but one.
    pub fn whom(&self) -> Option<String> {
        let Members::Group {
            upstream, drawn, ..
        } = &self.members
        else {
            return None;
        };
        let now_ms = self.local(0).timers.now_ms();
        Some(upstream.with(|group| {
            let looked = group.look(&PickRequest::default(), now_ms, drawn.load(Relaxed));
            let place = looked.map(|(member, why)| (group.place(member), why));
            match place {
                Ok((Some(server), why)) => format!("{}: {why}", server.name()),
                Ok((None, _)) => format!("{}: {}", self.name, NoMember::Empty),
                Err(none) => format!("{}: {}", self.name, self.explain_absence(none)),
            }
        }))
    }
}

/// The outcome, for the server's health, of a request that was stopped there.
pub fn outcome(stopped: &Stopped) -> Outcome {
    match stopped.failure.status {
        // The script is at fault.
        _ if stopped.is_output_bad => Outcome::Answered,
        Status::BAD_GATEWAY => Outcome::Lost,
        Status::GATEWAY_TIMEOUT => Outcome::TimedOut,
        Status::SERVICE_UNAVAILABLE => Outcome::ServerError,
        // Then it was the client's, or ours.
        _ => Outcome::Cancelled,
    }
}

fn group(fastcgi: &FastCgi, servers: &Servers, notice: &Notice) -> Members {
    let retry = Retry {
        // Who waited for as long as he may does not wait once more.
        after_timeouts: false,
        ..Retry::default()
    };
    let upstream = Upstream::new(settings(&fastcgi.balance), retry);
    let local = &servers.workers()[0];
    let mut following = Vec::new();
    for at in &fastcgi.servers {
        let address = match at {
            At::Unix(path) => Address::Unix(path.clone()),
            At::Tcp(address) => Address::Tcp(*address),
            At::Name { host, port } => {
                let name = Name {
                    first: names::look_up(host, *port),
                    ..Name::new(host.as_str(), *port)
                };
                let found = Found {
                    servers: servers.clone(),
                    connections_max: fastcgi.connections_max,
                    name: format!("FastCGI server {at}"),
                    notice: notice.clone(),
                };
                let resolver = Arc::new(SystemResolver);
                following.push(names::follow(&upstream, name, resolver, found, local));
                continue;
            }
        };
        let new = NewMember {
            name: at.to_string().into(),
            weight: 1,
            backup: false,
        };
        let server = servers.get(address, fastcgi.connections_max);
        upstream.with(|group| group.add(new, server, local.timers.now_ms()));
    }
    Members::Group {
        upstream,
        following,
        drawn: AtomicU64::new(0),
    }
}

fn settings(balance: &Balance) -> Settings {
    let mut settings = Settings {
        policy: match balance {
            Balance::LeastConnections => Policy::LeastConnections,
            _ => Policy::RoundRobin,
        },
        ..Settings::default()
    };
    // Requests wait for connections, as they do of one server; routes bound how many there are.
    settings.circuit.requests_max = u32::MAX;
    settings.circuit.pending_max = u32::MAX;
    settings
}

/// Makes servers of a name's addresses.
struct Found {
    servers: Servers,
    connections_max: usize,
    name: String,
    notice: Notice,
}

impl Places<Arc<Server>> for Found {
    fn come(&mut self, address: SocketAddr) -> Arc<Server> {
        self.servers
            .get(Address::Tcp(address), self.connections_max)
    }

    fn added(&mut self, _: MemberId, _: SocketAddr) {}

    /// Its connections are closed with the last who uses it.
    fn gone(&mut self, _: MemberId, _: Arc<Server>) {}

    fn lookup_changed(&mut self, failure: Option<&str>) {
        (self.notice)(&lookup_text(&self.name, failure));
    }
}
