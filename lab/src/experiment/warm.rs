//! Warms up a server before a figure: caches fill, and an adaptive level finishes learning. If a guest serves several
//! points, the server is warmed up once for each kind of traffic. Independent of guests.

use std::collections::BTreeMap;

use super::amount::AmountInput;
use super::bench::MeasurementJob;
use crate::icount::CompletedRun;
use crate::load::LoadResult;

/// Sends at least this many requests and waits until the guest is idle.
pub type WarmUpRun<'r> = dyn FnMut(u64) -> Result<CompletedRun<LoadResult>, String> + 'r;

/// The warm-up traffic of a server so far.
#[derive(Debug, Default)]
pub struct WarmUpTraffic {
    /// Rough cost of a request, for each combination of the workload's settings that do not depend on a rate.
    costs: Vec<(BTreeMap<String, String>, f64)>,
    /// Maximum number of simultaneous connections so far.
    connections: u32,
}

impl WarmUpTraffic {
    /// Warms the server up for the job's traffic, and returns the rough cost of a request.
    ///
    /// # Errors
    /// Those of `run`.
    pub fn warm(&mut self, job: &MeasurementJob, run: &mut WarmUpRun<'_>) -> Result<f64, String> {
        // If the set is larger than memory, only the files of the latest traffic are cached.
        let known_index = self
            .costs
            .iter()
            .position(|(settings, _)| *settings == job.warm_settings);
        let known_index = known_index.filter(|_| job.memory_mib.is_none());
        let instructions_per_request = match known_index {
            // The same traffic from no more clients than before: the server is warm.
            Some(index) if job.connections <= self.connections => self.costs[index].1,
            Some(index) => {
                // More clients than before: this run includes the one-time work of new processes or connections.
                let total_before = run(AmountInput::for_job(job).trial())?.total;
                let stored_cost = &mut self.costs[index].1;
                *stored_cost = settle(job, total_before, *stored_cost, run)?;
                *stored_cost
            }
            None => {
                let instructions_per_request = warm_up(job, run)?;
                self.costs
                    .push((job.warm_settings.clone(), instructions_per_request));
                instructions_per_request
            }
        };
        self.connections = self.connections.max(job.connections);
        Ok(instructions_per_request)
    }
}

fn warm_up(job: &MeasurementJob, run: &mut WarmUpRun<'_>) -> Result<f64, String> {
    let amount = AmountInput::for_job(job);
    // Two short runs; only the second gives the cost, since the first includes one-time work.
    let total_before = first(amount.trial(), run)?.total;
    let done = run(amount.trial())?;
    let roughly = (done.total - total_before) as f64 / done.requests as f64;
    settle(job, done.total, roughly, run)
}

/// Warms up until the cost of an adaptive server is stable; other servers are warmed up once. `total_before` is the
/// current instruction count, `roughly` an estimate of the cost of a request. Returns the cost after the warm-up.
fn settle(
    job: &MeasurementJob,
    mut total_before: u64,
    roughly: f64,
    run: &mut WarmUpRun<'_>,
) -> Result<f64, String> {
    /// Upper bound. If a server still adapts after it, the repeats of the figure reveal that.
    const ROUNDS_MAX: u32 = 13;
    let amount = AmountInput::for_job(job);
    let requests = amount.warmup(roughly);
    let mut cost = |requests| {
        let done = run(requests)?;
        let cost = (done.total - total_before) as f64 / done.requests as f64;
        total_before = done.total;
        Ok::<f64, String>(cost)
    };
    let mut current = cost(requests)?;
    // The cost of a disk-bound server is never stable: it differs in each run.
    if is_learning(&job.server.peer) && job.memory_mib.is_none() {
        for _ in 1..ROUNDS_MAX {
            let last = current;
            current = cost(requests)?;
            if is_same(current, last) {
                break;
            }
        }
    }
    // If the cost has dropped a lot, far more requests are needed as warm-up.
    let request_count = amount.warmup(current);
    if request_count > 2 * requests {
        current = cost(request_count)?;
    }
    Ok(current)
}

/// Whether a peer adapts: it has a level that learns popular responses, or modules that touch their memory gradually.
pub fn is_learning(peer: &str) -> bool {
    peer.ends_with("-softirq") || ["lowroad-accelerate", "lowroad-wasm"].contains(&peer)
}

/// Whether the cost is stable, that is, learning is complete: a level learns gradually, and learning costs
/// instructions.
fn is_same(cost: f64, last: f64) -> bool {
    /// The difference between runs of a stable server.
    const SAME: f64 = 0.02;
    (cost - last).abs() < SAME * last
}

/// The first run, with retries: a server that already listens may still be loading programs into the kernel, which
/// takes seconds in an emulated machine.
fn first(requests: u64, run: &mut WarmUpRun<'_>) -> Result<CompletedRun<LoadResult>, String> {
    const TRIES_MORE: u32 = 2;
    let mut tried = run(requests);
    for _ in 0..TRIES_MORE {
        if tried.is_ok() {
            break;
        }
        tried = run(requests);
    }
    tried
}

#[cfg(test)]
mod tests {
    use super::super::axis::AxisValue;
    use super::super::plan::{self, MeasurementStep, RunSelection};
    use super::super::schema::ExperimentConfig;
    use super::*;

    const FILE: &str = r#"
title = "a mix"
paper = "000"
figure = "figure 2"
question = "What is it asked?"
[workload]
name = "specweb99"
[sweep]
parameter = "connections"
label = "clients"
values = [10]
[load]
pace = "closed"
[[server]]
name = "server"
peer = "PEER"
[[draw]]
figure = "figure 2"
title = "requests"
measure = "requests_per_s"
"#;

    fn job(peer: &str, connections: u32) -> MeasurementJob {
        let experiment = ExperimentConfig::parse("mix", &FILE.replace("PEER", peer));
        let step = MeasurementStep {
            repeat: 0,
            x: AxisValue::Number(connections.into()),
            server: 0,
        };
        plan::job(&experiment.expect("right"), &step, &RunSelection::default())
    }

    /// A server without any traffic so far.
    #[derive(Default)]
    struct ColdServer {
        warmed: WarmUpTraffic,
        total: f64,
    }

    impl ColdServer {
        /// Returns the warm-up runs for this many clients, and the final cost, if a request costs `costs[n]` in run n,
        /// and the last value from then on.
        fn up(&mut self, peer: &str, clients: u32, costs: &[f64]) -> (Vec<u64>, f64) {
            let mut asked = Vec::new();
            let mut run = |requests| {
                let cost = costs.get(asked.len()).or(costs.last());
                self.total += cost.expect("it is asked") * requests as f64;
                asked.push(requests);
                Ok(CompletedRun {
                    total: self.total as u64,
                    requests,
                    output: LoadResult::default(),
                })
            };
            let each = self.warmed.warm(&job(peer, clients), &mut run);
            (asked, each.expect("answers"))
        }
    }

    #[test]
    fn non_adaptive_server_is_warmed_up_once() {
        let mut server = ColdServer::default();
        let first = server.up("nginx", 10, &[9e4, 5e4, 4e4]);
        assert_eq!(first, (vec![20, 20, 640], 4e4));
        assert_eq!(server.up("nginx", 10, &[]), (vec![], 4e4));
        let more = server.up("nginx", 30, &[5e4]);
        assert_eq!(more, (vec![20, 640], 5e4));
        for clients in [30, 10] {
            let known = server.up("nginx", clients, &[]);
            assert_eq!(known, (vec![], 5e4), "{clients}");
        }
    }

    #[test]
    fn adaptive_server_is_warmed_up_until_cost_is_stable() {
        let mut server = ColdServer::default();
        let peer = "apache-softirq";
        let (asked, each) = server.up(peer, 10, &[9e4, 9e4, 9e4, 7e4, 5e4, 5.05e4]);
        assert_eq!((asked.len(), each), (6, 5.05e4));
        let (asked, each) = server.up(peer, 30, &[9e4, 9e4, 14e4, 5e4]);
        assert_eq!((asked.len(), each), (5, 5e4));
        assert_eq!(server.up(peer, 30, &[]), (vec![], 5e4));
        let endless: Vec<f64> = (0..100).map(|at| 1e4 + 1e3 * f64::from(at)).collect();
        let (asked, _) = server.up(peer, 60, &endless);
        assert_eq!(asked.len(), 14, "13 rounds, and what was before");
    }

    #[test]
    fn large_drop_in_cost_repeats_the_warm_up() {
        let (asked, each) = ColdServer::default().up("nginx", 10, &[6e6, 6e6, 2e4, 1e4]);
        assert_eq!((asked, each), (vec![20, 20, 180, 640], 1e4));
    }
}
