//! Executes a run: checks its settings, starts the threads, reports progress and merges the figures.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::outcome::ConformingClients;
use super::tally::{LoadTally, NanoHistogram};
use super::tls;
use super::worker::{LiveFigures, LoadContext, LoadWorker, ThreadShare};
use super::{LoadError, LoadResult, LoadRun, LoadSnapshot, RequestPace};
use crate::peers::system::pin;

/// Interval at which the stop flag is checked.
const TICK: Duration = Duration::from_millis(50);
/// Interval of progress reports.
const PROGRESS_NS: u64 = 1_000_000_000;
/// Number of descriptors needed in addition to those of connections.
const DESCRIPTORS_ELSE: u64 = 64;
/// Maximum requests a second of one thread.
const RATE_MAX: f64 = 1e8;
/// SPECweb99's conformance: a client must reach 320,000 of its 400,000 bit/s.
const CONFORMING_SHARE: f64 = 0.8;

/// Executes a run. `progress` is called once a second; `stop` ends the run early, and the figures are those until then.
///
/// # Errors
/// The run can't start. Later failures are counted in the result.
pub fn run(
    load: &LoadRun,
    progress: &mut dyn FnMut(&LoadSnapshot),
    stop: &AtomicBool,
) -> Result<LoadResult, LoadError> {
    check(load)?;
    raise_descriptor_limit(load.connections)?;
    let tls = load.target.tls.as_ref().map(tls::start).transpose()?;
    let shared = plan(load);
    // A thread without a client would be useless.
    let threads = load.threads.min(load.connections);
    let lives: Vec<Arc<Mutex<LiveFigures>>> = (0..threads).map(|_| Arc::default()).collect();
    // The CPU time is read before the threads start, since the process's CPU time includes them.
    let cpu_before_ns = cpu_ns();
    let thread_results = thread::scope(|scope| {
        let mut handles = Vec::new();
        // A channel without messages: it disconnects once all workers have dropped their senders.
        let (working, worked) = channel::<()>();
        for (number, live) in (0..threads).zip(&lives) {
            let share = ThreadShare {
                thread: number,
                threads,
            };
            let worker = LoadWorker::new(load, &shared, tls.clone(), &share, live.clone())
                .map_err(|error| {
                    LoadError::Machine(format!("can't create an epoll instance: {error}"))
                })?;
            let cpu = pinned_to(&load.cpus, number);
            let working = working.clone();
            let spawned = thread::Builder::new()
                .name(format!("load-{number}"))
                .spawn_scoped(scope, move || {
                    // Without pinning the scheduler places the thread.
                    let _ = pin(cpu.as_slice());
                    let thread_result = worker.run();
                    drop(working);
                    thread_result
                });
            match spawned {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    // Threads that already run must end; otherwise the scope would wait for them until the end of the
                    // run.
                    shared.stop.store(true, Relaxed);
                    return Err(LoadError::Machine(format!("can't start a thread: {error}")));
                }
            }
        }
        drop(working);
        // This thread only reports progress and checks the stop flag, so that it does not disturb the measurement.
        let mut reporter = ProgressReporter::new(load, &shared, &lives);
        while worked.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            if stop.load(Relaxed) {
                shared.stop.store(true, Relaxed);
            }
            reporter.report(progress);
        }
        let joined = handles.into_iter().map(|handle| handle.join());
        Ok(joined
            .map(|thread_result| thread_result.expect("a load thread does not panic"))
            .collect::<Vec<_>>())
    })?;
    let ends = thread_results.iter().map(|(_, _, end_ns)| *end_ns);
    // Threads may notice the end late, but nothing after the end is counted.
    let end_ns = ends.max().unwrap_or(shared.end_ns).min(shared.end_ns);
    let total_s = end_ns.saturating_sub(shared.begin_ns) as f64 / 1e9;
    let mut outcome = figures(load, &shared, end_ns, &thread_results);
    outcome.interrupted = stop.load(Relaxed);
    outcome.cpu_share = (cpu_ns() - cpu_before_ns) as f64 / 1e9 / total_s.max(1e-9);
    Ok(outcome)
}

fn check(load: &LoadRun) -> Result<(), LoadError> {
    let settings_error = |text: &str| Err(LoadError::Settings(text.into()));
    if load.target.addresses.is_empty() {
        return settings_error("no address to connect to");
    }
    if load.connections == 0 || load.threads == 0 || load.pipeline == 0 {
        return settings_error("connections, threads and pipeline must be at least 1");
    }
    if load.line_bits_per_s == Some(0) {
        return settings_error("a line of 0 bits a second allows no traffic");
    }
    if load.time.is_some() && load.threads != 1 {
        return settings_error("a run in a guest's time has one thread");
    }
    // The condition is negated so that it rejects NaN as well.
    match load.pace {
        RequestPace::Requests(rate) | RequestPace::Connections(rate)
            if !(rate > 0.0 && rate <= RATE_MAX) =>
        {
            settings_error("the rate must be more than 0 and at most 100 million a second")
        }
        _ => Ok(()),
    }
}

/// Raises the limit on descriptors to the number that is needed, if that is permitted.
fn raise_descriptor_limit(connections: u32) -> Result<(), LoadError> {
    let needed = u64::from(connections) + DESCRIPTORS_ELSE;
    let limit = getrlimit(Resource::Nofile);
    // Only privileged processes may raise the hard limit, so a hard limit that is too low is an error.
    if limit.maximum.is_some_and(|hard| hard < needed) {
        let hard = limit.maximum.unwrap_or(0);
        return Err(LoadError::Machine(format!(
            "{connections} connections need {needed} descriptors and there may be {hard}: raise the \
             hard limit (ulimit -Hn) or use fewer --connections"
        )));
    }
    if limit.current.is_some_and(|soft| soft < needed) {
        let raised = Rlimit {
            current: Some(needed),
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, raised).map_err(|error| {
            LoadError::Machine(format!("can't get {needed} descriptors: {error}"))
        })?;
    }
    Ok(())
}

fn plan(load: &LoadRun) -> LoadContext {
    let begin_ns = load.now_ns();
    let count_ns = begin_ns + load.warmup.max(load.ramp).as_nanos() as u64;
    LoadContext {
        stop: AtomicBool::new(false),
        quota: load.requests.map(AtomicU64::new),
        connections_left: load.openings.map(AtomicU64::new),
        begin_ns,
        count_ns,
        end_ns: count_ns.saturating_add(load.duration.as_nanos() as u64),
        reached: AtomicBool::new(false),
    }
}

fn pinned_to(cpus: &[usize], thread: u32) -> Option<usize> {
    // The divisor must not be 0; if there are no CPUs, `get` returns `None`.
    let index = thread as usize % cpus.len().max(1);
    cpus.get(index).copied()
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn figures(
    load: &LoadRun,
    shared: &LoadContext,
    end_ns: u64,
    thread_results: &[(LoadTally, Vec<u64>, u64)],
) -> LoadResult {
    let mut total_tally = LoadTally::new(load.workload.classes().len().max(1));
    thread_results
        .iter()
        .for_each(|(tally, _, _)| total_tally.add(tally));
    let duration_s = end_ns.saturating_sub(shared.count_ns) as f64 / 1e9;
    let mut outcome = total_tally.outcome(duration_s, load.workload.classes());
    outcome.offered_per_s = match load.pace {
        RequestPace::Closed => None,
        RequestPace::Requests(rate) | RequestPace::Connections(rate) => Some(rate),
    };
    outcome.conforming = load.line_bits_per_s.map(|line| {
        let bytes = thread_results.iter().flat_map(|(_, bytes, _)| bytes);
        conforming(line, duration_s, bytes)
    });
    outcome
}

fn conforming<'b>(
    line_bits_per_s: u64,
    duration_s: f64,
    client_bytes: impl Iterator<Item = &'b u64>,
) -> ConformingClients {
    let min_bits_per_s = (line_bits_per_s as f64 * CONFORMING_SHARE) as u64;
    let min_bytes = min_bits_per_s as f64 / 8.0 * duration_s;
    let (mut connections, mut client_count) = (0, 0);
    for bytes in client_bytes {
        client_count += 1;
        connections += u64::from(*bytes as f64 >= min_bytes && duration_s > 0.0);
    }
    ConformingClients {
        least_bits_per_s: min_bits_per_s,
        connections,
        share: connections as f64 / f64::max(1.0, f64::from(client_count)),
    }
}

/// Reports progress once a second.
struct ProgressReporter<'r> {
    load: &'r LoadRun,
    shared: &'r LoadContext,
    lives: &'r [Arc<Mutex<LiveFigures>>],
    reported_ns: u64,
    requests: u64,
    bytes: u64,
}

impl<'r> ProgressReporter<'r> {
    fn new(
        load: &'r LoadRun,
        shared: &'r LoadContext,
        lives: &'r [Arc<Mutex<LiveFigures>>],
    ) -> ProgressReporter<'r> {
        ProgressReporter {
            load,
            shared,
            lives,
            reported_ns: shared.begin_ns,
            requests: 0,
            bytes: 0,
        }
    }

    fn report(&mut self, progress: &mut dyn FnMut(&LoadSnapshot)) {
        let now_ns = self.load.now_ns();
        let elapsed_ns = now_ns - self.reported_ns;
        if elapsed_ns < PROGRESS_NS {
            return;
        }
        let (mut requests, mut bytes, mut errors) = (0, 0, 0);
        let mut latency = NanoHistogram::default();
        for live in self.lives {
            let live = live.lock().unwrap_or_else(PoisonError::into_inner);
            requests += live.requests;
            bytes += live.bytes;
            errors += live.errors;
            latency.add(&live.latency);
        }
        let per_s = |count: u64| count as f64 * 1e9 / elapsed_ns as f64;
        progress(&LoadSnapshot {
            elapsed_s: now_ns.saturating_sub(self.shared.count_ns) as f64 / 1e9,
            duration_s: (self.shared.end_ns - self.shared.count_ns) as f64 / 1e9,
            warming: now_ns < self.shared.count_ns,
            requests_per_s: per_s(requests - self.requests),
            bytes_per_s: per_s(bytes - self.bytes),
            p50_us: latency.quantile_us(0.5),
            p99_us: latency.quantile_us(0.99),
            errors,
        });
        (self.reported_ns, self.requests, self.bytes) = (now_ns, requests, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_conforms_at_four_fifths_of_its_line_speed() {
        // 40,000 bytes a second are 320 kbit/s.
        let bytes = [400_000, 399_999, 500_000];
        let conforming = conforming(400_000, 10.0, bytes.iter());
        assert_eq!(conforming.least_bits_per_s, 320_000);
        assert_eq!(conforming.connections, 2);
        assert!((conforming.share - 2.0 / 3.0).abs() < 1e-9);
    }
}
