//! The counting bench: each server runs in a guest with an instruction counter, with clients on the host. A guest
//! serves all consecutive points of its server.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::bench::{MeasurementJob, MeasurementResult, PeerServer, TestBench};
use super::clients::{LoadClients, completed_run};
use super::counting::PER_SECOND;
use super::forms;
use super::guests::{GuestFactory, GuestKey, ReadyGuest, is_timed};
use super::phases::{ProbeSchedule, StatusProbe};
use super::schema::ExperimentConfig;
use super::site::LabSites;
use crate::icount::RunSlopes;
use crate::icount::dealt::OrderCache;
use crate::icount::profile::SymbolProfile;
use crate::icount::timed::timed;
use crate::load::{ExternalClock, LoadResult, LoadRun, LoadSnapshot};
use crate::peers::PeerFailure;
use crate::workload::named;

/// Number of connections in the warm-up of an open loop.
const WARMING_CONNECTIONS: u32 = 8;
/// Maximum virtual time until clients see a response, where latency is not measured; an instruction takes one
/// nanosecond.
const STEP_NS: u64 = 200_000;

/// The bench.
pub struct CountingBench {
    guests: GuestFactory,
    /// The folder for profiles, if requested.
    profiles: Option<PathBuf>,
    orders: Rc<RefCell<OrderCache>>,
    /// The guest of the latest job, which the next job may reuse.
    guest: Option<(GuestKey, Rc<RefCell<ReadyGuest>>)>,
}

impl CountingBench {
    /// Creates a bench for these sites. It writes a profile of each figure to `profiles`.
    #[must_use]
    pub fn new(sites: LabSites, profiles: Option<PathBuf>) -> Self {
        Self {
            guests: GuestFactory::new(sites, profiles.is_some()),
            profiles,
            orders: Rc::default(),
            guest: None,
        }
    }
}

impl TestBench for CountingBench {
    fn prepare(
        &mut self,
        experiment: &ExperimentConfig,
        progress: &mut dyn FnMut(f64),
        stop: &AtomicBool,
    ) -> Result<(), String> {
        self.guests.prepare(experiment, progress, stop)
    }

    fn start(&mut self, job: &MeasurementJob) -> Result<Box<dyn PeerServer>, PeerFailure> {
        let key = self.guests.key(job);
        let fits = |(guest_key, ready): &(GuestKey, Rc<RefCell<ReadyGuest>>)| {
            let ready = &mut *ready.borrow_mut();
            // After a failure the server's state is uncertain, so the next job gets a new guest.
            *guest_key == key && !ready.has_failed && ready.guest.runs()
        };
        // A guest that can't be reused is dropped before the next one boots, since each takes a processor and memory.
        let reused = self.guest.take().filter(fits);
        let (_, ready) = match reused {
            Some(reused) => self.guest.insert(reused),
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
            orders: self.orders.clone(),
            version,
            configuration,
        }))
    }

    fn guest_key(&self, job: &MeasurementJob) -> Option<String> {
        Some(format!("{:?}", self.guests.key(job)))
    }

    fn check(&self, experiment: &ExperimentConfig) -> Result<(), String> {
        let workload = &experiment.workload;
        named(&workload.name, &workload.settings, "127.0.0.1").map(drop)
    }
}

struct CountedPeer {
    ready: Rc<RefCell<ReadyGuest>>,
    profiles: Option<PathBuf>,
    orders: Rc<RefCell<OrderCache>>,
    version: String,
    configuration: String,
}

impl PeerServer for CountedPeer {
    fn version(&self) -> &str {
        &self.version
    }

    fn configuration(&self) -> &str {
        &self.configuration
    }

    fn measure(
        &mut self,
        job: &MeasurementJob,
        _progress: &mut dyn FnMut(&LoadSnapshot),
        stop: &AtomicBool,
    ) -> Result<MeasurementResult, String> {
        let measured = match is_timed(job) {
            false => self.count(job, stop),
            true => self.time(job, stop),
        };
        // A stopped run also fails, so the flag is checked before the result.
        if stop.load(Ordering::Relaxed) {
            let mut cut = MeasurementResult::default();
            cut.outcome.interrupted = true;
            return Ok(cut);
        }
        self.ready.borrow_mut().has_failed = measured.is_err();
        measured
    }
}

impl CountedPeer {
    fn count(&self, job: &MeasurementJob, stop: &AtomicBool) -> Result<MeasurementResult, String> {
        let ready = &mut *self.ready.borrow_mut();
        let address = ready.address;
        let clients = LoadClients::for_guest(job, ready, &mut self.orders.borrow_mut(), stop)?;
        if forms::has_forms(job) {
            let prepared = forms::begin(address, job).or_else(|_| forms::begin(address, job));
            prepared.map_err(|error| ready.guest.failure(&error))?;
        }
        let result = measure_in_steps(job, ready, &clients);
        // `measure_in_steps` has dropped the stepped clock: the guest runs freely again, so its log can be read.
        let measured = result.map_err(|error| ready.guest.failure(&error))?;
        self.profile(job, ready, &clients)?;
        if forms::has_forms(job) {
            forms::check(address, job, &measured.outcome)?;
        }
        Ok(measured)
    }

    /// Writes a profile, if requested. A bare image has no symbols.
    fn profile(
        &self,
        job: &MeasurementJob,
        ready: &mut ReadyGuest,
        clients: &LoadClients<'_>,
    ) -> Result<(), String> {
        /// Enough requests to hit most symbols.
        const REQUESTS: u64 = 600;
        // A bare image has no copied programs from which symbols could be read.
        let Some(folder) = self.profiles.as_ref().filter(|_| !ready.copied.is_empty()) else {
            return Ok(());
        };
        let requests = REQUESTS.max(u64::from(job.connections));
        let mut run = |requests| {
            clients
                .run_requests(requests, None)
                .map(|result| result.requests)
        };
        let profile = SymbolProfile::record(&mut ready.guest, &ready.copied, requests, &mut run)?;
        profile.write(folder, &job.name.replace([' ', '/'], "-"))
    }

    /// Measures in the guest's virtual time.
    fn time(&self, job: &MeasurementJob, stop: &AtomicBool) -> Result<MeasurementResult, String> {
        let ready = &mut *self.ready.borrow_mut();
        let address = ready.address;
        let load = LoadRun {
            // A virtual clock allows only one thread.
            threads: 1,
            ..job.load(address)?
        };
        // The server is warmed up in a closed loop and without stepping the guest, since the times of the warm-up are
        // not measured.
        let warming = MeasurementJob {
            connections: WARMING_CONNECTIONS,
            ..job.clone()
        };
        let clients = LoadClients::for_guest(&warming, ready, &mut self.orders.borrow_mut(), stop)?;
        let ReadyGuest { guest, warmed, .. } = ready;
        let mut run = |requests| {
            let result = clients.run_requests(requests, None)?;
            Ok(completed_run(guest.instructions_when_idle(), result))
        };
        let warm = warmed.warm(&warming, &mut run);
        warm.map_err(|error| guest.failure(&error))?;
        let mut probe = None;
        let mut begin = |time: &Arc<dyn ExternalClock>| {
            let probe_schedule = ProbeSchedule::ByTime(Arc::downgrade(time));
            probe = job
                .phases
                .then(|| StatusProbe::start(address, job.set(), probe_schedule));
        };
        let timed_result = timed(guest, load, &mut begin, stop);
        let phases = probe.map(StatusProbe::end).unwrap_or_default();
        let timed_result = timed_result.map_err(|error| guest.failure(&error))?;
        let mut measured = MeasurementResult {
            outcome: timed_result.outcome,
            extras: phases,
            ..MeasurementResult::default()
        };
        let share = ("server_cpu_share".to_owned(), timed_result.busy_share);
        measured.extras.extend([share]);
        Ok(measured)
    }
}

/// Counts instructions while guest and clients run alternately, so that other load on the host makes no difference.
fn measure_in_steps(
    job: &MeasurementJob,
    ready: &mut ReadyGuest,
    clients: &LoadClients<'_>,
) -> Result<MeasurementResult, String> {
    let ReadyGuest { guest, warmed, .. } = ready;
    // The guest is stopped only when idle, so that no earlier work falls into the count.
    guest.instructions_when_idle();
    let time = Arc::new(guest.step_by(STEP_NS)?);
    time.run_until_idle()?;
    let mut run = |requests| {
        let result = clients.run_requests(requests, Some(time.clone()))?;
        // Work after the last response, such as the log and closed connections, belongs to this run.
        time.run_until_idle()?;
        Ok(completed_run(guest.instructions(), result))
    };
    let instructions_per_request = warmed.warm(job, &mut run)?;
    let (counted_before, moved_before, mut body_len) = (guest.instructions(), guest.moved_len(), 0);
    let mut run_counted = |requests| {
        let done = run(requests)?;
        body_len += done.output.body_bytes;
        Ok(done)
    };
    let mut measured =
        measured(&clients.count(counted_before, instructions_per_request, &mut run_counted)?)?;
    let moved_bytes = (guest.moved_len() - moved_before) as f64;
    let moved_share = (
        "moved_share".to_owned(),
        moved_bytes / body_len.max(1) as f64,
    );
    measured.extras.extend([moved_share]);
    Ok(measured)
}

/// The figures, with 10^9 instructions as a second.
fn measured(slopes: &RunSlopes<LoadResult>) -> Result<MeasurementResult, String> {
    let instructions = slopes.median()?;
    let (short, long) = (&slopes.short, &slopes.long);
    // Only the difference between the two runs counts, so that the cost of opening connections cancels out.
    let requests = (long.requests - short.requests) as f64;
    let per_request =
        |counter: fn(&LoadResult) -> u64| (counter(long) - counter(short)) as f64 / requests;
    let rate = PER_SECOND / instructions;
    let mut outcome = long.clone();
    // The time that the counted requests would take at 10⁹ instructions a second.
    outcome.duration_s = long.requests as f64 / rate;
    outcome.requests_per_s = rate;
    outcome.connections_per_s = rate * per_request(|outcome| outcome.connections);
    outcome.bytes_per_s = rate * per_request(|outcome| outcome.bytes);
    // Times on the host are meaningless for the server.
    let LoadResult {
        latency_us,
        service_us,
        response_us,
        transfer_us,
        connect_us,
        connection_us,
        established_us,
        reply_rate,
        ..
    } = LoadResult::default();
    Ok(MeasurementResult {
        capacity_per_s: Some(rate),
        instructions: Some(instructions),
        slopes: slopes.instructions.clone(),
        outcome: LoadResult {
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
        ..MeasurementResult::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_per_second_are_computed_from_instructions() {
        let outcome = |requests, bytes| LoadResult {
            requests,
            bytes,
            connections: requests / 2,
            ..LoadResult::default()
        };
        let slopes = RunSlopes {
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
