//! The interface of the runner to its environment: file sets, servers and measurements. `real` and `counted` measure,
//! `fake` computes figures; the runner does not distinguish them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::schema::{ExperimentConfig, ServerConfig};
use crate::load::{LoadResult, LoadRun, LoadSnapshot, RequestPace};
use crate::peers::PeerFailure;
use crate::workload::named;

/// Everything that a bench needs for one measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasurementJob {
    /// Experiment, server and point, as one name.
    pub name: String,
    /// The server; its settings are those of this point.
    pub server: ServerConfig,
    /// The workload's name.
    pub workload: String,
    /// The workload's settings at this point.
    pub settings: BTreeMap<String, String>,
    /// The settings without those that depend on a rate. A server that was warmed up with equal settings is warm for
    /// the job.
    pub warm_settings: BTreeMap<String, String>,
    /// The workload's settings for the file set: those of the file, without the sweep.
    pub files_settings: BTreeMap<String, String>,
    /// When requests are sent.
    pub pace: RequestPace,
    /// Simulated clients.
    pub connections: u32,
    /// Threads of the load generator.
    pub threads: u32,
    /// Outstanding requests on a connection.
    pub pipeline: u32,
    /// Line speed of a client.
    pub line_bits_per_s: Option<u64>,
    /// Seconds before counting.
    pub warmup_s: f64,
    /// Seconds of counting.
    pub duration_s: f64,
    /// Maximum time for a connection to be established, and for the next bytes of a response.
    pub timeout_ms: u64,
    /// Minimum number of counted requests, where instructions are counted.
    pub requests: u64,
    /// Minimum number of warm-up requests, if the experiment's file sets it.
    pub warmup_requests: Option<u64>,
    /// The MTU of the network, if not the default; only the network of a guest can have one.
    pub mtu: Option<u32>,
    /// Memory of the guest in MiB, if its site is on a disk.
    pub memory_mib: Option<u32>,
    /// Whether the phases of the database's queries are requested during the measurement.
    pub phases: bool,
    /// Seed of the traffic; equal for all servers of a repeat.
    pub seed: u64,
}

impl MeasurementJob {
    /// The load for the server at this address.
    ///
    /// # Errors
    /// The workload or its settings are unknown.
    pub fn load(&self, address: SocketAddr) -> Result<LoadRun, String> {
        let workload = named(&self.workload, &self.settings, &address.to_string())?;
        Ok(LoadRun {
            pace: self.pace,
            connections: self.connections,
            threads: self.threads,
            pipeline: self.pipeline,
            line_bits_per_s: self.line_bits_per_s,
            warmup: Duration::from_secs_f64(self.warmup_s),
            duration: Duration::from_secs_f64(self.duration_s),
            timeout: Duration::from_millis(self.timeout_ms),
            seed: self.seed,
            ..LoadRun::plain(address, workload)
        })
    }

    /// The dataset of the workload's database pages.
    #[must_use]
    pub fn set(&self) -> &str {
        self.settings.get("set").map_or("small", String::as_str)
    }

    /// The offered requests a second; `None` in a closed loop.
    #[must_use]
    pub fn offered_per_s(&self) -> Option<f64> {
        match self.pace {
            RequestPace::Closed => None,
            RequestPace::Requests(rate) | RequestPace::Connections(rate) => Some(rate),
        }
    }
}

/// The result of one measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasurementResult {
    /// The load generator's figures.
    pub outcome: LoadResult,
    /// The highest sustained rate, if it was searched for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_per_s: Option<f64>,
    /// Instructions of the whole machine for one more request, if they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<f64>,
    /// The slopes (instructions a request) of all pairs of runs; `instructions` is their median.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slopes: Vec<f64>,
    /// Additional measures: names end in `_us` or `_share`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extras: BTreeMap<String, f64>,
}

/// A running server. Dropping it ends the server.
pub trait PeerServer {
    /// The server's version.
    fn version(&self) -> &str;

    /// The server's configuration.
    fn configuration(&self) -> &str;

    /// Executes a job.
    ///
    /// # Errors
    /// The job can't start; the text gives the reason. Later failures are counted in the result.
    fn measure(
        &mut self,
        job: &MeasurementJob,
        progress: &mut dyn FnMut(&LoadSnapshot),
        stop: &AtomicBool,
    ) -> Result<MeasurementResult, String>;
}

/// The environment of experiments.
pub trait TestBench {
    /// Creates the served content, until complete or `stop` is set. `progress` receives the completed share.
    ///
    /// # Errors
    /// With a text for the user.
    fn prepare(
        &mut self,
        experiment: &ExperimentConfig,
        progress: &mut dyn FnMut(f64),
        stop: &AtomicBool,
    ) -> Result<(), String>;

    /// Starts a job's server.
    ///
    /// # Errors
    /// The server is unavailable, or does not answer.
    fn start(&mut self, job: &MeasurementJob) -> Result<Box<dyn PeerServer>, PeerFailure>;

    /// Key of the guest that a job needs: consecutive jobs with equal keys share a server.
    fn guest_key(&self, _job: &MeasurementJob) -> Option<String> {
        None
    }

    /// Checks a workload's name and settings.
    ///
    /// # Errors
    /// The text lists the allowed names.
    fn check(&self, experiment: &ExperimentConfig) -> Result<(), String>;

    /// Whether figures are computed instead of measured.
    fn is_simulated(&self) -> bool {
        false
    }
}
