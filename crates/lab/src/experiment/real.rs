//! The bench for real: the one file where experiments meet the load generator, the peers and the
//! workloads. What these do inside is not known here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::bench::{Bench, Job, Measured, Peer};
use super::forms;
use super::machine;
use super::phases::{self, Probe};
use super::schema::Experiment;
use crate::load::{self, Load, Snapshot, Target};
use crate::peers::{self, Failure, Options, Place, Running, fronts};
use crate::workload::{files, named};

/// Settings of workloads that do not change their files.
const TRAFFIC_ONLY: &[&str] = &[
    "dynamic", "mix", "size", "set", "style", "calls", "protocol",
];

/// The bench.
pub struct Real {
    data: PathBuf,
    place: Place,
    /// Runs as long as the bench, once something needs it.
    database: Option<Running>,
}

impl Real {
    /// A bench that makes file sets under `data` and runs servers at `place`.
    #[must_use]
    pub fn new(data: PathBuf, place: Place) -> Self {
        Self {
            data,
            place,
            database: None,
        }
    }

    /// The folder of the programs that servers with PHP run.
    fn programs(&self) -> PathBuf {
        self.data.join("php")
    }

    /// Where the database answers; it is started when it does not run yet.
    fn database(&mut self) -> Result<String, Failure> {
        if self.database.is_none() {
            let schema = self.programs().join("schema.sql").display().to_string();
            let settings = [("schema".to_owned(), schema)].into();
            let options = Options {
                // It serves no folder, but a peer has one.
                root: self.programs(),
                workers: 1,
                settings,
                ..Options::default()
            };
            self.database = Some(peers::start("mariadb", &options)?);
        }
        let running = self.database.as_ref().expect("just started");
        // By TCP, as in the paper; from a namespace of its own a peer reaches only the socket.
        Ok(match (self.place, &running.socket) {
            (Place::Namespace, Some(socket)) => socket.display().to_string(),
            _ => running.address.to_string(),
        })
    }

    /// How a peer is to run; those that call programs are told where these and their data are.
    fn options(&mut self, job: &Job) -> Result<Options, Failure> {
        let folder = self.folder(&job.workload, &job.files_settings);
        let mut settings = job.server.settings.clone();
        if job.server.peer.ends_with("-php") {
            let text = |path: PathBuf| path.display().to_string();
            settings.insert("php_root".into(), text(self.programs()));
            match job.workload.as_str() {
                "bare" => settings.insert("db".into(), self.database()?),
                _ => settings.insert("specweb99_data".into(), text(folder.join("specweb99-data"))),
            };
        }
        if forms::is_dynamic(job) && fronts::has_front(&job.server.peer) {
            let built = std::path::absolute(self.data.join("fronts")).unwrap_or_default();
            fronts::build(&built).map_err(Failure::NotInstalled)?;
            let data = std::path::absolute(folder.join("specweb99-data")).unwrap_or_default();
            let text = |path: PathBuf| path.display().to_string();
            settings.insert("fronts".into(), text(built));
            settings.insert("specweb99_data".into(), text(data));
        }
        Ok(Options {
            root: folder.join("site"),
            workers: job.server.workers,
            cpus: Vec::new(),
            place: self.place,
            settings,
        })
    }

    /// The folder of a file set: experiments whose sets are equal share it.
    fn folder(&self, workload: &str, settings: &BTreeMap<String, String>) -> PathBuf {
        let of_files = |key: &&String| !TRAFFIC_ONLY.contains(&key.as_str());
        let of_files: Vec<_> = settings.iter().filter(|(key, _)| of_files(key)).collect();
        let text = serde_json::to_string(&of_files).expect("plain data");
        self.data.join(format!(
            "{workload}-{:08x}",
            crc32fast::hash(text.as_bytes())
        ))
    }
}

impl Bench for Real {
    fn prepare(
        &mut self,
        experiment: &Experiment,
        progress: &mut dyn FnMut(f64),
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let traffic = &experiment.workload;
        let folder = self.folder(&traffic.name, &traffic.settings);
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        write_programs(&self.programs())?;
        make_files(&traffic.name, &traffic.settings, &folder, progress, stop)
    }

    fn start(&mut self, job: &Job) -> Result<Box<dyn Peer>, Failure> {
        let options = self.options(job)?;
        let running = peers::start(&job.server.peer, &options)?;
        Ok(Box::new(RealPeer { running }))
    }

    fn check(&self, experiment: &Experiment) -> Result<(), String> {
        named(
            &experiment.workload.name,
            &experiment.workload.settings,
            "127.0.0.1",
        )
        .map(drop)
    }
}

struct RealPeer {
    running: Running,
}

impl Peer for RealPeer {
    fn version(&self) -> &str {
        &self.running.version
    }

    fn configuration(&self) -> &str {
        &self.running.configuration
    }

    fn measure(
        &mut self,
        job: &Job,
        progress: &mut dyn FnMut(&Snapshot),
        stop: &AtomicBool,
    ) -> Result<Measured, String> {
        let host = self.running.address.to_string();
        let load = Load {
            target: Target {
                addresses: vec![self.running.address],
                tls: None,
            },
            workload: named(&job.workload, &job.settings, &host)?,
            pace: job.pace,
            connections: job.connections,
            threads: job.threads,
            cpus: Vec::new(),
            pipeline: job.pipeline,
            line_bits_per_s: job.line_bits_per_s,
            warmup: Duration::from_secs_f64(job.warmup_s),
            ramp: Duration::ZERO,
            duration: Duration::from_secs_f64(job.duration_s),
            requests: None,
            timeout: Duration::from_millis(job.timeout_ms),
            seed: job.seed,
        };
        let probe = job.phases.then(|| {
            let set = job.settings.get("set").map_or("small", String::as_str);
            Probe::start(self.running.address, set)
        });
        let address = self.running.address;
        if forms::has_forms(job) {
            forms::begin(address, job)?;
        }
        let before = cpu_ticks();
        let outcome = load::run(&load, progress, stop);
        let phases = probe.map(Probe::end).unwrap_or_default();
        let outcome = outcome.map_err(|error| error.to_string())?;
        if forms::has_forms(job) {
            forms::check(address, job, &outcome)?;
        }
        let mut measured = Measured {
            outcome,
            extras: phases,
            ..Measured::default()
        };
        let busy = busy_cpus(before, cpu_ticks());
        let own = measured.outcome.cpu_share;
        measured
            .extras
            .extend(busy.map(|busy| ("server_cpu_share".into(), (busy - own).max(0.0))));
        Ok(measured)
    }
}

/// CPUs that the whole machine kept busy between two counts. The load generator's own share is
/// taken off by the caller: what is left is the server and the kernel's work for both.
fn busy_cpus(before: Option<(u64, u64)>, after: Option<(u64, u64)>) -> Option<f64> {
    let ((busy_before, all_before), (busy_after, all_after)) = (before?, after?);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let all = all_after.checked_sub(all_before).filter(|all| *all > 0)?;
    Some(busy_after.saturating_sub(busy_before) as f64 / all as f64 * cores as f64)
}

fn cpu_ticks() -> Option<(u64, u64)> {
    machine::cpu_ticks(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// The programs that servers with PHP run, by file name.
const PROGRAMS: &[(&str, &str)] = &[
    phases::PAGE,
    ("page.php", include_str!("../../peers/php/page.php")),
    (
        "specweb99.php",
        include_str!("../../peers/php/specweb99.php"),
    ),
    ("schema.sql", include_str!("../../peers/php/schema.sql")),
];

fn write_programs(folder: &Path) -> Result<(), String> {
    let write = || {
        std::fs::create_dir_all(folder)?;
        PROGRAMS
            .iter()
            .try_for_each(|(name, text)| std::fs::write(folder.join(name), text))
    };
    write().map_err(|error: std::io::Error| format!("{}: {error}", folder.display()))
}

/// The files of a workload.
fn make_files(
    workload: &str,
    settings: &BTreeMap<String, String>,
    folder: &Path,
    progress: &mut dyn FnMut(f64),
    stop: &AtomicBool,
) -> Result<(), String> {
    let plan = files::plan(workload, settings)?;
    files::make_until(&plan, folder, stop, progress).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy() {
        let cores = std::thread::available_parallelism().expect("known").get() as f64;
        assert_eq!(busy_cpus(Some((0, 0)), Some((50, 100))), Some(0.5 * cores));
        assert_eq!(busy_cpus(Some((0, 100)), Some((0, 100))), None);
        assert_eq!(busy_cpus(None, Some((0, 100))), None);
    }
}
