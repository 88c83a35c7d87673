//! Those who ask a guest's server: so many requests, and what a figure is made of. Knows nothing of how a guest is counted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::amount::Wanted;
use super::bench::Job;
use super::guests::Ready;
use super::warm::Run;
use crate::icount::dealt::{Dealt, EVEN, EVEN_ONWARD, Orders};
use crate::icount::drive::{Target, by_load};
use crate::icount::life::Life;
use crate::icount::{Done, PAIR, Slopes, slopes};
use crate::load::{Outcome, Time};

/// Those who ask a job's server.
pub struct Clients<'j> {
    job: &'j Job,
    traffic: Dealt,
    life: Life,
    address: SocketAddr,
    stop: &'j AtomicBool,
}

impl<'j> Clients<'j> {
    /// Those of a guest's server, until `stop` is set.
    ///
    /// # Errors
    /// The workload or its settings are unknown.
    pub fn of(
        job: &'j Job,
        ready: &Ready,
        orders: &mut Orders,
        stop: &'j AtomicBool,
    ) -> Result<Clients<'j>, String> {
        let address = ready.address;
        let in_order = match job.memory_mib {
            None => EVEN,
            Some(_) => EVEN_ONWARD,
        };
        let host = (&*address.to_string(), in_order);
        let traffic = orders.dealt(&job.workload, &job.settings, host)?;
        Ok(Clients {
            job,
            traffic,
            life: ready.guest.life(),
            address,
            stop,
        })
    }

    /// Makes at least so many requests: the same each time, but for a set that is larger than memory, which would be in memory then.
    ///
    /// # Errors
    /// A request failed, or the guest ended.
    pub fn ask(&self, requests: u64, time: Option<Arc<dyn Time>>) -> Result<Outcome, String> {
        let target = Target {
            life: &self.life,
            address: self.address,
            tls: None,
            time,
        };
        let (traffic, first) = match self.job.memory_mib {
            None => (self.traffic.from_start(), 0),
            Some(_) => (self.traffic.onward(), self.traffic.next()),
        };
        let least = (Wanted::by(self.job).connections(requests), requests);
        let quota = self.traffic.quota(first, least);
        let (what, connections) = (&self.job.workload, self.job.connections);
        by_load(target, what, traffic, quota, connections, self.stop)
    }

    /// Makes a figure, if a request costs `each` instructions, roughly; `before` are all until now.
    ///
    /// # Errors
    /// Those of `run`.
    pub fn count(
        &self,
        before: u64,
        each: f64,
        run: &mut Run<'_>,
    ) -> Result<Slopes<Outcome>, String> {
        let requests = Wanted::by(self.job).requests(each);
        match self.traffic.is_endless() {
            // What opening connections costs is no part of it.
            true => slopes(before, ((requests / PAIR).max(1), 1), run),
            false => straight(before, requests, run),
        }
    }
}

/// One run: all that its connections cost is theirs.
fn straight(before: u64, requests: u64, run: &mut Run<'_>) -> Result<Slopes<Outcome>, String> {
    let long = run(requests)?;
    Ok(Slopes {
        instructions: vec![(long.total - before) as f64 / long.requests as f64],
        short: Outcome::default(),
        long: long.brought,
    })
}

/// A run after which there were so many instructions.
pub fn done(total: u64, brought: Outcome) -> Done<Outcome> {
    Done {
        total,
        requests: brought.requests,
        brought,
    }
}
