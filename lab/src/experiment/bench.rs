//! What the runner needs of the world: file sets, servers, measurements. `real` does it for real,
//! `fake` computes; the runner can't tell.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::schema::{ExperimentConfig, ServerConfig};
use crate::load::{LoadResult, LoadRun, LoadSnapshot, RequestPace};
use crate::peers::PeerFailure;
use crate::workload::named;

/// One measurement, whole: everything that a bench needs to make it.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasurementJob {
    /// Experiment, server and point, as one name.
    pub name: String,
    /// Who is asked; its settings are those of this point.
    pub server: ServerConfig,
    /// The workload's name.
    pub workload: String,
    /// The workload's settings at this point.
    pub settings: BTreeMap<String, String>,
    /// The same without what follows from a rate: a server that was warmed up for these is warm.
    pub warm_settings: BTreeMap<String, String>,
    /// The workload's settings that the file set is made by: those of the file, without the sweep.
    pub files_settings: BTreeMap<String, String>,
    /// When requests are made.
    pub pace: RequestPace,
    /// Simulated clients.
    pub connections: u32,
    /// Threads of the load generator.
    pub threads: u32,
    /// Requests under way on a connection.
    pub pipeline: u32,
    /// A client's line.
    pub line_bits_per_s: Option<u64>,
    /// Before counting.
    pub warmup_s: f64,
    /// Counting.
    pub duration_s: f64,
    /// Of a connection and of an answer.
    pub timeout_ms: u64,
    /// Requests of which a figure is made, where they are counted and not the time.
    pub requests: u64,
    /// Requests before these, at least, if the experiment's file says so.
    pub warmup_requests: Option<u64>,
    /// The longest packet of the network, in bytes, if it is not the usual one: only a guest's can be chosen.
    pub mtu: Option<u32>,
    /// Memory of a guest whose site is on a disk.
    pub memory_mib: Option<u32>,
    /// Ask the server for the phases of its database meanwhile.
    pub phases: bool,
    /// Draws the traffic; the same for all servers of a repeat.
    pub seed: u64,
}

impl MeasurementJob {
    /// The load on the server at this address.
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

    /// The dataset of its pages.
    #[must_use]
    pub fn set(&self) -> &str {
        self.settings.get("set").map_or("small", String::as_str)
    }

    /// Requests a second that are offered; `None` in a closed loop.
    #[must_use]
    pub fn offered_per_s(&self) -> Option<f64> {
        match self.pace {
            RequestPace::Closed => None,
            RequestPace::Requests(rate) | RequestPace::Connections(rate) => Some(rate),
        }
    }
}

/// What one measurement found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasurementResult {
    /// The load generator's figures.
    pub outcome: LoadResult,
    /// The highest rate that was sustained, if it was looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_per_s: Option<f64>,
    /// Instructions that one more request costs the whole machine, if they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<f64>,
    /// The same by each pair of runs of which the median was taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slopes: Vec<f64>,
    /// What was measured besides: names end in `_us` or `_share`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extras: BTreeMap<String, f64>,
}

/// A server that runs. Dropping it ends it.
pub trait PeerServer {
    /// What it says of its version.
    fn version(&self) -> &str;

    /// Its configuration.
    fn configuration(&self) -> &str;

    /// Makes the requests of a job.
    ///
    /// # Errors
    /// When they can't be made; says why. What fails later is counted in the outcome.
    fn measure(
        &mut self,
        job: &MeasurementJob,
        progress: &mut dyn FnMut(&LoadSnapshot),
        stop: &AtomicBool,
    ) -> Result<MeasurementResult, String>;
}

/// Where experiments are run.
pub trait TestBench {
    /// Makes what the servers serve, until it is done or `stop` is set. `progress` is told the share
    /// that is done.
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
    /// When it is not there, or does not answer.
    fn start(&mut self, job: &MeasurementJob) -> Result<Box<dyn PeerServer>, PeerFailure>;

    /// Which server a job needs: those of one text are served by one, if they come one after another.
    fn place(&self, _job: &MeasurementJob) -> Option<String> {
        None
    }

    /// Checks a workload's name and settings.
    ///
    /// # Errors
    /// With what is allowed.
    fn check(&self, experiment: &ExperimentConfig) -> Result<(), String>;

    /// Whether figures are computed and not measured.
    fn pretends(&self) -> bool {
        false
    }
}
