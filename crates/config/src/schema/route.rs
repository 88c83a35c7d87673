//! Routes: paths of a site that a handler answers.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use lowroad_variables::Template;

use super::{
    BalanceConfig, BandwidthLimit, CacheConfig, OfferedCoding, OriginConfig, OriginProtocol,
    PathPrefixes, RequestConditions, RequestRule, StatusRange,
};
use crate::PathPattern;

/// Paths for which one handler gets the requests, of all methods. `[[site.route]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteConfig {
    /// The paths. Files that it matches are never sent as files. Each pattern of a list is a route. Key `pattern`.
    pub pattern: PathPattern,
    /// The route applies only if no file is at the path: for applications with paths of their
    /// own. Default false.
    pub missing: bool,
    /// The handler.
    pub to: RouteTo,
    /// Timeout from a request (from its head if it is not buffered) to the head of the response, and
    /// between two parts of a body, in milliseconds. 1 ms to 24 hours. Default 30 000. Key `timeout`.
    pub timeout_ms: u64,
    /// Concurrent requests, 1 to 65 536; excess requests get 503. Default 256.
    /// Key `concurrency`.
    pub concurrency_max: usize,
    /// Concurrent tunnels of an origin's clients (upgraded connections, such as WebSocket), 1 to 65 536; excess ones
    /// get
    /// 503. They do not count for `concurrency_max`. Default 4096. Key `tunnels`.
    pub tunnels_max: usize,
    /// Origins only: the percentage of `concurrency_max` and of `tunnels_max` that one client may use while it is the
    /// only one, 1 to 100; the share may be less while other clients are active. A client is an IPv4 address or 64
    /// bits of an IPv6 address. Default 75; 100 is no bound. Key `client_share`.
    pub client_share_percent: usize,
    /// If Location or Content-Location of an origin's response names the server's own address, it is reduced to the
    /// path, so that clients stay at this server. Default true. Key `own_redirects`.
    pub own_redirects: bool,
    /// The path of requests to an origin.
    pub prefixes: PathPrefixes,
    /// The fields of requests to an origin.
    pub request: RequestRule,
    /// Responses of an origin may name an internal redirect, as those of CGI and FastCGI programs may. Default
    /// false. Key `internal_redirects`.
    pub internal_redirects: bool,
    /// Clients get 404: only rewrites, and programs that name its paths, reach the route. Default false.
    pub internal: bool,
    /// Bytes of the head of a CGI or FastCGI program's response, 1 KiB to 1 MiB; a longer one is 502. Default 64 KiB.
    /// Key `head_len_max`.
    pub head_len_max: usize,
    /// Fields of such a head, 8 to 4096; more are 502. Default 256. Key `fields_max`.
    pub head_fields_max: usize,
    /// The program gets a request once its whole body has arrived. `None`: the default, see
    /// [`RouteConfig::buffers_requests`]. Not for pages, which always wait for it. Key `request_buffering`.
    pub request_buffering: Option<bool>,
    /// A response is buffered for a slow client, so that the program need not wait. Default
    /// true. Not for pages: their responses are complete before they are sent. Key `response_buffering`.
    pub response_buffering: bool,
    /// The longest request body in bytes, if it is shorter than that of the site. Key `body_len_max`.
    pub body_len_max: Option<u64>,
    /// The bandwidth of each response, in place of that of the site. Keys `rate` and `after`.
    pub bandwidth: Option<BandwidthLimit>,
    /// The errors that are replaced by the error pages of the site. Key `intercept_errors`.
    pub intercepted_errors: InterceptedErrors,
    /// Further conditions on requests.
    pub conditions: RequestConditions,
    /// Which responses are stored for other requests. Key `keep`.
    pub keep: ResponseStorage,
    /// The codings for its responses; an empty list: no compression. Default `None`: as set for the site in
    /// `CompressConfig::programs`. Key `compress`.
    pub compress: Option<Vec<OfferedCoding>>,
    /// The caching of an origin's responses. `[site.route.cache]`
    pub caching: CacheConfig,
    /// Copies of requests to another origin. Default none. Key `mirror`.
    pub mirror: Option<MirrorConfig>,
}

/// A share of a route's requests, copied to another origin. The responses to the copies are discarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorConfig {
    /// The origin. Key `to`.
    pub to: Box<OriginConfig>,
    /// The share in hundredths of a percent, 1 to 10 000. Default all. Key `share`.
    pub share: u32,
    /// The methods. Default GET, HEAD and OPTIONS. Key `methods`.
    pub methods: Vec<String>,
    /// The longest request body in bytes, 0 to 16 MiB. Default 65 536. Key `body_max`.
    pub body_len_max: u64,
    /// Copies in progress, 1 to 65 536. Default 64. Key `concurrency`.
    pub concurrency_max: usize,
}

impl MirrorConfig {
    /// Copies to this origin with every default.
    pub fn new(to: OriginConfig) -> MirrorConfig {
        MirrorConfig {
            to: Box::new(to),
            share: 10_000,
            methods: ["GET", "HEAD", "OPTIONS"].map(str::to_owned).into(),
            body_len_max: 64 << 10,
            concurrency_max: 64,
        }
    }
}

impl RouteConfig {
    /// The origins of the route: its handler, and its mirror.
    pub fn origins(&self) -> impl Iterator<Item = &OriginConfig> {
        let handler = match &self.to {
            RouteTo::Origin(origin) => Some(&**origin),
            _ => None,
        };
        let mirror = self.mirror.as_ref().map(|mirror| &*mirror.to);
        handler.into_iter().chain(mirror)
    }

    /// Whether requests are buffered: by default all but those to origins over HTTP/2, since a client of gRPC may wait for
    /// a response before it sends more.
    pub fn buffers_requests(&self) -> bool {
        let is_h2 =
            matches!(&self.to, RouteTo::Origin(origin) if origin.protocol == OriginProtocol::H2);
        self.request_buffering.unwrap_or(!is_h2)
    }

    /// The default of `timeout_ms`.
    pub const TIMEOUT_MS: u64 = 30_000;
    /// The default of `concurrency_max`.
    pub const CONCURRENCY_MAX: usize = 256;
    /// The default of `tunnels_max`.
    pub const TUNNELS_MAX: usize = 4096;
    /// The default of `head_len_max`.
    pub const HEAD_LEN_MAX: usize = 64 << 10;
    /// The default of `head_fields_max`.
    pub const HEAD_FIELDS_MAX: usize = 256;
    /// The default of `client_share_percent`.
    pub const CLIENT_SHARE_PERCENT: usize = 75;

    /// A route with every default.
    pub fn new(pattern: PathPattern, to: RouteTo) -> RouteConfig {
        RouteConfig {
            pattern,
            missing: false,
            to,
            timeout_ms: RouteConfig::TIMEOUT_MS,
            concurrency_max: RouteConfig::CONCURRENCY_MAX,
            tunnels_max: RouteConfig::TUNNELS_MAX,
            client_share_percent: RouteConfig::CLIENT_SHARE_PERCENT,
            own_redirects: true,
            prefixes: PathPrefixes::default(),
            request: RequestRule::default(),
            internal_redirects: false,
            bandwidth: None,
            intercepted_errors: InterceptedErrors::default(),
            internal: false,
            head_len_max: RouteConfig::HEAD_LEN_MAX,
            head_fields_max: RouteConfig::HEAD_FIELDS_MAX,
            request_buffering: None,
            response_buffering: true,
            body_len_max: None,
            conditions: RequestConditions::default(),
            keep: ResponseStorage::default(),
            compress: None,
            caching: CacheConfig::default(),
            mirror: None,
        }
    }
}

/// Errors of a handler that are replaced by the error pages of the site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InterceptedErrors {
    /// None. `false`
    #[default]
    None,
    /// Those with a status for which the site has a page. `true`
    WithPage,
    /// These, the first that matches, each with the status that the client gets. `{ 500 = 503, 404 = 200 }`
    Listed(Vec<(StatusRange, u16)>),
}

/// Which responses of a route are stored for other requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponseStorage {
    /// Those that a cache may store: of a program, all with an explicit lifetime. `"allowed"`
    #[default]
    Allowed,
    /// Of these, those with an explicit permission for shared caches: `public`, `s-maxage` or, of an origin,
    /// CDN-Cache-Control. `"shared"`
    Shared,
    /// None. `"never"`
    Never,
}

/// The handler of a route; exactly one of these keys must be present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTo {
    /// The module of this name. `module = "NAME"`
    Module(String),
    /// CGI programs (RFC 3875): those in a folder, one program, or those among the site's files. `cgi = "DIR"`,
    /// `cgi = "FILE"`, `cgi = true`
    Cgi(CgiConfig),
    /// FastCGI servers. `fastcgi = "ADDRESS"`, `fastcgi = ["ADDRESS", …]`
    FastCgi(FastCgiConfig),
    /// Servers that speak HTTP. `origin = "http://HOST:PORT"`, or the name of an `[[origin]]`
    Origin(Box<OriginConfig>),
    /// Templates among the site's files, with database queries. `pages = "DATABASE"`, or `pages = true`
    /// if they need no database.
    Pages(PagesConfig),
}

impl RouteTo {
    /// The environment or the parameters of programs: `[site.route.env]`.
    pub fn env(&self) -> &[(String, Template)] {
        match self {
            RouteTo::Cgi(cgi) => &cgi.env,
            RouteTo::FastCgi(fastcgi) => &fastcgi.env,
            RouteTo::Module(_) | RouteTo::Origin(_) | RouteTo::Pages(_) => &[],
        }
    }
}

/// CGI programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgiConfig {
    /// The folder of the programs: the path segment after `PathPattern::front` names a program in it, and the rest of
    /// the path is PATH_INFO. The front ends in `/`. Or a single program, which gets all of the path after the front as
    /// PATH_INFO. `None`: programs are among the site's files, and the pattern selects them.
    pub path: Option<PathBuf>,
    /// Environment variables in addition to those of RFC 3875 §4.1; none of those, and
    /// no `HTTP_…`. `[site.route.env]`
    pub env: Vec<(String, Template)>,
    /// Bytes of address space for a program and each of its children, 1 MiB to 1 TiB; 0 = no limit.
    /// Default 1 GiB. Key `memory`.
    pub memory_len_max: u64,
    /// Seconds of processor time for a program and each of its children, 1 to 86 400. Default 30.
    /// Key `cpu`, a duration, rounded up.
    pub cpu_s_max: u64,
    /// Processes and threads of the programs' user, in total, beyond which a program cannot start another, at most
    /// 65 536; 0 = no limit. It does not bind root. Default 4096. Key `processes`.
    pub processes_max: u64,
    /// The user of the programs. Default `nobody` if the server is root, else the server's user.
    pub user: Option<String>,
}

impl CgiConfig {
    /// Programs at this path, with every default.
    pub fn new(path: Option<PathBuf>) -> CgiConfig {
        CgiConfig {
            path,
            env: Vec::new(),
            memory_len_max: 1 << 30,
            cpu_s_max: 30,
            processes_max: 4096,
            user: None,
        }
    }
}

/// Interchangeable FastCGI servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCgiConfig {
    /// Their addresses; not empty.
    pub servers: Vec<UpstreamAddress>,
    /// The load balancing policy: `BalanceConfig::RoundRobin` or `BalanceConfig::LeastConnections`. Key `balance`.
    pub balance: BalanceConfig,
    /// The script for all requests, as an absolute path under the root; empty if the server is one program without
    /// scripts: then SCRIPT_NAME is `PathPattern::front` without its last slash, and PATH_INFO the rest of the path.
    /// Default none: the path itself is the script. Key `script`.
    pub script: Option<String>,
    /// The site's root in the server's file system; then scripts need not exist on this machine. Default: the same
    /// path. Key `script_root`.
    pub script_root: Option<PathBuf>,
    /// The index file of a folder. Default `index.php`. Key `index`.
    pub index: String,
    /// Connections to each server, all workers together, 1 to 4096. Default 32. Key `connections`.
    pub connections_max: usize,
    /// A connection is reused once a response is complete. Default: each request has a new one. Key
    /// `keep_connections`.
    pub keeps_connections: bool,
    /// Parameters in addition to those of RFC 3875 §4.1, such as `DOCUMENT_ROOT` or `SCRIPT_FILENAME` for a
    /// server with a different file system. `[site.route.env]`
    pub env: Vec<(String, Template)>,
}

impl FastCgiConfig {
    /// The server at this address, with every default.
    pub fn new(address: UpstreamAddress) -> FastCgiConfig {
        FastCgiConfig {
            servers: vec![address],
            balance: BalanceConfig::default(),
            script: None,
            script_root: None,
            index: "index.php".to_string(),
            connections_max: 32,
            keeps_connections: false,
            env: Vec::new(),
        }
    }
}

/// The address of a FastCGI server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamAddress {
    /// `unix:/run/php/php-fpm.sock`
    Unix(PathBuf),
    /// `127.0.0.1:9000`
    Tcp(SocketAddr),
    /// `app.example.com:9000`: all addresses of the name, resolved again periodically.
    Name {
        /// The host, in lower case.
        host: String,
        /// The port of all its addresses.
        port: u16,
    },
}

impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpstreamAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            UpstreamAddress::Tcp(address) => write!(f, "{address}"),
            UpstreamAddress::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// Pages: templates with database queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagesConfig {
    /// The database of `query`.
    pub database: Option<String>,
    /// Bytes of memory for the evaluation of a page: its values, rows and text; a request's body may take an eighth of
    /// it. 1 MiB to 1 TiB. Default 32 MiB. Key `memory`.
    pub memory_len_max: usize,
}

impl PagesConfig {
    /// The default of `PagesConfig::memory_len_max`.
    pub const MEMORY_LEN_MAX: usize = 32 << 20;

    /// Pages with this database and every default.
    pub fn new(database: Option<String>) -> PagesConfig {
        PagesConfig {
            database,
            memory_len_max: PagesConfig::MEMORY_LEN_MAX,
        }
    }
}
