//! Settings of groups, connections and TLS from the configuration of an origin.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use lowroad_config::{
    BalanceConfig, OriginConfig, OriginProtocol, OriginServer, OriginTls, OriginUrl,
};
use lowroad_origin::group::{BalancingPolicy, GroupSettings, HealthSettings};
use lowroad_origin::retry::RetryLimits;
use lowroad_origin::{ServerAddress, UpstreamTransport};

use super::ChangeTimes;
use crate::proxy::h2::STREAMS_MAX;

/// Consistent hashing with bounded loads: the maximum load of a server, in percent of its even share.
const HASH_LOAD_PERCENT_MAX: u32 = 125;

/// The location of an origin server.
pub(super) enum OriginLocation {
    /// A fixed address.
    Address(ServerAddress),
    /// A host name and a port.
    Name(String, u16),
}

impl OriginLocation {
    pub(super) fn new(url: &OriginUrl, from: Option<IpAddr>) -> OriginLocation {
        let (host, port) = match url {
            OriginUrl::Unix(path) => {
                return OriginLocation::Address(ServerAddress::Unix(path.clone()).canonical());
            }
            OriginUrl::Http { host, port, .. } => (host, *port),
        };
        // An IP address needs no resolution.
        if let Ok(address) = host.parse::<IpAddr>() {
            let address = SocketAddr::new(address, port);
            return OriginLocation::Address(address_of(address, from));
        }
        OriginLocation::Name(host.clone(), port)
    }
}

pub(super) fn address_of(to: SocketAddr, from: Option<IpAddr>) -> ServerAddress {
    let address = match from {
        None => ServerAddress::Tcp(to),
        Some(from) => ServerAddress::TcpFrom { to, from },
    };
    // Views, changes and pools identify a server by this form.
    address.canonical()
}

pub(super) fn settings(origin: &OriginConfig) -> GroupSettings {
    let default = GroupSettings::default();
    let health = origin.check.as_ref().map(|check| HealthSettings {
        rise: check.rise,
        fall: check.fall,
    });
    let mut circuit = default.circuit;
    // The group admits as many requests as connections, and as many waiting ones: the limits of the routes are reached
    // first.
    circuit.requests_max = u32::try_from(origin.connections_max).unwrap_or(u32::MAX);
    if origin.protocol != OriginProtocol::Http1 {
        // A connection takes many requests, of which streaming ones may last for hours.
        circuit.requests_max = circuit.requests_max.saturating_mul(STREAMS_MAX as u32);
    }
    circuit.pending_max = circuit.requests_max;
    GroupSettings {
        policy: match origin.balance {
            BalanceConfig::RoundRobin => BalancingPolicy::RoundRobin,
            BalanceConfig::LeastConnections => BalancingPolicy::LeastConnections,
            BalanceConfig::Random => BalancingPolicy::RandomOfTwo,
            BalanceConfig::Hash(_) => BalancingPolicy::ConsistentHash {
                load_percent_max: HASH_LOAD_PERCENT_MAX,
            },
        },
        health: health.unwrap_or(default.health),
        circuit,
        ..default
    }
}

pub(super) fn retry(origin: &OriginConfig) -> RetryLimits {
    RetryLimits {
        tries_max: origin.tries_max,
        budget_percent: origin.retry_percent,
        // A request that waited for its full timeout is not retried.
        after_timeouts: false,
        ..RetryLimits::default()
    }
}

/// Checks the TLS files of an origin. Blocks.
///
/// # Errors
/// The same text as from [`OriginRegistry::get`].
// All servers share the TLS files of the origin, so checking with one server is enough.
pub fn check_tls(origin: &OriginConfig) -> Result<(), String> {
    let mut names = (origin.servers.iter()).filter_map(|server| tls_name(origin, server));
    match names.next() {
        Some(name) => transport(name, origin).map(drop),
        None => Ok(()),
    }
}

/// The name that the server's certificate must contain, if the server uses TLS.
pub(super) fn tls_name<'a>(origin: &'a OriginConfig, server: &'a OriginServer) -> Option<&'a str> {
    match &server.url {
        url @ OriginUrl::Http {
            encrypted: true, ..
        } => Some(origin.tls.name.as_deref().unwrap_or(url.host())),
        _ => None,
    }
}

#[cfg(feature = "tls")]
pub(super) fn transport(name: &str, origin: &OriginConfig) -> Result<UpstreamTransport, String> {
    use lowroad_origin::tls::{OriginTlsSettings, TlsConnector, TlsIdentity};
    let tls = &origin.tls;
    let protocols: &[&str] = match origin.protocol {
        OriginProtocol::Http1 => &["http/1.1"],
        OriginProtocol::H2 => &["h2"],
        OriginProtocol::Auto => &["h2", "http/1.1"],
    };
    let identity = tls.identity.clone();
    let settings = OriginTlsSettings {
        verify: tls.verify,
        authorities: tls.authorities.clone(),
        identity: identity.map(|(certificates, key)| TlsIdentity { certificates, key }),
        protocols: protocols.iter().map(|it| (*it).to_owned()).collect(),
        ..OriginTlsSettings::with_name(name)
    };
    let tls = TlsConnector::new(&settings).map_err(|error| error.to_string())?;
    Ok(UpstreamTransport::Tls(tls))
}

#[cfg(not(feature = "tls"))]
pub(super) fn transport(_: &str, _: &OriginConfig) -> Result<UpstreamTransport, String> {
    let missing = lowroad_config::MissingFeature(lowroad_config::BuildFeature::Tls);
    Err(missing.to_string())
}

/// The modification times of the TLS files: an origin with a replaced certificate is a different origin.
pub(super) fn modification_times(tls: &OriginTls) -> ChangeTimes {
    let identity = tls
        .identity
        .iter()
        .flat_map(|(certificates, key)| [certificates, key]);
    let files = tls.authorities.iter().chain(identity);
    // A missing file is reported when it is read; here it only has no time.
    let date = |file: &PathBuf| file.metadata().and_then(|file| file.modified()).ok();
    files.map(date).collect()
}
