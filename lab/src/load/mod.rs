//! The load generator: what a run is to do ([`LoadRun`]) and what it found ([`LoadResult`]).
//!
//! Latencies follow wrk2: in an open loop they count from when the request should have been sent.
//! Response, transfer and connection times follow httperf and paper `003`; docs/lab.md defines each.

mod answers;
pub mod cli;
mod client;
mod expect;
pub mod outcome;
mod plot;
mod print;
mod response;
mod runner;
mod said;
mod schedule;
mod several;
mod tally;
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

/// Who is asked.
#[derive(Clone, Debug)]
pub struct LoadTarget {
    /// Where to connect to; connections take these in turn.
    pub addresses: Vec<SocketAddr>,
    /// The name that a certificate must be for; `None` for plain HTTP.
    pub tls: Option<TlsSettings>,
}

/// How to speak TLS.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// The server's name.
    pub name: String,
    /// Take any certificate.
    pub insecure: bool,
    /// A PEM file with authorities to trust instead of the system's.
    pub authorities: Option<PathBuf>,
    /// What the server may choose from.
    pub offered: OfferedTls,
}

/// What a server may choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferedTls {
    /// TLS 1.3 and 1.2, with all that there is for them. Sessions are resumed.
    All,
    /// TLS 1.3 with AES-128-GCM and X25519.
    One {
        /// Whether sessions are resumed.
        resumes: bool,
    },
}

/// When requests are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RequestPace {
    /// Closed loop: each connection asks as soon as it has its answer.
    Closed,
    /// Open loop: so many requests a second over all connections, due at fixed times whatever comes
    /// back.
    Requests(f64),
    /// Open loop: so many new connections a second, as httperf and http_load do; `connections` is
    /// the most that are open at a time.
    Connections(f64),
}

/// One run.
#[derive(Clone)]
pub struct LoadRun {
    /// Who is asked.
    pub target: LoadTarget,
    /// What for.
    pub workload: Arc<dyn TrafficWorkload>,
    /// When.
    pub pace: RequestPace,
    /// Simulated clients, each with one connection at a time.
    pub connections: u32,
    /// Threads; clients are divided among them.
    pub threads: u32,
    /// CPUs to pin the threads to, in turn; empty for none.
    pub cpus: Vec<usize>,
    /// Requests that may be under way on one connection.
    pub pipeline: u32,
    /// How fast a client receives (and sends its next request only when what came would have taken
    /// as long): bits a second; `None` for no limit.
    pub line_bits_per_s: Option<u64>,
    /// Time before counting begins.
    pub warmup: Duration,
    /// Time over which connections, or the rate, grow to their number; part of the warm-up if that
    /// is longer.
    pub ramp: Duration,
    /// How long is counted.
    pub duration: Duration,
    /// Ends after so many counted answers, if that comes earlier.
    pub requests: Option<u64>,
    /// Ends once so many connections were opened and are done, if that comes earlier.
    pub openings: Option<u64>,
    /// How long a connection, or an answer's next bytes, may take.
    pub timeout: Duration,
    /// Draws the traffic.
    pub seed: u64,
    /// What time it is; `None` for this machine's.
    pub time: Option<Arc<dyn ExternalClock>>,
}

/// The traffic that is drawn unless another is asked for.
pub const SEED: u64 = 1;

impl LoadRun {
    /// The plainest: a client without TLS that asks again as soon as it has its answer, for ten seconds.
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

/// A time that is not this machine's. A run in it has one thread.
pub trait ExternalClock: Send + Sync {
    /// Now; it goes on only in [`ExternalClock::pass`].
    fn now_ns(&self) -> u64;

    /// Lets time pass until something can be read from `ready`, or it is `until_ns`. `waits`: somebody owes an answer.
    fn pass(&self, ready: BorrowedFd<'_>, until_ns: u64, waits: bool);
}

/// What can be said of a run while it goes on: once a second or so.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadSnapshot {
    /// Since counting began; 0 in the warm-up.
    pub elapsed_s: f64,
    /// How long counting will last.
    pub duration_s: f64,
    /// In the warm-up still.
    pub warming: bool,
    /// Answers a second since the last snapshot.
    pub requests_per_s: f64,
    /// Body and head bytes a second since the last snapshot.
    pub bytes_per_s: f64,
    /// Latencies so far.
    pub p50_us: u64,
    /// Latencies so far.
    pub p99_us: u64,
    /// Errors so far.
    pub errors: u64,
}

/// Why a run could not be made at all.
#[derive(Debug)]
pub enum LoadError {
    /// The settings make no sense together; says what to change.
    Settings(String),
    /// This machine lacks something (descriptors, threads); says what would help.
    Machine(String),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadError::Settings(text) | LoadError::Machine(text) => to.write_str(text),
        }
    }
}

impl std::error::Error for LoadError {}

pub use runner::run;
pub use said::{duration, rate};
pub use tally::ErrorKind;
