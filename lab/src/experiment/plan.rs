//! The measurements of an experiment, their order, and the job of each. No I/O.
//!
//! Repeats are the outermost loop, then points, then servers, and each repeat begins with another server, so that a
//! drift of the machine (temperature, neighbours) affects all servers alike. Instruction counts don't drift and a guest
//! takes long to boot, so there all points of a server are consecutive.

use std::collections::BTreeMap;

use super::amount::{RunSeconds, run_seconds};
use super::bench::MeasurementJob;
use super::counting::CountUnit;
use super::schema::{
    AxisParameter, AxisValue, ExperimentConfig, LoadSettings, PaceKind, ServerConfig,
};
use crate::load::RequestPace;

/// The position of one measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasurementStep {
    /// The number of the repeat, from 0.
    pub repeat: u32,
    /// The point.
    pub x: AxisValue,
    /// Index of the server in the experiment.
    pub server: usize,
}

/// Selects the part of an experiment to run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSelection {
    /// Multiplies durations.
    pub scale: f64,
    /// Whether this is only a trial: three points, one repeat of 0.3 s each.
    pub quick: bool,
    /// The names of the servers to measure; empty for all.
    pub only: Vec<String>,
}

impl Default for RunSelection {
    fn default() -> Self {
        Self {
            scale: 1.0,
            quick: false,
            only: Vec::new(),
        }
    }
}

impl RunSelection {
    /// Repeats of an experiment.
    #[must_use]
    pub fn repeats(&self, experiment: &ExperimentConfig) -> u32 {
        if self.quick { 1 } else { experiment.repeats }
    }

    /// The factor of all durations.
    #[must_use]
    pub fn duration_scale(&self, experiment: &ExperimentConfig) -> f64 {
        match self.quick {
            true => 0.3 / experiment.load.duration_s,
            false => self.scale,
        }
    }

    pub(super) fn includes(&self, server: &ServerConfig) -> bool {
        self.only.is_empty() || self.only.contains(&server.name)
    }
}

/// The points of a sweep. If they are relative to the capacity of the reference, `capacity_per_s` is that capacity.
#[must_use]
pub fn points(
    experiment: &ExperimentConfig,
    capacity_per_s: Option<f64>,
    selection: &RunSelection,
) -> Vec<AxisValue> {
    let sweep = &experiment.sweep;
    // An unknown capacity gives rates of 0, which suffices to count the points.
    let relative = |share: &f64| AxisValue::Number(rounded(share * capacity_per_s.unwrap_or(0.0)));
    let values: Vec<AxisValue> = match sweep.values.is_empty() {
        true => sweep.relative_to_capacity.iter().map(relative).collect(),
        false => sweep.values.clone(),
    };
    if selection.quick {
        thin_out(values)
    } else {
        values
    }
}

/// Keeps the first, the middle and the last value.
fn thin_out(values: Vec<AxisValue>) -> Vec<AxisValue> {
    let count = values.len();
    let keep = [0, count / 2, count.saturating_sub(1)];
    values
        .into_iter()
        .enumerate()
        .filter(|(index, _)| keep.contains(index))
        .map(|(_, x)| x)
        .collect()
}

/// Rounds to two digits, so that rates are readable.
fn rounded(rate: f64) -> f64 {
    if rate <= 0.0 {
        return 0.0;
    }
    let unit = 10f64.powf(rate.log10().floor() - 1.0);
    let rate = (rate / unit).round() * unit;
    // Removes the rounding error of the power of ten.
    (rate * 1000.0).round() / 1000.0
}

/// The number of measurements.
#[must_use]
pub fn count(experiment: &ExperimentConfig, selection: &RunSelection) -> usize {
    steps(experiment, &points(experiment, None, selection), selection).len()
}

/// All measurements in order.
#[must_use]
pub fn steps(
    experiment: &ExperimentConfig,
    points: &[AxisValue],
    selection: &RunSelection,
) -> Vec<MeasurementStep> {
    let is_included = |index: &usize| selection.includes(&experiment.servers[*index]);
    let servers: Vec<usize> = (0..experiment.servers.len()).filter(is_included).collect();
    let step = |repeat: u32, server: usize, x: &AxisValue| MeasurementStep {
        repeat,
        x: x.clone(),
        server,
    };
    let mut steps = Vec::new();
    match experiment.by {
        CountUnit::Clock => {
            for repeat in 0..selection.repeats(experiment) {
                let mut order = servers.clone();
                // Each repeat begins with another server, so that a drift of the machine affects all alike.
                order.rotate_left(repeat as usize % servers.len().max(1));
                for x in points {
                    steps.extend(order.iter().map(|server| step(repeat, *server, x)));
                }
            }
        }
        // All points of a server are consecutive, so that its guest boots only once, even if not all points have to be
        // measured.
        CountUnit::Instructions => {
            for server in servers {
                let also = match selection.quick {
                    true => &[],
                    false => experiment.servers[server].also.as_slice(),
                };
                for x in points.iter().chain(also) {
                    let repeats = 0..selection.repeats(experiment);
                    steps.extend(repeats.map(|repeat| step(repeat, server, x)));
                }
            }
        }
    }
    steps
}

/// The job of a step.
#[must_use]
pub fn job(
    experiment: &ExperimentConfig,
    step: &MeasurementStep,
    selection: &RunSelection,
) -> MeasurementJob {
    let scale = selection.duration_scale(experiment);
    let load = &experiment.load;
    let server = &experiment.servers[step.server];
    let mut job = MeasurementJob {
        name: format!("{}-{}-{}", experiment.plain_name(), server.name, step.x),
        server: server.clone(),
        workload: experiment.workload.name.clone(),
        settings: experiment.workload.settings.clone(),
        warm_settings: BTreeMap::new(),
        files_settings: experiment.workload.settings.clone(),
        pace: RequestPace::Closed,
        connections: load.connections,
        threads: load.threads,
        pipeline: load.pipeline,
        line_bits_per_s: load.line_bits_per_s,
        warmup_s: load.warmup_s * scale,
        duration_s: load.duration_s * scale,
        timeout_ms: load.timeout_ms,
        mtu: None,
        phases: has_phases(experiment),
        requests: experiment.instructions.requests,
        warmup_requests: experiment.instructions.warmup,
        memory_mib: experiment.instructions.memory_mib,
        // The seed is equal for all servers of a repeat, so that they get the same traffic.
        seed: 1 + u64::from(step.repeat),
    };
    let mut load = load.clone();
    // A search has no fixed rate, so its first rate decides the parts of the job that depend on a rate.
    let start = experiment.search.as_ref().map(|search| search.start);
    load.rate = load.rate.or(start);
    set_parameter(&mut job, &mut load, &experiment.sweep.parameter, &step.x);
    // The settings are copied before the dynamic share is set: a server is warm for all rates of the same mix.
    job.warm_settings.clone_from(&job.settings);
    set_pace(experiment, &mut job, &load);
    job
}

/// Whether a figure shows a phase of the database. Only then are phases requested, since these requests are load too.
fn has_phases(experiment: &ExperimentConfig) -> bool {
    let mut measures = experiment
        .figures
        .iter()
        .map(|figure| figure.measure.name());
    measures.any(|name| name.starts_with("extra.") && name.ends_with("_us"))
}

/// Applies a point's value to the parameter of the sweep.
fn set_parameter(
    job: &mut MeasurementJob,
    load: &mut LoadSettings,
    parameter: &AxisParameter,
    x: &AxisValue,
) {
    let set = |settings: &mut BTreeMap<String, String>, key: &str| {
        settings.insert(key.to_owned(), x.to_string());
    };
    let number = x.number().unwrap_or(0.0);
    match parameter {
        AxisParameter::None => {}
        AxisParameter::Connections => job.connections = (number as u32).max(1),
        AxisParameter::Rate => load.rate = Some(number),
        AxisParameter::StaticRate => load.static_rate = Some(number),
        AxisParameter::Workers => job.server.workers = (number as u32).max(1),
        AxisParameter::Mtu => job.mtu = Some(number as u32),
        AxisParameter::Workload(key) => set(&mut job.settings, key),
        AxisParameter::Server(key) => set(&mut job.server.settings, key),
    }
}

/// Sets a job's pace, and its dynamic share if static requests are offered too. In a guest, high rates are measured for
/// a shorter time.
fn set_pace(experiment: &ExperimentConfig, job: &mut MeasurementJob, load: &LoadSettings) {
    let dynamic = load.rate.unwrap_or(0.0);
    let total = dynamic + load.static_rate.unwrap_or(0.0);
    job.pace = match load.pace {
        PaceKind::Closed => RequestPace::Closed,
        PaceKind::Requests => RequestPace::Requests(total),
        PaceKind::Connections => RequestPace::Connections(total),
    };
    if experiment.by == CountUnit::Instructions && load.pace != PaceKind::Closed {
        let limits = RunSeconds {
            before_s: job.warmup_s,
            counted_s: job.duration_s,
        };
        let lasting = run_seconds(total, limits, experiment.search.is_some());
        (job.warmup_s, job.duration_s) = (lasting.before_s, lasting.counted_s);
    }
    if let (Some(key), true) = (&load.share_setting, total > 0.0) {
        job.settings
            .insert(key.clone(), format!("{:.3}", dynamic / total * 100.0));
    }
}

/// The job of a step at another rate, for a capacity search.
#[must_use]
pub fn at_rate(
    experiment: &ExperimentConfig,
    step: &MeasurementStep,
    selection: &RunSelection,
    rate: f64,
) -> MeasurementJob {
    let mut load = experiment.load.clone();
    let mut job = job(experiment, step, selection);
    if experiment.sweep.parameter == AxisParameter::StaticRate {
        // Only the dynamic rate is searched for, so the static rate remains that of the point.
        load.static_rate = step.x.number();
    }
    load.rate = Some(rate);
    set_pace(experiment, &mut job, &load);
    job
}

/// The job that measures the reference's capacity: a closed loop of 64 connections.
#[must_use]
pub fn reference_job(
    experiment: &ExperimentConfig,
    selection: &RunSelection,
) -> Option<MeasurementJob> {
    let reference = experiment.sweep.reference.as_ref()?;
    let server = experiment
        .servers
        .iter()
        .position(|server| server.name == *reference)?;
    let step = MeasurementStep {
        repeat: 0,
        x: AxisValue::Number(0.0),
        server,
    };
    let mut job = job(experiment, &step, selection);
    job.pace = RequestPace::Closed;
    job.connections = 64;
    Some(job)
}

/// Rough duration of a step in seconds, to estimate the remaining time before any step was measured.
#[must_use]
pub fn expected_s(experiment: &ExperimentConfig, selection: &RunSelection) -> f64 {
    let load = &experiment.load;
    let repeat_s = (load.warmup_s + load.duration_s) * selection.duration_scale(experiment);
    let probes = if experiment.search.is_some() {
        11.0
    } else {
        1.0
    };
    repeat_s * probes + 0.5
}
