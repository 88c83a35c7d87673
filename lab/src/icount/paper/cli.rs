//! `icount --paper`: selects servers and loads, installs packages, and writes the figures.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};

use super::super::CountTraffic;
use super::super::standard::install_packages;
use super::figure::CountedFigure;
use super::run::{PaperPlan, run};
use super::{database, find_paper};

/// The selection on the command line.
#[derive(Debug)]
pub struct PaperSelection<'a> {
    /// The paper's number.
    pub paper: &'a str,
    /// Its servers; empty for all.
    pub servers: &'a [String],
    /// Its loads; empty for all.
    pub loads: &'a [String],
    /// Guests for each server.
    pub repeats: u32,
    /// The number of requests behind each figure.
    pub traffic: CountTraffic,
    /// The output file for the figures.
    pub json: Option<&'a Path>,
    /// The path of Lowroad's program.
    pub lowroad: Option<PathBuf>,
    /// Number of simultaneous guests.
    pub jobs: usize,
    /// Whether packages may be installed.
    pub installs: bool,
}

/// Runs the comparison.
///
/// # Errors
/// With a text for the user.
pub fn compare(selection: PaperSelection<'_>) -> anyhow::Result<ExitCode> {
    let paper = find_paper(selection.paper).map_err(|error| anyhow!("--paper: {error}"))?;
    let subjects: Result<Vec<_>, _> = match selection.servers {
        [] => Ok(paper.subjects.iter().collect()),
        names => names.iter().map(|name| paper.subject(name)).collect(),
    };
    let loads: Result<Vec<_>, _> = match selection.loads {
        [] => Ok(paper.loads.iter().collect()),
        names => names.iter().map(|name| paper.load(name)).collect(),
    };
    let plan = PaperPlan {
        paper,
        subjects: subjects.map_err(|error| anyhow!("--server: {error}"))?,
        loads: loads.map_err(|error| anyhow!("--load: {error}"))?,
        traffic: selection.traffic,
        repeats: selection.repeats,
        lowroad: selection.lowroad,
        jobs: selection.jobs.max(1),
    };
    if selection.installs {
        install_packages(&missing(&plan))?;
    }
    let mut unwritten = None;
    let figures = run(&plan, &mut |figures| {
        unwritten = selection.json.and_then(|path| write(path, figures).err());
    });
    let figures = figures.map_err(|error| anyhow!(error))?;
    if let Some(error) = unwritten {
        return Err(error);
    }
    // A server that is not installed is not an error; a wrong response is.
    let is_accounted_for = |figure: &CountedFigure| figure.median().is_some() || figure.is_left_out;
    let has_figures = figures.iter().any(|figure| figure.median().is_some());
    Ok(match has_figures && figures.iter().all(is_accounted_for) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The missing packages of the selection.
fn missing(plan: &PaperPlan) -> BTreeSet<&'static str> {
    let subjects = plan.subjects.iter();
    let subjects = subjects.filter_map(|subject| subject.missing(plan.lowroad.as_deref()));
    let missing_packages = subjects.chain(database::missing());
    missing_packages
        .flat_map(|(_, packages)| packages.iter().copied())
        .collect()
}

fn write(path: &Path, figures: &[CountedFigure]) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(figures).expect("plain data");
    std::fs::write(path, text + "\n").with_context(|| format!("--json {}", path.display()))
}
