//! The bench that measures by the clock: connects experiments with the load generator, the peers and the workloads.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::bench::{MeasurementJob, MeasurementResult, PeerServer, TestBench};
use super::forms;
use super::phases::{ProbeSchedule, StatusProbe};
use super::schema::ExperimentConfig;
use super::site::LabSites;
use crate::load::{self, LoadSnapshot};
use crate::peers::{self, PeerFailure, PeerOptions, PeerPlace, RunningPeer, fronts, table};
use crate::workload::named;

/// The bench.
pub struct ClockBench {
    sites: LabSites,
    place: PeerPlace,
    /// The database: started on first use, it runs until the bench is dropped.
    database: Option<RunningPeer>,
}

impl ClockBench {
    /// Creates a bench that stores file sets under `data` and runs servers at `place`.
    #[must_use]
    pub fn new(data: PathBuf, place: PeerPlace) -> Self {
        Self {
            sites: LabSites::new(data),
            place,
            database: None,
        }
    }

    /// The address of the database, which is started on first use.
    fn database(&mut self) -> Result<String, PeerFailure> {
        if self.database.is_none() {
            let schema = self
                .sites
                .programs()
                .join("schema.sql")
                .display()
                .to_string();
            let settings = [("schema".to_owned(), schema)].into();
            let options = PeerOptions {
                // The field is required, although the database serves no folder.
                root: self.sites.programs(),
                workers: 1,
                settings,
                ..PeerOptions::default()
            };
            self.database = Some(peers::start("mariadb", &options)?);
        }
        let running = self.database.as_ref().expect("just started");
        // The connection uses TCP, as in the paper, except that a peer in its own network namespace reaches only the
        // Unix socket.
        Ok(match (self.place, &running.socket) {
            (PeerPlace::Namespace, Some(socket)) => socket.display().to_string(),
            _ => running.address.to_string(),
        })
    }

    /// The options of a peer. If it runs programs, they include the paths of programs and data.
    fn options(&mut self, job: &MeasurementJob) -> Result<PeerOptions, PeerFailure> {
        let folder = self.sites.folder(&job.workload, &job.files_settings);
        let mut settings = job.server.settings.clone();
        if table::has_setting(&job.server.peer, "php_root") {
            let text = |path: PathBuf| path.display().to_string();
            settings.insert("php_root".into(), text(self.sites.programs()));
            match job.workload.as_str() {
                // Only this workload has pages from a database, which is started on demand.
                "bare" => settings.insert("db".into(), self.database()?),
                _ => settings.insert("specweb99_data".into(), text(folder.join("specweb99-data"))),
            };
        }
        if forms::is_dynamic(job) && fronts::has_front(&job.server.peer) {
            let front_folder = self.sites.fronts()?;
            let data = std::path::absolute(folder.join("specweb99-data")).unwrap_or_default();
            let text = |path: PathBuf| path.display().to_string();
            settings.insert("fronts".into(), text(front_folder));
            settings.insert("specweb99_data".into(), text(data));
        }
        Ok(PeerOptions {
            root: folder.join("site"),
            workers: job.server.workers,
            cpus: Vec::new(),
            place: self.place,
            settings,
        })
    }
}

impl TestBench for ClockBench {
    fn prepare(
        &mut self,
        experiment: &ExperimentConfig,
        progress: &mut dyn FnMut(f64),
        stop: &AtomicBool,
    ) -> Result<(), String> {
        self.sites.prepare(experiment, progress, stop)
    }

    fn start(&mut self, job: &MeasurementJob) -> Result<Box<dyn PeerServer>, PeerFailure> {
        let options = self.options(job)?;
        let running = peers::start(&job.server.peer, &options)?;
        Ok(Box::new(ClockPeer { running }))
    }

    fn check(&self, experiment: &ExperimentConfig) -> Result<(), String> {
        named(
            &experiment.workload.name,
            &experiment.workload.settings,
            "127.0.0.1",
        )
        .map(drop)
    }
}

struct ClockPeer {
    running: RunningPeer,
}

impl PeerServer for ClockPeer {
    fn version(&self) -> &str {
        &self.running.version
    }

    fn configuration(&self) -> &str {
        &self.running.configuration
    }

    fn measure(
        &mut self,
        job: &MeasurementJob,
        progress: &mut dyn FnMut(&LoadSnapshot),
        stop: &AtomicBool,
    ) -> Result<MeasurementResult, String> {
        let load = job.load(self.running.address)?;
        let address = self.running.address;
        let probe = job
            .phases
            .then(|| StatusProbe::start(address, job.set(), ProbeSchedule::ByTheClock));
        if forms::has_forms(job) {
            forms::begin(address, job)?;
        }
        // The CPU time is read after the log of forms was reset, since the reset does not belong to the run.
        let (cpu_before_s, began) = (self.running.cpu_s(), Instant::now());
        let outcome = load::run(&load, progress, stop);
        let (cpu_after_s, took) = (self.running.cpu_s(), began.elapsed());
        // The probe ends before the log is checked, so that none of its requests are in progress.
        let phases = probe.map(StatusProbe::end).unwrap_or_default();
        let outcome = outcome.map_err(|error| error.to_string())?;
        if forms::has_forms(job) {
            forms::check(address, job, &outcome)?;
        }
        let mut measured = MeasurementResult {
            outcome,
            extras: phases,
            ..MeasurementResult::default()
        };
        // The sum excludes processes that have ended, so it may be smaller than before.
        let share = (cpu_after_s - cpu_before_s) / took.as_secs_f64();
        measured
            .extras
            .insert("server_cpu_share".into(), share.max(0.0));
        Ok(measured)
    }
}
