//! The measured servers: how each is found, configured, started and reliably ended.
//!
//! [`table`] lists them, `servers` creates a `plan` with the files and programs of each, and `handle` executes a plan
//! and waits until the server answers. The programs are children of a `keeper`, a separate process that ends them and
//! cleans up as soon as the lab is gone, for any reason. Independent of requests and measurements.

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

/// Where a peer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PeerPlace {
    /// On 127.0.0.1.
    #[default]
    Loopback,
    /// In its own network namespace, at the other end of a veth pair.
    Namespace,
    /// At this address of this machine, for clients in a guest.
    At(SocketAddr),
}

/// The settings of a peer's start.
#[derive(Clone, Debug, Default)]
pub struct PeerOptions {
    /// The served folder.
    pub root: PathBuf,
    /// Its processes or threads; at least 1.
    pub workers: u32,
    /// CPUs to which it is pinned; empty for all.
    pub cpus: Vec<usize>,
    /// Where it runs.
    pub place: PeerPlace,
    /// Deviations from its tuned defaults, by name: see [`PeerDescription::settings`].
    pub settings: BTreeMap<String, String>,
}

/// A running peer. Dropping it ends the peer and all its processes.
pub struct RunningPeer {
    /// Its address.
    pub address: SocketAddr,
    /// A Unix socket on which it answers too, as `mariadb` does.
    pub socket: Option<PathBuf>,
    /// Its version.
    pub version: String,
    /// Its configuration or command line, for the report.
    pub configuration: String,
    handle: life::KeeperHandle,
}

impl RunningPeer {
    /// CPU time that its processes have used, in seconds.
    pub fn cpu_s(&self) -> f64 {
        self.handle.cpu_s()
    }

    /// Its last output, if it ended by itself.
    pub fn ended(&mut self) -> Option<String> {
        self.handle.ended()
    }
}

/// Why a peer does not run.
#[derive(Debug)]
pub enum PeerFailure {
    /// No such peer; the text lists the known ones.
    Unknown(String),
    /// A level of Lowroad that does not exist yet.
    Absent(String),
    /// Not installed; the text names the package.
    NotInstalled(String),
    /// It ended, or did not answer in time; the text includes its output.
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

/// Number of starts after which a lost port is an error.
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

/// Whether the port was lost: another process may take a free port before the server binds it.
fn is_port_in_use(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("in use") || text.contains("cannot bind") || text.contains("could not bind")
}
