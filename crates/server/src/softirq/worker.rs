//! `lowroad attach PORT --worker`: runs a Lowroad server that intercepts new connections to a port
//! (`lowroad_softirq::programs::intercept`) and uses the server that listens on the port as its origin. There are three
//! processes: a supervisor, the intercepting server, and a level below the socket as started by `attach` without
//! `--worker`.
//!
//! Each address of the port is a site with that address as its origin, because the origin's virtual hosts may depend on
//! the address. Requests are sent to the origin from a probe address that belongs to no machine
//! (`machine::probe_source`): to an address of this machine, the origin might send pages that it denies to other
//! clients.

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
use super::attach::origin::{bind_probe_source, is_link_local, served_addresses};
use super::policy::AttachPolicy;
use super::{level_lock, namespace};
use crate::cli::softirq::AttachArgs;
use crate::process::ServerStart;
use crate::{features, process, terminal_output};

pub use supervisor::supervise;

/// Connect timeout of the test of an address. After a timeout, the address is not intercepted.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for an origin or a client that sends or receives nothing of a message, and idle timeout of a passed-through
/// connection. The origin has shorter timeouts, which must apply.
const SILENCE_MS: u64 = 3_600_000;
/// Idle timeout between requests. It exceeds the idle timeouts of load balancers, at most 600 s by default, because
/// these expect to close first.
const IDLE_MS: u64 = 660_000;
/// Maximum concurrent requests to the origin.
const REQUESTS_MAX: usize = 65_536;

/// Runs the intercepting server until it receives a signal to end, or its supervisor ends.
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
    // The lock is acquired before the port is tested, because a previous process may still intercept the port.
    let lock = level_lock::acquire_after_end(&instances::lock_name(port)?)?;
    let intercepted = addresses_to_intercept(port)?;
    let front_addresses = choose_front_addresses(&intercepted)
        .map_err(|error| format!("a port for the workers: {error}"))?;
    let config = config(args, &policy, &front_addresses);
    process::run(
        config,
        ServerStart {
            source: None,
            front: Some(Box::new(WorkerFront::new(
                front_addresses,
                policy,
                lock,
                args.drain,
            ))),
            program: Err("attach --worker can't be upgraded; start it again".to_owned()),
            predecessor: &mut None,
        },
    )
}

/// The addresses to intercept: those of this machine that other machines can reach and at which the server accepts
/// connections from the probe addresses.
fn addresses_to_intercept(port: u16) -> Result<Vec<SocketAddr>, String> {
    let (mut accepted, mut rejected) = (Vec::new(), Vec::new());
    for address in served_addresses(port)? {
        // Local connections are not intercepted. A link-local address may exist on several interfaces.
        if address.is_loopback() || is_link_local(&address) {
            continue;
        }
        let server = SocketAddr::new(address, port);
        match try_to_connect(server) {
            Ok(()) => accepted.push(server),
            Err(error) => rejected.push(format!("{server} is left to its server: {error}")),
        }
    }
    rejected.iter().for_each(terminal_output::note);
    match accepted.is_empty() {
        true => Err(format!(
            "the listener of port {port} is reachable from other machines at no address of this \
             one: there is nothing to intercept"
        )),
        false => Ok(accepted),
    }
}

/// Adds the route for the server's responses, which requires privileges, and connects from both probe addresses.
fn try_to_connect(server: SocketAddr) -> io::Result<()> {
    // Requests are sent from the first address, passed-through connections come from the second one.
    let sources = [probe_source::address, probe_source::untrusted_address];
    sources.into_iter().try_for_each(|from| {
        let domain = Domain::for_address(server);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        bind_probe_source(&socket, server, from(server))?;
        socket.connect_timeout(&server.into(), CONNECT_TIMEOUT)
    })
}

/// Chooses the workers' listen addresses on the loopback interface. The kernel assigns the intercepted connections to
/// them.
fn choose_front_addresses(addresses: &[SocketAddr]) -> io::Result<Vec<FrontAddress>> {
    // All sockets stay open until all ports are known, so that no port is chosen twice.
    let found = addresses.iter().map(|address| {
        let loopback = match address.ip() {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        // Port 0: the kernel chooses a free one.
        TcpListener::bind((loopback, 0)).map(|socket| (*address, socket))
    });
    let found: Vec<_> = found.collect::<io::Result<_>>()?;
    let to_front_address = |(intercepted, socket): (SocketAddr, TcpListener)| {
        let listen = socket.local_addr()?;
        Ok(FrontAddress {
            intercepted,
            listen,
        })
    };
    found.into_iter().map(to_front_address).collect()
}

fn config(args: &AttachArgs, policy: &AttachPolicy, addresses: &[FrontAddress]) -> Config {
    let caching = policy.caching();
    let mut config = Config {
        sites: addresses
            .iter()
            .map(|front| site(front, &caching))
            .collect(),
        ..Config::default()
    };
    config.limits = limits();
    if let Some(len) = args.cache {
        config.server.choose_cache(len);
    }
    // The level has the same drain timeout, so that the connections of both end together.
    config.server.drain_timeout_ms = u64::from(args.drain) * 1_000;
    let format = args.log.as_deref().map(|format| match format {
        "json" => AccessLogFormat::Json,
        "extended" => AccessLogFormat::Extended,
        _ => AccessLogFormat::Combined,
    });
    let log = format.map(|format| AccessLogConfig::new(LogTarget::Stdout, format));
    config.log.access = log.into_iter().collect();
    config
}

/// Limits that exceed those of the origin for long and slow messages. After the header timeout, a connection with an
/// incomplete head is passed through.
fn limits() -> LimitsConfig {
    LimitsConfig {
        body_len_max: u64::MAX,
        body_timeout_ms: SILENCE_MS,
        send_timeout_ms: SILENCE_MS,
        // The idle timeout exceeds those of load balancers, because these expect to close first.
        idle_timeout_ms: IDLE_MS,
        rate_min: 0,
        ..LimitsConfig::default()
    }
}

fn site(front: &FrontAddress, caching: &CacheConfig) -> config::SiteConfig {
    let mut origin = OriginConfig::new(OriginUrl::Http {
        encrypted: false,
        host: front.intercepted.ip().to_string(),
        port: front.intercepted.port(),
    });
    // The workers must be invisible: some origins change their responses if a request has Via (nginx's `gzip_proxied`,
    // for example).
    origin.adds_via = false;
    origin.from = Some(probe_source::address(front.intercepted).ip());
    // The origin has its own limits, which must apply.
    origin.connections_max = REQUESTS_MAX;
    let mut site = config::site_for_folder(PathBuf::new());
    site.root = SiteRoot::None;
    site.listen = vec![front.listen];
    site.pass_through = Some(PassThroughConfig {
        to: front.intercepted,
        from: probe_source::untrusted_address(front.intercepted).ip(),
        idle_timeout_ms: SILENCE_MS,
    });
    let mut route = RouteConfig::new(PathPattern::everything(), RouteTo::Origin(Box::new(origin)));
    route.caching = caching.clone();
    // The origin limits the length and duration of a request.
    route.timeout_ms = SILENCE_MS;
    route.concurrency_max = REQUESTS_MAX;
    route.tunnels_max = REQUESTS_MAX;
    route.client_share_percent = 100;
    route.request_buffering = Some(false);
    route.own_redirects = false;
    site.routes.push(route);
    site
}

#[cfg(test)]
mod tests {
    use super::limits;

    /// Origins wait for clients for up to 300 s (Apache's `Timeout` in older configurations); the workers must wait
    /// longer.
    #[test]
    fn client_timeouts_exceed_those_of_origins() {
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
