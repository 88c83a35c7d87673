//! `lowroad attach PORT --worker`: runs a Lowroad server that intercepts new connections to a port
//! (`lowroad_softirq::programs::intercept`) and uses the server that listens there as its origin. Three processes: a
//! supervisor, this server, and the level below the socket, which is the same as `attach` without workers.
//!
//! Each address of the port is a site with that address as its origin, so that virtual hosts by address stay apart.
//! Requests go to the origin from a probe address that belongs to no machine (`machine::probe_source`): from an
//! address of this machine they might get pages that the origin shows to this machine only.

pub mod instances;
pub mod interception;
mod supervisor;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use lowroad_config::{
    self as config, AccessLogConfig, AccessLogFormat, BuildFeature, CacheConfig, Config,
    LimitsConfig, LogTarget, OriginConfig, OriginUrl, PassThroughConfig, PathPattern, RouteConfig,
    RouteTo, SiteRoot,
};
use lowroad_softirq::machine::probe_source;
use socket2::{Domain, Protocol, Socket, Type};

use self::interception::{FrontAddress, WorkerFront};
use super::attach::origin::{asked_at, bind_outsider, is_near};
use super::policy::AttachPolicy;
use super::{level_lock, namespace};
use crate::cli::softirq::AttachArgs;
use crate::{features, process, terminal_output};

pub use supervisor::keep;

/// Connect timeout of the test of an address; on a timeout the address stays with its server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for a silent server, for a client that sends or receives nothing of a message, and idle timeout of a
/// connection that is passed through. The server has shorter ones.
const SILENCE_MS: u64 = 3_600_000;
/// Idle timeout between requests. Load balancers may close first: they keep idle connections for at most 600 s by
/// default.
const IDLE_MS: u64 = 660_000;
/// Maximum concurrent requests to the server.
const REQUESTS_MAX: usize = 65_536;

/// Runs the intercepting server until it receives an end signal, or its supervisor has ended.
///
/// # Errors
/// A message for the user.
pub fn serve(args: &AttachArgs) -> Result<(), String> {
    features::need(BuildFeature::Programs, "--worker")?;
    let policy = AttachPolicy::from_args(args)?;
    if let Some(namespace) = &args.netns {
        namespace::enter_namespace(namespace)?;
    }
    let port = args.ports[0];
    // Before the port is tested: a predecessor may still intercept it.
    let held = level_lock::hold_after_end(&instances::place_of(port)?)?;
    let asked = taken(port)?;
    let places = places(&asked).map_err(|error| format!("a port for the workers: {error}"))?;
    let config = config(args, &policy, &places);
    process::run(
        config,
        None,
        Some(Box::new(WorkerFront::new(places, policy, held, args.drain))),
    )
}

/// The addresses to intercept: those of this machine that other machines can reach, and at which the server accepts
/// connections from unknown addresses.
fn taken(port: u16) -> Result<Vec<SocketAddr>, String> {
    let (mut taken, mut left) = (Vec::new(), Vec::new());
    for address in asked_at(port)? {
        // Local connections stay with the server; a link-local address may exist on several interfaces.
        if address.is_loopback() || is_near(&address) {
            continue;
        }
        let asked = SocketAddr::new(address, port);
        match try_to_connect(asked) {
            Ok(()) => taken.push(asked),
            Err(error) => left.push(format!("{asked} is left to its server: {error}")),
        }
    }
    left.iter().for_each(terminal_output::note);
    match taken.is_empty() {
        true => Err(format!(
            "the listener of port {port} is reachable from other machines at no address of this \
             one: there is nothing to intercept"
        )),
        false => Ok(taken),
    }
}

/// Adds the route for the server's answers, which requires privileges, and tests it from both addresses.
fn try_to_connect(asked: SocketAddr) -> io::Result<()> {
    // Requests come from the first, passed-through connections from the second.
    let both = [probe_source::address, probe_source::untrusted_address];
    both.into_iter().try_for_each(|from| {
        let domain = Domain::for_address(asked);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        bind_outsider(&socket, asked, from(asked))?;
        socket.connect_timeout(&asked.into(), CONNECT_TIMEOUT)
    })
}

/// Chooses the workers' listen addresses on the loopback interface. The kernel assigns them the intercepted
/// connections.
fn places(asked: &[SocketAddr]) -> io::Result<Vec<FrontAddress>> {
    // All sockets stay open until each port is known, so that no port is chosen twice.
    let found = asked.iter().map(|asked| {
        let own = match asked.ip() {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        // Port 0: the kernel chooses a free one.
        TcpListener::bind((own, 0)).map(|socket| (*asked, socket))
    });
    let found: Vec<_> = found.collect::<io::Result<_>>()?;
    let place = |(asked, socket): (SocketAddr, TcpListener)| {
        let listen = socket.local_addr()?;
        Ok(FrontAddress { asked, listen })
    };
    found.into_iter().map(place).collect()
}

fn config(args: &AttachArgs, policy: &AttachPolicy, places: &[FrontAddress]) -> Config {
    let caching = policy.caching();
    let mut config = Config {
        sites: places.iter().map(|place| site(place, &caching)).collect(),
        ..Config::default()
    };
    config.limits = limits();
    if let Some(len) = args.cache {
        config.server.choose_cache(len);
    }
    // The level gets as long, so connections of both end together.
    config.server.drain_timeout_ms = u64::from(args.drain) * 1_000;
    config.log.access = args.log.as_deref().map(|format| AccessLogConfig {
        path: LogTarget::Stdout,
        format: match format {
            "json" => AccessLogFormat::Json,
            "extended" => AccessLogFormat::Extended,
            _ => AccessLogFormat::Combined,
        },
    });
    config
}

/// The server has its own limits for long and slow messages. An incomplete head is passed through after the header
/// timeout.
fn limits() -> LimitsConfig {
    LimitsConfig {
        body_len_max: u64::MAX,
        body_timeout_ms: SILENCE_MS,
        send_timeout_ms: SILENCE_MS,
        // Load balancers want to close first, so this exceeds their idle timeouts.
        idle_timeout_ms: IDLE_MS,
        rate_min: 0,
        ..LimitsConfig::default()
    }
}

fn site(place: &FrontAddress, caching: &CacheConfig) -> config::SiteConfig {
    let mut origin = OriginConfig::new(OriginUrl::Http {
        encrypted: false,
        host: place.asked.ip().to_string(),
        port: place.asked.port(),
    });
    // Workers must be invisible: origins change their responses for Via (nginx's `gzip_proxied`, for example).
    origin.adds_via = false;
    origin.from = Some(probe_source::address(place.asked).ip());
    // The server has its own limits, which must decide.
    origin.connections_max = REQUESTS_MAX;
    let mut site = config::site_for_folder(PathBuf::new());
    site.root = SiteRoot::None;
    site.listen = vec![place.listen];
    site.pass_through = Some(PassThroughConfig {
        to: place.asked,
        from: probe_source::untrusted_address(place.asked).ip(),
        idle_timeout_ms: SILENCE_MS,
    });
    let mut everything =
        RouteConfig::new(PathPattern::everything(), RouteTo::Origin(Box::new(origin)));
    everything.caching = caching.clone();
    // The origin decides about the length and duration of a request.
    everything.timeout_ms = SILENCE_MS;
    everything.concurrency_max = REQUESTS_MAX;
    everything.tunnels_max = REQUESTS_MAX;
    everything.client_share_percent = 100;
    everything.request_buffering = false;
    everything.own_redirects = false;
    site.routes.push(everything);
    site
}

#[cfg(test)]
mod tests {
    use super::limits;

    /// Origins wait for up to 300 s (Apache's `Timeout` in older configurations); the workers must wait longer.
    #[test]
    fn clients_may_be_slower_than_servers_allow() {
        let limits = limits();
        for timeout_ms in [
            limits.body_timeout_ms,
            limits.send_timeout_ms,
            limits.idle_timeout_ms,
        ] {
            assert!(timeout_ms > 300_000, "{timeout_ms}");
        }
        assert_eq!(limits.rate_min, 0);
    }
}
