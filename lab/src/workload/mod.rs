//! Workloads: sessions define the bytes to send and the expected responses, connection by connection and request by
//! request. They use neither sockets nor clocks.

pub mod bare;
pub mod cli;
mod draw;
pub mod files;
mod per_connection;
pub mod script;
mod settings;
pub mod specset;
pub mod specweb96;
pub mod specweb99;
pub mod urls;
pub mod webbench;
pub mod webstone;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use per_connection::PerConnection;

/// The HTTP version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkloadVersion {
    /// HTTP/1.0, one request.
    Http10,
    /// HTTP/1.0 with `Connection: keep-alive`.
    Http10KeepAlive,
    /// HTTP/1.1, persistent unless the last request announces the close.
    Http11,
    /// HTTP/2. Sessions write their requests in HTTP/1.1, which the load generator translates.
    Http2,
    /// HTTP/3, as `Http2`.
    Http3,
}

impl WorkloadVersion {
    /// Whether requests are streams, which the load generator translates from HTTP/1.1.
    pub fn is_multiplexed(self) -> bool {
        matches!(self, WorkloadVersion::Http2 | WorkloadVersion::Http3)
    }
}

/// The properties of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionOpening {
    /// The HTTP version.
    pub version: WorkloadVersion,
    /// Number of requests before the client closes the connection, at least 1; `u64::MAX` for no limit.
    pub requests: u64,
}

/// The expected response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedResponse {
    /// The kind of operation: an index into [`TrafficWorkload::classes`].
    pub class: u8,
    /// Whether the response has no body, regardless of its fields (HEAD).
    pub head_only: bool,
    /// The status; `None` for any 2xx or 3xx.
    pub status: Option<u16>,
    /// The decoded length of the body, if known.
    pub len: Option<u64>,
    /// CRC-32 (IEEE) of the body, if known.
    pub crc32: Option<u32>,
}

/// A received response, for sessions that derive their next request from it.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedResponse<'a> {
    /// The status.
    pub status: u16,
    /// The value of its last `Set-Cookie` field.
    pub set_cookie: Option<&'a str>,
    /// Head and decoded body of the response, up to 1 MiB, if requested.
    pub text: Option<&'a [u8]>,
}

/// The parts of responses that a session needs. Only these are extracted, since that costs time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseInterest {
    /// [`ReceivedResponse::set_cookie`].
    pub cookies: bool,
    /// [`ReceivedResponse::text`].
    pub text: bool,
}

/// A kind of traffic.
pub trait TrafficWorkload: Send + Sync {
    /// Names of the operation classes, at most 255.
    fn classes(&self) -> &[String];

    /// The traffic of one simulated client, which uses one connection at a time. Equal numbers and seeds give equal
    /// traffic.
    fn session(&self, number: u64, seed: u64) -> Box<dyn ClientSession>;
}

/// One simulated client.
pub trait ClientSession: Send {
    /// Starts a connection.
    fn open(&mut self) -> ConnectionOpening;

    /// Appends the next request of the connection to `out`. `last` marks the last request of the connection, which
    /// HTTP/1.1 announces by `Connection: close`.
    fn request(&mut self, last: bool, out: &mut Vec<u8>) -> ExpectedResponse;

    /// Handles a response. With HTTP/1, responses arrive in the order of the requests.
    fn handle_response(&mut self, answer: &ReceivedResponse<'_>) {
        let _ = answer;
    }

    /// Handles the failure of an outstanding request on a connection that continues.
    fn handle_failure(&mut self) {}

    /// The parts of responses that [`ClientSession::handle_response`] needs.
    fn interest(&self) -> ResponseInterest {
        ResponseInterest::default()
    }

    /// Whether the last response lacked a value that the session needs, and so counts as wrong.
    fn is_incomplete(&self) -> bool {
        false
    }

    /// The user's think time between the last response and the next request, in ns.
    fn pause_ns(&self) -> u64 {
        0
    }
}

/// The workloads of [`named`], each with a description.
pub const NAMES: &[(&str, &str)] = &[
    (
        "specweb99",
        "SPECweb99-like: static files, ads, cookies and forms, two kinds of connections",
    ),
    (
        "specweb96",
        "SPECweb96-like: static files in a set that grows with the rate, HTTP/1.0",
    ),
    (
        "webstone",
        "WebStone's list of five files, or one file of a given size, HTTP/1.0",
    ),
    (
        "webbench",
        "WebBench-like static mix of about 6,000 files with 2 % missing ones",
    ),
    (
        "bare",
        "paper 003: one static page and PHP pages with a data base behind them",
    ),
];

/// The settings of a workload of [`NAMES`], each with a description; empty for others.
pub fn settings(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "specweb99" => specweb99::SETTINGS,
        "specweb96" => specweb96::SETTINGS,
        "webstone" => webstone::SETTINGS,
        "webbench" => webbench::SETTINGS,
        "bare" => bare::SETTINGS,
        _ => &[],
    }
}

/// Creates the workload with this name. `host` is the value of the `Host` field.
///
/// # Errors
/// An unknown name, setting or value; the text lists the allowed ones.
pub fn named(
    name: &str,
    settings: &BTreeMap<String, String>,
    host: &str,
) -> Result<Arc<dyn TrafficWorkload>, String> {
    Ok(match name {
        "specweb99" => Arc::new(specweb99::SpecWeb99::new(settings, host)?),
        "specweb96" => Arc::new(specweb96::workload(settings, host)?),
        "webstone" => Arc::new(webstone::workload(settings, host)?),
        "webbench" => Arc::new(webbench::workload(settings, host)?),
        "bare" => Arc::new(bare::workload(settings, host)?),
        _ => return Err(unknown(name)),
    })
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    format!(
        "unknown workload {name:?}; the workloads are {}",
        names.join(", ")
    )
}
