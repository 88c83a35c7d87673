//! Runs the counted experiments in parallel: each thread has its own guest and processor. Work that needs the same
//! guest is grouped, even across experiments, so that the guest boots once. Independent of guests.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity};

use super::bench::TestBench;
use super::kept::ResultStore;
use super::plan::{self, RunSelection};
use super::progress::{NamedProgress, ProgressCounter, ProgressSink};
use super::runner::{self, RunOutcome, RunSetting};
use super::schema::ExperimentConfig;
use crate::peers::system::{pin, raise_descriptors};

/// An experiment being measured, with its result store.
struct RunningExperiment<'e> {
    experiment: &'e ExperimentConfig,
    store: ResultStore<'e>,
    outcomes: Mutex<Vec<Result<RunOutcome, String>>>,
}

/// A unit of work for one thread.
struct WorkUnit<'e> {
    running: &'e RunningExperiment<'e>,
    selection: RunSelection,
    is_first: bool,
}

/// Runs experiments with up to `threads_max` measurements in parallel; `bench` creates a bench for each thread. Returns
/// the outcome of each experiment, in order.
pub fn run(
    experiments: &[ExperimentConfig],
    setting: &RunSetting<'_>,
    threads_max: usize,
    bench: &(dyn Fn() -> Box<dyn TestBench> + Sync),
) -> Vec<Result<RunOutcome, String>> {
    // The descriptor limit is raised here for all threads: each would raise it only for its own connections.
    raise_descriptors();
    let first = bench();
    // The first bench is only queried for properties; each thread measures with its own bench.
    let is_simulated = first.is_simulated();
    let open_results = |experiment| {
        let store = ResultStore::open(
            experiment,
            setting,
            is_simulated,
            &mut NamedProgress::new(&experiment.name),
        );
        store.map(|store| RunningExperiment {
            experiment,
            store,
            outcomes: Mutex::default(),
        })
    };
    let opened: Vec<Result<RunningExperiment<'_>, String>> =
        experiments.iter().map(open_results).collect();
    let units: Vec<WorkUnit<'_>> = opened
        .iter()
        .flatten()
        .flat_map(|open| split_into_units(open, setting.selection))
        .collect();
    let count = |unit: &WorkUnit<'_>| plan::count(unit.running.experiment, &unit.selection);
    let missing = |unit: &WorkUnit<'_>| unit.running.store.missing(&unit.selection);
    let (total, missing) = (
        units.iter().map(count).sum(),
        units.iter().map(missing).sum(),
    );
    let counter = ProgressCounter::new(total, missing, EXPECTED_S);
    // Units with the same guest form a group, since booting takes longer than many measurements.
    let groups = grouped(&units, &|unit| unit.guest_key(&*first));
    let queue = Mutex::new(groups.iter());
    let next = || {
        queue
            .lock()
            .expect("no thread panics with this lock")
            .next()
    };
    thread::scope(|scope| {
        // More threads than groups would find no work.
        for number in 0..threads_max.min(groups.len()) {
            let (next, counter) = (&next, &counter);
            scope.spawn(move || {
                pin_thread(number);
                let mut bench = bench();
                while let Some(group) = next() {
                    // One thread measures the whole group, so that its bench reuses the guest.
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
    let end = |open: Result<RunningExperiment<'_>, String>| {
        open.and_then(|open| open.combined_outcome(is_stopped))
    };
    opened.into_iter().map(end).collect()
}

/// Assumed seconds of a measurement, before the first is known.
const EXPECTED_S: f64 = 3.0;

/// Splits an experiment into a unit for each server, or one unit if all points depend on the capacity of one server.
fn split_into_units<'e>(
    running: &'e RunningExperiment<'e>,
    selection: &RunSelection,
) -> Vec<WorkUnit<'e>> {
    let unit = |selection: RunSelection, is_first| WorkUnit {
        running,
        selection,
        is_first,
    };
    // All points need the reference's capacity, which one thread measures first.
    if !running.experiment.sweep.relative_to_capacity.is_empty() {
        return vec![unit(selection.clone(), true)];
    }
    let servers = running.experiment.servers.iter();
    let servers = servers
        .filter(|server| selection.includes(server))
        .enumerate();
    let only = |name: &String| RunSelection {
        only: vec![name.clone()],
        ..selection.clone()
    };
    servers
        .map(|(index, server)| unit(only(&server.name), index == 0))
        .collect()
}

/// Groups units with equal keys, in the order of the first of each group.
fn grouped<'u, U>(units: &'u [U], key_of: &dyn Fn(&U) -> Option<String>) -> Vec<Vec<&'u U>> {
    let mut groups: Vec<(Option<String>, Vec<&U>)> = Vec::new();
    for unit in units {
        let key = key_of(unit);
        match groups
            .iter_mut()
            .find(|(group_key, _)| key.is_some() && *group_key == key)
        {
            Some((_, group)) => group.push(unit),
            None => groups.push((key, vec![unit])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

impl WorkUnit<'_> {
    /// The key of the guest that the unit needs first.
    fn guest_key(&self, bench: &dyn TestBench) -> Option<String> {
        let experiment = self.running.experiment;
        let points = plan::points(experiment, None, &self.selection);
        let steps = plan::steps(experiment, &points, &self.selection);
        let job = plan::job(experiment, steps.first()?, &self.selection);
        bench.guest_key(&job)
    }

    fn run(&self, setting: &RunSetting<'_>, counter: &ProgressCounter, bench: &mut dyn TestBench) {
        let RunningExperiment {
            experiment,
            store,
            outcomes: ends,
        } = self.running;
        let mut progress = NamedProgress::new(&experiment.name);
        if self.is_first {
            progress.line(&experiment.title);
        }
        let setting = RunSetting {
            selection: &self.selection,
            ..*setting
        };
        let end = runner::measure(&setting, store, counter, bench, &mut progress);
        ends.lock()
            .expect("no thread panics with this lock")
            .push(end);
    }
}

impl RunningExperiment<'_> {
    /// Combines the outcomes of the units into that of the experiment.
    fn combined_outcome(self, is_stopped: bool) -> Result<RunOutcome, String> {
        let ends = self
            .outcomes
            .into_inner()
            .expect("no thread panicked with this lock");
        let mut total = 0;
        for end in ends {
            match end? {
                RunOutcome::Complete { failed: broken } => total += broken,
                RunOutcome::Stopped => return Ok(RunOutcome::Stopped),
            }
        }
        match is_stopped {
            true => Ok(RunOutcome::Stopped),
            false => Ok(RunOutcome::Complete { failed: total }),
        }
    }
}

/// Pins this thread and its child processes to one processor. A guest and its clients run alternately, in short steps
/// of virtual time, and waking another processor takes longer than a step.
fn pin_thread(number: usize) {
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect();
    // Failure is harmless: the results are the same and take longer.
    let _ = pin(&[cpus[number % cpus.len()]]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_with_equal_keys_are_grouped() {
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
