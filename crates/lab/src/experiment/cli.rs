//! The command `run`: an experiment, from its file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::bench::Bench;
use super::fake::Fake;
use super::plan::Extent;
use super::progress::Stderr;
use super::real::Real;
use super::runner::{self, End, Setting};
use super::schema::Experiment;
use crate::peers::Place;

/// Run experiments; what is measured already is not measured again
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files of experiments, or their names in --experiments
    files: Vec<PathBuf>,
    /// The folder of experiments
    #[arg(long, value_name = "DIR", default_value = "experiments")]
    experiments: PathBuf,
    /// The folder that results are appended in
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// The folder that file sets are made in
    #[arg(long, value_name = "DIR", default_value = "lab-data")]
    data: PathBuf,
    /// Multiplies all durations
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = scale)]
    scale: f64,
    /// 0.3 seconds, one repeat, three points: to try an experiment, not to measure
    #[arg(long, conflicts_with = "scale")]
    quick: bool,
    /// Begin anew; what is there is kept as NAME.jsonl.old
    #[arg(long)]
    fresh: bool,
    /// Only these servers
    #[arg(long, value_name = "SERVER,..", value_delimiter = ',')]
    only: Vec<String>,
    /// Run servers in a network namespace of their own (needs root)
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
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
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
        let known = experiments
            .iter()
            .any(|experiment| experiment.server(name).is_some());
        anyhow::ensure!(
            known,
            "--only {name}: no experiment here has a server of that name"
        );
    }
    measure(args, &experiments)
}

fn measure(args: &Args, experiments: &[Experiment]) -> anyhow::Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("signals")?;
    }
    let extent = Extent {
        scale: args.scale,
        quick: args.quick,
        only: args.only.clone(),
    };
    let setting = Setting {
        results: &args.results,
        extent: &extent,
        fresh: args.fresh,
        stop: &stop,
    };
    let mut bench = bench(args);
    let mut failed = false;
    for experiment in experiments {
        eprintln!("{}: {}", experiment.name, experiment.title);
        match runner::run(experiment, &setting, &mut *bench, &mut Stderr::default()) {
            Ok(End::Whole { broken: 0 }) => {}
            Ok(End::Whole { broken }) => {
                eprintln!(
                    "{}: {broken} measurements could not be made; the same command tries them again",
                    experiment.name
                );
                failed = true;
            }
            Ok(End::Stopped) => {
                let same = match args.fresh {
                    true => "the same command without --fresh",
                    false => "the same command",
                };
                eprintln!("stopped; what is whole is kept, and {same} goes on from there");
                return Ok(ExitCode::from(130));
            }
            // The others can be measured all the same.
            Err(problem) => {
                eprintln!("lowroad-lab: {problem}");
                failed = true;
            }
        }
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn bench(args: &Args) -> Box<dyn Bench> {
    if args.rehearse {
        return Box::new(Fake::default());
    }
    // Servers run in other folders than this.
    let data = std::path::absolute(&args.data).unwrap_or_else(|_| args.data.clone());
    let place = if args.namespace {
        Place::Namespace
    } else {
        Place::Loopback
    };
    Box::new(Real::new(data, place))
}

fn list(experiments: &[Experiment]) {
    for experiment in experiments {
        println!(
            "{:<28} paper {}, {}",
            experiment.name, experiment.paper, experiment.figure
        );
        println!("{:<28} {}", "", experiment.title);
    }
}

fn check(args: &Args, paths: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let bench = bench(args);
    let mut wrong = 0;
    for path in paths {
        let checked = Experiment::read(path).and_then(|experiment| {
            bench
                .check(&experiment)
                .map_err(|text| format!("{}: workload: {text}", path.display()))
        });
        if let Err(problem) = checked {
            eprintln!("{problem}");
            wrong += 1;
        }
    }
    println!("{} of {} files are right", paths.len() - wrong, paths.len());
    Ok(if wrong == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn read_all(paths: &[PathBuf]) -> anyhow::Result<Vec<Experiment>> {
    paths
        .iter()
        .map(|path| Experiment::read(path).map_err(anyhow::Error::msg))
        .collect()
}

fn paths(args: &Args) -> anyhow::Result<Vec<PathBuf>> {
    if args.files.is_empty() {
        anyhow::ensure!(
            args.list || args.check,
            "which experiment? `lowroad-lab run --list` shows them; `lowroad-lab run {}/*.toml` \
             runs all",
            args.experiments.display()
        );
        return all_in(&args.experiments);
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
pub fn all_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
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
                "{}: no such file, and no experiment of that name in {}; `lowroad-lab run --list` \
             shows what there is",
                file.display(),
                folder.display()
            )
        })
}
