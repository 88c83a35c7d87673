//! The process: workers, cache, user, and what of it is below the socket.

use std::path::PathBuf;

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
    /// Somebody chose `cache_len_max`. Else a server takes less on a machine with little memory.
    pub is_cache_chosen: bool,
    /// The largest stored response in bytes, at most a quarter of the cache. Default 1 MiB, or a
    /// quarter of the cache where that is less. Key `cache_object`.
    pub cache_object_len_max: u64,
    /// Variants of one response by `Vary` that memory keeps, 1 to 1024. Default 64. Key `cache_variants`.
    pub cache_variants_max: usize,
    /// The folder for stored responses of origins, those that memory has no room for and copies of the others; None = none
    /// are stored on a disk. Key `disk_cache`.
    pub disk_cache: Option<PathBuf>,
    /// Bytes that it may take. 64 MiB to 1 PiB. Default 10 GiB. Key `disk_cache_max`.
    pub disk_cache_len_max: u64,
    /// The file for the keys of tickets, which resume sessions of TLS; None = they end with the process. Key `ticket_keys`.
    pub ticket_keys: Option<PathBuf>,
    /// Whether the kernel seals long files over TLS 1.3, where it can. Default false.
    pub kernel_tls: bool,
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
    /// A smaller disk cache would hold too few large responses, in bytes.
    pub const DISK_CACHE_LEN_MIN: u64 = 64 << 20;

    /// Takes a cache of this length, and responses as large as is usual for it.
    pub fn choose_cache(&mut self, len_max: u64) {
        self.cache_len_max = len_max;
        self.cache_object_len_max = Server::cache_object_default(len_max);
        self.is_cache_chosen = true;
    }

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
            is_cache_chosen: false,
            cache_object_len_max: Server::cache_object_default(cache_len_max),
            cache_variants_max: 64,
            disk_cache: None,
            ticket_keys: None,
            kernel_tls: false,
            disk_cache_len_max: 10 << 30,
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
