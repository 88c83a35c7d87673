//! The command `report`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use super::instructions::{self, Counts};
use super::model::Study;
use super::{claims, html, markdown};
use crate::experiment::cli::all_in;
use crate::experiment::results;
use crate::experiment::schema::Experiment;

/// Draw the figures of experiments that have run
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder of results
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// The folder of experiments
    #[arg(long, value_name = "DIR", default_value = "experiments")]
    experiments: PathBuf,
    /// The page to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
    /// The summary in Markdown to write
    #[arg(long, value_name = "FILE", default_value = "report.md")]
    markdown: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// With a text for the user.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (studies, mut problems) = studies(&args.experiments, &args.results)?;
    let rows = instructions::read(&args.results).unwrap_or_else(|problem| {
        problems.push(problem);
        Vec::new()
    });
    let (papers, more) = claims::read(&args.results);
    problems.extend(more);
    let counts = Counts { rows, papers };
    for problem in &problems {
        eprintln!("{problem}");
    }
    let measured = studies
        .iter()
        .filter(|study| !study.records.is_empty())
        .count();
    anyhow::ensure!(
        measured > 0 || !counts.rows.is_empty() || !counts.papers.is_empty(),
        "{}: no results of these experiments in it; `lowroad-lab run` makes them, --results names \
         another folder",
        args.results.display()
    );
    write(&args.out, &html::page(&studies, &problems, &counts))?;
    write(
        &args.markdown,
        &markdown::page(&studies, &problems, &counts),
    )?;
    println!(
        "{} and {}: {measured} of {} experiments have results",
        args.out.display(),
        args.markdown.display(),
        studies.len()
    );
    Ok(ExitCode::SUCCESS)
}

/// All experiments of a folder with their results. A file that can't be read is a problem in the
/// report, and no reason to have none.
///
/// # Errors
/// When the folder of experiments can't be read.
pub fn studies(
    experiments: &Path,
    results_folder: &Path,
) -> anyhow::Result<(Vec<Study>, Vec<String>)> {
    let (mut studies, mut problems) = (Vec::new(), Vec::new());
    for path in all_in(experiments)? {
        match study(&path, results_folder) {
            Ok(study) => studies.push(study),
            Err(problem) => problems.push(problem),
        }
    }
    Ok((studies, problems))
}

fn study(path: &Path, results_folder: &Path) -> Result<Study, String> {
    let experiment = Experiment::read(path)?;
    let stored = results::read(&results::path(results_folder, &experiment.name))?;
    Ok(Study {
        experiment,
        records: stored.records,
        notes: stored.notes,
    })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}
