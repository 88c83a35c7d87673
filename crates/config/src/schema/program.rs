//! Modules and databases, which routes refer to by name, and supervised applications.

use std::path::PathBuf;

use crate::{AllowedDestination, OriginUrl};

/// A module: code that answers requests. `[[module]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleConfig {
    /// Its unique name in routes: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Its code.
    pub code: ModuleCode,
    /// Settings that it receives at start. `[module.settings]`
    pub settings: Vec<(String, String)>,
    /// Servers that it may request by `http://` URLs, `["HOST:PORT", …]`. Default none: only paths
    /// of the site. Key `fetch`.
    pub fetch: Vec<AllowedDestination>,
    /// Whether a library runs in a separate process. Default false. Key `separate`.
    pub separate: bool,
    /// WebAssembly: bytes of memory for an instance, 64 KiB to 4 GiB. Default 16 MiB. Key `memory`.
    pub memory_len_max: u64,
    /// WebAssembly: how long an instance may compute without a pause, in milliseconds, 1 ms to 24
    /// hours. Default 1 000. Key `compute`.
    pub compute_ms_max: u64,
    /// WebAssembly: instances are reused for later requests and keep their state.
    /// Default false: each request has a new one. Key `keep`.
    pub keep: bool,
}

impl ModuleConfig {
    /// A module with every default.
    pub fn new(name: String, code: ModuleCode) -> ModuleConfig {
        ModuleConfig {
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

/// The kind of a module; exactly one of these keys must be present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleCode {
    /// A crate that is linked into the server. `linked = "NAME"`
    Linked(String),
    /// A shared library. `library = "FILE.so"`
    Library(PathBuf),
    /// A WebAssembly module. `wasm = "FILE.wasm"`
    Wasm(PathBuf),
}

/// A database. `[[database]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseConfig {
    /// Its unique name in routes and pages; the same form as a module's.
    pub name: String,
    /// `sqlite:FILE`, `mysql://USER:PASSWORD@HOST/NAME` (or `mariadb:`) or `postgres://…` (or
    /// `postgresql:`). `${NAME}` stands for an environment variable, which is substituted on connecting. A relative
    /// `FILE` is already resolved against the folder of the configuration, unless the file or the whole URL begins
    /// with a variable.
    pub url: String,
    /// Connections, 1 to 1024. Default 8. Key `connections`.
    pub connections_max: u32,
    /// Timeout of a connection, and of a query, in milliseconds, 1 ms to 1 hour. Default 5 000.
    /// Key `timeout`.
    pub timeout_ms: u64,
    /// The maximum of rows in a query's result, 1 to 1 000 000. Default 10 000. Key `rows`.
    pub rows_max: usize,
}

impl DatabaseConfig {
    /// A database with every default.
    pub fn new(name: String, url: String) -> DatabaseConfig {
        DatabaseConfig {
            name,
            url,
            connections_max: 8,
            timeout_ms: 5000,
            rows_max: 10_000,
        }
    }
}

/// A program that the server starts, supervises and stops. `[[application]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationConfig {
    /// Its unique name in the log: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The program and its arguments; never empty.
    pub command: Vec<String>,
    /// Its working directory. Default: the server's.
    pub folder: Option<PathBuf>,
    /// Environment variables in addition to the server's. `[application.env]`
    pub env: Vec<(String, String)>,
    /// Its address: the server starts to listen once connections are accepted there. Key `ready`.
    pub ready: Option<OriginUrl>,
    /// How long the server waits for `ready` at its start, in milliseconds. Default 30 000. Key `start_timeout`.
    pub start_timeout_ms: u64,
    /// Time to end after the stop signal, in milliseconds; then it is killed. Default 10 000. Key `stop_timeout`.
    pub stop_timeout_ms: u64,
}

impl ApplicationConfig {
    /// An application with every default.
    pub fn new(name: String, command: Vec<String>) -> ApplicationConfig {
        ApplicationConfig {
            name,
            command,
            folder: None,
            env: Vec::new(),
            ready: None,
            start_timeout_ms: 30_000,
            stop_timeout_ms: 10_000,
        }
    }
}
