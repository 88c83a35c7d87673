//! The store of an experiment's results while it is measured, by one or several threads. Independent of the bench.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::agree;
use super::bench::MeasurementResult;
use super::machine::MachineInfo;
use super::plan::{self, MeasurementStep, RunSelection};
use super::progress::ProgressSink;
use super::results::{
    self, MeasurementRole, MissingReason, PointResult, ResultKey, ResultRecord, ResultWriter,
    StoredResults,
};
use super::runner::RunSetting;
use super::schema::{AxisValue, ExperimentConfig};

/// The result of an attempt at one point.
pub struct PointAttempt {
    /// Figures, or the reason why they are missing.
    pub result: PointResult,
    /// The server's version.
    pub version: String,
    /// The server's configuration.
    pub configuration: String,
}

impl Default for PointAttempt {
    fn default() -> Self {
        let result = PointResult::Failed {
            why: MissingReason::Broken,
            text: "not tried".into(),
        };
        Self {
            result,
            version: String::new(),
            configuration: String::new(),
        }
    }
}

/// The stored results of an experiment; new ones are appended to its file.
pub struct ResultStore<'a> {
    experiment: &'a ExperimentConfig,
    fingerprint_scale: f64,
    machine: MachineInfo,
    is_simulated: bool,
    inner: Mutex<ResultStoreState>,
}

struct ResultStoreState {
    writer: ResultWriter,
    stored: StoredResults,
    /// Servers that can't be started on this machine; the failure of each is recorded once.
    unavailable: Vec<usize>,
}

impl<'a> ResultStore<'a> {
    /// Reads the stored results. If `is_simulated` is set, new results are computed, not measured.
    ///
    /// # Errors
    /// A text for the user: a file can't be read or written, or its results were measured under other conditions.
    pub fn open(
        experiment: &'a ExperimentConfig,
        setting: &RunSetting<'_>,
        is_simulated: bool,
        progress: &mut dyn ProgressSink,
    ) -> Result<ResultStore<'a>, String> {
        let path = results::path(setting.results, &experiment.name);
        if setting.fresh
            && let Some(renamed) = results::rename_old(&path)?
        {
            let renamed = renamed.display();
            progress.line(&format!("the previous measurements are now in {renamed}"));
        }
        // An old file was renamed before, if the user requested it.
        let stored = results::read(&path)?;
        for note in &stored.notes {
            progress.line(&format!("{}: {note}", path.display()));
        }
        comparable(experiment, setting.selection, is_simulated, &stored)
            .map_err(|problem| format!("{}: {problem}", path.display()))?;
        // The file is opened only after the comparison: opening truncates an incomplete line, and results of other
        // conditions must stay unchanged.
        let writer = ResultWriter::open(&path, stored.complete_len)?;
        Ok(ResultStore {
            experiment,
            fingerprint_scale: setting.selection.duration_scale(experiment),
            machine: MachineInfo::current(),
            is_simulated,
            inner: Mutex::new(ResultStoreState {
                writer,
                stored,
                unavailable: Vec::new(),
            }),
        })
    }

    /// The experiment.
    pub fn experiment(&self) -> &'a ExperimentConfig {
        self.experiment
    }

    /// The stored figures of a key; failures are repeated.
    #[must_use]
    pub fn figures(&self, key: &ResultKey) -> Option<MeasurementResult> {
        self.inner().stored.records.get(key)?.measured().cloned()
    }

    /// The key of a repeat of a step's point.
    fn point(&self, step: &MeasurementStep, repeat: u32) -> ResultKey {
        let server = &self.experiment.servers[step.server].name;
        results::key(MeasurementRole::Point, server, &step.x, repeat)
    }

    /// The capacity found in the first repeat of a step.
    #[must_use]
    pub fn first_capacity(&self, step: &MeasurementStep) -> Option<f64> {
        self.figures(&self.point(step, 0))?.capacity_per_s
    }

    /// Whether a step is complete.
    #[must_use]
    pub fn is_done(&self, step: &MeasurementStep) -> bool {
        let inner = self.inner();
        let record = inner.stored.records.get(&self.point(step, step.repeat));
        // A server that can't be started fails alike at each point, so one record suffices.
        inner.unavailable.contains(&step.server)
            || record.and_then(ResultRecord::measured).is_some()
    }

    /// The next repeat of a point, if its repeats disagree in the measure of the experiment's first figure.
    #[must_use]
    pub fn next_repeat(&self, step: &MeasurementStep) -> Option<MeasurementStep> {
        let measure = &self.experiment.figures.first()?.measure;
        let value = |repeat| {
            self.figures(&self.point(step, repeat))
                .and_then(|measured| measure.value(&measured))
        };
        let values: Option<Vec<f64>> = (0..=step.repeat).map(value).collect();
        let repeats_max = match self.experiment.is_open_loop() {
            true => agree::TIMED_REPEATS_MAX,
            false => agree::COUNTED_REPEATS_MAX,
        };
        let is_needed = agree::needs_another(&values?, repeats_max);
        is_needed.then(|| MeasurementStep {
            repeat: step.repeat + 1,
            ..step.clone()
        })
    }

    /// Number of missing measurements. If rates are relative to an unknown capacity, all of them are missing.
    #[must_use]
    pub fn missing(&self, selection: &RunSelection) -> usize {
        let points = plan::points(self.experiment, None, selection);
        let steps = plan::steps(self.experiment, &points, selection);
        steps.iter().filter(|step| !self.is_done(step)).count()
    }

    /// Stores a result.
    ///
    /// # Errors
    /// The file can't be written, as on a full disk.
    pub fn store(
        &self,
        role: MeasurementRole,
        x: &AxisValue,
        repeat: u32,
        server_index: usize,
        attempt: PointAttempt,
    ) -> Result<(), String> {
        let server = &self.experiment.servers[server_index];
        // A broken server may work at another point; one that is missing never does.
        let is_unavailable = matches!(&attempt.result, PointResult::Failed { why, .. } if *why != MissingReason::Broken);
        let record = ResultRecord {
            experiment: self.experiment.name.clone(),
            fingerprint: self.experiment.fingerprint(server, self.fingerprint_scale),
            role,
            server: server.name.clone(),
            x: x.clone(),
            repeat,
            found: attempt.result,
            version: attempt.version,
            configuration: attempt.configuration,
            unix_s: now_unix_s(),
            machine: self.machine.clone(),
            pretended: self.is_simulated,
        };
        let mut inner = self.inner();
        if is_unavailable {
            inner.unavailable.push(server_index);
        }
        // The file is written first: a record that could not be written must not count as done.
        inner.writer.append(&record)?;
        inner.stored.records.insert(record.key(), record);
        Ok(())
    }

    fn inner(&self) -> MutexGuard<'_, ResultStoreState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether stored results were measured under the same conditions.
fn comparable(
    experiment: &ExperimentConfig,
    selection: &RunSelection,
    is_simulated: bool,
    stored: &StoredResults,
) -> Result<(), String> {
    let scale = selection.duration_scale(experiment);
    for record in stored.records.values() {
        let Some(server) = experiment.server(&record.server) else {
            continue;
        };
        if record.pretended != is_simulated {
            return Err(
                "contains figures of a rehearsal and measured ones; start over with --fresh, or \
                 name another folder with --results"
                    .into(),
            );
        }
        if record.fingerprint != experiment.fingerprint(server, scale) {
            return Err(format!(
                "{} was measured with other settings (the experiment's file, --scale, --quick or \
                 the lab changed); start over with --fresh (existing results are kept in a file \
                 next to it), or name another folder with --results",
                record.server
            ));
        }
    }
    Ok(())
}

fn now_unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |duration| duration.as_secs())
}
