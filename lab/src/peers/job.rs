//! The messages between lab and keeper: one line of JSON each.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// First line to the keeper: the environment.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeeperPaths {
    /// The folder, created and removed by the keeper.
    pub folder: PathBuf,
    /// CPUs to use; empty for all.
    pub cpus: Vec<usize>,
    /// Whether a network namespace is requested.
    pub namespace: bool,
}

/// Second line to the keeper: the job.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct KeeperJob {
    /// Files in the folder: name, text.
    pub files: Vec<(String, String)>,
    /// The steps, in order.
    pub steps: Vec<JobStep>,
}

/// One step of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum JobStep {
    /// Starts a program that keeps running.
    Start(Vec<String>),
    /// Runs a program to its end, which must be successful; its input is the file, if given.
    Run(Vec<String>, Option<PathBuf>),
    /// Waits until a Unix socket accepts connections.
    Await(PathBuf),
    /// Waits until an address accepts connections.
    AwaitPort(SocketAddr),
    /// Waits until the last started program has printed this text.
    AwaitSaid(String),
}

/// A message of the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub enum KeeperMessage {
    /// The folder exists, and the namespace with this number.
    Placed(Option<u8>),
    /// All steps are done.
    Ready,
    /// A step failed; the keeper is cleaning up.
    Failed(String),
}
