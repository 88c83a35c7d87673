//! The process: workers, cache, user, and the softirq level.

use std::path::PathBuf;

/// Settings of the process as a whole. `[server]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessConfig {
    /// Workers; 0 = one for each CPU that the process may use. Range 0 to 1024. Default 0.
    pub workers: usize,
    /// Each worker is pinned to one CPU. Default false.
    pub affinity: bool,
    /// Threads that serve requests lose the system calls that they never need. Default true.
    pub hardening: bool,
    /// How many connections a worker accepts at one wake-up. Default `AcceptLimit::UpTo` 32.
    pub accept: AcceptLimit,
    /// The user to change to when started as root. The server checks that it exists, the parser does not.
    pub user: Option<String>,
    /// The group to change to when started as root; None = the user's own group.
    pub group: Option<String>,
    /// Bytes for stored responses; 0 = none are stored. 64 KiB to 1 TiB. Default 256 MiB. Key `cache`.
    ///
    /// Memory: at most this many bytes, allocated page by page on first use.
    pub cache_len_max: u64,
    /// Whether the operator set `cache_len_max`. If not, a server takes less on a machine with little memory.
    pub is_cache_chosen: bool,
    /// The largest stored response in bytes, at most a quarter of the cache. Default 1 MiB, or a
    /// quarter of the cache where that is less. Key `cache_object`.
    pub cache_object_len_max: u64,
    /// Variants of one response by `Vary` that memory keeps, 1 to 1024. Default 64. Key `cache_variants`.
    pub cache_variants_max: usize,
    /// The folder of the disk cache: origin responses that do not fit in memory, and copies of the others; None = no
    /// disk cache. Key `disk_cache`.
    pub disk_cache: Option<PathBuf>,
    /// The size limit of the disk cache in bytes. 64 MiB to 1 PiB. Default 10 GiB. Key `disk_cache_max`.
    pub disk_cache_len_max: u64,
    /// The file of the keys of TLS session tickets; None = the keys end with the process. Key `ticket_keys`. The file of
    /// QUIC's secret is beside it.
    pub ticket_keys: Option<PathBuf>,
    /// Whether the kernel encrypts long files over TLS 1.3, if it can (kernel TLS). Default false.
    pub kernel_tls: bool,
    /// Whether TLS listeners also accept HTTP/3, if UDP allows it ([`Config::has_http3`](crate::Config::has_http3)). Default true.
    pub http3: bool,
    /// Whether HTTP/3 accepts early data (0-RTT) with requests of safe methods. Default false. Key `early_data`.
    pub early_data: bool,
    /// Helper threads, which open and read files, and compress. 1 to 256. Default 4.
    pub helpers: usize,
    /// Graceful shutdown: how long requests in progress may take after SIGTERM, in milliseconds.
    /// 0 to 1 hour. Default 30 000. Key `drain_timeout`.
    pub drain_timeout_ms: u64,
    /// Upgrade: how long the new process may take until it is ready, in milliseconds; 1 second to 1 hour. Default 60 000.
    /// Key `upgrade_timeout`.
    pub upgrade_timeout_ms: u64,
    /// The admin socket; None = the server chooses the path.
    pub admin: Option<PathBuf>,
    /// Whether hot small responses are answered at the softirq level. Default `SoftirqMode::Off`.
    pub softirq: SoftirqMode,
    /// File descriptors to ask the system for, 64 to 1 048 576; 0 = as many as the hard limit
    /// allows, at most 1 048 576. Default 0.
    pub fd_limit: u64,
}

/// The interfaces of the softirq level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SoftirqMode {
    /// None.
    #[default]
    Off,
    /// All Ethernet interfaces that are up, if this machine supports it.
    Auto,
    /// This interface; if that is impossible, the server does not start.
    Interface(String),
}

impl ProcessConfig {
    /// The minimum of the disk cache in bytes; a smaller one would hold too few large responses.
    pub const DISK_CACHE_LEN_MIN: u64 = 64 << 20;

    /// Sets the cache size and the default of the largest stored response for that size.
    pub fn choose_cache(&mut self, len_max: u64) {
        self.cache_len_max = len_max;
        self.cache_object_len_max = ProcessConfig::cache_object_default(len_max);
        self.is_cache_chosen = true;
    }

    /// The default of the largest stored response: 1 MiB, or a quarter of a smaller cache.
    pub fn cache_object_default(cache_len_max: u64) -> u64 {
        (1 << 20).min(cache_len_max / 4)
    }
}

impl Default for ProcessConfig {
    fn default() -> ProcessConfig {
        let cache_len_max = 256 << 20;
        ProcessConfig {
            workers: 0,
            affinity: false,
            hardening: true,
            accept: AcceptLimit::default(),
            user: None,
            group: None,
            cache_len_max,
            is_cache_chosen: false,
            cache_object_len_max: ProcessConfig::cache_object_default(cache_len_max),
            cache_variants_max: 64,
            disk_cache: None,
            ticket_keys: None,
            kernel_tls: false,
            http3: true,
            early_data: false,
            disk_cache_len_max: 10 << 30,
            helpers: 4,
            drain_timeout_ms: 30_000,
            upgrade_timeout_ms: 60_000,
            admin: None,
            softirq: SoftirqMode::Off,
            fd_limit: 0,
        }
    }
}

/// How many connections are accepted when a listener is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptLimit {
    /// One; the accepted connections are served before the next. `"one"`
    One,
    /// All pending ones. `"all"`
    All,
    /// All pending ones, but at most this many, 1 to 65 536. A number.
    UpTo(u32),
}

impl Default for AcceptLimit {
    fn default() -> AcceptLimit {
        AcceptLimit::UpTo(32)
    }
}
