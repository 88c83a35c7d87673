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
    kept: ResultStore<'e>,
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
    let pretends = first.pretends();
    let open = |experiment| {
        let kept = ResultStore::open(
            experiment,
            setting,
            pretends,
            &mut NamedProgress::new(&experiment.name),
        );
        kept.map(|kept| OpenExperiment {
            experiment,
            kept,
            ends: Mutex::default(),
        })
    };
    let opened: Vec<Result<OpenExperiment<'_>, String>> = experiments.iter().map(open).collect();
    let units: Vec<WorkUnit<'_>> = opened
        .iter()
        .flatten()
        .flat_map(|open| units(open, setting.extent))
        .collect();
    let count = |unit: &WorkUnit<'_>| plan::count(unit.open.experiment, &unit.extent);
    let missing = |unit: &WorkUnit<'_>| unit.open.kept.missing(&unit.extent);
    let (all, missing) = (
        units.iter().map(count).sum(),
        units.iter().map(missing).sum(),
    );
    let counter = ProgressCounter::new(all, missing, EXPECTED_S);
    let groups = grouped(&units, &|unit| unit.place(&*first));
    let waiting = Mutex::new(groups.iter());
    let next = || {
        waiting
            .lock()
            .expect("no thread panics with this lock")
            .next()
    };
    thread::scope(|scope| {
        for number in 0..jobs.min(groups.len()) {
            let (next, counter) = (&next, &counter);
            scope.spawn(move || {
                stay(number);
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
fn units<'e>(open: &'e OpenExperiment<'e>, extent: &RunExtent) -> Vec<WorkUnit<'e>> {
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
    let servers = servers.filter(|server| extent.wants(server)).enumerate();
    let only = |name: &String| RunExtent {
        only: vec![name.clone()],
        ..extent.clone()
    };
    servers
        .map(|(at, server)| unit(only(&server.name), at == 0))
        .collect()
}

/// Groups units with equal keys, in the order of the first of each group.
fn grouped<'u, U>(units: &'u [U], place: &dyn Fn(&U) -> Option<String>) -> Vec<Vec<&'u U>> {
    let mut groups: Vec<(Option<String>, Vec<&U>)> = Vec::new();
    for unit in units {
        let at = place(unit);
        match groups.iter_mut().find(|(of, _)| at.is_some() && *of == at) {
            Some((_, group)) => group.push(unit),
            None => groups.push((at, vec![unit])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

impl WorkUnit<'_> {
    /// The key of the guest that it needs first.
    fn place(&self, bench: &dyn TestBench) -> Option<String> {
        let experiment = self.open.experiment;
        let points = plan::points(experiment, None, &self.extent);
        let steps = plan::steps(experiment, &points, &self.extent);
        let job = plan::job(experiment, steps.first()?, &self.extent);
        bench.place(&job)
    }

    fn run(&self, setting: &RunSetting<'_>, counter: &ProgressCounter, bench: &mut dyn TestBench) {
        let OpenExperiment {
            experiment,
            kept,
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
        let end = runner::measure(&setting, kept, counter, bench, &mut progress);
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
        let mut all = 0;
        for end in ends {
            match end? {
                RunEnd::Whole { broken } => all += broken,
                RunEnd::Stopped => return Ok(RunEnd::Stopped),
            }
        }
        match is_stopped {
            true => Ok(RunEnd::Stopped),
            false => Ok(RunEnd::Whole { broken: all }),
        }
    }
}

/// Pins this thread and its children to one processor: a stepped guest and its client take turns, and waking another
/// processor takes longer than a turn.
fn stay(number: usize) {
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
