//! The messages between the lab and its keeper process: one line of JSON each.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The first line to the keeper: where and how programs run.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeeperPaths {
    /// The folder, created and removed by the keeper.
    pub folder: PathBuf,
    /// CPUs to use; empty for all.
    pub cpus: Vec<usize>,
    /// Whether a network namespace is requested.
    pub namespace: bool,
}

/// The second line to the keeper: the job.
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
    /// Runs a program to completion; it must succeed. The file, if given, is its standard input.
    Run(Vec<String>, Option<PathBuf>),
    /// Waits until a Unix socket accepts connections.
    Await(PathBuf),
    /// Waits until an address accepts connections.
    AwaitPort(SocketAddr),
    /// Waits until the last started program has printed this text.
    AwaitOutput(String),
}

/// A message of the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub enum KeeperMessage {
    /// The folder exists, and so does the namespace, with this number, if one was requested.
    Placed(Option<u8>),
    /// All steps are done.
    Ready,
    /// A step failed; the keeper is cleaning up.
    Failed(String),
}
