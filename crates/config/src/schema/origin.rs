//! Servers that speak HTTP, for which Lowroad is a cache and a proxy.

use std::net::IpAddr;
use std::path::PathBuf;

/// One server, or several that can stand for one another. `[[origin]]`, or a URL in a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// How routes call it; its URL, where a route names that.
    pub name: String,
    /// Where it is: at least one. Key `servers`.
    pub servers: Vec<OriginServer>,
    /// Which of them gets a request. Keys `balance` and `hash`.
    pub balance: Balance,
    /// How it is found out whether a server is well. Default none: by requests alone. `[origin.check]`
    pub check: Option<OriginCheck>,
    /// Connections to each server, all workers together, 1 to 65 536. Default 1024. Key `connections`.
    pub connections_max: usize,
    /// How long a connection may take to come about, in milliseconds. Default 5 000. Key `connect_timeout`.
    pub connect_timeout_ms: u64,
    /// How long the head of a response may take, in milliseconds. Default that of the route. Key `timeout`.
    pub timeout_ms: Option<u64>,
    /// How many servers are asked for one request, 1 to 16. Default 3. Key `tries`.
    pub tries_max: u32,
    /// How many requests of 100 may be asked again, 0 to 100. Default 20. Key `retry_percent`.
    pub retry_percent: u32,
    /// How much of a request's body is kept so that the request can be repeated, in bytes, 0 to 16 MiB. Default 65 536. Key
    /// `retry_body_max`.
    pub retry_body_max: u64,
    /// What Host servers get. Default the client's. Key `host`.
    pub host: OriginHost,
    /// How TLS is spoken with servers whose URL is `https:`. `[origin.tls]`
    pub tls: OriginTls,
    /// Servers are told of the client by the PROXY protocol. Default none. Key `proxy_protocol`.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// From which address it is asked, whether this machine has it or not; the routes decide if none is given. Not in
    /// files: somebody has to see to it that the answers come back.
    pub from: Option<IpAddr>,
    /// Requests get a Via of this proxy (RFC 9110 §7.6.3). Default true. Not in files: `attach`, in front of another web
    /// server, adds none, since servers treat proxied requests differently (nginx: `gzip_proxied`).
    pub adds_via: bool,
}

impl Origin {
    /// An origin with every default, without servers.
    pub fn named(name: String) -> Origin {
        Origin {
            name,
            servers: Vec::new(),
            balance: Balance::default(),
            check: None,
            connections_max: 1024,
            connect_timeout_ms: 5_000,
            timeout_ms: None,
            tries_max: 3,
            retry_percent: 20,
            retry_body_max: 64 << 10,
            host: OriginHost::default(),
            tls: OriginTls::default(),
            proxy_protocol: None,
            from: None,
            adds_via: true,
        }
    }

    /// The one server at this URL, with every default.
    pub fn new(url: OriginUrl) -> Origin {
        Origin {
            servers: vec![OriginServer::new(url.clone())],
            ..Origin::named(url.to_string())
        }
    }

    /// Whether TLS is spoken with one of the servers.
    pub fn is_encrypted(&self) -> bool {
        self.servers.iter().any(|server| server.url.is_encrypted())
    }
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginServer {
    /// Where it is.
    pub url: OriginUrl,
    /// How many requests it gets compared to others, 1 to 1000. Default 1.
    pub weight: u32,
    /// It gets requests when the others cannot. Default false.
    pub backup: bool,
}

impl OriginServer {
    /// One with every default.
    pub fn new(url: OriginUrl) -> OriginServer {
        OriginServer {
            url,
            weight: 1,
            backup: false,
        }
    }
}

/// Where an origin is: a URL without a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OriginUrl {
    /// `http://127.0.0.1:3000`, `https://app.internal`
    Http {
        /// TLS is spoken.
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
    /// Whether TLS is spoken there.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, OriginUrl::Http { encrypted, .. } if *encrypted)
    }

    /// What a client of its would send as Host.
    pub fn authority(&self) -> String {
        let (encrypted, host, port) = match self {
            OriginUrl::Unix(_) => return "localhost".into(),
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
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (encrypted, host, port) = match self {
            OriginUrl::Unix(path) => return write!(to, "unix:{}", path.display()),
            OriginUrl::Http {
                encrypted,
                host,
                port,
            } => (encrypted, host, port),
        };
        let scheme = if *encrypted { "https" } else { "http" };
        match host.contains(':') {
            true => write!(to, "{scheme}://[{host}]:{port}"),
            false => write!(to, "{scheme}://{host}:{port}"),
        }
    }
}

/// Which server gets a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Balance {
    /// Each in its turn. `"round-robin"`
    #[default]
    RoundRobin,
    /// The one with the fewest requests for its weight. `"least-connections"`
    LeastConnections,
    /// The less loaded of two that are drawn. `"random"`
    Random,
    /// The same for the same key. `"hash"`
    Hash(HashBy),
}

/// The key of a request. Key `hash`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum HashBy {
    /// Path and query. `"url"`
    #[default]
    Url,
    /// The client's address. `"address"`
    Address,
    /// The value of a field; a request without it goes anywhere. `"header:NAME"`
    Header(String),
    /// The value of a cookie; likewise. `"cookie:NAME"`
    Cookie(String),
}

/// How it is found out whether a server is well.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginCheck {
    /// What a GET asks for. Default `/`.
    pub path: String,
    /// From one answer to the next question, in milliseconds, 100 ms to 1 hour. Default 5 000.
    pub interval_ms: u64,
    /// How long an answer may take, in milliseconds. Default 2 000.
    pub timeout_ms: u64,
    /// Statuses of who is well, from and to. Default 200 to 399. Key `status`.
    pub statuses: Vec<(u16, u16)>,
    /// So many good answers in a row bring a server back, 1 to 100. Default 2.
    pub rise: u32,
    /// So many bad ones in a row take it out, 1 to 100. Default 3.
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

/// What Host servers get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum OriginHost {
    /// The one that the client asked for. `"client"`
    #[default]
    Client,
    /// The one of the server's URL. `"origin"`
    Origin,
    /// This one.
    Name(String),
}

/// How TLS is spoken with servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginTls {
    /// A certificate must be valid and have the name. Default true.
    pub verify: bool,
    /// Authorities, PEM. Default the system's. Key `ca`.
    pub authorities: Option<PathBuf>,
    /// The name that a certificate must have, and that is asked for. Default the host of the URL.
    pub name: Option<String>,
    /// What servers are shown that ask who Lowroad is, and its key, both PEM. Keys `certificate` and `key`.
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
