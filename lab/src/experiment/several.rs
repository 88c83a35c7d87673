//! Counts experiments with several servers at a time: each has its own guest and processor. Jobs for the same guest,
//! of several experiments, are consecutive. Independent of guests.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity};

use super::bench::TestBench;
use super::kept::ResultStore;
use super::plan::{self, RunExtent};
use super::progress::{NamedProgress, ProgressCounter, ProgressSink};
use super::runner::{self, RunEnd, RunSetting};
use super::schema::ExperimentConfig;
use crate::peers::system::{pin, raise_descriptors};

/// An experiment with its results.
struct OpenExperiment<'e> {
    experiment: &'e ExperimentConfig,
    store: ResultStore<'e>,
    ends: Mutex<Vec<Result<RunEnd, String>>>,
}

/// A unit of work for one thread.
struct WorkUnit<'e> {
    open: &'e OpenExperiment<'e>,
    extent: RunExtent,
    is_first: bool,
}

/// Runs experiments with `jobs` simultaneous measurements; `bench` creates a bench for each thread. Returns the end of
/// each experiment, in order.
pub fn run(
    experiments: &[ExperimentConfig],
    setting: &RunSetting<'_>,
    jobs: usize,
    bench: &(dyn Fn() -> Box<dyn TestBench> + Sync),
) -> Vec<Result<RunEnd, String>> {
    // Raised once for all: each thread would count only its own connections.
    raise_descriptors();
    let first = bench();
    // The first bench is only queried for properties; each thread measures with its own bench.
    let is_simulated = first.is_simulated();
    let open = |experiment| {
        let store = ResultStore::open(
            experiment,
            setting,
            is_simulated,
            &mut NamedProgress::new(&experiment.name),
        );
        store.map(|store| OpenExperiment {
            experiment,
            store,
            ends: Mutex::default(),
        })
    };
    let opened: Vec<Result<OpenExperiment<'_>, String>> = experiments.iter().map(open).collect();
    let units: Vec<WorkUnit<'_>> = opened
        .iter()
        .flatten()
        .flat_map(|open| split_into_units(open, setting.extent))
        .collect();
    let count = |unit: &WorkUnit<'_>| plan::count(unit.open.experiment, &unit.extent);
    let missing = |unit: &WorkUnit<'_>| unit.open.store.missing(&unit.extent);
    let (total, missing) = (
        units.iter().map(count).sum(),
        units.iter().map(missing).sum(),
    );
    let counter = ProgressCounter::new(total, missing, EXPECTED_S);
    let groups = grouped(&units, &|unit| unit.server_key(&*first));
    let queue = Mutex::new(groups.iter());
    let next = || {
        queue
            .lock()
            .expect("no thread panics with this lock")
            .next()
    };
    thread::scope(|scope| {
        // More threads than groups would find no work.
        for number in 0..jobs.min(groups.len()) {
            let (next, counter) = (&next, &counter);
            scope.spawn(move || {
                pin_thread(number);
                let mut bench = bench();
                while let Some(group) = next() {
                    // One thread for the whole group, so that its bench reuses the guest.
                    for unit in group {
                        if setting.stop.load(Ordering::Relaxed) {
                            return;
                        }
                        unit.run(setting, counter, &mut *bench);
                    }
                }
            });
        }
    });
    let is_stopped = setting.stop.load(Ordering::Relaxed);
    let end = |open: Result<OpenExperiment<'_>, String>| open.and_then(|open| open.end(is_stopped));
    opened.into_iter().map(end).collect()
}

/// Assumed seconds of a measurement, before the first is known.
const EXPECTED_S: f64 = 3.0;

/// Splits an experiment by server, except where all points depend on the capacity of one server.
fn split_into_units<'e>(open: &'e OpenExperiment<'e>, extent: &RunExtent) -> Vec<WorkUnit<'e>> {
    let unit = |extent: RunExtent, is_first| WorkUnit {
        open,
        extent,
        is_first,
    };
    // All points need the reference's capacity, which one thread measures first.
    if !open.experiment.sweep.relative_to_capacity.is_empty() {
        return vec![unit(extent.clone(), true)];
    }
    let servers = open.experiment.servers.iter();
    let servers = servers.filter(|server| extent.includes(server)).enumerate();
    let only = |name: &String| RunExtent {
        only: vec![name.clone()],
        ..extent.clone()
    };
    servers
        .map(|(index, server)| unit(only(&server.name), index == 0))
        .collect()
}

/// Groups units with equal keys, in the order of the first of each group.
fn grouped<'u, U>(units: &'u [U], guest_of: &dyn Fn(&U) -> Option<String>) -> Vec<Vec<&'u U>> {
    let mut groups: Vec<(Option<String>, Vec<&U>)> = Vec::new();
    for unit in units {
        let guest = guest_of(unit);
        match groups
            .iter_mut()
            .find(|(group_guest, _)| guest.is_some() && *group_guest == guest)
        {
            Some((_, group)) => group.push(unit),
            None => groups.push((guest, vec![unit])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

impl WorkUnit<'_> {
    /// The key of the guest that it needs first.
    fn server_key(&self, bench: &dyn TestBench) -> Option<String> {
        let experiment = self.open.experiment;
        let points = plan::points(experiment, None, &self.extent);
        let steps = plan::steps(experiment, &points, &self.extent);
        let job = plan::job(experiment, steps.first()?, &self.extent);
        bench.server_key(&job)
    }

    fn run(&self, setting: &RunSetting<'_>, counter: &ProgressCounter, bench: &mut dyn TestBench) {
        let OpenExperiment {
            experiment,
            store,
            ends,
        } = self.open;
        let mut progress = NamedProgress::new(&experiment.name);
        if self.is_first {
            progress.line(&experiment.title);
        }
        let setting = RunSetting {
            extent: &self.extent,
            ..*setting
        };
        let end = runner::measure(&setting, store, counter, bench, &mut progress);
        ends.lock()
            .expect("no thread panics with this lock")
            .push(end);
    }
}

impl OpenExperiment<'_> {
    /// The end of the experiment, combined from its units.
    fn end(self, is_stopped: bool) -> Result<RunEnd, String> {
        let ends = self
            .ends
            .into_inner()
            .expect("no thread panicked with this lock");
        let mut total = 0;
        for end in ends {
            match end? {
                RunEnd::Whole { broken } => total += broken,
                RunEnd::Stopped => return Ok(RunEnd::Stopped),
            }
        }
        match is_stopped {
            true => Ok(RunEnd::Stopped),
            false => Ok(RunEnd::Whole { broken: total }),
        }
    }
}

/// Pins this thread and its children to one processor: a stepped guest and its client take turns, and waking another
/// processor takes longer than a turn.
fn pin_thread(number: usize) {
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect();
    // Failure is harmless: the results are equal, only later.
    let _ = pin(&[cpus[number % cpus.len()]]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_one_place_comes_together() {
        let units = ["a1", "b1", "-1", "a2", "-2", "b2"];
        let place = |unit: &&str| Some(unit[..1].to_owned()).filter(|at| at != "-");
        let groups = grouped(&units, &place);
        let expected = [
            vec![&"a1", &"a2"],
            vec![&"b1", &"b2"],
            vec![&"-1"],
            vec![&"-2"],
        ];
        assert_eq!(groups, expected);
    }
}
