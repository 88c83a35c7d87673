//! The clients of a guest's server: a given number of requests, and the traffic behind a figure. Independent of the
//! counting.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::amount::AmountInput;
use super::bench::MeasurementJob;
use super::guests::ReadyGuest;
use super::warm::WarmUpRun;
use crate::icount::dealt::{EVEN, EVEN_ONWARD, OrderCache, WorkloadConnections};
use crate::icount::drive::{DriveTarget, by_load};
use crate::icount::life::GuestLifeline;
use crate::icount::{CompletedRun, PAIR, RunSlopes, slopes};
use crate::load::{ExternalClock, LoadResult};

/// The clients of a job's server.
pub struct LoadClients<'j> {
    job: &'j MeasurementJob,
    traffic: WorkloadConnections,
    life: GuestLifeline,
    address: SocketAddr,
    stop: &'j AtomicBool,
}

impl<'j> LoadClients<'j> {
    /// Creates the clients of a guest's server, which run until `stop` is set.
    ///
    /// # Errors
    /// The workload or its settings are unknown.
    pub fn of(
        job: &'j MeasurementJob,
        ready: &ReadyGuest,
        orders: &mut OrderCache,
        stop: &'j AtomicBool,
    ) -> Result<LoadClients<'j>, String> {
        let address = ready.address;
        let in_order = match job.memory_mib {
            None => EVEN,
            Some(_) => EVEN_ONWARD,
        };
        let host = address.to_string();
        let traffic = orders.dealt(&job.workload, &job.settings, &host, in_order)?;
        Ok(LoadClients {
            job,
            traffic,
            life: ready.guest.life(),
            address,
            stop,
        })
    }

    /// Sends at least `requests` requests: the same ones each time, except for a set larger than memory, where a
    /// repeated part would already be cached.
    ///
    /// # Errors
    /// A request failed, or the guest ended.
    pub fn ask(
        &self,
        requests: u64,
        time: Option<Arc<dyn ExternalClock>>,
    ) -> Result<LoadResult, String> {
        let target = DriveTarget {
            life: &self.life,
            address: self.address,
            tls: None,
            time,
        };
        let (traffic, first) = match self.job.memory_mib {
            None => (self.traffic.from_start(), 0),
            Some(_) => (self.traffic.onward(), self.traffic.next()),
        };
        let least = AmountInput::by(self.job).connections(requests);
        let quota = self.traffic.quota(first, least, requests);
        let (what, connections) = (&self.job.workload, self.job.connections);
        by_load(target, what, traffic, quota, connections, self.stop)
    }

    /// Measures a figure, if a request costs about `each` instructions; `before` is the instruction count now.
    ///
    /// # Errors
    /// Those of `run`.
    pub fn count(
        &self,
        before: u64,
        each: f64,
        run: &mut WarmUpRun<'_>,
    ) -> Result<RunSlopes<LoadResult>, String> {
        let requests = AmountInput::by(self.job).requests(each);
        match self.traffic.is_endless() {
            // Persistent connections: the slope excludes the cost of opening them.
            true => slopes(before, (requests / PAIR).max(1), 1, run),
            false => straight(before, requests, run),
        }
    }
}

/// A single run: the cost of its connections is included.
fn straight(
    before: u64,
    requests: u64,
    run: &mut WarmUpRun<'_>,
) -> Result<RunSlopes<LoadResult>, String> {
    let long = run(requests)?;
    Ok(RunSlopes {
        instructions: vec![(long.total - before) as f64 / long.requests as f64],
        short: LoadResult::default(),
        long: long.brought,
    })
}

/// A run that ended at this instruction count.
pub fn done(total: u64, brought: LoadResult) -> CompletedRun<LoadResult> {
    CompletedRun {
        total,
        requests: brought.requests,
        brought,
    }
}
