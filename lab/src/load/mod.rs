//! The load generator: the settings of a run ([`LoadRun`]) and its figures ([`LoadResult`]).
//!
//! Latencies follow wrk2: in an open loop they count from the time at which the request was due, which avoids
//! coordinated omission. Response, transfer and connection times follow httperf and paper `003`; lab/README.md defines
//! each.

mod answers;
pub mod cli;
mod client;
mod datagrams;
mod expect;
mod failures;
mod h3_frames;
pub mod outcome;
mod plot;
mod print;
mod quic;
mod response;
mod runner;
mod said;
mod schedule;
mod several;
mod tally;
mod three;
mod tls;
mod traffic;
mod transport;
mod two;
mod url;
mod worker;

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use outcome::LoadResult;

use crate::workload::TrafficWorkload;

/// The server under load.
#[derive(Clone, Debug)]
pub struct LoadTarget {
    /// Addresses to connect to; connections use them in turn.
    pub addresses: Vec<SocketAddr>,
    /// TLS settings; `None` for plain HTTP.
    pub tls: Option<TlsSettings>,
}

/// How TLS is used.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// The server's name, for SNI and the certificate check.
    pub name: String,
    /// Accept any certificate.
    pub insecure: bool,
    /// A PEM file with authorities to trust instead of the system's.
    pub authorities: Option<PathBuf>,
    /// The versions and algorithms that are offered.
    pub offered: OfferedTls,
}

/// The TLS versions and algorithms that are offered to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferedTls {
    /// TLS 1.3 and 1.2 with all supported algorithms; sessions are resumed.
    All,
    /// Only TLS 1.3 with AES-128-GCM and X25519.
    One {
        /// Whether sessions are resumed.
        is_resuming: bool,
    },
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RequestPace {
    /// Closed loop: each connection sends its next request as soon as the response is complete.
    Closed,
    /// Open loop: this many requests a second over all connections, due at fixed times regardless of the responses.
    Requests(f64),
    /// Open loop: this many new connections a second, as in httperf and http_load; at most `connections` are open at a
    /// time.
    Connections(f64),
}

/// The settings of a run.
#[derive(Clone)]
pub struct LoadRun {
    /// The server.
    pub target: LoadTarget,
    /// The traffic.
    pub workload: Arc<dyn TrafficWorkload>,
    /// When requests are sent.
    pub pace: RequestPace,
    /// Simulated clients, each with one connection at a time.
    pub connections: u32,
    /// Number of threads, among which the clients are divided.
    pub threads: u32,
    /// CPUs to pin the threads to, in turn; empty for none.
    pub cpus: Vec<usize>,
    /// Maximum number of outstanding requests on one connection.
    pub pipeline: u32,
    /// Simulated line speed of a client in bits a second; `None` for no limit. A client receives no faster than that,
    /// and sends its next request only when the line would have delivered the response.
    pub line_bits_per_s: Option<u64>,
    /// Time before counting begins.
    pub warmup: Duration,
    /// Time over which the number of connections, or the rate, rises to its full value. The warm-up lasts at least as
    /// long.
    pub ramp: Duration,
    /// Duration of counting.
    pub duration: Duration,
    /// The run ends after this many counted responses, if that is earlier.
    pub requests: Option<u64>,
    /// The run ends when this many connections have been opened and have finished, if that is earlier.
    pub openings: Option<u64>,
    /// Maximum time for a connection to be established, and for the next bytes of a response.
    pub timeout: Duration,
    /// Seed of the traffic.
    pub seed: u64,
    /// The clock of the run; `None` for the machine's own.
    pub time: Option<Arc<dyn ExternalClock>>,
}

/// The default seed of the traffic.
pub const SEED: u64 = 1;

impl LoadRun {
    /// The simplest run: one client without TLS, in a closed loop, for ten seconds.
    pub fn plain(address: SocketAddr, workload: Arc<dyn TrafficWorkload>) -> LoadRun {
        LoadRun {
            target: LoadTarget {
                addresses: vec![address],
                tls: None,
            },
            workload,
            pace: RequestPace::Closed,
            connections: 1,
            threads: 1,
            cpus: Vec::new(),
            pipeline: 1,
            line_bits_per_s: None,
            warmup: Duration::ZERO,
            ramp: Duration::ZERO,
            duration: Duration::from_secs(10),
            requests: None,
            openings: None,
            timeout: Duration::from_secs(10),
            seed: SEED,
            time: None,
        }
    }
}

/// A clock other than the machine's, such as a guest's virtual time. A run that uses it has one thread.
pub trait ExternalClock: Send + Sync {
    /// The current time; it advances only in [`ExternalClock::pass`].
    fn now_ns(&self) -> u64;

    /// Lets time pass until `ready` is readable or `until_ns` is reached. `is_waiting` is true if a response is
    /// outstanding.
    fn pass(&self, ready: BorrowedFd<'_>, until_ns: u64, is_waiting: bool);
}

/// A progress report of a run, about once a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadSnapshot {
    /// Seconds since counting began; 0 during the warm-up.
    pub elapsed_s: f64,
    /// Seconds that counting will last.
    pub duration_s: f64,
    /// True during the warm-up.
    pub warming: bool,
    /// Responses a second since the last snapshot.
    pub requests_per_s: f64,
    /// Body and head bytes a second since the last snapshot.
    pub bytes_per_s: f64,
    /// Median latency so far.
    pub p50_us: u64,
    /// 99th percentile of the latencies so far.
    pub p99_us: u64,
    /// Errors so far.
    pub errors: u64,
}

/// Why a run could not start.
#[derive(Debug)]
pub enum LoadError {
    /// The settings contradict each other; the text names the change that is needed.
    Settings(String),
    /// The machine lacks a resource (descriptors, threads); the text names a remedy.
    Machine(String),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadError::Settings(text) | LoadError::Machine(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for LoadError {}

pub use runner::run;
pub use said::{duration, rate};
pub use tally::ErrorKind;
