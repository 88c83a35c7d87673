//! A bench that computes figures from a seed: for tests, and to rehearse an experiment and its report in a second
//! (`lowroad-lab run --rehearse`). Its figures are not measurements, and each record has the flag `pretended`.
//!
//! The model: each request and each byte costs a fixed time; each connection beyond a few hundred adds a small cost; in
//! an open loop, requests queue as the rate approaches the capacity.

use std::sync::atomic::{AtomicBool, Ordering};

use super::bench::{MeasurementJob, MeasurementResult, PeerServer, TestBench};
use super::schema::ExperimentConfig;
use crate::load::outcome::TimeDistribution;
use crate::load::{LoadResult, LoadSnapshot};
use crate::peers::PeerFailure;
use crate::random::SplitMix;

/// The bench.
#[derive(Debug, Default)]
pub struct FakeBench {
    /// Seed of the noise.
    pub seed: u64,
    /// The jobs started so far, for tests.
    pub started: Vec<MeasurementJob>,
    /// Sets the stop flag after this many measurements, as Ctrl-C would.
    pub stop_after: Option<usize>,
    /// The name of a server that fails to start.
    pub broken: Option<String>,
    /// Whether servers have half the capacity in the first repeat, as if they adapted to their traffic.
    pub is_learning: bool,
}

impl TestBench for FakeBench {
    fn prepare(
        &mut self,
        _experiment: &ExperimentConfig,
        progress: &mut dyn FnMut(f64),
        _stop: &AtomicBool,
    ) -> Result<(), String> {
        progress(1.0);
        Ok(())
    }

    fn start(&mut self, job: &MeasurementJob) -> Result<Box<dyn PeerServer>, PeerFailure> {
        let peer = job.server.peer.as_str();
        if let Some(level) = peer.strip_prefix("lowroad-") {
            return Err(PeerFailure::Absent(format!(
                "the level {level} does not exist yet"
            )));
        }
        let Some(request_us) = request_us(peer) else {
            return Err(PeerFailure::Unknown(format!("no peer {peer}")));
        };
        if self.broken.as_ref() == Some(&job.server.name) {
            return Err(PeerFailure::Broken("it ended with status 1".into()));
        }
        self.started.push(job.clone());
        let noise = SplitMix::new(self.seed ^ (self.started.len() as u64).wrapping_mul(0x9e37));
        Ok(Box::new(FakePeer {
            version: format!("{peer} (rehearsal)"),
            configuration: format!(
                "# computed, not run\npeer {peer}\nworkers {}",
                job.server.workers
            ),
            request_us,
            noise,
            is_learning: self.is_learning,
            is_interrupted: self
                .stop_after
                .is_some_and(|after| self.started.len() > after),
        }))
    }

    fn check(&self, _experiment: &ExperimentConfig) -> Result<(), String> {
        Ok(())
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

struct FakePeer {
    version: String,
    configuration: String,
    request_us: f64,
    noise: SplitMix,
    is_interrupted: bool,
    is_learning: bool,
}

impl PeerServer for FakePeer {
    fn version(&self) -> &str {
        &self.version
    }

    fn configuration(&self) -> &str {
        &self.configuration
    }

    fn measure(
        &mut self,
        job: &MeasurementJob,
        progress: &mut dyn FnMut(&LoadSnapshot),
        stop: &AtomicBool,
    ) -> Result<MeasurementResult, String> {
        progress(&LoadSnapshot {
            duration_s: job.duration_s,
            ..LoadSnapshot::default()
        });
        if self.is_interrupted {
            stop.store(true, Ordering::Relaxed);
        }
        let bytes = body_bytes(job);
        let capacity = self.capacity_per_s(job, bytes);
        let mut noise = 1.0 + (self.noise.unit() - 0.5) * 0.06;
        // The first repeat has seed 1.
        if self.is_learning && job.seed == 1 {
            noise /= 2.0;
        }
        let mut measured = MeasurementResult {
            outcome: outcome(job, capacity * noise, bytes),
            ..MeasurementResult::default()
        };
        measured.outcome.interrupted = stop.load(Ordering::Relaxed);
        let service_us = 1e6 / capacity;
        for (name, share) in [
            ("handshake_us", 0.2),
            ("database_connect_us", 0.5),
            ("tabular_us", 1.3),
            ("disconnect_us", 0.1),
        ] {
            measured
                .extras
                .insert(name.into(), service_us * share * noise);
        }
        let busy = (measured.outcome.requests_per_s / capacity).min(1.0);
        measured
            .extras
            .insert("server_cpu_share".into(), busy * 0.98);
        Ok(measured)
    }
}

impl FakePeer {
    fn capacity_per_s(&self, job: &MeasurementJob, bytes: f64) -> f64 {
        let copies = job
            .server
            .settings
            .get("sendfile")
            .is_some_and(|value| value == "off");
        let byte_us = if copies { 0.0016 } else { 0.0007 };
        let dynamic: f64 = ["dynamic"]
            .iter()
            .find_map(|key| job.settings.get(*key)?.parse().ok())
            .unwrap_or(0.0);
        let dynamic = if dynamic > 1.0 {
            dynamic / 100.0
        } else {
            dynamic
        };
        let closed = if job.offered_per_s().is_none() {
            job.connections
        } else {
            64
        };
        let crowd = 1.0 + f64::from(closed.saturating_sub(300)) / 2500.0;
        // A few connections can't use the whole capacity.
        let client_share = f64::from(job.connections.min(24)) / 24.0;
        let dynamic_us = if job.server.peer.contains("php") {
            320.0
        } else {
            90.0
        };
        client_share * 1e6 / ((self.request_us + bytes * byte_us + dynamic * dynamic_us) * crowd)
    }
}

/// The time of a request in the model.
fn request_us(peer: &str) -> Option<f64> {
    Some(match peer {
        "nginx" => 25.0,
        "nginx-php" => 26.0,
        "apache-prefork" => 71.0,
        "apache-php" => 74.0,
        "apache-event" => 48.0,
        "lighttpd" => 24.0,
        "h2o" => 20.0,
        "varnish" => 36.0,
        "haproxy" => 27.0,
        "howl" => 15.0,
        "lowroad" => 17.0,
        _ => return None,
    })
}

fn body_bytes(job: &MeasurementJob) -> f64 {
    let size = ["size", "set", "dataset"]
        .iter()
        .find_map(|key| job.settings.get(*key));
    match size.map(String::as_str) {
        Some("small") => 211.0,
        Some("medium") => 10_217.0,
        Some("large") => 19_248.0,
        Some(text) => text.parse().unwrap_or(3593.0),
        None => 3593.0,
    }
}

fn outcome(job: &MeasurementJob, capacity_per_s: f64, bytes: f64) -> LoadResult {
    let offered_per_s = job.offered_per_s();
    let answered = offered_per_s.unwrap_or(capacity_per_s).min(capacity_per_s);
    let missed = offered_per_s.map_or(0.0, |offered| (offered - answered) * job.duration_s);
    let load = answered / capacity_per_s;
    // The waiting time of a single-server queue, bounded at the queue's limit.
    let service_us = 1e6 / capacity_per_s;
    let wait_us = (service_us * load / (1.0 - load).max(0.004)).max(20.0);
    let closed_us = 1e6 * f64::from(job.connections) / capacity_per_s;
    let time_us = if offered_per_s.is_some() {
        service_us + wait_us
    } else {
        closed_us
    };
    let requests = (answered * job.duration_s) as u64;
    LoadResult {
        duration_s: job.duration_s,
        requests,
        requests_per_s: answered,
        offered_per_s,
        connections: requests,
        connections_per_s: answered,
        requests_per_connection: 1.0,
        bytes_per_s: answered * (bytes + 160.0),
        latency_us: times(time_us, requests),
        response_us: times(time_us * 0.7, requests),
        connect_us: times(30.0 + time_us * 0.4, requests),
        connection_us: times(time_us * 1.3, requests),
        established_us: times(time_us * 1.1, requests),
        errors: missed.max(0.0) as u64,
        ..LoadResult::default()
    }
}

fn times(mean: f64, count: u64) -> TimeDistribution {
    let quantile = |factor: f64| (mean * factor) as u64;
    TimeDistribution {
        count,
        min: quantile(0.4),
        mean,
        stddev: mean * 0.3,
        p50: quantile(0.95),
        p75: quantile(1.2),
        p90: quantile(1.5),
        p95: quantile(1.8),
        p99: quantile(2.6),
        p99_9: quantile(4.0),
        max: quantile(6.0),
    }
}
