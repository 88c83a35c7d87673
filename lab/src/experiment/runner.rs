//! Runs an experiment: what is missing in its results is measured, in the plan's order, and
//! appended. It knows no servers and no sockets: they are behind the bench.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::bench::{Bench, Job, Measured};
use super::counting::By;
use super::kept::{Attempt, Kept};
use super::plan::{self, Extent, Step};
use super::progress::{self, Counter, Place, Progress};
use super::results::{self, Found, Role, Why};
use super::schema::{Experiment, X};
use super::{capacity, units};
use crate::load::Pace;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything that could be measured is.
    Whole {
        /// Measurements that servers which are here could not give; the next run tries them again.
        broken: usize,
    },
    /// Somebody stopped it.
    Stopped,
}

/// What a run needs beside the experiment.
pub struct Setting<'a> {
    /// Where results are.
    pub results: &'a Path,
    /// How much is wanted.
    pub extent: &'a Extent,
    /// Begin anew.
    pub fresh: bool,
    /// Ends the run after what is under way.
    pub stop: &'a AtomicBool,
}

/// Runs one experiment.
///
/// # Errors
/// With a text for the user; what was measured before stays.
pub fn run(
    experiment: &Experiment,
    setting: &Setting<'_>,
    bench: &mut dyn Bench,
    progress: &mut dyn Progress,
) -> Result<End, String> {
    let kept = Kept::open(experiment, setting, bench.pretends(), progress)?;
    let expected_s = plan::expected_s(experiment, setting.extent);
    let all = plan::count(experiment, setting.extent);
    let counter = Counter::new(all, kept.missing(setting.extent), expected_s);
    measure(experiment, setting, (&kept, &counter), bench, progress)
}

/// Measures what is missing of one experiment, or of those of its servers that are wanted.
///
/// # Errors
/// With a text for the user; what was measured before stays.
pub fn measure(
    experiment: &Experiment,
    setting: &Setting<'_>,
    (kept, counter): (&Kept<'_>, &Counter),
    bench: &mut dyn Bench,
    progress: &mut dyn Progress,
) -> Result<End, String> {
    let mut making = |share: f64| {
        let percent = share * 100.0;
        progress.passing(&format!(
            "making the files of {}: {percent:.0} %",
            experiment.name
        ));
    };
    bench.prepare(experiment, &mut making, setting.stop)?;
    if setting.stop.load(Ordering::Relaxed) {
        return Ok(End::Stopped);
    }
    let mut run = Run {
        experiment,
        setting,
        kept,
        counter,
        bench,
        progress,
    };
    run.all()
}

struct Run<'a> {
    experiment: &'a Experiment,
    setting: &'a Setting<'a>,
    kept: &'a Kept<'a>,
    counter: &'a Counter,
    bench: &'a mut dyn Bench,
    progress: &'a mut dyn Progress,
}

impl Run<'_> {
    fn all(&mut self) -> Result<End, String> {
        let capacity_per_s = match self.reference()? {
            Reference::NotNeeded => None,
            Reference::Found(capacity_per_s) => Some(capacity_per_s),
            Reference::Stopped => return Ok(End::Stopped),
        };
        let points = plan::points(self.experiment, capacity_per_s, self.setting.extent);
        let steps = plan::steps(self.experiment, &points, self.setting.extent);
        let mut broken = 0;
        for step in steps {
            let mut next = Some(step);
            while let Some(step) = next {
                if !self.step(&step)? {
                    return Ok(End::Stopped);
                }
                broken += usize::from(!self.kept.is_done(&step));
                next = self.another(&step);
            }
        }
        Ok(End::Whole { broken })
    }

    /// Measures a point, unless it is; whether the run goes on.
    fn step(&mut self, step: &Step) -> Result<bool, String> {
        if self.setting.stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        if self.kept.is_done(step) {
            self.counter.pass();
            return Ok(true);
        }
        let place = self.counter.next();
        let job = plan::job(self.experiment, step, self.setting.extent);
        let mut attempt = self.attempt(&job, Some(step), place);
        for _ in 0..STARVED_TRIES {
            if !is_starved(&job, &attempt.found) {
                break;
            }
            self.progress.line("  others had the processors: once more");
            attempt = self.attempt(&job, Some(step), place);
        }
        if is_cut(&attempt.found) {
            return Ok(false);
        }
        self.counter.measured();
        self.tell(step, place, &attempt.found);
        self.kept
            .keep(Role::Point, &step.x, step.repeat, step.server, attempt)?;
        Ok(true)
    }

    /// After the last repeat that was planned, one more where those of a count don't agree. What is searched for is found only
    /// to a few per cent.
    fn another(&self, step: &Step) -> Option<Step> {
        let experiment = self.experiment;
        let is_last = step.repeat + 1 >= self.setting.extent.repeats(experiment);
        let counts = experiment.by == By::Instructions && experiment.search.is_none();
        let another = (is_last && counts).then(|| self.kept.another(step))??;
        self.counter.expect_another(!self.kept.is_done(&another));
        Some(another)
    }

    /// The capacity that the sweep is relative to, stored or measured now.
    fn reference(&mut self) -> Result<Reference, String> {
        let experiment = self.experiment;
        if experiment.sweep.relative_to_capacity.is_empty() {
            return Ok(Reference::NotNeeded);
        }
        let job = plan::reference_job(experiment, self.setting.extent)
            .expect("the file was checked: it has a reference");
        let index = experiment
            .servers
            .iter()
            .position(|server| server.name == job.server.name);
        let index = index.expect("the reference is a server");
        let x = X::Text("capacity".into());
        let key = results::key(Role::Reference, &job.server.name, &x, 0);
        if let Some(measured) = self.kept.figures(&key) {
            return Ok(Reference::Found(measured.outcome.requests_per_s));
        }
        let attempt = self.attempt(&job, None, Place::default());
        if is_cut(&attempt.found) {
            return Ok(Reference::Stopped);
        }
        let rate = match &attempt.found {
            Found::Measured(measured) if measured.outcome.requests == 0 => {
                return Err(format!(
                    "{}: rates are relative to the capacity of {}, which gave no right answer: {:?}",
                    experiment.name, job.server.name, measured.outcome.errors_by_kind
                ));
            }
            Found::Measured(measured) => measured.outcome.requests_per_s,
            Found::Failed { text, .. } => {
                return Err(format!(
                    "{}: rates are relative to the capacity of {}, which can't be measured: {text}",
                    experiment.name, job.server.name
                ));
            }
        };
        let shown = units::number(rate);
        self.progress.line(&format!(
            "capacity of {}: {shown} requests/s",
            job.server.name
        ));
        self.kept.keep(Role::Reference, &x, 0, index, attempt)?;
        Ok(Reference::Found(rate))
    }

    /// Starts, measures, ends.
    fn attempt(&mut self, job: &Job, step: Option<&Step>, place: Place) -> Attempt {
        let mut attempt = Attempt::default();
        let mut peer = match self.bench.start(job) {
            Ok(peer) => peer,
            Err(failure) => {
                attempt.found = failure.into();
                return attempt;
            }
        };
        attempt.version = peer.version().to_owned();
        attempt.configuration = peer.configuration().to_owned();
        let x = step.map_or("capacity".into(), |step| point(self.experiment, &step.x));
        let repeat = step.map_or(0, |step| step.repeat);
        let begin = progress::prefix(place, &job.server.name, &x, repeat);
        let (shown, stop) = (&mut *self.progress, self.setting.stop);
        let mut measure = |job: &Job| {
            let mut tell = |snapshot: &_| {
                shown.passing(&format!("{begin}  {}", progress::snapshot(snapshot)));
            };
            let mut measured = peer.measure(job, &mut tell, stop)?;
            measured.outcome.offered_per_s = measured.outcome.offered_per_s.or(job.offered_per_s());
            Ok::<_, String>(measured)
        };
        let found = match (&self.experiment.search, step) {
            (Some(search), Some(step)) => {
                let (experiment, extent) = (self.experiment, self.setting.extent);
                let mut probe = |rate| measure(&plan::at_rate(experiment, step, extent, rate));
                // A machine drifts; a guest does not.
                let before = match experiment.by {
                    By::Clock => None,
                    By::Instructions => self.kept.first_capacity(step),
                };
                capacity::search(search, before, &mut probe)
            }
            _ => measure(job),
        };
        attempt.found = match found {
            Ok(measured) => Found::Measured(Box::new(measured)),
            Err(text) => Found::Failed {
                why: Why::Broken,
                text,
            },
        };
        attempt
    }

    fn tell(&mut self, step: &Step, place: Place, found: &Found) {
        let server = &self.experiment.servers[step.server].name;
        let begin = progress::prefix(place, server, &point(self.experiment, &step.x), step.repeat);
        let end = match found {
            Found::Measured(measured) => figures(self.experiment, measured),
            Found::Failed { text, .. } => {
                format!("not measured: {}", text.lines().next().unwrap_or_default())
            }
        };
        self.progress.line(&format!("{begin}  {end}"));
    }
}

enum Reference {
    NotNeeded,
    Found(f64),
    Stopped,
}

/// How often a point is measured once more because others had the processors.
const STARVED_TRIES: u32 = 3;

/// Whether load generator and server hardly came to run: a closed loop waits for nothing else. Clients on slow lines, and
/// servers that wait for a database, may be idle by themselves.
fn is_starved(job: &Job, found: &Found) -> bool {
    const LEAST_CPUS: f64 = 0.2;
    let Found::Measured(measured) = found else {
        return false;
    };
    let outcome = &measured.outcome;
    let waits = job.pace != Pace::Closed || job.line_bits_per_s.is_some() || job.workload == "bare";
    let Some(server) = measured.extras.get("server_cpu_share") else {
        return false;
    };
    !waits && !outcome.interrupted && outcome.errors == 0 && outcome.cpu_share + server < LEAST_CPUS
}

/// A measurement that was cut short is not whole: it is not kept.
fn is_cut(found: &Found) -> bool {
    matches!(found, Found::Measured(measured) if measured.outcome.interrupted)
}

/// How a point is named in a line of progress.
fn point(experiment: &Experiment, x: &X) -> String {
    let name = String::from(experiment.sweep.parameter.clone());
    let name = name.split_once('.').map_or(name.as_str(), |(_, key)| key);
    match x {
        X::Number(value) => format!("{name}={}", units::number(*value)),
        X::Text(text) if name == "none" => text.clone(),
        X::Text(text) => format!("{name}={text}"),
    }
}

/// The measures of the experiment's figures, each once.
fn figures(experiment: &Experiment, measured: &Measured) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut measures = Vec::new();
    for figure in &experiment.figures {
        if measures.contains(&&figure.measure) {
            continue;
        }
        measures.push(&figure.measure);
        let unit = experiment.by.unit(&figure.measure);
        shown.extend(figure.measure.value(measured).map(|value| unit.show(value)));
    }
    if measured.outcome.errors > 0 {
        shown.push(format!("{} errors", measured.outcome.errors));
    }
    shown.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hardly_ran_was_starved() {
        let experiment = Experiment::parse(
            "one",
            "title = 't'\npaper = '000'\nfigure = 'f'\nquestion = 'q'\nworkload = { name = 'webstone' }\n\
             sweep = { parameter = 'none', label = 'x', values = ['a'] }\nload = { pace = 'closed' }\n\
             server = [{ name = 'nginx', peer = 'nginx' }]\n\
             draw = [{ figure = 'f', title = 't', measure = 'requests_per_s' }]",
        );
        let experiment = experiment.expect("a good file");
        let step = Step {
            repeat: 0,
            x: X::Text("a".into()),
            server: 0,
        };
        let mut job = plan::job(&experiment, &step, &Extent::default());
        let found = |own: f64, server: f64| {
            let mut measured = Measured::default();
            measured.outcome.cpu_share = own;
            measured.extras.insert("server_cpu_share".into(), server);
            Found::Measured(Box::new(measured))
        };
        assert!(is_starved(&job, &found(0.02, 0.01)));
        assert!(!is_starved(&job, &found(0.5, 0.5)));
        job.line_bits_per_s = Some(400_000);
        assert!(!is_starved(&job, &found(0.02, 0.01)));
    }
}
