//! The command `report`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use super::instructions::{self, CountedResults};
use super::model::ExperimentStudy;
use super::{against, claims, html, levels, markdown};
use crate::experiment::cli::files_in;
use crate::experiment::counting::CountUnit;
use crate::experiment::results;
use crate::experiment::schema::ExperimentConfig;
use crate::log_size;

/// Draw the figures of experiments that have run
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// The folder of results
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// The folder of experiments
    #[arg(long, value_name = "DIR", default_value = "experiments")]
    experiments: PathBuf,
    /// The page to write
    #[arg(long, value_name = "FILE", default_value = "target/report/report.html")]
    out: PathBuf,
    /// The whole report in Markdown to write
    #[arg(long, value_name = "FILE", default_value = "target/report/report.md")]
    markdown: PathBuf,
    /// The picture of the requests per level to write
    #[arg(long, value_name = "FILE", default_value = "target/report/levels.svg")]
    picture: PathBuf,
    /// Write one page in Markdown, too: the requests per level, and the verdicts on the claims
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Write no report: compare with another folder of results, point by point
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// With a text for the user.
pub fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let (studies, mut problems) = studies(&args.experiments, &args.results)?;
    if let Some(other_folder) = &args.against {
        return compare(args, &studies, problems, other_folder);
    }
    // A file of counts that can't be read must not prevent the rest of the report.
    let rows = instructions::read(&args.results).unwrap_or_else(|problem| {
        problems.push(problem);
        Vec::new()
    });
    let (papers, more_problems) = claims::read(&args.results);
    problems.extend(more_problems);
    let log_sizes = log_size::read(&args.results).unwrap_or_else(|problem| {
        problems.push(problem);
        Vec::new()
    });
    let counts = CountedResults {
        rows,
        papers,
        log_sizes,
    };
    for problem in &problems {
        eprintln!("{problem}");
    }
    let measured = studies
        .iter()
        .filter(|study| !study.records.is_empty())
        .count();
    anyhow::ensure!(
        measured > 0
            || !counts.rows.is_empty()
            || !counts.papers.is_empty()
            || !counts.log_sizes.is_empty(),
        "{}: no results of these experiments in it; make them with `lowroad-lab run`, or name \
         another folder with --results",
        args.results.display()
    );
    if let Some(picture) = levels::LevelTable::from_studies(&studies, &counts.papers).picture() {
        write(&args.picture, &picture)?;
    }
    write(&args.out, &html::page(&studies, &problems, &counts))?;
    write(
        &args.markdown,
        &markdown::page(
            &studies,
            &problems,
            &counts,
            &picture_name(&args.picture, &args.markdown),
        ),
    )?;
    if let Some(path) = &args.summary {
        let page = markdown::summary(&studies, &counts, &picture_name(&args.picture, path));
        write(path, &page)?;
    }
    let experiments = studies
        .iter()
        .filter(|it| it.experiment.by == CountUnit::Clock);
    println!(
        "{} and {}: {measured} runs of {} experiments have results",
        args.out.display(),
        args.markdown.display(),
        experiments.count()
    );
    Ok(ExitCode::SUCCESS)
}

fn compare(
    args: &ReportArgs,
    studies_here: &[ExperimentStudy],
    mut problems: Vec<String>,
    folder: &Path,
) -> anyhow::Result<ExitCode> {
    let (other_studies, more_problems) = studies(&args.experiments, folder)?;
    problems.extend(more_problems);
    for problem in &problems {
        eprintln!("{problem}");
    }
    let pairs = against::pairs(studies_here, &other_studies);
    anyhow::ensure!(
        !pairs.is_empty(),
        "{} and {} have no point in common",
        args.results.display(),
        folder.display()
    );
    print!("{}", against::text(&pairs));
    Ok(ExitCode::SUCCESS)
}

/// All experiments of a folder with their results, by the clock and by instructions. A file that can't be read is
/// reported as a problem and does not prevent the report.
///
/// # Errors
/// The folder of experiments can't be read.
pub fn studies(
    experiments: &Path,
    results_folder: &Path,
) -> anyhow::Result<(Vec<ExperimentStudy>, Vec<String>)> {
    let (mut studies, mut problems) = (Vec::new(), Vec::new());
    for path in files_in(experiments)? {
        let experiment = match ExperimentConfig::read(&path) {
            Ok(experiment) => experiment,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        for by in [CountUnit::Clock, CountUnit::Instructions] {
            let Ok(experiment) = experiment.for_unit(by) else {
                continue;
            };
            match study(experiment, results_folder) {
                Ok(study) => studies.push(study),
                Err(problem) => problems.push(problem),
            }
        }
    }
    Ok((studies, problems))
}

fn study(experiment: ExperimentConfig, results_folder: &Path) -> Result<ExperimentStudy, String> {
    let stored = results::read(&results::path(results_folder, &experiment.name))?;
    Ok(ExperimentStudy {
        experiment,
        records: stored.records,
        notes: stored.notes,
    })
}

/// The picture's address in a page: relative if both are in the same folder.
fn picture_name(picture: &Path, page: &Path) -> String {
    let is_same_folder = picture.parent() == page.parent();
    let name = picture.file_name().filter(|_| is_same_folder);
    let path = name.map_or(picture.to_owned(), PathBuf::from);
    path.display().to_string()
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}
