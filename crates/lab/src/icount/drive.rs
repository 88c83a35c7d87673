//! The traffic of a measurement: a closed loop over a few connections, in one thread, so that the
//! order of events depends as little as possible on the machine that it runs on. Knows nothing of guests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::load::{self, Load, Pace, Target};
use crate::workload::urls::{UrlSpec, Urls};
use crate::workload::{PerConnection, Version};

/// How connections are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// HTTP/1.1, all requests on the same connections.
    #[value(name = "ka")]
    KeepAlive,
    /// HTTP/1.0, a connection a request.
    #[value(name = "close")]
    Close,
}

impl Mode {
    /// Its name, as the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::KeepAlive => "ka",
            Mode::Close => "close",
        }
    }

    /// Its name in a table's head.
    pub fn title(self) -> &'static str {
        match self {
            Mode::KeepAlive => "keep-alive",
            Mode::Close => "a connection a request",
        }
    }
}

/// Nothing at all comes for this long: something is broken. Generous, since an emulated guest may
/// need seconds for what a machine does at once.
const PATIENCE: Duration = Duration::from_secs(20);
/// No measurement takes longer.
const LONGEST: Duration = Duration::from_secs(600);

/// Makes `requests` requests for `path`, as many at a time as there are `connections`.
///
/// # Errors
/// When a connection breaks, an answer isn't a 200, or nothing comes any more; says which.
pub fn drive(
    address: SocketAddr,
    path: &str,
    mode: Mode,
    requests: u64,
    connections: u32,
) -> Result<(), String> {
    let (version, per_connection) = match mode {
        Mode::KeepAlive => (Version::Http11, PerConnection::Unlimited),
        Mode::Close => (Version::Http10, PerConnection::Fixed(1)),
    };
    let mut spec = UrlSpec::get(path);
    spec.expected_status = Some(200);
    let host = address.ip().to_string();
    let urls = Urls::new(vec![spec], &host, version, per_connection, false)?;
    let load = Load {
        target: Target {
            addresses: vec![address],
            tls: None,
        },
        workload: Arc::new(urls),
        pace: Pace::Closed,
        connections,
        threads: 1,
        cpus: Vec::new(),
        pipeline: 1,
        line_bits_per_s: None,
        warmup: Duration::ZERO,
        ramp: Duration::ZERO,
        duration: LONGEST,
        requests: Some(requests),
        timeout: PATIENCE,
        seed: 1,
    };
    let outcome = load::run(&load, &mut |_| {}, &AtomicBool::new(false));
    let outcome = outcome.map_err(|error| error.to_string())?;
    if outcome.requests == requests && outcome.errors == 0 {
        return Ok(());
    }
    Err(format!(
        "{} of {requests} requests for {path} done: {:?} {:?}",
        outcome.requests, outcome.errors_by_kind, outcome.statuses
    ))
}
