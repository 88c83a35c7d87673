//! The clients of a server in a guest: they send a given number of requests, or the traffic of a figure. Independent of
//! how instructions are counted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::amount::AmountInput;
use super::bench::MeasurementJob;
use super::guests::ReadyGuest;
use super::warm::WarmUpRun;
use crate::icount::dealt::{ORDERED_COUNT, ORDERED_COUNT_ONWARD, OrderCache, WorkloadConnections};
use crate::icount::drive::{DriveTarget, drive_with_load};
use crate::icount::life::GuestLifeline;
use crate::icount::{CompletedRun, PAIR, RunSlopes, slopes};
use crate::load::{ExternalClock, LoadResult};

/// The clients of a job's server.
pub struct LoadClients<'j> {
    job: &'j MeasurementJob,
    traffic: WorkloadConnections,
    lifeline: GuestLifeline,
    address: SocketAddr,
    stop: &'j AtomicBool,
}

impl<'j> LoadClients<'j> {
    /// Creates the clients of a guest's server, which run until `stop` is set.
    ///
    /// # Errors
    /// The workload or its settings are unknown.
    pub fn for_guest(
        job: &'j MeasurementJob,
        ready: &ReadyGuest,
        orders: &mut OrderCache,
        stop: &'j AtomicBool,
    ) -> Result<LoadClients<'j>, String> {
        let address = ready.address;
        let in_order = match job.memory_mib {
            None => ORDERED_COUNT,
            // With limited memory each run continues after the one before, so more connections need an order.
            Some(_) => ORDERED_COUNT_ONWARD,
        };
        let host = address.to_string();
        let traffic = orders.connections_in_order(&job.workload, &job.settings, &host, in_order)?;
        Ok(LoadClients {
            job,
            traffic,
            lifeline: ready.guest.life(),
            address,
            stop,
        })
    }

    /// Sends at least `requests` requests. Each call sends the same ones, except for a file set larger than memory,
    /// where repeated files would already be cached.
    ///
    /// # Errors
    /// A request failed, or the guest ended.
    pub fn run_requests(
        &self,
        requests: u64,
        time: Option<Arc<dyn ExternalClock>>,
    ) -> Result<LoadResult, String> {
        let target = DriveTarget {
            life: &self.lifeline,
            address: self.address,
            tls: None,
            streams: 1,
            time,
        };
        let (traffic, first) = match self.job.memory_mib {
            None => (self.traffic.from_start(), 0),
            // If this run began with the first connection again, it would find the previous run's files in the page
            // cache.
            Some(_) => (self.traffic.onward(), self.traffic.next()),
        };
        let connections_min = AmountInput::for_job(self.job).connections(requests);
        let quota = self.traffic.quota(first, connections_min, requests);
        let (workload_name, connections) = (&self.job.workload, self.job.connections);
        drive_with_load(
            target,
            workload_name,
            traffic,
            quota,
            connections,
            self.stop,
        )
    }

    /// Measures a figure, if a request costs about `instructions_per_request` instructions; `total_before` is the
    /// current instruction count.
    ///
    /// # Errors
    /// Those of `run`.
    pub fn count(
        &self,
        total_before: u64,
        instructions_per_request: f64,
        run: &mut WarmUpRun<'_>,
    ) -> Result<RunSlopes<LoadResult>, String> {
        let requests = AmountInput::for_job(self.job).requests(instructions_per_request);
        match self.traffic.is_endless() {
            // Persistent connections: the slope excludes the cost of opening them.
            true => slopes(total_before, (requests / PAIR).max(1), 1, run),
            false => count_once(total_before, requests, run),
        }
    }
}

/// A single run: the cost of its connections is included.
fn count_once(
    total_before: u64,
    requests: u64,
    run: &mut WarmUpRun<'_>,
) -> Result<RunSlopes<LoadResult>, String> {
    let long = run(requests)?;
    Ok(RunSlopes {
        instructions: vec![(long.total - total_before) as f64 / long.requests as f64],
        short: LoadResult::default(),
        long: long.output,
    })
}

/// A run that ended at this instruction count.
pub fn completed_run(total: u64, result: LoadResult) -> CompletedRun<LoadResult> {
    CompletedRun {
        total,
        requests: result.requests,
        output: result,
    }
}
