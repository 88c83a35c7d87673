//! The bench that counts: each server runs in a guest whose instructions are counted, and is asked from outside. A guest
//! serves all points of its server that come one after another.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::amount::{Amount, Wanted};
use super::bench::{Bench, Job, Measured, Peer};
use super::counting::PER_SECOND;
use super::forms;
use super::guests::{Guests, Key, Ready, is_timed};
use super::phases::{Asks, Probe};
use super::schema::Experiment;
use super::site::Sites;
use crate::icount::dealt::Dealt;
use crate::icount::drive::by_load;
use crate::icount::guest::Guest;
use crate::icount::profile::Profile;
use crate::icount::timed::timed;
use crate::icount::{Slopes, slopes};
use crate::load::{Load, Outcome, Snapshot, Time};
use crate::peers::{Failure, programs};
use crate::workload::named;

/// Connections that warm a server up for what is due at fixed times.
const WARMING_CONNECTIONS: u32 = 8;

/// The bench.
pub struct Counted {
    guests: Guests,
    /// The folder for profiles, if they are wanted.
    profiles: Option<PathBuf>,
    /// The last one.
    guest: Option<(Key, Rc<RefCell<Ready>>)>,
}

impl Counted {
    /// A bench whose guests serve these sites. In the folder it leaves where the instructions of each figure are.
    #[must_use]
    pub fn new(sites: Sites, profiles: Option<PathBuf>) -> Self {
        Self {
            guests: Guests::new(sites, profiles.is_some()),
            profiles,
            guest: None,
        }
    }
}

impl Bench for Counted {
    fn prepare(
        &mut self,
        experiment: &Experiment,
        progress: &mut dyn FnMut(f64),
        stop: &AtomicBool,
    ) -> Result<(), String> {
        self.guests.prepare(experiment, progress, stop)
    }

    fn start(&mut self, job: &Job) -> Result<Box<dyn Peer>, Failure> {
        let key = self.guests.key(job);
        let runs =
            |(of, ready): &(Key, Rc<RefCell<Ready>>)| *of == key && ready.borrow_mut().guest.runs();
        let kept = self.guest.take().filter(runs);
        let (_, ready) = match kept {
            Some(kept) => self.guest.insert(kept),
            None => {
                let ready = Rc::new(RefCell::new(self.guests.boot(job)?));
                self.guest.insert((key, ready))
            }
        };
        let (version, configuration) = {
            let ready = ready.borrow();
            (ready.version.clone(), ready.configuration.clone())
        };
        Ok(Box::new(CountedPeer {
            ready: ready.clone(),
            profiles: self.profiles.clone(),
            version,
            configuration,
        }))
    }

    fn check(&self, experiment: &Experiment) -> Result<(), String> {
        let workload = &experiment.workload;
        named(&workload.name, &workload.settings, "127.0.0.1").map(drop)
    }
}

struct CountedPeer {
    ready: Rc<RefCell<Ready>>,
    profiles: Option<PathBuf>,
    version: String,
    configuration: String,
}

impl Peer for CountedPeer {
    fn version(&self) -> &str {
        &self.version
    }

    fn configuration(&self) -> &str {
        &self.configuration
    }

    fn measure(
        &mut self,
        job: &Job,
        _progress: &mut dyn FnMut(&Snapshot),
        stop: &AtomicBool,
    ) -> Result<Measured, String> {
        let measured = match is_timed(job) {
            false => self.count(job, stop),
            true => self.time(job, stop),
        };
        if stop.load(Ordering::Relaxed) {
            let mut cut = Measured::default();
            cut.outcome.interrupted = true;
            return Ok(cut);
        }
        measured
    }
}

impl CountedPeer {
    fn count(&self, job: &Job, stop: &AtomicBool) -> Result<Measured, String> {
        let ready = &mut *self.ready.borrow_mut();
        let address = ready.address;
        let workload = named(&job.workload, &job.settings, &address.to_string())?;
        let workload = Dealt::of(workload);
        let is_on_disk = job.memory_mib.is_some();
        let life = ready.guest.life();
        let mut run = |requests: u64| {
            if stop.load(Ordering::Relaxed) {
                return Err("stopped".to_owned());
            }
            let traffic = match is_on_disk {
                false => workload.from_start(),
                true => workload.onward(),
            };
            let (target, connections) = ((&life, address, None), job.connections);
            by_load(target, &job.workload, traffic, requests, connections, stop)
        };
        let each = warm_up(job, (&ready.guest, address), &mut run);
        let each = each.map_err(|why| ready.guest.failure(&why))?;
        let (moved_len, mut body_len) = (ready.guest.moved_len(), 0);
        let mut counted = |requests| {
            let outcome = run(requests)?;
            body_len += outcome.body_bytes;
            Ok(outcome)
        };
        let slopes = match is_on_disk {
            false => {
                let Amount { short, rounds } = Wanted::by(job).amount(each);
                slopes(&mut ready.guest, (short, rounds), &mut counted)?
            }
            true => straight(&mut ready.guest, job.requests, &mut counted)?,
        };
        let mut measured = measured(&slopes)?;
        let moved_len = ready.guest.moved_len() - moved_len;
        let moved = (
            "moved_share".to_owned(),
            moved_len as f64 / body_len.max(1) as f64,
        );
        measured.extras.extend([moved]);
        self.profile(job, ready, slopes.long.requests, &mut run)?;
        if forms::has_forms(job) {
            forms::check(address, job, &measured.outcome)?;
        }
        Ok(measured)
    }

    /// Leaves where the instructions are, if that is wanted. An image tells no symbols.
    fn profile(
        &self,
        job: &Job,
        ready: &mut Ready,
        requests: u64,
        run: &mut dyn FnMut(u64) -> Result<Outcome, String>,
    ) -> Result<(), String> {
        let Some(folder) = self.profiles.as_ref().filter(|_| !ready.copied.is_empty()) else {
            return Ok(());
        };
        let mut run = |requests| run(requests).map(drop);
        let profile = Profile::take(&mut ready.guest, &ready.copied, requests, &mut run)?;
        profile.write(folder, &job.name.replace([' ', '/'], "-"))
    }

    /// Measures in the guest's own time.
    fn time(&self, job: &Job, stop: &AtomicBool) -> Result<Measured, String> {
        let ready = &mut *self.ready.borrow_mut();
        let address = ready.address;
        let load = Load {
            threads: 1,
            ..job.load(address)?
        };
        let traffic = Dealt::of(load.workload.clone()).from_start();
        let warming = Job {
            connections: WARMING_CONNECTIONS,
            ..job.clone()
        };
        let life = ready.guest.life();
        let mut run = |requests: u64| {
            let (traffic, connections) = (traffic.clone(), warming.connections);
            let target = (&life, address, None);
            by_load(target, &job.workload, traffic, requests, connections, stop)
        };
        warm_up(&warming, (&ready.guest, address), &mut run)
            .map_err(|why| ready.guest.failure(&why))?;
        let mut probe = None;
        let mut begin = |time: &Arc<dyn Time>| {
            let asks = Asks::ByTime(Arc::downgrade(time));
            probe = job.phases.then(|| Probe::start(address, job.set(), asks));
        };
        let found = timed(&ready.guest, load, &mut begin, stop);
        let phases = probe.map(Probe::end).unwrap_or_default();
        let found = found.map_err(|why| ready.guest.failure(&why))?;
        let mut measured = Measured {
            outcome: found.outcome,
            extras: phases,
            ..Measured::default()
        };
        let share = ("server_cpu_share".to_owned(), found.busy_share);
        measured.extras.extend([share]);
        Ok(measured)
    }
}

/// Gives what a request costs, roughly. Who listens may be busy yet with what comes after, as with loading programs into the
/// kernel, which takes an emulated one seconds.
fn warm_up(
    job: &Job,
    (guest, address): (&Guest, SocketAddr),
    run: &mut dyn FnMut(u64) -> Result<Outcome, String>,
) -> Result<f64, String> {
    const TRIES: u32 = 3;
    let wanted = Wanted::by(job);
    let mut tried = Ok(());
    for _ in 0..TRIES {
        tried = match forms::has_forms(job) {
            true => forms::begin(address, job),
            false => Ok(()),
        };
        tried = tried.and_then(|()| run(wanted.trial()).map(drop));
        if tried.is_ok() {
            break;
        }
    }
    tried?;
    let before = guest.counted_at_rest();
    run(wanted.trial())?;
    let each = (guest.counted_at_rest() - before) as f64 / wanted.trial() as f64;
    run(wanted.warmup(each))?;
    // What goes on and on costs something else each time.
    if programs::needs_lowroad(&job.server.peer) && job.memory_mib.is_none() {
        settle(guest, wanted.warmup(each), run)?;
    }
    Ok(each)
}

/// Asks for the same again and again until that costs the same twice: a level below learns what is asked for, by and by, and
/// learning costs, too.
fn settle(
    guest: &Guest,
    requests: u64,
    run: &mut dyn FnMut(u64) -> Result<Outcome, String>,
) -> Result<(), String> {
    /// Whether it still learns then is seen by the repeats.
    const ROUNDS_MAX: u32 = 12;
    /// That is what runs differ by.
    const SAME: f64 = 0.02;
    let mut counted = guest.counted_at_rest();
    let mut last = 0.0;
    for _ in 0..ROUNDS_MAX {
        run(requests)?;
        let now = guest.counted_at_rest();
        let cost = (now - counted) as f64;
        if (cost - last).abs() < SAME * last {
            break;
        }
        (counted, last) = (now, cost);
    }
    Ok(())
}

/// One long run, of requests that were not made before: asked for a second time, their files would be in memory.
fn straight(
    guest: &mut Guest,
    requests: u64,
    run: &mut dyn FnMut(u64) -> Result<Outcome, String>,
) -> Result<Slopes<Outcome>, String> {
    let before = guest.counted_at_rest();
    let long = run(requests).map_err(|why| guest.failure(&why))?;
    let counted = guest.counted_at_rest() - before;
    Ok(Slopes {
        instructions: vec![counted as f64 / requests as f64],
        short: Outcome::default(),
        long,
    })
}

/// The figures, as if 10^9 instructions were a second.
fn measured(slopes: &Slopes<Outcome>) -> Result<Measured, String> {
    let instructions = slopes.middle()?;
    let (short, long) = (&slopes.short, &slopes.long);
    let requests = (long.requests - short.requests) as f64;
    let per_request = |of: fn(&Outcome) -> u64| (of(long) - of(short)) as f64 / requests;
    let rate = PER_SECOND / instructions;
    let mut outcome = long.clone();
    outcome.duration_s = long.requests as f64 / rate;
    outcome.requests_per_s = rate;
    outcome.connections_per_s = rate * per_request(|outcome| outcome.connections);
    outcome.bytes_per_s = rate * per_request(|outcome| outcome.bytes);
    // How long anything took on this machine says nothing of the server.
    let Outcome {
        latency_us,
        service_us,
        response_us,
        transfer_us,
        connect_us,
        connection_us,
        established_us,
        reply_rate,
        ..
    } = Outcome::default();
    Ok(Measured {
        capacity_per_s: Some(rate),
        instructions: Some(instructions),
        slopes: slopes.instructions.clone(),
        outcome: Outcome {
            latency_us,
            service_us,
            response_us,
            transfer_us,
            connect_us,
            connection_us,
            established_us,
            reply_rate,
            cpu_share: 0.0,
            ..outcome
        },
        ..Measured::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_so_many_instructions() {
        let outcome = |requests, bytes| Outcome {
            requests,
            bytes,
            connections: requests / 2,
            ..Outcome::default()
        };
        let slopes = Slopes {
            instructions: vec![50_000.0, 900_000.0, 49_000.0],
            short: outcome(100, 1_000_000),
            long: outcome(300, 1_200_000),
        };
        let measured = measured(&slopes).expect("a figure");
        assert_eq!(measured.instructions, Some(50_000.0));
        assert_eq!(measured.outcome.requests_per_s, 20_000.0);
        assert_eq!(measured.outcome.connections_per_s, 10_000.0);
        assert_eq!(measured.outcome.bytes_per_s, 20_000_000.0);
        assert_eq!(measured.outcome.latency_us.count, 0);
    }
}
