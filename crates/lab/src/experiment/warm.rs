//! What a server is asked before a figure is made of it: caches fill, and a level that learns has learned. A guest that serves
//! several points is warmed up once for each. Knows no guests.

use std::collections::BTreeMap;

use super::amount::Wanted;
use super::bench::Job;
use crate::icount::Done;
use crate::load::Outcome;

/// Makes at least so many requests, until the guest rests.
pub type Run<'r> = dyn FnMut(u64) -> Result<Done<Outcome>, String> + 'r;

/// What a server was asked.
#[derive(Debug, Default)]
pub struct Warmed {
    /// By settings of the workload, but those that follow from a rate, what a request costs, roughly.
    costs: Vec<(BTreeMap<String, String>, f64)>,
    /// Most connections at a time.
    connections: u32,
}

impl Warmed {
    /// Asks for what is new to the server, and gives what a request costs, roughly.
    ///
    /// # Errors
    /// Those of `run`.
    pub fn up(&mut self, job: &Job, run: &mut Run<'_>) -> Result<f64, String> {
        // Of a set that is larger than memory, what was asked for last is there.
        let known = self.costs.iter().find(|(of, _)| *of == job.warm_settings);
        let known = known.map(|(_, each)| *each);
        let known = known.filter(|_| job.memory_mib.is_none());
        let each = match known {
            Some(each) if job.connections <= self.connections => each,
            Some(each) => run(Wanted::by(job).warmup(each)).map(|_| each)?,
            None => warm_up(job, run)?,
        };
        if known.is_none() {
            self.costs.push((job.warm_settings.clone(), each));
        }
        self.connections = self.connections.max(job.connections);
        Ok(each)
    }
}

fn warm_up(job: &Job, run: &mut Run<'_>) -> Result<f64, String> {
    /// Whether it still learns then is seen by the repeats.
    const ROUNDS_MAX: u32 = 13;
    let wanted = Wanted::by(job);
    let mut before = first(wanted.trial(), run)?.total;
    let mut cost = |requests| {
        let done = run(requests)?;
        let cost = (done.total - before) as f64 / done.requests as f64;
        before = done.total;
        Ok::<f64, String>(cost)
    };
    let roughly = cost(wanted.trial())?;
    let requests = wanted.warmup(roughly);
    let mut each = cost(requests)?;
    // What goes on and on costs something else each time.
    if learns(&job.server.peer) && job.memory_mib.is_none() {
        for _ in 1..ROUNDS_MAX {
            let last = each;
            each = cost(requests)?;
            if is_same(each, last) {
                break;
            }
        }
    }
    // It may cost far less by now, and then far more is asked for.
    let all = wanted.warmup(each);
    if all > 2 * requests {
        each = cost(all)?;
    }
    Ok(each)
}

/// Whether a peer has a level that learns what is asked for, or memory for modules that is touched by and by.
pub fn learns(peer: &str) -> bool {
    peer.ends_with("-softirq") || ["lowroad-accelerate", "lowroad-wasm"].contains(&peer)
}

/// Whether a level below has learned what is asked for: it learns by and by, and learning costs, too.
fn is_same(cost: f64, last: f64) -> bool {
    /// That is what runs differ by.
    const SAME: f64 = 0.02;
    (cost - last).abs() < SAME * last
}

/// Who listens may be busy yet with what comes after, as with loading programs into the kernel, which takes an emulated one
/// seconds.
fn first(requests: u64, run: &mut Run<'_>) -> Result<Done<Outcome>, String> {
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
