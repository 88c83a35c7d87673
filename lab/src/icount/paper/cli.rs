//! `icount --paper`: selects servers and loads, installs packages, and writes the figures.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};

use super::super::CountTraffic;
use super::super::standard::install_packages;
use super::figure::CountedFigure;
use super::run::{PaperPlan, run};
use super::{database, numbered};

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
    /// The output file of the figures.
    pub json: Option<&'a Path>,
    /// The path of Lowroad's program.
    pub lowroad: Option<PathBuf>,
    /// Simultaneous guests.
    pub jobs: usize,
    /// Whether packages may be installed.
    pub installs: bool,
}

/// Runs the comparison.
///
/// # Errors
/// With a text for the user.
pub fn compare(chosen: PaperSelection<'_>) -> anyhow::Result<ExitCode> {
    let paper = numbered(chosen.paper).map_err(|why| anyhow!("--paper: {why}"))?;
    let subjects: Result<Vec<_>, _> = match chosen.servers {
        [] => Ok(paper.subjects.iter().collect()),
        names => names.iter().map(|name| paper.subject(name)).collect(),
    };
    let loads: Result<Vec<_>, _> = match chosen.loads {
        [] => Ok(paper.loads.iter().collect()),
        names => names.iter().map(|name| paper.load(name)).collect(),
    };
    let plan = PaperPlan {
        paper,
        subjects: subjects.map_err(|why| anyhow!("--server: {why}"))?,
        loads: loads.map_err(|why| anyhow!("--load: {why}"))?,
        traffic: chosen.traffic,
        repeats: chosen.repeats,
        lowroad: chosen.lowroad,
        jobs: chosen.jobs.max(1),
    };
    if chosen.installs {
        install_packages(&missing(&plan))?;
    }
    let mut unwritten = None;
    let figures = run(&plan, &mut |figures| {
        unwritten = chosen.json.and_then(|path| write(path, figures).err());
    });
    let figures = figures.map_err(|why| anyhow!(why))?;
    if let Some(why) = unwritten {
        return Err(why);
    }
    // A server that is not installed does not fail the comparison; a wrong response does.
    let is_good = |figure: &CountedFigure| figure.middle().is_some() || figure.is_left_out;
    let any = figures.iter().any(|figure| figure.middle().is_some());
    Ok(match any && figures.iter().all(is_good) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The missing packages of the selection.
fn missing(plan: &PaperPlan) -> BTreeSet<&'static str> {
    let subjects = plan.subjects.iter();
    let subjects = subjects.filter_map(|subject| subject.missing(plan.lowroad.as_deref()));
    let all = subjects.chain(database::missing());
    all.flat_map(|(_, packages)| packages.iter().copied())
        .collect()
}

fn write(path: &Path, figures: &[CountedFigure]) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(figures).expect("plain data");
    std::fs::write(path, text + "\n").with_context(|| format!("--json {}", path.display()))
}
