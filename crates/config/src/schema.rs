//! The configuration as plain structs, with every default.
//!
//! This file knows nothing of TOML, of files and of sockets: it is what the server is built from,
//! whether the values came from a file, from the command line or from [`Default`].
//! RFC 9110 §4.2 and §7.2 say what a site is to HTTP; `docs/configuration.md` says it to operators.

use crate::{Destination, Pattern};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Everything that a server has to know before it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The process: workers, cache, user. `[server]`
    pub server: Server,
    /// What clients may cost. `[limits]`
    pub limits: Limits,
    /// What waits between clients and programs. `[buffering]`
    pub buffering: Buffering,
    /// Where the logs go. `[log]`
    pub log: Log,
    /// Modules that routes name. `[[module]]`
    pub modules: Vec<Module>,
    /// Databases that routes name. `[[database]]`
    pub databases: Vec<Database>,
    /// The sites, in the order of the file. `[[site]]`; a parsed file has at least one.
    pub sites: Vec<Site>,
}

/// What concerns the process as a whole. `[server]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Event loops; 0 = one for each CPU that the process may use. Range 0 to 1024. Default 0.
    pub workers: usize,
    /// Each worker is pinned to one CPU. Default false.
    pub affinity: bool,
    /// How many connections a worker accepts at one wake-up. Default [`Accept::UpTo`] 32.
    pub accept: Accept,
    /// The user to become when started as root. Whether it exists is found out by the server.
    pub user: Option<String>,
    /// The group to become when started as root; None = the user's own group.
    pub group: Option<String>,
    /// Bytes for stored responses; 0 = none are stored. 64 KiB to 1 TiB. Default 256 MiB. Key `cache`.
    ///
    /// Memory: this many bytes in all, taken page by page as they are used.
    pub cache_len_max: u64,
    /// The largest stored response in bytes, at most a quarter of the cache. Default 1 MiB, or a
    /// quarter of the cache where that is less. Key `cache_object`.
    pub cache_object_len_max: u64,
    /// Threads that open and read files, and compress. 1 to 256. Default 4.
    pub helpers: usize,
    /// How long the requests under way may take to end after SIGTERM, in milliseconds.
    /// 0 to 1 hour. Default 30 000. Key `drain_timeout`.
    pub drain_timeout_ms: u64,
    /// The admin socket; None = the server chooses the path.
    pub admin: Option<PathBuf>,
    /// Whether hot small responses are answered below the server. Default [`Softirq::Off`].
    pub softirq: Softirq,
    /// File descriptors to ask the system for, 64 to 1 048 576; 0 = as many as the hard limit
    /// allows, at most 1 048 576. Default 0.
    pub fd_limit: u64,
}

/// Where the soft-interrupt level is wanted in front of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Softirq {
    /// Nowhere.
    #[default]
    Off,
    /// On all Ethernet interfaces that are up, if this machine can do it.
    Auto,
    /// On this interface, or the server does not start.
    Interface(String),
}

impl Server {
    /// The largest stored response when none is named: 1 MiB, or a quarter of a smaller cache.
    pub fn cache_object_default(cache_len_max: u64) -> u64 {
        (1 << 20).min(cache_len_max / 4)
    }
}

impl Default for Server {
    fn default() -> Server {
        let cache_len_max = 256 << 20;
        Server {
            workers: 0,
            affinity: false,
            accept: Accept::default(),
            user: None,
            group: None,
            cache_len_max,
            cache_object_len_max: Server::cache_object_default(cache_len_max),
            helpers: 4,
            drain_timeout_ms: 30_000,
            admin: None,
            softirq: Softirq::Off,
            fd_limit: 0,
        }
    }
}

/// How many connections are accepted when a listener is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// One, then the connections at hand are served. `"one"`
    One,
    /// All that wait. `"all"`
    All,
    /// All that wait, but at most this many, 1 to 65 536. A number.
    UpTo(u32),
}

impl Default for Accept {
    fn default() -> Accept {
        Accept::UpTo(32)
    }
}

/// What clients may cost, each and all together. `[limits]`
///
/// Every wait is bounded: timeouts are 1 ms to 24 hours, there is no "for ever".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the first byte of a request to the end of its head, milliseconds. Default 15 000.
    pub header_timeout_ms: u64,
    /// Between two reads of a request body, milliseconds. Default 30 000.
    pub body_timeout_ms: u64,
    /// A connection without a request under way, milliseconds. Default 60 000.
    pub idle_timeout_ms: u64,
    /// Between two writes of a response that took bytes, milliseconds. Default 30 000.
    pub send_timeout_ms: u64,
    /// The least bytes a second, in either direction while something is under way; 0 = no such
    /// rule. At most 1 GiB. Default 128.
    pub rate_min: u64,
    /// How long a client may stay below `rate_min`, milliseconds. 0 to 1 hour. Default 10 000.
    pub rate_grace_ms: u64,
    /// Connections at one time in all, 1 to 1 048 576. Default 65 536.
    ///
    /// Memory, worst case: 80 KiB for each that pipelines requests and does not read the answers,
    /// `head_len_max` for each in the middle of a head, about 100 bytes for an idle one.
    pub connections_max: usize,
    /// Connections at one time from one address, 1 to 1 048 576. Default 16 384.
    pub connections_per_address_max: usize,
    /// Requests on one connection before it is closed; 0 = no limit. Default 0.
    pub requests_per_connection_max: u64,
    /// Bytes of a request head (request line and fields), 512 to 1 MiB. Default 16 KiB.
    pub head_len_max: usize,
    /// Bytes of a request target, 64 to `head_len_max`. Default 8 KiB, or `head_len_max` where
    /// that is less.
    pub target_len_max: usize,
    /// Field lines of a request, 8 to 4096. Default 100.
    pub fields_max: usize,
    /// Bytes of a request body, 0 to 1 TiB. Default 1 MiB. A site of files reads and drops
    /// bodies, so this bounds work, not memory.
    pub body_len_max: u64,
}

impl Limits {
    /// The longest request target when none is named: 8 KiB, or the whole of a smaller head.
    pub fn target_len_default(head_len_max: usize) -> usize {
        head_len_max.min(8 << 10)
    }
}

impl Default for Limits {
    fn default() -> Limits {
        let head_len_max = 16 << 10;
        Limits {
            header_timeout_ms: 15_000,
            body_timeout_ms: 30_000,
            idle_timeout_ms: 60_000,
            send_timeout_ms: 30_000,
            rate_min: 128,
            rate_grace_ms: 10_000,
            connections_max: 65_536,
            connections_per_address_max: 16_384,
            requests_per_connection_max: 0,
            head_len_max,
            target_len_max: Limits::target_len_default(head_len_max),
            fields_max: 100,
            body_len_max: 1 << 20,
        }
    }
}

/// What waits in memory and in files between clients and programs, for routes that buffer.
/// `[buffering]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffering {
    /// The folder of the files, which have no names. Default None: `/var/tmp`, or `/tmp` where no
    /// files can be made there. Key `temp_path`.
    pub temp_path: Option<PathBuf>,
    /// Bytes of a request body that wait in memory; more goes to a file. 4 KiB to 16 MiB. Default
    /// 16 KiB. Key `request_buffer`.
    pub request_buffer_len: u64,
    /// Bytes of a response that wait in memory for a slow client; more goes to a file. 4 KiB to 16 MiB.
    /// Default 64 KiB. Key `response_buffer`.
    pub response_buffer_len: u64,
    /// Bytes of the file of one response, 64 KiB to 1 TiB; then its program waits for the client. 0 =
    /// responses have no files. Default 1 GiB. Key `temp_file_max`.
    pub temp_file_len_max: u64,
    /// Bytes of all files at a time, 64 KiB to 1 TiB; 0 = there are none. Default 4 GiB. Key
    /// `temp_total_max`.
    pub temp_total_len_max: u64,
}

impl Default for Buffering {
    fn default() -> Buffering {
        Buffering {
            temp_path: None,
            request_buffer_len: 16 << 10,
            response_buffer_len: 64 << 10,
            temp_file_len_max: 1 << 30,
            temp_total_len_max: 4 << 30,
        }
    }
}

/// Where the logs go. `[log]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The access log; None = off, the default.
    pub access: Option<AccessLog>,
    /// The error log. Default [`LogTarget::Stderr`].
    pub error: LogTarget,
    /// The least grave line that is written to the error log. Default [`Level::Info`].
    pub level: Level,
}

impl Default for Log {
    fn default() -> Log {
        Log {
            access: None,
            error: LogTarget::Stderr,
            level: Level::Info,
        }
    }
}

/// An access log that is switched on. Keys `log.access` and `log.format`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where the lines go.
    pub path: LogTarget,
    /// What the lines look like. Default [`Format::Combined`].
    pub format: Format,
}

/// Where log lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// `"stdout"`
    Stdout,
    /// `"stderr"`
    Stderr,
    /// Appended to this file. Any other text.
    File(PathBuf),
}

/// The form of the access log's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The combined form that Apache made common. `"combined"`
    #[default]
    Combined,
    /// One JSON object a line. `"json"`
    Json,
}

/// How grave a line of the error log is, the gravest first (so `line <= level` is written).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something is lost or refused by a fault of the server or its machine. `"error"`
    Error,
    /// Something is near a limit or not as configured. `"warn"`
    Warn,
    /// Start, stop, reload. `"info"`
    #[default]
    Info,
    /// What helps to find a fault. `"debug"`
    Debug,
}

/// One site: names, listeners, and how its files are answered. `[[site]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The host names it answers to; never empty. Default: [`Name::Default`] alone.
    pub names: Vec<Name>,
    /// The addresses it listens at; never empty, no address twice. Default 127.0.0.1:8080.
    ///
    /// An IPv6 wildcard address (`[::]`, in the file also `*:PORT`) stands for IPv4 as well.
    pub listen: Vec<SocketAddr>,
    /// The folder of its files. No default.
    pub root: Root,
    /// File names that are tried, in this order, for a path that is a folder; may be empty.
    /// Default `index.html`.
    pub index: Vec<String>,
    /// A folder without an index file is answered with a list of its files. Default false.
    pub listing: bool,
    /// Names that begin with a dot are served. Default false: they are 404, except `.well-known`.
    pub hidden: bool,
    /// Which symbolic links are followed. Default [`Symlinks::Beneath`].
    pub symlinks: Symlinks,
    /// Compression, prepared or on the fly. `[site.compress]`
    pub compress: Compress,
    /// Media types by file name extension (lower case, no dot), before the built-in table.
    /// `[site.types]`
    pub types: Vec<(String, String)>,
    /// Pages for statuses 400 to 599, as absolute paths under the root. `[site.error_pages]`
    pub error_pages: BTreeMap<u16, String>,
    /// Values of `Cache-Control`; the first pattern that matches counts. `[[site.cache_control]]`
    pub cache_control: Vec<PatternRule>,
    /// Redirects, tried in this order before any file. `[[site.redirect]]`
    pub redirects: Vec<Redirect>,
    /// Fields to set and to remove; all rules that match are applied in order. `[[site.header]]`
    pub headers: Vec<HeaderRule>,
    /// Paths that are not files but are answered by a program; the first that matches counts.
    /// `[[site.route]]`
    pub routes: Vec<Route>,
}

/// A site for one folder with every default: what `lowroad serve DIR` serves.
pub fn site_for_folder(root: PathBuf) -> Site {
    Site {
        names: vec![Name::Default],
        listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))],
        root: Root::Folder(root),
        index: vec!["index.html".to_string()],
        listing: false,
        hidden: false,
        symlinks: Symlinks::Beneath,
        compress: Compress::default(),
        types: Vec::new(),
        error_pages: BTreeMap::new(),
        cache_control: Vec::new(),
        redirects: Vec::new(),
        headers: Vec::new(),
        routes: Vec::new(),
    }
}

/// One of the names of a site: lower case, no trailing dot, A-labels as they came.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// This host: `example.com`, or an address as it stands in `Host`: `192.0.2.1`, `[2001:db8::1]`.
    Exact(String),
    /// Every host that ends in a dot and this text: `*.example.com` is held as `example.com`, which
    /// `a.example.com` and `a.b.example.com` match and `example.com` does not.
    Wildcard(String),
    /// Whatever no other site of the listener names. `"_"`, or no names at all.
    Default,
}

/// Where a site's files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// One folder for every host.
    Folder(PathBuf),
    /// A folder for each host: `/srv/{host}/htdocs` is prefix `/srv` and suffix `htdocs`.
    PerHost {
        /// The folder that has one folder for each host.
        prefix: PathBuf,
        /// The path from a host's folder to its files, relative; may be empty.
        suffix: String,
    },
}

/// Which symbolic links are followed below the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symlinks {
    /// Those that stay beneath the root. `"beneath"`
    #[default]
    Beneath,
    /// None at all. `"none"`
    None,
    /// All, out of the root too. `"follow"`
    Follow,
}

/// Compression of responses. `[site.compress]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compress {
    /// Text is compressed where no prepared sibling is found. Default true.
    pub enabled: bool,
    /// Shorter files, in bytes, are sent as they are. 0 to 1 GiB. Default 256.
    pub len_min: u64,
    /// The codings, the most liked first, none twice; not empty. Default br, zstd, gzip.
    pub encodings: Vec<Encoding>,
    /// Siblings with `.br`, `.zst` and `.gz` are sent to who accepts them. Default true.
    pub precompressed: bool,
}

impl Default for Compress {
    fn default() -> Compress {
        Compress {
            enabled: true,
            len_min: 256,
            encodings: vec![Encoding::Br, Encoding::Zstd, Encoding::Gzip],
            precompressed: true,
        }
    }
}

/// A content coding (RFC 9110 §8.4.1) that the server can produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Brotli, RFC 7932. `"br"`
    Br,
    /// Zstandard, RFC 8878. `"zstd"`
    Zstd,
    /// Gzip, RFC 1952. `"gzip"`
    Gzip,
}

/// A field value for the paths that a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternRule {
    /// Which paths.
    pub pattern: Pattern,
    /// The value: visible ASCII, spaces and tabs between.
    pub value: String,
}

/// A redirect. Where it leads is told by [`Redirect::location`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Which paths.
    pub from: Pattern,
    /// An absolute path or an `http`/`https` URL, percent-encoded; `$1` in its path or query stands
    /// for what the wildcard at the end of `from` matched.
    pub to: String,
    /// 301, 302, 303, 307 or 308. Default 301.
    pub status: u16,
}

/// Fields to add to and to take from the responses for the paths that a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    /// Which paths. Default: all.
    pub pattern: Pattern,
    /// Names as written (tokens) and values, each set in place of any field of that name.
    pub set: Vec<(String, String)>,
    /// Names, in lower case, of fields to take away.
    pub remove: Vec<String>,
}

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
    /// The program gets a request once all of its body is there. Default true. Not for pages, which
    /// always do. Key `request_buffering`.
    pub request_buffering: bool,
    /// What a slow client has not taken of a response waits, so that the program need not. Default
    /// true. Not for pages, whose responses are made whole. Key `response_buffering`.
    pub response_buffering: bool,
}

impl Route {
    /// The default of `timeout_ms`.
    pub const TIMEOUT_MS: u64 = 30_000;
    /// The default of `concurrency_max`.
    pub const CONCURRENCY_MAX: usize = 256;

    /// A route with every default.
    pub fn new(pattern: Pattern, to: RouteTo) -> Route {
        Route {
            pattern,
            missing: false,
            to,
            timeout_ms: Route::TIMEOUT_MS,
            concurrency_max: Route::CONCURRENCY_MAX,
            request_buffering: true,
            response_buffering: true,
        }
    }
}

/// What answers a route's requests; one of these keys must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTo {
    /// The module of this name. `module = "NAME"`
    Module(String),
    /// Programs in a folder, RFC 3875. `cgi = "DIR"`
    Cgi(Cgi),
    /// A FastCGI server. `fastcgi = "ADDRESS"`
    FastCgi(FastCgi),
    /// Templates with queries among the site's files. `pages = "DATABASE"`, or `pages = true`
    /// where they need none.
    Pages(Pages),
}

/// CGI programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgi {
    /// The folder of the programs: what follows [`Pattern::front`] in the path is a program in it,
    /// and what follows that is PATH_INFO. The front ends in `/`.
    pub folder: PathBuf,
    /// Environment variables that programs get besides those of RFC 3875 §4.1; none of those, and
    /// no `HTTP_…`. `[site.route.env]`
    pub env: Vec<(String, String)>,
    /// Bytes of address space for a program and each of its children, 1 MiB to 1 TiB; 0 = no limit.
    /// Default 1 GiB. Key `memory`.
    pub memory_len_max: u64,
    /// Seconds of processor time for a program and each of its children, 1 to 86 400. Default 30.
    /// Key `cpu`, a duration, rounded up.
    pub cpu_s_max: u64,
    /// As whom programs run. Default `nobody` where the server is root, else the server's user.
    pub user: Option<String>,
}

impl Cgi {
    /// Programs in this folder, with every default.
    pub fn new(folder: PathBuf) -> Cgi {
        Cgi {
            folder,
            env: Vec::new(),
            memory_len_max: 1 << 30,
            cpu_s_max: 30,
            user: None,
        }
    }
}

/// A FastCGI server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCgi {
    /// Where it listens.
    pub address: Upstream,
    /// The script that gets all requests, as an absolute path under the root. Default none: the
    /// path itself is the script. Key `script`.
    pub script: Option<String>,
    /// The file that a folder's path stands for. Default `index.php`. Key `index`.
    pub index: String,
    /// Connections to it, all workers together, 1 to 4096. Default 32. Key `connections`.
    pub connections_max: usize,
    /// Parameters besides those of RFC 3875 §4.1, perhaps `DOCUMENT_ROOT` or `SCRIPT_FILENAME` for a
    /// server that sees other paths. `[site.route.env]`
    pub env: Vec<(String, String)>,
}

impl FastCgi {
    /// The server at this address, with every default.
    pub fn new(address: Upstream) -> FastCgi {
        FastCgi {
            address,
            script: None,
            index: "index.php".to_string(),
            connections_max: 32,
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
}

/// Pages made of templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The database that `query` means.
    pub database: Option<String>,
    /// Bytes that a page may take while it is made: its values, rows and text; 1 MiB to 1 TiB. Default
    /// 32 MiB. Key `memory`.
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

/// Code that answers requests. `[[module]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// How routes call it: 1 to 64 letters, digits, `-`, `_` and `.`; no other module has it.
    pub name: String,
    /// What it is.
    pub code: ModuleCode,
    /// What it is told at its start. `[module.settings]`
    pub settings: Vec<(String, String)>,
    /// Servers that its fetches may ask by `http://` URLs, `["HOST:PORT", …]`. Default none: only paths
    /// of the site. Key `fetch`.
    pub fetch: Vec<Destination>,
    /// A library runs in a process of its own. Default false. Key `separate`.
    pub separate: bool,
    /// WebAssembly: bytes of memory for an instance, 64 KiB to 4 GiB. Default 16 MiB. Key `memory`.
    pub memory_len_max: u64,
    /// WebAssembly: how long an instance may compute without a pause, in milliseconds, 1 ms to 24
    /// hours. Default 1 000. Key `compute`.
    pub compute_ms_max: u64,
    /// WebAssembly: instances are used for one request after the other, and keep what they know.
    /// Default false: each request has a new one. Key `keep`.
    pub keep: bool,
}

impl Module {
    /// A module with every default.
    pub fn new(name: String, code: ModuleCode) -> Module {
        Module {
            name,
            code,
            settings: Vec::new(),
            fetch: Vec::new(),
            separate: false,
            memory_len_max: 16 << 20,
            compute_ms_max: 1000,
            keep: false,
        }
    }
}

/// What a module is; one of these keys must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleCode {
    /// A crate that was linked in. `linked = "NAME"`
    Linked(String),
    /// A shared library. `library = "FILE.so"`
    Library(PathBuf),
    /// A WebAssembly module. `wasm = "FILE.wasm"`
    Wasm(PathBuf),
}

/// A database. `[[database]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// How routes and pages call it: as with modules.
    pub name: String,
    /// `sqlite:FILE`, `mysql://USER:PASSWORD@HOST/NAME` (or `mariadb:`) or `postgres://…` (or
    /// `postgresql:`); where it says
    /// `${NAME}`, that environment variable, for whoever connects to put in. A relative `FILE` has got
    /// the folder of the configuration in front, unless a variable begins it or all of the URL.
    pub url: String,
    /// Connections, 1 to 1024. Default 8. Key `connections`.
    pub connections_max: u32,
    /// For a connection, and for a query, in milliseconds, 1 ms to 1 hour. Default 5 000.
    /// Key `timeout`.
    pub timeout_ms: u64,
    /// Rows that a query may give, 1 to 1 000 000. Default 10 000. Key `rows`.
    pub rows_max: usize,
}

impl Database {
    /// A database with every default.
    pub fn new(name: String, url: String) -> Database {
        Database {
            name,
            url,
            connections_max: 8,
            timeout_ms: 5000,
            rows_max: 10_000,
        }
    }
}
