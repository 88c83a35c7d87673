//! The peers: servers that the lab measures. Finds, configures, starts and reliably ends them.
//!
//! [`table`] lists the peers, `servers` creates a `plan` with the files and programs of each, and `life` executes the
//! plan and waits until the server answers. The programs are children of a `keeper`, a separate process that ends them
//! and cleans up when the lab has ended for any reason. Independent of requests and measurements.

mod caches;
pub mod carried;
pub mod cli;
mod dynamic;
pub mod fronts;
pub(crate) mod install;
mod job;
pub mod keeper;
mod life;
mod namespace;
mod php;
mod plan;
pub(crate) mod programs;
mod servers;
pub(crate) mod system;
pub mod table;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

pub use table::{PeerDescription, all};

/// Where a peer runs, and so its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PeerPlace {
    /// On 127.0.0.1.
    #[default]
    Loopback,
    /// In its own network namespace, which a veth pair connects.
    Namespace,
    /// At this address of the host, for clients in a guest.
    At(SocketAddr),
}

/// The parameters with which a peer is started.
#[derive(Clone, Debug, Default)]
pub struct PeerOptions {
    /// The served folder.
    pub root: PathBuf,
    /// The peer's processes or threads; at least 1.
    pub workers: u32,
    /// CPUs to which the peer is pinned; empty for all.
    pub cpus: Vec<usize>,
    /// Where the peer runs.
    pub place: PeerPlace,
    /// Deviations from the peer's tuned defaults, by name: see [`PeerDescription::settings`].
    pub settings: BTreeMap<String, String>,
}

/// A running peer. Dropping it ends the peer and all its processes.
pub struct RunningPeer {
    /// Its address.
    pub address: SocketAddr,
    /// A Unix socket on which the peer answers too, as `mariadb` does.
    pub socket: Option<PathBuf>,
    /// The peer's version.
    pub version: String,
    /// The peer's configuration or command line, for the report.
    pub configuration: String,
    handle: life::KeeperHandle,
}

impl RunningPeer {
    /// CPU time that the peer's processes have used, in seconds.
    pub fn cpu_s(&self) -> f64 {
        self.handle.cpu_s()
    }

    /// The last output, if the peer has ended unexpectedly.
    pub fn ended(&mut self) -> Option<String> {
        self.handle.ended()
    }
}

/// Why a peer does not run.
#[derive(Debug)]
pub enum PeerFailure {
    /// No such peer; the text lists the known ones.
    Unknown(String),
    /// A level of Lowroad that is not implemented yet.
    Absent(String),
    /// Not installed; the text names the package.
    NotInstalled(String),
    /// The peer ended, or did not answer in time; the text includes its output.
    Broken(String),
}

impl std::fmt::Display for PeerFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PeerFailure::Unknown(text)
            | PeerFailure::Absent(text)
            | PeerFailure::NotInstalled(text)
            | PeerFailure::Broken(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for PeerFailure {}

/// Number of attempts to start a peer, if other processes take its port.
const PORT_RACES_MAX: u32 = 3;

/// Starts a peer and waits until it answers.
///
/// # Errors
/// See [`PeerFailure`].
pub fn start(name: &str, options: &PeerOptions) -> Result<RunningPeer, PeerFailure> {
    let peer = table::named(name)?;
    let settings = table::CheckedSettings::new(peer, &options.settings)?;
    servers::check(peer, &settings)?;
    let mut races = 0;
    loop {
        match life::start(peer, options, &settings) {
            Err(PeerFailure::Broken(text)) if is_port_in_use(&text) && races < PORT_RACES_MAX => {
                races += 1;
            }
            other => return other,
        }
    }
}

/// Whether another process took the free port before the server could bind it.
fn is_port_in_use(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("in use") || text.contains("cannot bind") || text.contains("could not bind")
}
