//! What is asked for: sessions that say, connection by connection and request by request, what goes
//! over the wire and what must come back. They know no sockets and no clock.

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

/// How a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkloadVersion {
    /// HTTP/1.0, one request.
    Http10,
    /// HTTP/1.0 with `Connection: keep-alive`.
    Http10KeepAlive,
    /// HTTP/1.1, persistent unless the last request says otherwise.
    Http11,
    /// HTTP/2. Sessions write the same as for HTTP/1.1.
    Http2,
}

/// What a new connection is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionOpening {
    /// How it speaks.
    pub version: WorkloadVersion,
    /// Requests that it carries before the client closes it; `u64::MAX` for no end. At least 1.
    pub requests: u64,
}

/// What must come back for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedResponse {
    /// The kind of operation: an index into [`TrafficWorkload::classes`].
    pub class: u8,
    /// The answer has no body whatever its fields say (HEAD).
    pub head_only: bool,
    /// The status; `None` for any 2xx or 3xx.
    pub status: Option<u16>,
    /// The length of the body as it is delivered, if known.
    pub len: Option<u64>,
    /// CRC-32 (IEEE) of the body, if known.
    pub crc32: Option<u32>,
}

/// What came back, for sessions whose next request depends on it.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedResponse<'a> {
    /// The status.
    pub status: u16,
    /// The value of its `Set-Cookie` field, the last if there are several.
    pub set_cookie: Option<&'a str>,
    /// Its head and its decoded body, if that was wanted: up to 1 MiB.
    pub text: Option<&'a [u8]>,
}

/// What a session wants to know of answers; looking for it costs time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseInterest {
    /// [`ReceivedResponse::set_cookie`].
    pub cookies: bool,
    /// [`ReceivedResponse::text`].
    pub text: bool,
}

/// A kind of traffic.
pub trait TrafficWorkload: Send + Sync {
    /// Names of the kinds of operations, at most 255.
    fn classes(&self) -> &[String];

    /// The traffic of one simulated client, which holds one connection at a time. Equal numbers and
    /// seeds give equal traffic.
    fn session(&self, number: u64, seed: u64) -> Box<dyn ClientSession>;
}

/// One simulated client.
pub trait ClientSession: Send {
    /// Begins a connection.
    fn open(&mut self) -> ConnectionOpening;

    /// Appends the next request of the connection, whole, to `out`. `last` says that it is the
    /// connection's last, which an HTTP/1.1 request announces by `Connection: close`.
    fn request(&mut self, last: bool, out: &mut Vec<u8>) -> ExpectedResponse;

    /// Takes note of an answer. With HTTP/1 answers come in the order of the requests.
    fn answered(&mut self, answer: &ReceivedResponse<'_>) {
        let _ = answer;
    }

    /// Takes note that the request under way gets no answer, though its connection goes on.
    fn failed(&mut self) {}

    /// What [`ClientSession::answered`] wants to know.
    fn wants(&self) -> ResponseInterest {
        ResponseInterest::default()
    }

    /// Whether the last answer lacked something that this session needs: then it was wrong.
    fn lacks(&self) -> bool {
        false
    }

    /// How long the user thinks after the last answer before the next request, ns.
    fn pause_ns(&self) -> u64 {
        0
    }
}

/// The workloads that [`named`] knows, each with a line on what it is.
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

/// The settings of a workload of [`NAMES`], each with a line on what it does; empty for others.
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

/// The workload of this name. `host` is the value of the `Host` field.
///
/// # Errors
/// An unknown name, setting or value; says what is allowed.
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
        "no workload is called {name:?}; there are {}",
        names.join(", ")
    )
}
