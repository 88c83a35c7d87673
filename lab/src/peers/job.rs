//! What the lab and the keeper tell each other: a line of JSON each time.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// First line to the keeper: where everything will be.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeeperPaths {
    /// The folder, made and removed by the keeper.
    pub folder: PathBuf,
    /// CPUs to stay on; empty for all.
    pub cpus: Vec<usize>,
    /// Whether a network namespace is wanted.
    pub namespace: bool,
}

/// Second line to the keeper: what is to run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct KeeperJob {
    /// Files in the folder: name, text.
    pub files: Vec<(String, String)>,
    /// What is done, one after another.
    pub steps: Vec<JobStep>,
}

/// One step on the way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum JobStep {
    /// Starts a program that stays.
    Start(Vec<String>),
    /// Runs a program to its end, which has to be a good one; its input is the file's, if one is
    /// given.
    Run(Vec<String>, Option<PathBuf>),
    /// Waits until somebody answers on a Unix socket.
    Await(PathBuf),
    /// Waits until somebody answers at an address.
    AwaitPort(SocketAddr),
    /// Waits until the program that was started last has said this.
    AwaitSaid(String),
}

/// What the keeper says.
#[derive(Debug, Serialize, Deserialize)]
pub enum KeeperMessage {
    /// The folder is there, and the namespace with this number.
    Placed(Option<u8>),
    /// All steps are done.
    Ready,
    /// Something went wrong; all is being cleared up.
    Failed(String),
}
