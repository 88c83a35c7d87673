//! Converts configured limits to the engine's settings, bounded by the limits of the system.

use lowroad_child_processes::descriptors;
use lowroad_config::{AcceptLimit, AddressPrefix, Config};
use lowroad_engine::settings::ProxyProtocolListener;
use lowroad_engine::settings::WorkerSettings;
use lowroad_site::listeners::ListenerSet;
use rustix::process::{Resource, Rlimit, setrlimit};

/// Descriptors reserved for purposes other than connections: files being sent, listeners, logs.
const RESERVED: u64 = 512;
/// Minimum connection limit, even if descriptors may run out.
const CONNECTIONS_MIN: usize = 16;
/// Maximum connections that `accept = "all"` accepts in one turn of the event loop, so that a flood of connections does
/// not stop a worker's other work. The next turn, which follows immediately, accepts more.
const ACCEPT_ALL_MAX: u32 = 1024;
/// Maximum header section over HTTP/2, even if the limit for HTTP/1 is higher: a few bytes of HPACK can expand to this
/// size.
const SECTION_LEN_MAX: usize = 64 << 10;
/// Maximum descriptor limit that is chosen automatically.
const FD_LIMIT_MAX: u64 = 1 << 20;

/// Raises the limit of descriptors. Returns the new limit, and a warning if it is lower than needed.
pub fn raise_fd_limit(config: &Config) -> (u64, Option<String>) {
    let current_limit = descriptors::record_limit();
    let (soft, hard) = (
        current_limit.current.unwrap_or(u64::MAX),
        current_limit.maximum.unwrap_or(u64::MAX),
    );
    let needed = config.limits.connections_max as u64 + RESERVED;
    // A configured limit may exceed the hard limit, which only root can raise; the automatic limit does not.
    let requested = match config.server.fd_limit {
        0 => hard.min(FD_LIMIT_MAX),
        requested => requested,
    };
    let raise = |to: u64| {
        let new = Rlimit {
            current: Some(to),
            maximum: Some(hard.max(to)),
        };
        setrlimit(Resource::Nofile, new).ok().map(|()| to)
    };
    // Without the privilege, the kernel does not raise the hard limit; then the soft limit is raised up to the hard
    // one.
    let reached = raise(requested)
        .or_else(|| raise(requested.min(hard)))
        .unwrap_or(soft);
    let text = (reached < needed).then(|| {
        format!(
            "only {reached} file descriptors, so at most {} connections instead of {}; raise \
             ulimit -n, or LimitNOFILE of systemd",
            connections_for(reached),
            config.limits.connections_max
        )
    });
    (reached, text)
}

/// The number of connections that a number of descriptors allows.
fn connections_for(fd_limit: u64) -> usize {
    let available = fd_limit.saturating_sub(RESERVED);
    usize::try_from(available)
        .unwrap_or(usize::MAX)
        .max(CONNECTIONS_MIN)
}

/// Builds a worker's settings, given the limit of descriptors.
pub fn settings(config: &Config, listeners: &ListenerSet, fd_limit: u64) -> WorkerSettings {
    let limits = &config.limits;
    let http = lowroad_http::limits::RequestLimits {
        head_len_max: limits.head_len_max,
        target_len_max: limits.target_len_max,
        fields_max: u16::try_from(limits.fields_max).unwrap_or(u16::MAX),
        body_len_max: limits.body_len_max,
        ..Default::default()
    };
    WorkerSettings {
        accept_max: match config.server.accept {
            AcceptLimit::One => 1,
            AcceptLimit::All => ACCEPT_ALL_MAX,
            AcceptLimit::UpTo(count) => count.max(1),
        },
        header_timeout_ms: limits.header_timeout_ms,
        body_timeout_ms: limits.body_timeout_ms,
        idle_timeout_ms: limits.idle_timeout_ms,
        send_timeout_ms: limits.send_timeout_ms,
        rate_min: limits.rate_min,
        rate_grace_ms: limits.rate_grace_ms,
        // Each connection needs a descriptor.
        connections_max: limits.connections_max.min(connections_for(fd_limit)),
        connections_per_address_max: narrow(limits.connections_per_address_max as u64),
        requests_max: narrow(limits.requests_per_connection_max),
        proxy_protocol_listeners: proxy_protocol_listeners(config, listeners),
        h2: lowroad_http::h2::H2Settings {
            limits: http,
            section_len_max: section_len_max(limits),
            // WebSocket over HTTP/2 (RFC 8441).
            accepts_connect_protocol: true,
            streams_max: u16::try_from(limits.streams_per_connection_max).unwrap_or(u16::MAX),
            ..Default::default()
        },
        h3: lowroad_http::h3::H3Settings {
            limits: http,
            section_len_max: section_len_max(limits),
            // WebSocket over HTTP/3 (RFC 9220).
            accepts_connect_protocol: true,
            // Numbers of concurrent requests have 15 bits.
            streams_max: u16::try_from(limits.streams_per_connection_max)
                .unwrap_or(u16::MAX)
                .min(i16::MAX as u16),
            ..Default::default()
        },
        http,
    }
}

/// The maximum header section over HTTP/2, where each field counts 32 bytes more than its text (RFC 9113 §6.5.2).
fn section_len_max(limits: &lowroad_config::LimitsConfig) -> usize {
    // A head that HTTP/1 accepts must be accepted over HTTP/2.
    (limits.head_len_max + 32 * limits.fields_max).min(SECTION_LEN_MAX)
}

/// The listeners that expect a PROXY header. All sites of an address have the same setting.
fn proxy_protocol_listeners(
    config: &Config,
    listeners: &ListenerSet,
) -> Vec<ProxyProtocolListener> {
    let mut all: Vec<ProxyProtocolListener> = Vec::new();
    let addresses = listeners.addresses_for(&config.sites);
    for site in config
        .sites
        .iter()
        .filter(|it| !it.proxy_protocol.is_empty())
    {
        for listener in addresses.for_site(site) {
            // All sites of a listener have the same setting, so the first one counts.
            if !all.iter().any(|listed| listed.listener == listener) {
                let from = site
                    .proxy_protocol
                    .iter()
                    .map(AddressPrefix::range)
                    .collect();
                all.push(ProxyProtocolListener {
                    listener,
                    proxies: from,
                });
            }
        }
    }
    all
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
