//! The command `run`: runs experiments from their files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::bench::TestBench;
use super::counted::CountingBench;
use super::counting::{CountUnit, MeasurementModes};
use super::fake::FakeBench;
use super::plan::RunSelection;
use super::progress::StderrProgress;
use super::real::ClockBench;
use super::runner::{self, RunOutcome, RunSetting};
use super::schema::ExperimentConfig;
use super::several;
use super::site::LabSites;
use crate::peers::PeerPlace;

/// Run experiments; existing measurements are not repeated
#[derive(Debug, clap::Args)]
pub struct ExperimentArgs {
    /// Files of experiments, or their names in --experiments
    files: Vec<PathBuf>,
    /// The folder of experiments
    #[arg(long, value_name = "DIR", default_value = "experiments")]
    experiments: PathBuf,
    /// The folder of results, to which they are appended
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// The folder of file sets
    #[arg(long, value_name = "DIR", default_value = "lab-data")]
    data: PathBuf,
    /// By the clock, on this machine, or by instructions, in guests that count them [default: as in the file]
    #[arg(long, value_name = "HOW")]
    measure: Option<MeasurementModes>,
    /// Servers that are counted at a time, each on its own processor
    #[arg(long, value_name = "N", default_value_t = jobs(), value_parser = clap::value_parser!(u32).range(1..=64))]
    jobs: u32,
    /// Multiplies all durations
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = scale)]
    scale: f64,
    /// 0.3 seconds, one repeat, three points: to try an experiment, not to measure
    #[arg(long, conflicts_with = "scale")]
    quick: bool,
    /// Start over; existing results are kept as NAME.jsonl.old
    #[arg(long)]
    fresh: bool,
    /// Only these servers
    #[arg(long, value_name = "SERVER,..", value_delimiter = ',')]
    only: Vec<String>,
    /// Write profiles of the instructions of each counted figure into a folder: NAME.svg for a browser, NAME.folded, and the
    /// largest in NAME.txt
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "profile")]
    profile: Option<PathBuf>,
    /// Run servers in their own network namespace (needs root)
    #[arg(long)]
    namespace: bool,
    /// List the experiments
    #[arg(long, conflicts_with_all = ["check", "fresh"])]
    list: bool,
    /// Check the files and run nothing
    #[arg(long, conflicts_with = "fresh")]
    check: bool,
    /// Compute figures in place of measuring, to try a file and its report
    #[arg(long)]
    rehearse: bool,
}

fn scale(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "must be a number".to_owned())?;
    let fits = value > 0.0 && value <= 1000.0;
    fits.then_some(value)
        .ok_or_else(|| "must be more than 0 and at most 1000".into())
}

/// Runs the command.
///
/// # Errors
/// With a text for the user.
pub fn run(args: &ExperimentArgs) -> anyhow::Result<ExitCode> {
    let paths = paths(args)?;
    if args.check {
        return check(args, &paths);
    }
    let experiments = read_all(&paths)?;
    if args.list {
        list(&experiments);
        return Ok(ExitCode::SUCCESS);
    }
    for name in &args.only {
        // A misspelt name would otherwise measure nothing, silently.
        let experiment_info = experiments
            .iter()
            .any(|experiment| experiment.server(name).is_some());
        anyhow::ensure!(
            experiment_info,
            "--only {name}: no experiment here has a server of this name"
        );
    }
    measure(args, &experiments)
}

fn measure(args: &ExperimentArgs, experiments: &[ExperimentConfig]) -> anyhow::Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    // A signal sets a flag instead of ending the process, so that servers and guests are ended in order.
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("signals")?;
    }
    let selection = RunSelection {
        scale: args.scale,
        quick: args.quick,
        only: args.only.clone(),
    };
    let setting = RunSetting {
        results: &args.results,
        selection: &selection,
        fresh: args.fresh,
        stop: &stop,
    };
    let was_stopped = |ends: &[ExperimentEnd]| ends.contains(&ExperimentEnd::Stopped);
    let mut ends = Vec::new();
    let (by_clock, by_instructions) = split(args, experiments);
    let mut bench = bench(args);
    for experiment in &by_clock {
        if was_stopped(&ends) {
            break;
        }
        eprintln!("{}: {}", experiment.name, experiment.title);
        let mut progress = StderrProgress::default();
        let end = runner::run(experiment, &setting, &mut *bench, &mut progress);
        ends.push(report_end(experiment, end));
    }
    if !was_stopped(&ends) {
        ends.extend(count(args, &setting, &by_instructions));
    }
    if was_stopped(&ends) {
        let command_hint = match args.fresh {
            true => "the same command without --fresh",
            false => "the same command",
        };
        eprintln!(
            "stopped; complete measurements are kept, and {command_hint} continues from there"
        );
        return Ok(ExitCode::from(130));
    }
    Ok(match ends.contains(&ExperimentEnd::Failed) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Splits the experiments into those measured by the clock and those that are counted.
fn split(
    args: &ExperimentArgs,
    experiments: &[ExperimentConfig],
) -> (Vec<ExperimentConfig>, Vec<ExperimentConfig>) {
    let (mut by_clock, mut by_instructions) = (Vec::new(), Vec::new());
    for experiment in experiments {
        let modes = args.measure.unwrap_or(experiment.measure);
        for by in modes.units() {
            match experiment.for_unit(*by) {
                Ok(single) if *by == CountUnit::Clock => by_clock.push(single),
                Ok(single) => by_instructions.push(single),
                Err(reason) => eprintln!("{}: not measured {by}: {reason}", experiment.name),
            }
        }
    }
    (by_clock, by_instructions)
}

/// The end of an experiment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExperimentEnd {
    Whole,
    /// The experiment failed; the other experiments can still be measured.
    Failed,
    Stopped,
}

/// Reports the end of an experiment.
fn report_end(experiment: &ExperimentConfig, end: Result<RunOutcome, String>) -> ExperimentEnd {
    match end {
        Ok(RunOutcome::Complete { failed: 0 }) => ExperimentEnd::Whole,
        Ok(RunOutcome::Complete { failed: broken }) => {
            eprintln!(
                "{}: {broken} measurements failed; the same command retries them",
                experiment.name
            );
            ExperimentEnd::Failed
        }
        Ok(RunOutcome::Stopped) => ExperimentEnd::Stopped,
        Err(problem) => {
            eprintln!("lowroad-lab: {problem}");
            ExperimentEnd::Failed
        }
    }
}

/// Counts experiments, several servers at a time.
fn count(
    args: &ExperimentArgs,
    setting: &RunSetting<'_>,
    experiments: &[ExperimentConfig],
) -> Vec<ExperimentEnd> {
    let sites = LabSites::new(data(args));
    let bench = || counting_bench(args, sites.clone());
    let ends = several::run(experiments, setting, args.jobs as usize, &bench);
    let ends = experiments.iter().zip(ends);
    ends.map(|(experiment, end)| report_end(experiment, end))
        .collect()
}

fn counting_bench(args: &ExperimentArgs, sites: LabSites) -> Box<dyn TestBench> {
    match args.rehearse {
        true => Box::new(FakeBench::default()),
        false => Box::new(CountingBench::new(sites, args.profile.clone())),
    }
}

/// Default number of simultaneous guests: each takes a processor and up to a GiB of memory.
fn jobs() -> u32 {
    const MOST: usize = 4;
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST) as u32)
}

/// The folder of file sets as an absolute path, because servers run in other folders.
fn data(args: &ExperimentArgs) -> PathBuf {
    std::path::absolute(&args.data).unwrap_or_else(|_| args.data.clone())
}

fn bench(args: &ExperimentArgs) -> Box<dyn TestBench> {
    if args.rehearse {
        return Box::new(FakeBench::default());
    }
    let peer_place = if args.namespace {
        PeerPlace::Namespace
    } else {
        PeerPlace::Loopback
    };
    Box::new(ClockBench::new(data(args), peer_place))
}

fn list(experiments: &[ExperimentConfig]) {
    for experiment in experiments {
        println!(
            "{:<28} paper {}, {}",
            experiment.name, experiment.paper, experiment.figure
        );
        println!("{:<28} {}", "", experiment.title);
    }
}

fn check(args: &ExperimentArgs, paths: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let bench = bench(args);
    let mut invalid_count = 0;
    for path in paths {
        let checked = ExperimentConfig::read(path).and_then(|experiment| {
            bench
                .check(&experiment)
                .map_err(|text| format!("{}: workload: {text}", path.display()))
        });
        if let Err(problem) = checked {
            eprintln!("{problem}");
            invalid_count += 1;
        }
    }
    println!(
        "{} of {} files are right",
        paths.len() - invalid_count,
        paths.len()
    );
    Ok(if invalid_count == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn read_all(paths: &[PathBuf]) -> anyhow::Result<Vec<ExperimentConfig>> {
    paths
        .iter()
        .map(|path| ExperimentConfig::read(path).map_err(anyhow::Error::msg))
        .collect()
}

fn paths(args: &ExperimentArgs) -> anyhow::Result<Vec<PathBuf>> {
    if args.files.is_empty() {
        anyhow::ensure!(
            args.list || args.check,
            "no experiment is named: `lowroad-lab run --list` shows them; `lowroad-lab run \
             {}/*.toml` runs all",
            args.experiments.display()
        );
        return files_in(&args.experiments);
    }
    args.files
        .iter()
        .map(|file| find(file, &args.experiments))
        .collect()
}

/// The files of a folder of experiments, sorted by name.
///
/// # Errors
/// When the folder can't be read, or holds none.
pub fn files_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| {
        format!(
            "{}: the folder of experiments (--experiments)",
            folder.display()
        )
    })?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| folder.display().to_string())?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            paths.push(path);
        }
    }
    anyhow::ensure!(
        !paths.is_empty(),
        "{}: no experiments (*.toml) in it",
        folder.display()
    );
    paths.sort();
    Ok(paths)
}

fn find(file: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let in_folder = folder.join(file).with_extension("toml");
    [file.to_owned(), in_folder]
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| {
            format!(
                "{}: no such file, and no experiment of this name in {}; `lowroad-lab run --list` \
                 lists them",
                file.display(),
                folder.display()
            )
        })
}
