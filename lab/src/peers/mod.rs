//! The servers that are measured: how each is found, configured, started and, whatever happens, ended.
//!
//! [`table`] lists them, `servers` says for each what files and programs it needs (a `plan`), `life`
//! runs a plan and waits until it answers. The programs are children of a `keeper`, a process of its
//! own that ends them and clears up as soon as the lab is gone, for whatever reason. Nothing here
//! knows what is asked of a server, or how it is measured.

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
    /// In a network namespace of its own, at the other end of a veth pair.
    Namespace,
    /// At this address of this machine, for those who reach it by that: a guest.
    At(SocketAddr),
}

/// How a peer is to run.
#[derive(Clone, Debug, Default)]
pub struct PeerOptions {
    /// The folder that it serves.
    pub root: PathBuf,
    /// Its processes or threads that answer; at least 1.
    pub workers: u32,
    /// CPUs that it is pinned to; empty for all.
    pub cpus: Vec<usize>,
    /// Where.
    pub place: PeerPlace,
    /// What differs from its tuned default, by name: see [`PeerDescription::settings`].
    pub settings: BTreeMap<String, String>,
}

/// A peer that runs. Dropping it ends it, and with it everything that it started.
pub struct RunningPeer {
    /// Where it answers.
    pub address: SocketAddr,
    /// A Unix socket that it answers on, too: `mariadb` has one.
    pub socket: Option<PathBuf>,
    /// What it says of its version.
    pub version: String,
    /// Its configuration or command line, for the report.
    pub configuration: String,
    life: life::KeeperHandle,
}

impl RunningPeer {
    /// CPU time that its processes have used, in seconds.
    pub fn cpu_s(&self) -> f64 {
        self.life.cpu_s()
    }

    /// What it said at its end, if it ended by itself.
    pub fn ended(&mut self) -> Option<String> {
        self.life.ended()
    }
}

/// Why a peer does not run.
#[derive(Debug)]
pub enum PeerFailure {
    /// Nobody of that name; says which there are.
    Unknown(String),
    /// A level of Lowroad that does not exist yet.
    Absent(String),
    /// Not installed; says what installs it.
    NotInstalled(String),
    /// It was started and ended, or did not answer in time; says what it printed.
    Broken(String),
}

impl std::fmt::Display for PeerFailure {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PeerFailure::Unknown(text)
            | PeerFailure::Absent(text)
            | PeerFailure::NotInstalled(text)
            | PeerFailure::Broken(text) => to.write_str(text),
        }
    }
}

impl std::error::Error for PeerFailure {}

/// How often a free port may be gone when its server asks for it.
const PORT_RACES_MAX: u32 = 3;

/// Starts a peer and waits until it answers.
///
/// # Errors
/// See [`PeerFailure`].
pub fn start(name: &str, options: &PeerOptions) -> Result<RunningPeer, PeerFailure> {
    let peer = table::named(name)?;
    let settings = table::CheckedSettings::of(peer, &options.settings)?;
    servers::check(peer, &settings)?;
    let mut races = 0;
    loop {
        match life::start(peer, options, &settings) {
            Err(PeerFailure::Broken(text)) if lost_its_port(&text) && races < PORT_RACES_MAX => {
                races += 1;
            }
            other => return other,
        }
    }
}

/// Between asking the kernel for a free port and using it, somebody else may take it.
fn lost_its_port(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("in use") || text.contains("cannot bind") || text.contains("could not bind")
}
