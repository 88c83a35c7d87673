//! The summary in Markdown: sentences and tables, without charts.

use std::fmt::Write;

use super::beside::{self, ReportTable};
use super::claims::CountedPaper;
use super::instructions::{self, CountedResults};
use super::levels::LevelTable;
use super::log_sizes;
use super::model::{ExperimentStudy, FigureData};
use super::parts;
use super::sentence::sentence;
use super::verdict;

/// The summary of experiments and instruction counts; `picture` is the address of the levels' picture.
#[must_use]
pub fn page(
    studies: &[ExperimentStudy],
    problems: &[String],
    counts: &CountedResults,
    picture: &str,
) -> String {
    let mut out = String::from("# The papers' experiments on today's servers\n\n");
    if studies.iter().any(ExperimentStudy::pretended) {
        out.push_str("**A rehearsal: figures here are computed, not measured.**\n\n");
    }
    for problem in problems {
        line(&mut out, &format!("**{}**\n", escape(problem)));
    }
    levels_section(&mut out, studies, counts, picture);
    if let Some(claims) = verdict::table(&verdict::judge_all(studies, &counts.log_sizes)) {
        line(&mut out, "\n## Verdicts on the papers' claims");
        table(&mut out, &claims);
    }
    out.push_str("\n## What the figures show\n\n| figure | what it shows |\n|---|---|\n");
    let (measured, unmeasured) = parts::measured(studies);
    for study in &measured {
        for figure_data in study
            .figure_data()
            .iter()
            .filter(|figure_data| !figure_data.series.is_empty())
        {
            let figure = parts::figure_name(study, figure_data.figure);
            line(
                &mut out,
                &format!(
                    "| {} | {} |",
                    escape(&figure),
                    escape(&sentence(figure_data))
                ),
            );
        }
    }
    list(&mut out, "Without a measurement", &unmeasured);
    for study in measured {
        section(&mut out, study);
    }
    for counted_paper in &counts.papers {
        claims(&mut out, counted_paper);
    }
    log_sizes_section(&mut out, counts);
    out + &instructions::markdown(&counts.rows)
}

/// The method, in three sentences.
const SUMMARY_HEAD: &str = "`lowroad-lab run --measure instructions` repeats the experiments of the papers ([the lab](../lab/README.md)), and
`lowroad-lab report --summary docs/results.md --picture docs/levels.svg` makes this page; the whole report is then in
`target/report`. Each server runs alone in a Linux guest under emulation, where 10⁹ instructions of the whole machine stand for
a second, so the figures do not depend on the host's speed. A claim is a ratio between two servers. It holds if the
measured ratio is at least 97 % of the paper's. A paper's ratio below 1.05 claims that the servers are equal: it holds if
the measured ratio is no farther from 1, to 3 %.
";

/// A single page: the benefit of each level, and the verdict on each tested claim.
#[must_use]
pub fn summary(studies: &[ExperimentStudy], counts: &CountedResults, picture: &str) -> String {
    let mut out = format!("# Results\n\n{SUMMARY_HEAD}\n");
    if studies.iter().any(ExperimentStudy::pretended) {
        out.push_str("**A rehearsal: figures here are computed, not measured.**\n\n");
    }
    levels_section(&mut out, studies, counts, picture);
    if let Some(claims) = verdict::short_table(&verdict::judge_all(studies, &counts.log_sizes)) {
        line(&mut out, "\n## Claims of the papers");
        table(&mut out, &claims);
    }
    log_sizes_section(&mut out, counts);
    out
}

/// The sizes of access logs.
fn log_sizes_section(out: &mut String, counts: &CountedResults) {
    if let Some(sizes) = log_sizes::table(&counts.log_sizes) {
        line(out, "\n## Sizes of access logs\n");
        line(
            out,
            "Bytes a request, for generated requests (`lowroad-lab log-size`):\n",
        );
        table(out, &sizes);
    }
}

/// The benefit of each level: sentence, table and picture.
fn levels_section(
    out: &mut String,
    studies: &[ExperimentStudy],
    counts: &CountedResults,
    picture: &str,
) {
    let levels = LevelTable::from_studies(studies, &counts.papers);
    if let Some(level_table) = levels.table() {
        line(out, "## Requests per level\n");
        line(out, &escape(&levels.sentence()));
        table(out, &level_table);
        line(out, &format!("\n![{}]({picture})", level_table.caption));
    }
}

fn section(out: &mut String, study: &ExperimentStudy) {
    let experiment = &study.experiment;
    let title = format!("{}{}", experiment.title, parts::method_text(study));
    line(out, &format!("\n## {}\n", escape(&title)));
    let source = format!("Paper {}, {}.", experiment.paper, experiment.figure);
    line(out, &format!("{source} {}", escape(&experiment.question)));
    if let Some(differs) = &experiment.differs {
        line(
            out,
            &format!("\nWhat differs from the paper: {}", escape(differs)),
        );
    }
    let all_figures = study.figure_data();
    for figure_data in all_figures
        .iter()
        .filter(|figure_data| !figure_data.series.is_empty())
    {
        figure(out, figure_data);
    }
    let merged_lines = |lines: &dyn Fn(&FigureData<'_>) -> Vec<String>| {
        parts::merged(all_figures.iter().map(lines))
    };
    list(
        out,
        "Not complete",
        &merged_lines(&|figure_data| figure_data.missing.clone()),
    );
    list(out, "Errors", &merged_lines(&parts::errors));
    list(
        out,
        "Servers that no longer exist",
        &merged_lines(&|figure_data| parts::absent_lines(figure_data, true)),
    );
    list(
        out,
        "Could not be measured",
        &merged_lines(&|figure_data| parts::absent_lines(figure_data, false)),
    );
    let configurations = parts::configurations(study);
    if !configurations.is_empty() {
        list(out, "How it was measured", &parts::circumstances(study));
        let versions = configurations
            .iter()
            .map(|configuration| format!("{}: {}", configuration.server, configuration.version));
        list(out, "Servers", &versions.collect::<Vec<_>>());
    }
}

/// The claims of a paper, judged by instructions.
fn claims(out: &mut String, counted_paper: &CountedPaper) {
    line(out, &format!("\n## {}\n", escape(&counted_paper.title())));
    line(out, &escape(&counted_paper.sentence()));
    for claim_table in counted_paper.tables() {
        table(out, &claim_table);
    }
    list(out, "Could not be counted", &counted_paper.failures());
    list(out, "How it was counted", &counted_paper.circumstances());
}

fn figure(out: &mut String, figure_data: &FigureData<'_>) {
    line(
        out,
        &format!(
            "\n### {}: {}\n",
            escape(&figure_data.figure.figure),
            escape(&figure_data.figure.title)
        ),
    );
    line(out, &escape(&sentence(figure_data)));
    for value_table in beside::values(figure_data)
        .into_iter()
        .chain(beside::tables(figure_data))
    {
        table(out, &value_table);
    }
}

fn table(out: &mut String, table: &ReportTable) {
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
        format!("| {} |", cells.join(" | "))
    };
    line(out, &format!("\n{}:\n", escape(&table.caption)));
    line(out, &row(&table.head));
    line(out, &format!("|{}", "---|".repeat(table.head.len())));
    for cells in &table.rows {
        line(out, &row(cells));
    }
}

fn list(out: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    line(out, &format!("\n{title}:\n"));
    for text in lines {
        line(out, &format!("- {}", escape(text)));
    }
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("a string takes all");
}

/// Escapes text for a Markdown table.
fn escape(text: &str) -> String {
    // A line break would end the row of the table.
    let text = text.replace(['\n', '\r'], " ");
    text.replace('|', "\\|")
        .replace('<', "&lt;")
        .replace('*', "\\*")
}
