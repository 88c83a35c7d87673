//! Paths of a site that programs answer for.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Balance, Caching, Encoding, Origin};
use crate::Pattern;

/// Paths whose requests, of all methods, go to a program. `[[site.route]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Which paths. Files that it matches are never sent as files.
    pub pattern: Pattern,
    /// The route counts only where there is no such file: for applications with paths of their
    /// own. Default false.
    pub missing: bool,
    /// What answers.
    pub to: RouteTo,
    /// From a request, or from its head where it is not buffered, to the head of its response, and
    /// between two parts of a body, in milliseconds. 1 ms to 24 hours. Default 30 000. Key `timeout`.
    pub timeout_ms: u64,
    /// Requests that are answered at a time, 1 to 65 536; others get 503. Default 256.
    /// Key `concurrency`.
    pub concurrency_max: usize,
    /// Connections of an origin's clients that speak another protocol at a time, as WebSockets do, 1 to 65 536; others get
    /// 503. They are none of the requests that `concurrency_max` bounds. Default 4096. Key `tunnels`.
    pub tunnels_max: usize,
    /// Of an origin: how much of `concurrency_max` and of `tunnels_max` one client may have while nobody else has any, in percent, 1 to
    /// 100: who has company may have less. A client is an IPv4 address or 64 bits of an IPv6 address. Default 75; 100 is no
    /// bound. Key `client_share`.
    pub client_share_percent: usize,
    /// Where a response of an origin's server names that server's own address in Location or Content-Location, it names the
    /// path only, so that clients stay here. Default true. Key `own_redirects`.
    pub own_redirects: bool,
    /// Responses of an origin may name what is to be answered in their place, as those of CGI and FastCGI programs may. Default
    /// false. Key `internal_redirects`.
    pub internal_redirects: bool,
    /// Clients get 404: only rewrites, and programs that name its paths, lead here. Default false.
    pub internal: bool,
    /// The head of a response of a CGI or FastCGI program, 1 KiB to 1 MiB; a longer one is 502. Default 64 KiB. Key
    /// `head_len_max`.
    pub head_len_max: usize,
    /// Fields of such a head, 8 to 4096; more are 502. Default 256. Key `fields_max`.
    pub head_fields_max: usize,
    /// The program gets a request once all of its body is there. Default true. Not for pages, which
    /// always do. Key `request_buffering`.
    pub request_buffering: bool,
    /// What a slow client has not taken of a response waits, so that the program need not. Default
    /// true. Not for pages, whose responses are made whole. Key `response_buffering`.
    pub response_buffering: bool,
    /// What else has to hold of a request.
    pub conditions: Conditions,
    /// Which responses are kept for others. Key `keep`.
    pub keep: Keep,
    /// The codings for its responses; none: they are sent as they come. Default `None`: as the site says in
    /// [`Compress::programs`](super::Compress::programs). Key `compress`.
    pub compress: Option<Vec<Encoding>>,
    /// How responses are stored; of an origin only. `[site.route.cache]`
    pub caching: Caching,
}

impl Route {
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
    pub fn new(pattern: Pattern, to: RouteTo) -> Route {
        Route {
            pattern,
            missing: false,
            to,
            timeout_ms: Route::TIMEOUT_MS,
            concurrency_max: Route::CONCURRENCY_MAX,
            tunnels_max: Route::TUNNELS_MAX,
            client_share_percent: Route::CLIENT_SHARE_PERCENT,
            own_redirects: true,
            internal_redirects: false,
            internal: false,
            head_len_max: Route::HEAD_LEN_MAX,
            head_fields_max: Route::HEAD_FIELDS_MAX,
            request_buffering: true,
            response_buffering: true,
            conditions: Conditions::default(),
            keep: Keep::default(),
            compress: None,
            caching: Caching::default(),
        }
    }
}

/// Which responses of a route are kept for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Those that a cache may store: of a program, all that give a lifetime. `"allowed"`
    #[default]
    Allowed,
    /// Of these, those that are meant for shared caches by their own words: `public`, `s-maxage` or, of an origin,
    /// CDN-Cache-Control. `"shared"`
    Shared,
    /// None. `"never"`
    Never,
}

/// What has to hold of a request, beside its path, for a route to count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Its method is one of these. Empty: any. Key `methods`.
    pub methods: Vec<String>,
    /// It has all of these fields, with this value if there is one. Key `header`.
    pub headers: Vec<(String, Option<String>)>,
    /// It has all of these cookies, with this value if there is one. A name that ends in `*` stands for all names with
    /// the text before it. Key `cookie`.
    pub cookies: Vec<(String, Option<String>)>,
}

/// What answers a route's requests; one of these keys must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTo {
    /// The module of this name. `module = "NAME"`
    Module(String),
    /// Programs in a folder, one program, or those among the site's files, RFC 3875. `cgi = "DIR"`, `cgi = "FILE"`,
    /// `cgi = true`
    Cgi(Cgi),
    /// FastCGI servers. `fastcgi = "ADDRESS"`, `fastcgi = ["ADDRESS", …]`
    FastCgi(FastCgi),
    /// Servers that speak HTTP. `origin = "http://HOST:PORT"`, or the name of an `[[origin]]`
    Origin(Box<Origin>),
    /// Templates with queries among the site's files. `pages = "DATABASE"`, or `pages = true`
    /// where they need none.
    Pages(Pages),
}

/// CGI programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgi {
    /// The folder of the programs: what follows [`Pattern::front`] in the path is a program in it,
    /// and what follows that is PATH_INFO. The front ends in `/`. Or the one program that has all that follows as its
    /// PATH_INFO. `None`: programs lie among the site's files, and the pattern says which files they are.
    pub path: Option<PathBuf>,
    /// Environment variables that programs get besides those of RFC 3875 §4.1; none of those, and
    /// no `HTTP_…`. `[site.route.env]`
    pub env: Vec<(String, String)>,
    /// Bytes of address space for a program and each of its children, 1 MiB to 1 TiB; 0 = no limit.
    /// Default 1 GiB. Key `memory`.
    pub memory_len_max: u64,
    /// Seconds of processor time for a program and each of its children, 1 to 86 400. Default 30.
    /// Key `cpu`, a duration, rounded up.
    pub cpu_s_max: u64,
    /// Processes and threads that the programs' user may have, all together, before a program can't start another, at most
    /// 65 536; 0 = no limit. Nothing is refused to root. Default 4096. Key `processes`.
    pub processes_max: u64,
    /// As whom programs run. Default `nobody` where the server is root, else the server's user.
    pub user: Option<String>,
}

impl Cgi {
    /// Programs there, with every default.
    pub fn new(path: Option<PathBuf>) -> Cgi {
        Cgi {
            path,
            env: Vec::new(),
            memory_len_max: 1 << 30,
            cpu_s_max: 30,
            processes_max: 4096,
            user: None,
        }
    }
}

/// FastCGI servers that can stand for one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCgi {
    /// Where they listen; not empty.
    pub servers: Vec<Upstream>,
    /// Which of them gets a request, by [`Balance::RoundRobin`] or [`Balance::LeastConnections`]. Key `balance`.
    pub balance: Balance,
    /// The script that gets all requests, as an absolute path under the root; empty where the server has no scripts and is
    /// one program: then SCRIPT_NAME is [`Pattern::front`] without its last slash, and PATH_INFO what follows. Default
    /// none: the path itself is the script. Key `script`.
    pub script: Option<String>,
    /// Where the server sees the site's root: scripts need not be here then. Default: at the same place. Key
    /// `script_root`.
    pub script_root: Option<PathBuf>,
    /// The file that a folder's path stands for. Default `index.php`. Key `index`.
    pub index: String,
    /// Connections to each, all workers together, 1 to 4096. Default 32. Key `connections`.
    pub connections_max: usize,
    /// A connection is used for the next request once a response is complete. Default: each request has a new one. Key
    /// `keep_connections`.
    pub keeps_connections: bool,
    /// Parameters besides those of RFC 3875 §4.1, perhaps `DOCUMENT_ROOT` or `SCRIPT_FILENAME` for a
    /// server that sees other paths. `[site.route.env]`
    pub env: Vec<(String, String)>,
}

impl FastCgi {
    /// The server at this address, with every default.
    pub fn new(address: Upstream) -> FastCgi {
        FastCgi {
            servers: vec![address],
            balance: Balance::default(),
            script: None,
            script_root: None,
            index: "index.php".to_string(),
            connections_max: 32,
            keeps_connections: false,
            env: Vec::new(),
        }
    }
}

/// Where another server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// `unix:/run/php/php-fpm.sock`
    Unix(PathBuf),
    /// `127.0.0.1:9000`
    Tcp(SocketAddr),
    /// `app.example.com:9000`: all addresses that the name stands for, looked up again and again.
    Name {
        /// The host, in small letters.
        host: String,
        /// The port of all its addresses.
        port: u16,
    },
}

impl fmt::Display for Upstream {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Upstream::Unix(path) => write!(to, "unix:{}", path.display()),
            Upstream::Tcp(address) => write!(to, "{address}"),
            Upstream::Name { host, port } => write!(to, "{host}:{port}"),
        }
    }
}

/// Pages made of templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The database that `query` means.
    pub database: Option<String>,
    /// Bytes that a page may take while it is made: its values, rows and text; a request's body may take an eighth of it.
    /// 1 MiB to 1 TiB. Default 32 MiB. Key `memory`.
    pub memory_len_max: usize,
}

impl Pages {
    /// Default for [`Pages::memory_len_max`].
    pub const MEMORY_LEN_MAX: usize = 32 << 20;

    /// Pages with this database and every default.
    pub fn new(database: Option<String>) -> Pages {
        Pages {
            database,
            memory_len_max: Pages::MEMORY_LEN_MAX,
        }
    }
}
