//! Which measurements, in which order, and what each is made of. Pure.
//!
//! Repeats are outermost, then points, then servers, and each repeat begins with another server: so
//! a machine that drifts (temperature, neighbours) harms all servers alike. Counts of instructions don't drift, and a
//! guest takes long to boot: there all points of a server follow each other.

use std::collections::BTreeMap;

use super::amount::lasting_s;
use super::bench::Job;
use super::counting::By;
use super::schema::{Experiment, LoadSettings, PaceKind, Parameter, Server, X};
use crate::load::Pace;

/// One measurement's place.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Counted from 0.
    pub repeat: u32,
    /// The point.
    pub x: X,
    /// Index of the server.
    pub server: usize,
}

/// How much of an experiment is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Extent {
    /// Multiplies durations.
    pub scale: f64,
    /// A third of a second each, once, at three points: to try an experiment.
    pub quick: bool,
    /// Only these servers; empty for all.
    pub only: Vec<String>,
}

impl Default for Extent {
    fn default() -> Self {
        Self {
            scale: 1.0,
            quick: false,
            only: Vec::new(),
        }
    }
}

impl Extent {
    /// Repeats of an experiment.
    #[must_use]
    pub fn repeats(&self, experiment: &Experiment) -> u32 {
        if self.quick { 1 } else { experiment.repeats }
    }

    /// What durations are multiplied by.
    #[must_use]
    pub fn duration_scale(&self, experiment: &Experiment) -> f64 {
        match self.quick {
            true => 0.3 / experiment.load.duration_s,
            false => self.scale,
        }
    }

    pub(super) fn wants(&self, server: &Server) -> bool {
        self.only.is_empty() || self.only.contains(&server.name)
    }
}

/// The points of a sweep, given the reference's capacity if they are relative to it.
#[must_use]
pub fn points(experiment: &Experiment, capacity_per_s: Option<f64>, extent: &Extent) -> Vec<X> {
    let sweep = &experiment.sweep;
    let relative = |share: &f64| X::Number(rounded(share * capacity_per_s.unwrap_or(0.0)));
    let all: Vec<X> = match sweep.values.is_empty() {
        true => sweep.relative_to_capacity.iter().map(relative).collect(),
        false => sweep.values.clone(),
    };
    if extent.quick { thinned(all) } else { all }
}

/// First, middle and last.
fn thinned(all: Vec<X>) -> Vec<X> {
    let count = all.len();
    let keep = [0, count / 2, count.saturating_sub(1)];
    all.into_iter()
        .enumerate()
        .filter(|(index, _)| keep.contains(index))
        .map(|(_, x)| x)
        .collect()
}

/// To two digits: rates that a reader can name.
fn rounded(rate: f64) -> f64 {
    if rate <= 0.0 {
        return 0.0;
    }
    let unit = 10f64.powf(rate.log10().floor() - 1.0);
    let rate = (rate / unit).round() * unit;
    // Without the tail that the power of ten leaves.
    (rate * 1000.0).round() / 1000.0
}

/// How many measurements there are.
#[must_use]
pub fn count(experiment: &Experiment, extent: &Extent) -> usize {
    steps(experiment, &points(experiment, None, extent), extent).len()
}

/// All measurements in their order.
#[must_use]
pub fn steps(experiment: &Experiment, points: &[X], extent: &Extent) -> Vec<Step> {
    let wanted = |index: &usize| extent.wants(&experiment.servers[*index]);
    let servers: Vec<usize> = (0..experiment.servers.len()).filter(wanted).collect();
    let step = |repeat: u32, server: usize, x: &X| Step {
        repeat,
        x: x.clone(),
        server,
    };
    let mut steps = Vec::new();
    match experiment.by {
        By::Clock => {
            for repeat in 0..extent.repeats(experiment) {
                let mut order = servers.clone();
                order.rotate_left(repeat as usize % servers.len().max(1));
                for x in points {
                    steps.extend(order.iter().map(|server| step(repeat, *server, x)));
                }
            }
        }
        // A guest is needed once, even if not for all points.
        By::Instructions => {
            for server in servers {
                let also = match extent.quick {
                    true => &[],
                    false => experiment.servers[server].also.as_slice(),
                };
                for x in points.iter().chain(also) {
                    let repeats = 0..extent.repeats(experiment);
                    steps.extend(repeats.map(|repeat| step(repeat, server, x)));
                }
            }
        }
    }
    steps
}

/// What a step is made of.
#[must_use]
pub fn job(experiment: &Experiment, step: &Step, extent: &Extent) -> Job {
    let scale = extent.duration_scale(experiment);
    let load = &experiment.load;
    let server = &experiment.servers[step.server];
    let mut job = Job {
        name: format!("{}-{}-{}", experiment.plain_name(), server.name, step.x),
        server: server.clone(),
        workload: experiment.workload.name.clone(),
        settings: experiment.workload.settings.clone(),
        warm_settings: BTreeMap::new(),
        files_settings: experiment.workload.settings.clone(),
        pace: Pace::Closed,
        connections: load.connections,
        threads: load.threads,
        pipeline: load.pipeline,
        line_bits_per_s: load.line_bits_per_s,
        warmup_s: load.warmup_s * scale,
        duration_s: load.duration_s * scale,
        timeout_ms: load.timeout_ms,
        mtu: None,
        phases: wants_phases(experiment),
        requests: experiment.instructions.requests,
        warmup_requests: experiment.instructions.warmup,
        memory_mib: experiment.instructions.memory_mib,
        seed: 1 + u64::from(step.repeat),
    };
    let mut load = load.clone();
    // What is searched for begins somewhere: what its server needs depends on what is asked for.
    let start = experiment.search.as_ref().map(|search| search.start);
    load.rate = load.rate.or(start);
    place(&mut job, &mut load, &experiment.sweep.parameter, &step.x);
    job.warm_settings.clone_from(&job.settings);
    offer(experiment, &mut job, &load);
    job
}

/// Whether a figure shows a phase of the database: asking for them is load too.
fn wants_phases(experiment: &Experiment) -> bool {
    let mut measures = experiment
        .figures
        .iter()
        .map(|figure| figure.measure.name());
    measures.any(|name| name.starts_with("extra.") && name.ends_with("_us"))
}

/// Puts the point's value where the sweep's parameter says.
fn place(job: &mut Job, load: &mut LoadSettings, parameter: &Parameter, x: &X) {
    let set = |settings: &mut BTreeMap<String, String>, key: &str| {
        settings.insert(key.to_owned(), x.to_string());
    };
    let number = x.number().unwrap_or(0.0);
    match parameter {
        Parameter::None => {}
        Parameter::Connections => job.connections = (number as u32).max(1),
        Parameter::Rate => load.rate = Some(number),
        Parameter::StaticRate => load.static_rate = Some(number),
        Parameter::Workers => job.server.workers = (number as u32).max(1),
        Parameter::Mtu => job.mtu = Some(number as u32),
        Parameter::Workload(key) => set(&mut job.settings, key),
        Parameter::Server(key) => set(&mut job.server.settings, key),
    }
}

/// Sets a job's pace, and the dynamic share where static requests are offered beside. In a guest, fast rates are counted for a
/// shorter time.
fn offer(experiment: &Experiment, job: &mut Job, load: &LoadSettings) {
    let dynamic = load.rate.unwrap_or(0.0);
    let total = dynamic + load.static_rate.unwrap_or(0.0);
    job.pace = match load.pace {
        PaceKind::Closed => Pace::Closed,
        PaceKind::Requests => Pace::Requests(total),
        PaceKind::Connections => Pace::Connections(total),
    };
    if experiment.by == By::Instructions && load.pace != PaceKind::Closed {
        let most = (job.warmup_s, job.duration_s);
        (job.warmup_s, job.duration_s) = lasting_s(total, most, experiment.search.is_some());
    }
    if let (Some(key), true) = (&load.share_setting, total > 0.0) {
        job.settings
            .insert(key.clone(), format!("{:.3}", dynamic / total * 100.0));
    }
}

/// The same job at another rate of what is searched for.
#[must_use]
pub fn at_rate(experiment: &Experiment, step: &Step, extent: &Extent, rate: f64) -> Job {
    let mut load = experiment.load.clone();
    let mut job = job(experiment, step, extent);
    if experiment.sweep.parameter == Parameter::StaticRate {
        load.static_rate = step.x.number();
    }
    load.rate = Some(rate);
    offer(experiment, &mut job, &load);
    job
}

/// What finds the reference's capacity: a closed loop of 64 connections.
#[must_use]
pub fn reference_job(experiment: &Experiment, extent: &Extent) -> Option<Job> {
    let reference = experiment.sweep.reference.as_ref()?;
    let server = experiment
        .servers
        .iter()
        .position(|server| server.name == *reference)?;
    let step = Step {
        repeat: 0,
        x: X::Number(0.0),
        server,
    };
    let mut job = job(experiment, &step, extent);
    job.pace = Pace::Closed;
    job.connections = 64;
    Some(job)
}

/// Seconds that a step takes, roughly: for the time left before anything is known.
#[must_use]
pub fn expected_s(experiment: &Experiment, extent: &Extent) -> f64 {
    let load = &experiment.load;
    let once = (load.warmup_s + load.duration_s) * extent.duration_scale(experiment);
    let probes = if experiment.search.is_some() {
        11.0
    } else {
        1.0
    };
    once * probes + 0.5
}
