//! Runs an experiment: what is missing in its results is measured, in the plan's order, and
//! appended. It knows no servers and no sockets: they are behind the bench.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::bench::{Bench, Job, Measured};
use super::machine::Machine;
use super::plan::{self, Extent, Step};
use super::progress::{self, Place, Progress};
use super::results::{self, Found, Key, Record, Role, Stored, Why, Writer};
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
    let path = results::path(setting.results, &experiment.name);
    if setting.fresh
        && let Some(aside) = results::put_aside(&path)?
    {
        progress.line(&format!(
            "what was measured before is now in {}",
            aside.display()
        ));
    }
    let stored = results::read(&path)?;
    for note in &stored.notes {
        progress.line(&format!("{}: {note}", path.display()));
    }
    comparable(experiment, setting.extent, bench.pretends(), &stored)
        .map_err(|problem| format!("{}: {problem}", path.display()))?;
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
        bench,
        progress,
        writer: Writer::open(&path, stored.whole_len)?,
        stored,
        machine: Machine::this(),
        not_there: Vec::new(),
    };
    run.all()
}

/// Whether what is stored was measured in the same way.
fn comparable(
    experiment: &Experiment,
    extent: &Extent,
    pretends: bool,
    stored: &Stored,
) -> Result<(), String> {
    let scale = extent.duration_scale(experiment);
    for record in stored.records.values() {
        let Some(server) = experiment.server(&record.server) else {
            continue;
        };
        if record.pretended != pretends {
            return Err(
                "holds a rehearsal's figures beside measured ones; use --fresh to begin \
                        anew, or another folder with --results"
                    .into(),
            );
        }
        if record.fingerprint != experiment.fingerprint(server, scale) {
            return Err(format!(
                "{} was measured with other settings (the experiment's file, --scale or --quick \
                 changed); use --fresh to begin anew (what is there is kept beside it), or \
                 another folder with --results",
                record.server
            ));
        }
    }
    Ok(())
}

struct Run<'a> {
    experiment: &'a Experiment,
    setting: &'a Setting<'a>,
    bench: &'a mut dyn Bench,
    progress: &'a mut dyn Progress,
    writer: Writer,
    stored: Stored,
    machine: Machine,
    /// Servers that can't be started here: they are recorded once.
    not_there: Vec<usize>,
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
        let mut pace = TimeLeft::new(plan::expected_s(self.experiment, self.setting.extent));
        for (index, step) in steps.iter().enumerate() {
            if self.setting.stop.load(Ordering::Relaxed) {
                return Ok(End::Stopped);
            }
            if self.is_done(step) {
                continue;
            }
            let missing = steps[index + 1..]
                .iter()
                .filter(|step| !self.is_done(step))
                .count();
            let place = Place {
                number: index + 1,
                all: steps.len(),
                left_s: pace.left_s(missing),
            };
            let began = Instant::now();
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
                return Ok(End::Stopped);
            }
            pace.took(began.elapsed());
            self.tell(step, place, &attempt.found);
            self.keep(Role::Point, &step.x, step.repeat, step.server, attempt)?;
        }
        Ok(End::Whole {
            broken: self.broken(&steps),
        })
    }

    /// Measurements of these that servers which are here could not give.
    fn broken(&self, steps: &[Step]) -> usize {
        let missing = steps.iter().filter(|step| !self.is_done(step));
        missing.count()
    }

    fn is_done(&self, step: &Step) -> bool {
        let server = &self.experiment.servers[step.server].name;
        let key = results::key(Role::Point, server, &step.x, step.repeat);
        self.not_there.contains(&step.server) || self.has(&key).is_some()
    }

    /// What is stored under a key, if it has figures: what failed is tried again.
    fn has(&self, key: &Key) -> Option<&Measured> {
        self.stored.records.get(key)?.measured()
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
        if let Some(measured) = self.has(&results::key(Role::Reference, &job.server.name, &x, 0)) {
            return Ok(Reference::Found(measured.outcome.requests_per_s));
        }
        let place = Place {
            number: 0,
            all: 0,
            left_s: 0.0,
        };
        let attempt = self.attempt(&job, None, place);
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
        self.keep(Role::Reference, &x, 0, index, attempt)?;
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
                capacity::search(search, &mut probe)
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

    fn keep(
        &mut self,
        role: Role,
        x: &X,
        repeat: u32,
        server_index: usize,
        attempt: Attempt,
    ) -> Result<(), String> {
        let server = &self.experiment.servers[server_index];
        let gone = matches!(&attempt.found, Found::Failed { why, .. } if *why != Why::Broken);
        if gone {
            self.not_there.push(server_index);
        }
        let scale = self.setting.extent.duration_scale(self.experiment);
        let record = Record {
            experiment: self.experiment.name.clone(),
            fingerprint: self.experiment.fingerprint(server, scale),
            role,
            server: server.name.clone(),
            x: x.clone(),
            repeat,
            found: attempt.found,
            version: attempt.version,
            configuration: attempt.configuration,
            unix_s: now_unix_s(),
            machine: self.machine.clone(),
            pretended: self.bench.pretends(),
        };
        self.writer.append(&record)?;
        self.stored.records.insert(record.key(), record);
        Ok(())
    }
}

enum Reference {
    NotNeeded,
    Found(f64),
    Stopped,
}

struct Attempt {
    found: Found,
    version: String,
    configuration: String,
}

impl Default for Attempt {
    fn default() -> Self {
        let found = Found::Failed {
            why: Why::Broken,
            text: "not tried".into(),
        };
        Self {
            found,
            version: String::new(),
            configuration: String::new(),
        }
    }
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

/// The time left, from what measurements took so far.
struct TimeLeft {
    each_s: f64,
    known: u32,
}

impl TimeLeft {
    fn new(expected_s: f64) -> Self {
        Self {
            each_s: expected_s,
            known: 0,
        }
    }

    fn took(&mut self, time: Duration) {
        let weight = 1.0 / f64::from(self.known + 1);
        self.each_s += (time.as_secs_f64() - self.each_s) * weight.max(0.1);
        self.known += 1;
    }

    fn left_s(&self, missing: usize) -> f64 {
        self.each_s * missing as f64
    }
}

fn now_unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
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
