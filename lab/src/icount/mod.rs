//! Counts the instructions of a request over a whole machine, in an emulated guest: driver, soft interrupt, TCP, system
//! calls and server. Unlike times, counts hardly depend on the load of the host.

pub mod archive;
pub mod boot;
pub mod cli;
pub mod dealt;
pub mod disk;
pub mod drive;
mod even;
pub mod guest;
pub mod image;
pub mod kernel;
pub mod life;
pub mod mix;
pub mod monitor;
pub mod needs;
pub mod origin;
pub mod paper;
pub mod profile;
mod quiet;
pub mod saved;
pub mod servers;
pub mod standard;
pub mod steps;
pub mod table;
pub mod timed;

use std::net::SocketAddr;

use crate::experiment::agree::median;
use drive::{DriveRequest, drive};
use guest::QemuGuest;

/// The number of requests behind one figure.
#[derive(Clone, Copy, Debug)]
pub struct CountTraffic {
    /// Total number of requests, without the warm-up.
    pub requests: u64,
    /// Number of simultaneous requests.
    pub connections: u32,
    /// Number of warm-up requests, in which caches fill, the emulator translates the guest's code, and an adaptive
    /// level finishes learning.
    pub warmup: u64,
}

/// Number of slopes for the median. It is odd: on a busy machine, one slope may be far off.
const ROUNDS: u64 = 3;
/// Number of requests in a pair of runs, in units of the short run: the short run, and one three times as long.
pub const PAIR: u64 = 4;

/// Measures the instructions of one more request: the slope between a short run and one three times as long, so that
/// costs that do not depend on the number of requests cancel out. Returns the median of several slopes.
///
/// # Errors
/// A request failed; the text includes the guest's output.
pub fn measure(
    guest: &mut QemuGuest,
    address: SocketAddr,
    request: &DriveRequest,
    traffic: CountTraffic,
) -> Result<f64, String> {
    let life = guest.life();
    let mut run = |requests| {
        let done = drive(&life, address, request, requests, traffic.connections);
        done.map_err(|error| guest.failure(&error))?;
        Ok(CompletedRun {
            total: guest.instructions_when_idle(),
            requests,
            output: (),
        })
    };
    run(traffic.warmup.max(1))?;
    let total_before = run(1)?.total;
    let short = (traffic.requests / (PAIR * ROUNDS)).max(1);
    slopes(total_before, short, ROUNDS, &mut run)?.median()
}

/// Slopes between short and long runs.
#[derive(Debug)]
pub struct RunSlopes<T> {
    /// Instructions of one more request, for each pair of runs.
    pub instructions: Vec<f64>,
    /// The result of the last short run.
    pub short: T,
    /// The result of the last long run.
    pub long: T,
}

impl<T> RunSlopes<T> {
    /// The median of the slopes: the instructions of one more request.
    ///
    /// # Errors
    /// The slopes are implausible.
    pub fn median(&self) -> Result<f64, String> {
        let mut sorted = self.instructions.clone();
        sorted.sort_by(f64::total_cmp);
        plausible(median(&sorted).expect("there are rounds"))
    }
}

/// A completed run.
#[derive(Debug)]
pub struct CompletedRun<T> {
    /// The guest's instructions since its start.
    pub total: u64,
    /// Requests of the run.
    pub requests: u64,
    /// The result of the run.
    pub output: T,
}

/// Executes `rounds` pairs of a run of `short` requests and one three times as long. `run` executes at least the given
/// number of requests; `previous_total` is the guest's instruction count now.
///
/// # Errors
/// Those of `run`.
pub fn slopes<T>(
    mut previous_total: u64,
    short: u64,
    rounds: u64,
    run: &mut dyn FnMut(u64) -> Result<CompletedRun<T>, String>,
) -> Result<RunSlopes<T>, String> {
    let (mut instructions, mut last) = (Vec::new(), None);
    for _ in 0..rounds {
        let short_run = run(short)?;
        let long_run = run(3 * short)?;
        instructions.push(slope(previous_total, &short_run, &long_run));
        previous_total = long_run.total;
        last = Some((short_run.output, long_run.output));
    }
    let (short, long) = last.expect("there are rounds");
    Ok(RunSlopes {
        instructions,
        short,
        long,
    })
}

/// Rejects a slope that is not positive: it results if the server still adapts, so that the short run does more work
/// than the long one.
fn plausible(slope: f64) -> Result<f64, String> {
    match slope > 0.0 {
        true => Ok(slope),
        false => Err(
            "no figure: the cost of a request differed between runs; try again, with more \
             requests (-n)"
                .into(),
        ),
    }
}

/// The slope between a short run and the long run after it; `previous_total` is the instruction count before the short
/// run.
fn slope<T>(previous_total: u64, short: &CompletedRun<T>, long: &CompletedRun<T>) -> f64 {
    let [before, between, after] =
        [previous_total, short.total, long.total].map(|count| count as f64);
    let requests = long.requests as f64 - short.requests as f64;
    ((after - between) - (between - before)) / requests.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn implausible_slope_is_an_error() {
        assert_eq!(plausible(7.0), Ok(7.0));
        assert!(plausible(-7.0).is_err_and(|why| why.contains("no figure")));
        assert!(plausible(0.0).is_err());
    }

    #[test]
    fn fixed_cost_cancels_out_of_the_slope() {
        // 5 instructions per run, 7 per request.
        let done = |before: u64, requests: u64| CompletedRun {
            total: before + 5 + 7 * requests,
            requests,
            output: (),
        };
        let short = done(1000, 10);
        let long = done(short.total, 31);
        assert!((slope(1000, &short, &long) - 7.0).abs() < 1e-9);
    }

    #[test]
    fn median_ignores_one_outlier() {
        let slopes = RunSlopes {
            instructions: vec![900.0, 20.0, 21.0],
            short: (),
            long: (),
        };
        assert_eq!(slopes.median(), Ok(21.0));
    }
}
