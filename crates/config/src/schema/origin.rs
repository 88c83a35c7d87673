//! Origin servers, for which Lowroad is a cache and a reverse proxy.

use crate::SecretText;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// One server, or several interchangeable ones. `[[origin]]`, or a URL in a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginConfig {
    /// The name in routes; the URL, if a route gives one.
    pub name: String,
    /// The servers: at least one. Key `servers`.
    pub servers: Vec<OriginServer>,
    /// The load balancing policy. Keys `balance` and `hash`.
    pub balance: BalanceConfig,
    /// The name servers for the servers' names. Default none: the system's resolver. Key `resolver`.
    pub resolvers: Vec<SocketAddr>,
    /// Sticky sessions. Default none. Key `sticky`, or `[origin.sticky]`
    pub sticky: Option<OriginSticky>,
    /// The active health check. Default none: only failures of requests count. `[origin.check]`
    pub check: Option<OriginCheck>,
    /// Connections to each server, all workers together, 1 to 65 536. Default 1024. Key `connections`.
    pub connections_max: usize,
    /// Connect timeout in milliseconds. Default 5 000. Key `connect_timeout`.
    pub connect_timeout_ms: u64,
    /// Time until the head of a response, in milliseconds. Default that of the route. Key `timeout`.
    pub timeout_ms: Option<u64>,
    /// Attempts per request, 1 to 16. Default 3. Key `tries`.
    pub tries_max: u32,
    /// Retry budget: retries per 100 requests, 0 to 100. Default 20. Key `retry_percent`.
    pub retry_percent: u32,
    /// Bytes of a request's body that are kept for a retry, 0 to 16 MiB. Default 65 536. Key `retry_body_max`.
    pub retry_body_max: u64,
    /// The Host field of requests to servers. Default the client's. Key `host`.
    pub host: OriginHost,
    /// TLS settings for servers with `https:` URLs. `[origin.tls]`
    pub tls: OriginTls,
    /// The version of HTTP to servers. Key `protocol`, or `h2c:` URLs.
    pub protocol: OriginProtocol,
    /// Connections to servers begin with a PROXY header that names the client. Default none. Key `proxy_protocol`.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// The source address of connections, even if this machine does not have it; `None`: routing decides. Not in files,
    /// since return packets must be routed back to this machine by other means.
    pub from: Option<IpAddr>,
    /// Requests get a Via of this proxy (RFC 9110 §7.6.3). Default true. Not in files: `attach`, in front of another web
    /// server, adds none, since servers treat proxied requests differently (nginx: `gzip_proxied`).
    pub adds_via: bool,
}

impl OriginConfig {
    /// An origin with every default, without servers.
    pub fn named(name: String) -> OriginConfig {
        OriginConfig {
            name,
            servers: Vec::new(),
            balance: BalanceConfig::default(),
            resolvers: Vec::new(),
            sticky: None,
            check: None,
            connections_max: 1024,
            connect_timeout_ms: 5_000,
            timeout_ms: None,
            tries_max: 3,
            retry_percent: 20,
            retry_body_max: 64 << 10,
            host: OriginHost::default(),
            tls: OriginTls::default(),
            protocol: OriginProtocol::default(),
            proxy_protocol: None,
            from: None,
            adds_via: true,
        }
    }

    /// An origin with the one server at this URL, with every default.
    pub fn new(url: OriginUrl) -> OriginConfig {
        OriginConfig {
            servers: vec![OriginServer::new(url.clone())],
            ..OriginConfig::named(url.to_string())
        }
    }

    /// Whether one of the servers uses TLS.
    pub fn is_encrypted(&self) -> bool {
        self.servers.iter().any(|server| server.url.is_encrypted())
    }
}

/// One server of an origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginServer {
    /// Its URL.
    pub url: OriginUrl,
    /// Its share of requests relative to others, 1 to 1000. Default 1.
    pub weight: u32,
    /// It gets requests only if the others are unavailable. Default false.
    pub backup: bool,
}

impl OriginServer {
    /// A server with every default.
    pub fn new(url: OriginUrl) -> OriginServer {
        OriginServer {
            url,
            weight: 1,
            backup: false,
        }
    }
}

/// The address of an origin server: a URL without a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OriginUrl {
    /// `http://127.0.0.1:3000`, `https://app.internal`
    Http {
        /// Whether TLS is used.
        encrypted: bool,
        /// A name or an address; an IPv6 address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// `unix:/run/app.sock`
    Unix(PathBuf),
}

impl OriginUrl {
    /// Whether TLS is used.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, OriginUrl::Http { encrypted, .. } if *encrypted)
    }

    /// Whether the host is the name of a service, of which SRV records name the servers (RFC 2782). It has no port.
    pub fn is_service(&self) -> bool {
        matches!(self, OriginUrl::Http { port: 0, .. })
    }

    /// The name of the host: that of a service without the labels of service and protocol. Empty for a Unix socket.
    pub fn host(&self) -> &str {
        match self {
            OriginUrl::Unix(_) => "",
            OriginUrl::Http { host, .. } if self.is_service() => {
                host.splitn(3, '.').nth(2).unwrap_or(host)
            }
            OriginUrl::Http { host, .. } => host,
        }
    }

    /// The Host field that a client of this server would send.
    pub fn authority(&self) -> String {
        let (encrypted, host, port) = match self {
            OriginUrl::Unix(_) => return "localhost".into(),
            _ if self.is_service() => return self.host().to_owned(),
            OriginUrl::Http {
                encrypted,
                host,
                port,
            } => (*encrypted, host, *port),
        };
        let host = match host.contains(':') {
            true => format!("[{host}]"),
            false => host.clone(),
        };
        match port == if encrypted { 443 } else { 80 } {
            true => host,
            false => format!("{host}:{port}"),
        }
    }
}

impl std::fmt::Display for OriginUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (encrypted, host, port) = match self {
            OriginUrl::Unix(path) => return write!(f, "unix:{}", path.display()),
            OriginUrl::Http {
                encrypted,
                host,
                port,
            } => (encrypted, host, port),
        };
        let scheme = if *encrypted { "https" } else { "http" };
        if self.is_service() {
            return write!(f, "{scheme}://{host}");
        }
        match host.contains(':') {
            true => write!(f, "{scheme}://[{host}]:{port}"),
            false => write!(f, "{scheme}://{host}:{port}"),
        }
    }
}

/// The version of HTTP between Lowroad and the servers of an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OriginProtocol {
    /// HTTP/1.1, one request at a time on a connection. `"http/1.1"`
    #[default]
    Http1,
    /// HTTP/2: over TLS by ALPN, otherwise by prior knowledge. `"h2"`, or `h2c:` URLs
    H2,
    /// Over TLS: HTTP/2 if the server offers it by ALPN, otherwise HTTP/1.1. `"auto"`
    Auto,
}

/// The load balancing policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum BalanceConfig {
    /// The servers take turns. `"round-robin"`
    #[default]
    RoundRobin,
    /// The one with the fewest requests for its weight. `"least-connections"`
    LeastConnections,
    /// The less loaded of two random servers. `"random"`
    Random,
    /// The same server for the same key. `"hash"`
    Hash(HashBy),
}

/// The part of a request that is hashed. Key `hash`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum HashBy {
    /// Path and query. `"url"`
    #[default]
    Url,
    /// The client's address. `"address"`
    Address,
    /// The value of a field; a request without it goes to any server. `"header:NAME"`
    Header(String),
    /// The value of a cookie; likewise. `"cookie:NAME"`
    Cookie(String),
}

/// Sticky sessions: a signed cookie names the server that answers a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginSticky {
    /// The name of the cookie. Default `sticky_` and the origin's name. Key `cookie`.
    pub cookie: String,
    /// The lifetime of the cookie in seconds, 1 s to 400 days; `None`: until the browser ends. Key `lifetime`.
    pub lifetime_s: Option<u64>,
    /// Whether the cookie is for https only. Default as the request. Key `secure`.
    pub is_secure: Option<bool>,
    /// Whether scripts can't read the cookie. Default true. Key `http_only`.
    pub is_http_only: bool,
    /// Which requests from other sites have the cookie. Key `same_site`.
    pub same_site: SameSite,
    /// The secret that signs cookies; `None`: a random one that lasts until the server is restarted. Key `secret`.
    pub secret: Option<SecretText>,
}

/// Which requests from other sites have a cookie (RFC 6265bis §5.6.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SameSite {
    /// Links to the site. `"lax"`
    #[default]
    Lax,
    /// None. `"strict"`
    Strict,
    /// All. `"none"`
    None,
}

/// The active health check of servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginCheck {
    /// The request target of the GET. Default `/`.
    pub path: String,
    /// From a response to the next check, in milliseconds, 100 ms to 1 hour. Default 5 000.
    pub interval_ms: u64,
    /// Time until the response, in milliseconds. Default 2 000.
    pub timeout_ms: u64,
    /// The status codes of a healthy server, as ranges with both ends. Default 200 to 399. Key `status`.
    pub statuses: Vec<(u16, u16)>,
    /// Successful checks in a row that bring a server back, 1 to 100. Default 2.
    pub rise: u32,
    /// Failed checks in a row that take a server out, 1 to 100. Default 3.
    pub fall: u32,
}

impl Default for OriginCheck {
    fn default() -> OriginCheck {
        OriginCheck {
            path: "/".into(),
            interval_ms: 5_000,
            timeout_ms: 2_000,
            statuses: vec![(200, 399)],
            rise: 2,
            fall: 3,
        }
    }
}

/// The Host field of requests to servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum OriginHost {
    /// The client's. `"client"`
    #[default]
    Client,
    /// That of the server's URL. `"origin"`
    Origin,
    /// This one.
    Name(String),
}

/// TLS settings for connections to servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginTls {
    /// Whether a certificate must be valid and match the name. Default true.
    pub verify: bool,
    /// Certificate authorities, in PEM. Default the system's. Key `ca`.
    pub authorities: Option<PathBuf>,
    /// The name for SNI and for the verification of the certificate. Default the host of the URL.
    pub name: Option<String>,
    /// The client certificate for servers that request one, and its key, both PEM. Keys `certificate` and `key`.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Default for OriginTls {
    fn default() -> OriginTls {
        OriginTls {
            verify: true,
            authorities: None,
            name: None,
            identity: None,
        }
    }
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyProtocol {
    /// As a line. `"v1"`
    V1,
    /// In binary. `"v2"`
    V2,
}
