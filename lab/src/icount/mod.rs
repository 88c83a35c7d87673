//! Instructions a request, over the whole machine, in a guest under emulation: driver, soft
//! interrupt, TCP, system calls, server. They are counted, not timed, so the figure is nearly the
//! same whatever else the machine does.

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

/// How much is asked to measure one figure.
#[derive(Clone, Copy, Debug)]
pub struct CountTraffic {
    /// In all, besides the warm-up.
    pub requests: u64,
    /// Under way at a time.
    pub connections: u32,
    /// Requests before counting begins: caches fill, the guest's code is translated, and a level
    /// that learns has learned.
    pub warmup: u64,
}

/// Slopes of which the median is taken, an odd number: on a busy machine one may be far off.
const ROUNDS: u64 = 3;
/// Runs of a pair: a short one, and one three times as long.
pub const PAIR: u64 = 4;

/// Instructions that one more request costs: the slope between a short and a long run, three times
/// as long, so that what is not of a request cancels out. The median of several.
///
/// # Errors
/// When requests fail; with what the guest said.
pub fn measure(
    guest: &mut QemuGuest,
    address: SocketAddr,
    asked: &DriveRequest,
    traffic: CountTraffic,
) -> Result<f64, String> {
    let life = guest.life();
    let mut run = |requests| {
        let done = drive((&life, address), asked, requests, traffic.connections);
        done.map_err(|why| guest.failure(&why))?;
        Ok(CompletedRun {
            total: guest.counted_at_rest(),
            requests,
            brought: (),
        })
    };
    run(traffic.warmup.max(1))?;
    let before = run(1)?.total;
    let short = (traffic.requests / (PAIR * ROUNDS)).max(1);
    slopes(before, (short, ROUNDS), &mut run)?.middle()
}

/// Slopes between short runs and long ones.
#[derive(Debug)]
pub struct RunSlopes<T> {
    /// Instructions of one more request, for each pair of runs.
    pub instructions: Vec<f64>,
    /// What the last short run brought.
    pub short: T,
    /// What the last long run brought.
    pub long: T,
}

impl<T> RunSlopes<T> {
    /// Instructions that one more request costs.
    ///
    /// # Errors
    /// The slopes make no sense.
    pub fn middle(&self) -> Result<f64, String> {
        let mut sorted = self.instructions.clone();
        sorted.sort_by(f64::total_cmp);
        plausible(median(&sorted).expect("there are rounds"))
    }
}

/// A run that was made.
#[derive(Debug)]
pub struct CompletedRun<T> {
    /// The guest's instructions since it began.
    pub total: u64,
    /// Requests that were made.
    pub requests: u64,
    /// What it brought.
    pub brought: T,
}

/// Makes so many pairs of a run of `short` requests and one three times as long. `run` makes as many or some more; `before` are the
/// guest's instructions now.
///
/// # Errors
/// Those of `run`.
pub fn slopes<T>(
    mut before: u64,
    (short, rounds): (u64, u64),
    run: &mut dyn FnMut(u64) -> Result<CompletedRun<T>, String>,
) -> Result<RunSlopes<T>, String> {
    let (mut instructions, mut last) = (Vec::new(), None);
    for _ in 0..rounds {
        let one = run(short)?;
        let other = run(3 * short)?;
        instructions.push(slope(before, &one, &other));
        before = other.total;
        last = Some((one.brought, other.brought));
    }
    let (short, long) = last.expect("there are rounds");
    Ok(RunSlopes {
        instructions,
        short,
        long,
    })
}

/// A server that learns while it is measured does more in the short run than in the long one.
fn plausible(slope: f64) -> Result<f64, String> {
    match slope > 0.0 {
        true => Ok(slope),
        false => Err(
            "no figure: what a request costs changed from one run to the next; try again, \
                      with more requests (-n)"
                .into(),
        ),
    }
}

/// Between a short run, `before` which there were so many instructions, and a long one that came next.
fn slope<T>(before: u64, short: &CompletedRun<T>, long: &CompletedRun<T>) -> f64 {
    let [before, between, after] = [before, short.total, long.total].map(|count| count as f64);
    let requests = long.requests as f64 - short.requests as f64;
    ((after - between) - (between - before)) / requests.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_is_no_figure() {
        assert_eq!(plausible(7.0), Ok(7.0));
        assert!(plausible(-7.0).is_err_and(|why| why.contains("no figure")));
        assert!(plausible(0.0).is_err());
    }

    #[test]
    fn what_is_no_requests_cancels_out() {
        // 5 for a run, 7 for a request
        let done = |before: u64, requests: u64| CompletedRun {
            total: before + 5 + 7 * requests,
            requests,
            brought: (),
        };
        let short = done(1000, 10);
        let long = done(short.total, 31);
        assert!((slope(1000, &short, &long) - 7.0).abs() < 1e-9);
    }

    #[test]
    fn one_bad_slope_does_not_matter() {
        let slopes = RunSlopes {
            instructions: vec![900.0, 20.0, 21.0],
            short: (),
            long: (),
        };
        assert_eq!(slopes.middle(), Ok(21.0));
    }
}
