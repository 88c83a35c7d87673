//! Runs an experiment: measures the points that are missing in its results, in the order of the plan, and appends them.
//! The bench provides servers and sockets.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::bench::{MeasurementJob, MeasurementResult, TestBench};
use super::counting::CountUnit;
use super::kept::{PointAttempt, ResultStore};
use super::plan::{self, MeasurementStep, RunSelection};
use super::progress::{self, ProgressCounter, ProgressSink, RunPosition};
use super::results::{self, MeasurementRole, MissingReason, PointResult};
use super::schema::{AxisValue, ExperimentConfig};
use super::{capacity, units};
use crate::load::RequestPace;

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// All available points are measured.
    Complete {
        /// Number of failed measurements of available servers; the next run repeats them.
        failed: usize,
    },
    /// The run was stopped.
    Stopped,
}

/// The settings of a run.
pub struct RunSetting<'a> {
    /// The folder of results.
    pub results: &'a Path,
    /// The part of the experiment to run.
    pub selection: &'a RunSelection,
    /// Whether earlier results are set aside, so that the experiment starts anew.
    pub fresh: bool,
    /// Ends the run after the current measurement.
    pub stop: &'a AtomicBool,
}

/// Runs one experiment.
///
/// # Errors
/// A text for the user; earlier results remain.
pub fn run(
    experiment: &ExperimentConfig,
    setting: &RunSetting<'_>,
    bench: &mut dyn TestBench,
    progress: &mut dyn ProgressSink,
) -> Result<RunOutcome, String> {
    let store = ResultStore::open(experiment, setting, bench.is_simulated(), progress)?;
    let expected_s = plan::expected_s(experiment, setting.selection);
    let total = plan::count(experiment, setting.selection);
    let counter = ProgressCounter::new(total, store.missing(setting.selection), expected_s);
    measure(setting, &store, &counter, bench, progress)
}

/// Measures the missing points of an experiment, or of its selected servers.
///
/// # Errors
/// A text for the user; earlier results remain.
pub fn measure(
    setting: &RunSetting<'_>,
    store: &ResultStore<'_>,
    counter: &ProgressCounter,
    bench: &mut dyn TestBench,
    progress: &mut dyn ProgressSink,
) -> Result<RunOutcome, String> {
    let experiment = store.experiment();
    let mut report_preparation = |share: f64| {
        let percent = share * 100.0;
        progress.passing(&format!(
            "making the files of {}: {percent:.0} %",
            experiment.name
        ));
    };
    bench.prepare(experiment, &mut report_preparation, setting.stop)?;
    if setting.stop.load(Ordering::Relaxed) {
        return Ok(RunOutcome::Stopped);
    }
    let mut run = ExperimentRun {
        experiment,
        setting,
        store,
        counter,
        bench,
        progress,
    };
    run.run_all()
}

struct ExperimentRun<'a> {
    experiment: &'a ExperimentConfig,
    setting: &'a RunSetting<'a>,
    store: &'a ResultStore<'a>,
    counter: &'a ProgressCounter,
    bench: &'a mut dyn TestBench,
    progress: &'a mut dyn ProgressSink,
}

impl ExperimentRun<'_> {
    fn run_all(&mut self) -> Result<RunOutcome, String> {
        let capacity_per_s = match self.reference()? {
            ReferencePoint::NotNeeded => None,
            ReferencePoint::Found(capacity_per_s) => Some(capacity_per_s),
            ReferencePoint::Stopped => return Ok(RunOutcome::Stopped),
        };
        let points = plan::points(self.experiment, capacity_per_s, self.setting.selection);
        let steps = plan::steps(self.experiment, &points, self.setting.selection);
        let mut broken = 0;
        for step in steps {
            let mut next = Some(step);
            // The additional repeats of a point follow immediately, while its guest still runs.
            while let Some(step) = next {
                if !self.step(&step)? {
                    return Ok(RunOutcome::Stopped);
                }
                broken += usize::from(!self.store.is_done(&step));
                next = self.another(&step);
            }
        }
        Ok(RunOutcome::Complete { failed: broken })
    }

    /// Measures a point unless its result exists; returns whether the run continues.
    fn step(&mut self, step: &MeasurementStep) -> Result<bool, String> {
        if self.setting.stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        // A run continues the stored results of an interrupted one.
        if self.store.is_done(step) {
            self.counter.skip();
            return Ok(true);
        }
        let position = self.counter.next();
        let job = plan::job(self.experiment, step, self.setting.selection);
        let mut attempt = self.attempt(&job, Some(step), position);
        for _ in 0..STARVED_TRIES {
            if !is_starved(&job, &attempt.result) {
                break;
            }
            self.progress
                .line("  other programs used the processors: measuring again");
            attempt = self.attempt(&job, Some(step), position);
        }
        // An interrupted measurement is not stored, so the next run repeats it.
        if is_cut(&attempt.result) {
            return Ok(false);
        }
        self.counter.measured();
        self.report(step, position, &attempt.result);
        self.store.store(
            MeasurementRole::Point,
            &step.x,
            step.repeat,
            step.server,
            attempt,
        )?;
        Ok(true)
    }

    /// One more repeat after the planned ones, if the repeats of a point disagree. Capacity searches get none, because
    /// their results are accurate only to a few per cent.
    fn another(&self, step: &MeasurementStep) -> Option<MeasurementStep> {
        let experiment = self.experiment;
        let is_last = step.repeat + 1 >= self.setting.selection.repeats(experiment);
        let counts = experiment.by == CountUnit::Instructions && experiment.search.is_none();
        let another = (is_last && counts).then(|| self.store.next_repeat(step))??;
        self.counter.add_expected(!self.store.is_done(&another));
        Some(another)
    }

    /// The capacity that the sweep is relative to: the stored one, or measured now.
    fn reference(&mut self) -> Result<ReferencePoint, String> {
        let experiment = self.experiment;
        if experiment.sweep.relative_to_capacity.is_empty() {
            return Ok(ReferencePoint::NotNeeded);
        }
        let job = plan::reference_job(experiment, self.setting.selection)
            .expect("the file was checked: it has a reference");
        let index = experiment
            .servers
            .iter()
            .position(|server| server.name == job.server.name);
        let index = index.expect("the reference is a server");
        let x = AxisValue::Text("capacity".into());
        let key = results::key(MeasurementRole::Reference, &job.server.name, &x, 0);
        // The stored capacity is used again: with another one the points would have other rates than those measured.
        if let Some(measured) = self.store.figures(&key) {
            return Ok(ReferencePoint::Found(measured.outcome.requests_per_s));
        }
        let attempt = self.attempt(&job, None, RunPosition::default());
        if is_cut(&attempt.result) {
            return Ok(ReferencePoint::Stopped);
        }
        let rate = match &attempt.result {
            PointResult::Measured(measured) if measured.outcome.requests == 0 => {
                return Err(format!(
                    "{}: rates are relative to the capacity of {}, which gave no right answer: {:?}",
                    experiment.name, job.server.name, measured.outcome.errors_by_kind
                ));
            }
            PointResult::Measured(measured) => measured.outcome.requests_per_s,
            PointResult::Failed { text, .. } => {
                return Err(format!(
                    "{}: rates are relative to the capacity of {}, which can't be measured: {text}",
                    experiment.name, job.server.name
                ));
            }
        };
        let rate_text = units::number(rate);
        self.progress.line(&format!(
            "capacity of {}: {rate_text} requests/s",
            job.server.name
        ));
        self.store
            .store(MeasurementRole::Reference, &x, 0, index, attempt)?;
        Ok(ReferencePoint::Found(rate))
    }

    /// Starts a server, measures, and stops the server.
    fn attempt(
        &mut self,
        job: &MeasurementJob,
        step: Option<&MeasurementStep>,
        position: RunPosition,
    ) -> PointAttempt {
        let mut attempt = PointAttempt::default();
        let mut peer = match self.bench.start(job) {
            Ok(peer) => peer,
            Err(failure) => {
                attempt.result = failure.into();
                return attempt;
            }
        };
        attempt.version = peer.version().to_owned();
        attempt.configuration = peer.configuration().to_owned();
        let x = step.map_or("capacity".into(), |step| point(self.experiment, &step.x));
        let repeat = step.map_or(0, |step| step.repeat);
        let line_start = progress::prefix(position, &job.server.name, &x, repeat);
        let (progress, stop) = (&mut *self.progress, self.setting.stop);
        let mut measure = |job: &MeasurementJob| {
            let mut report = |snapshot: &_| {
                progress.passing(&format!("{line_start}  {}", progress::snapshot(snapshot)));
            };
            let mut measured = peer.measure(job, &mut report, stop)?;
            measured.outcome.offered_per_s = measured.outcome.offered_per_s.or(job.offered_per_s());
            Ok::<_, String>(measured)
        };
        let result = match (&self.experiment.search, step) {
            (Some(search), Some(step)) => {
                let (experiment, extent) = (self.experiment, self.setting.selection);
                let mut probe = |rate| measure(&plan::at_rate(experiment, step, extent, rate));
                // By the clock, the machine's speed drifts, so an earlier capacity is no hint; in a guest it is.
                let capacity_hint = match experiment.by {
                    CountUnit::Clock => None,
                    CountUnit::Instructions => self.store.first_capacity(step),
                };
                capacity::search(search, capacity_hint, &mut probe)
            }
            _ => measure(job),
        };
        attempt.result = match result {
            Ok(measured) => PointResult::Measured(Box::new(measured)),
            Err(text) => PointResult::Failed {
                why: MissingReason::Broken,
                text,
            },
        };
        attempt
    }

    fn report(&mut self, step: &MeasurementStep, position: RunPosition, result: &PointResult) {
        let server = &self.experiment.servers[step.server].name;
        let line_start = progress::prefix(
            position,
            server,
            &point(self.experiment, &step.x),
            step.repeat,
        );
        let line_end = match result {
            PointResult::Measured(measured) => figures(self.experiment, measured),
            PointResult::Failed { text, .. } => {
                format!("not measured: {}", text.lines().next().unwrap_or_default())
            }
        };
        self.progress.line(&format!("{line_start}  {line_end}"));
    }
}

enum ReferencePoint {
    NotNeeded,
    Found(f64),
    Stopped,
}

/// How often a point is measured again if other programs used the processors.
const STARVED_TRIES: u32 = 3;

/// Whether load generator and server got hardly any CPU time. In a closed loop only other programs can cause that,
/// except that clients on slow lines, and servers that wait for a database, may be idle too.
fn is_starved(job: &MeasurementJob, result: &PointResult) -> bool {
    const LEAST_CPUS: f64 = 0.2;
    let PointResult::Measured(measured) = result else {
        return false;
    };
    let outcome = &measured.outcome;
    let is_waiting =
        job.pace != RequestPace::Closed || job.line_bits_per_s.is_some() || job.workload == "bare";
    let Some(server) = measured.extras.get("server_cpu_share") else {
        return false;
    };
    !is_waiting
        && !outcome.interrupted
        && outcome.errors == 0
        && outcome.cpu_share + server < LEAST_CPUS
}

/// Whether a measurement was interrupted: it is incomplete and not stored.
fn is_cut(result: &PointResult) -> bool {
    matches!(result, PointResult::Measured(measured) if measured.outcome.interrupted)
}

/// The name of a point in a progress line.
fn point(experiment: &ExperimentConfig, x: &AxisValue) -> String {
    let name = String::from(experiment.sweep.parameter.clone());
    let name = name.split_once('.').map_or(name.as_str(), |(_, key)| key);
    match x {
        AxisValue::Number(value) => format!("{name}={}", units::number(*value)),
        AxisValue::Text(text) if name == "none" => text.clone(),
        AxisValue::Text(text) => format!("{name}={text}"),
    }
}

/// The measures of the experiment's figures, each once.
fn figures(experiment: &ExperimentConfig, measured: &MeasurementResult) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut measures = Vec::new();
    for figure in &experiment.figures {
        if measures.contains(&&figure.measure) {
            continue;
        }
        measures.push(&figure.measure);
        let unit = experiment.by.unit(&figure.measure);
        texts.extend(figure.measure.value(measured).map(|value| unit.show(value)));
    }
    if measured.outcome.errors > 0 {
        texts.push(format!("{} errors", measured.outcome.errors));
    }
    texts.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_cpu_share_in_a_closed_loop_is_starvation() {
        let experiment = ExperimentConfig::parse(
            "one",
            "title = 't'\npaper = '000'\nfigure = 'f'\nquestion = 'q'\nworkload = { name = 'webstone' }\n\
             sweep = { parameter = 'none', label = 'x', values = ['a'] }\nload = { pace = 'closed' }\n\
             server = [{ name = 'nginx', peer = 'nginx' }]\n\
             draw = [{ figure = 'f', title = 't', measure = 'requests_per_s' }]",
        );
        let experiment = experiment.expect("a good file");
        let step = MeasurementStep {
            repeat: 0,
            x: AxisValue::Text("a".into()),
            server: 0,
        };
        let mut job = plan::job(&experiment, &step, &RunSelection::default());
        let found = |own: f64, server: f64| {
            let mut measured = MeasurementResult::default();
            measured.outcome.cpu_share = own;
            measured.extras.insert("server_cpu_share".into(), server);
            PointResult::Measured(Box::new(measured))
        };
        assert!(is_starved(&job, &found(0.02, 0.01)));
        assert!(!is_starved(&job, &found(0.5, 0.5)));
        job.line_bits_per_s = Some(400_000);
        assert!(!is_starved(&job, &found(0.02, 0.01)));
    }
}
