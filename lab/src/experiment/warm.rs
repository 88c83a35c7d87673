//! Warms up a server before a figure: caches fill, and an adaptive level finishes learning. A guest that serves
//! several points is warmed up once for each. Independent of guests.

use std::collections::BTreeMap;

use super::amount::AmountInput;
use super::bench::MeasurementJob;
use crate::icount::CompletedRun;
use crate::load::LoadResult;

/// Executes at least this many requests, until the guest is idle.
pub type WarmUpRun<'r> = dyn FnMut(u64) -> Result<CompletedRun<LoadResult>, String> + 'r;

/// The warm-up traffic of a server so far.
#[derive(Debug, Default)]
pub struct WarmUpTraffic {
    /// Rough cost of a request, by the workload's settings apart from those that depend on a rate.
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
        // Of a set larger than memory, only the most recent traffic is cached.
        let known_index = self
            .costs
            .iter()
            .position(|(settings, _)| *settings == job.warm_settings);
        let known_index = known_index.filter(|_| job.memory_mib.is_none());
        let instructions_per_request = match known_index {
            // The same traffic with no more clients: the server is warm.
            Some(index) if job.connections <= self.connections => self.costs[index].1,
            Some(index) => {
                // More clients than before: new processes or connections do their one-time work in this run.
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
    // Two short runs, of which only the second is used: the first includes one-time work.
    let total_before = first(amount.trial(), run)?.total;
    let done = run(amount.trial())?;
    let roughly = (done.total - total_before) as f64 / done.requests as f64;
    settle(job, done.total, roughly, run)
}

/// Warms up until the cost of an adaptive server is stable, and once for other servers. `total_before` is the instruction
/// count and `roughly` the cost of a request so far; returns the cost afterwards.
fn settle(
    job: &MeasurementJob,
    mut total_before: u64,
    roughly: f64,
    run: &mut WarmUpRun<'_>,
) -> Result<f64, String> {
    /// Upper bound; a server that still adapts then is detected by the repeats.
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
    // A disk-bound server never settles: its cost differs each time.
    if is_learning(&job.server.peer) && job.memory_mib.is_none() {
        for _ in 1..ROUNDS_MAX {
            let last = current;
            current = cost(requests)?;
            if is_same(current, last) {
                break;
            }
        }
    }
    // The cost may have dropped a lot, and the warm-up then needs far more requests.
    let request_count = amount.warmup(current);
    if request_count > 2 * requests {
        current = cost(request_count)?;
    }
    Ok(current)
}

/// Whether a peer adapts: a level that learns popular responses, or modules that touch their memory step by step.
pub fn is_learning(peer: &str) -> bool {
    peer.ends_with("-softirq") || ["lowroad-accelerate", "lowroad-wasm"].contains(&peer)
}

/// Whether the cost is stable, so that a level has learned: it learns step by step, and learning has a cost.
fn is_same(cost: f64, last: f64) -> bool {
    /// The difference between runs of a stable server.
    const SAME: f64 = 0.02;
    (cost - last).abs() < SAME * last
}

/// The first run, with retries. A server that listens may still be busy with loading programs into the kernel, which
/// takes an emulated machine seconds.
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
    use super::super::plan::{self, MeasurementStep, RunExtent};
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
        plan::job(&experiment.expect("right"), &step, &RunExtent::default())
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
    fn most_servers_are_asked_once() {
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
    fn who_learns_is_asked_until_it_costs_the_same() {
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
    fn a_cheap_server_that_began_dear_is_asked_for_all() {
        let (asked, each) = ColdServer::default().up("nginx", 10, &[6e6, 6e6, 2e4, 1e4]);
        assert_eq!((asked, each), (vec![20, 20, 180, 640], 1e4));
    }
}
