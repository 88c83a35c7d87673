//! What routes name, modules and databases, and applications beside the server.

use std::path::PathBuf;

use crate::{Destination, OriginUrl};

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

/// A program that the server starts, keeps alive and stops. `[[application]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// What it is called in the log: 1 to 64 letters, digits, `-`, `_` and `.`; no other application has it.
    pub name: String,
    /// The program and its arguments; never empty.
    pub command: Vec<String>,
    /// Where it runs. Default: where the server does.
    pub folder: Option<PathBuf>,
    /// Variables besides those of the server. `[application.env]`
    pub env: Vec<(String, String)>,
    /// Where it listens: the server listens once connections are accepted there. Key `ready`.
    pub ready: Option<OriginUrl>,
    /// How long the server waits for that at its start, in milliseconds. Default 30 000. Key `start_timeout`.
    pub start_timeout_ms: u64,
    /// How long it may take to end, in milliseconds; then it is killed. Default 10 000. Key `stop_timeout`.
    pub stop_timeout_ms: u64,
}

impl Application {
    /// One with every default.
    pub fn new(name: String, command: Vec<String>) -> Application {
        Application {
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
