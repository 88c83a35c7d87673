//! From the configuration's limits to the engine's, within what the machine gives.

use lowroad_children::descriptors;
use lowroad_config::{Accept, Config, Prefix};
use lowroad_engine::settings::Introduced;
use lowroad_engine::settings::Settings;
use lowroad_site::listeners::Listeners;
use rustix::process::{Resource, Rlimit, setrlimit};

/// Descriptors kept for all but connections: files being sent, listeners, logs.
const RESERVED: u64 = 512;
/// Connections taken even where descriptors may not last for them.
const CONNECTIONS_MIN: usize = 16;
/// "All" has an end too, or a flood of newcomers would keep a worker from everything else. Who is
/// left waits for the next turn of the event loop, which comes at once.
const ACCEPT_ALL_MAX: u32 = 1024;
/// However long heads of HTTP/1 may be: the few bytes of a field block can mean as much.
const SECTION_LEN_MAX: usize = 64 << 10;
/// More than this many descriptors nobody asked for.
const FD_LIMIT_MAX: u64 = 1 << 20;

/// Raises the limit of descriptors. Returns the limit, and what is to be said about it.
pub fn raise_fd_limit(config: &Config) -> (u64, Option<String>) {
    let now = descriptors::remember();
    let (soft, hard) = (
        now.current.unwrap_or(u64::MAX),
        now.maximum.unwrap_or(u64::MAX),
    );
    let needed = config.limits.connections_max as u64 + RESERVED;
    // Beyond the hard limit only by word of the operator, and only as root.
    let asked = match config.server.fd_limit {
        0 => hard.min(FD_LIMIT_MAX),
        asked => asked,
    };
    let raise = |to: u64| {
        let new = Rlimit {
            current: Some(to),
            maximum: Some(hard.max(to)),
        };
        setrlimit(Resource::Nofile, new).ok().map(|()| to)
    };
    let reached = raise(asked)
        .or_else(|| raise(asked.min(hard)))
        .unwrap_or(soft);
    let text = (reached < needed).then(|| {
        format!(
            "{reached} descriptors, so at most {} connections instead of {}; \
             ulimit -n, or LimitNOFILE of systemd, raises that",
            connections_for(reached),
            config.limits.connections_max
        )
    });
    (reached, text)
}

/// Connections that a number of descriptors is enough for.
fn connections_for(fd_limit: u64) -> usize {
    let left = fd_limit.saturating_sub(RESERVED);
    usize::try_from(left)
        .unwrap_or(usize::MAX)
        .max(CONNECTIONS_MIN)
}

/// The settings of a worker, given the limit of descriptors.
pub fn settings(config: &Config, listeners: &Listeners, fd_limit: u64) -> Settings {
    let limits = &config.limits;
    let http = lowroad_http::limits::Limits {
        head_len_max: limits.head_len_max,
        target_len_max: limits.target_len_max,
        fields_max: u16::try_from(limits.fields_max).unwrap_or(u16::MAX),
        body_len_max: limits.body_len_max,
        ..Default::default()
    };
    Settings {
        accept_max: match config.server.accept {
            Accept::One => 1,
            Accept::All => ACCEPT_ALL_MAX,
            Accept::UpTo(count) => count.max(1),
        },
        header_timeout_ms: limits.header_timeout_ms,
        body_timeout_ms: limits.body_timeout_ms,
        idle_timeout_ms: limits.idle_timeout_ms,
        send_timeout_ms: limits.send_timeout_ms,
        rate_min: limits.rate_min,
        rate_grace_ms: limits.rate_grace_ms,
        connections_max: limits.connections_max.min(connections_for(fd_limit)),
        connections_per_address_max: narrow(limits.connections_per_address_max as u64),
        requests_max: narrow(limits.requests_per_connection_max),
        introduced: introduced(config, listeners),
        h2: lowroad_http::h2::Settings {
            limits: http,
            section_len_max: section_len_max(limits),
            takes_connect_protocol: true,
            streams_max: u16::try_from(limits.streams_per_connection_max).unwrap_or(u16::MAX),
            ..Default::default()
        },
        http,
    }
}

/// The head of a request over HTTP/2, where each field counts 32 bytes more than it has (RFC 9113 §6.5.2).
fn section_len_max(limits: &lowroad_config::Limits) -> usize {
    (limits.head_len_max + 32 * limits.fields_max).min(SECTION_LEN_MAX)
}

/// Where proxies say whose connections they pass on. All sites of an address have the same.
fn introduced(config: &Config, listeners: &Listeners) -> Vec<Introduced> {
    let mut all: Vec<Introduced> = Vec::new();
    let places = listeners.places(&config.sites);
    for site in config
        .sites
        .iter()
        .filter(|it| !it.proxy_protocol.is_empty())
    {
        for listener in places.of_site(site) {
            if !all.iter().any(|known| known.listener == listener) {
                let from = site.proxy_protocol.iter().map(Prefix::range).collect();
                all.push(Introduced { listener, from });
            }
        }
    }
    all
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
