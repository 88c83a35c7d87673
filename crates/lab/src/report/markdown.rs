//! The summary in Markdown: sentences and tables, without charts.

use std::fmt::Write;

use super::beside::{self, Table};
use super::claims::Counted;
use super::instructions::{self, Counts};
use super::model::{Shown, Study};
use super::parts;
use super::sentence::sentence;

/// The summary of some experiments, and of counts of instructions.
#[must_use]
pub fn page(studies: &[Study], problems: &[String], counts: &Counts) -> String {
    let mut out = String::from("# The papers' experiments on today's servers\n\n");
    if studies.iter().any(Study::pretended) {
        out.push_str("**A rehearsal: figures here are computed, not measured.**\n\n");
    }
    for problem in problems {
        line(&mut out, &format!("**{}**\n", escape(problem)));
    }
    out.push_str("| figure | what it shows |\n|---|---|\n");
    for study in studies {
        for shown in study.shown() {
            let figure = format!("{}, {}", study.experiment.paper, shown.figure.figure);
            line(
                &mut out,
                &format!("| {} | {} |", escape(&figure), escape(&sentence(&shown))),
            );
        }
    }
    for study in studies {
        section(&mut out, study);
    }
    for counted in &counts.papers {
        claims(&mut out, counted);
    }
    out + &instructions::markdown(&counts.rows)
}

fn section(out: &mut String, study: &Study) {
    let experiment = &study.experiment;
    line(out, &format!("\n## {}\n", escape(&experiment.title)));
    let place = format!("Paper {}, {}.", experiment.paper, experiment.figure);
    line(out, &format!("{place} {}", escape(&experiment.question)));
    if let Some(differs) = &experiment.differs {
        line(
            out,
            &format!("\nWhat differs from the paper: {}", escape(differs)),
        );
    }
    let all = study.shown();
    for shown in &all {
        figure(out, shown);
    }
    let of = |lines: &dyn Fn(&Shown<'_>) -> Vec<String>| parts::merged(all.iter().map(lines));
    list(out, "Not complete", &of(&|shown| shown.missing.clone()));
    list(out, "Errors", &of(&parts::errors));
    list(
        out,
        "Absent today",
        &of(&|shown| parts::absent(shown, true)),
    );
    list(
        out,
        "Could not be measured",
        &of(&|shown| parts::absent(shown, false)),
    );
    let configurations = parts::configurations(study);
    if !configurations.is_empty() {
        list(out, "How it was measured", &parts::circumstances(study));
        let versions = configurations
            .iter()
            .map(|one| format!("{}: {}", one.server, one.version));
        list(out, "Servers", &versions.collect::<Vec<_>>());
    }
}

/// What a paper claims, judged by instructions.
fn claims(out: &mut String, counted: &Counted) {
    line(out, &format!("\n## {}\n", escape(&counted.title())));
    line(out, &escape(&counted.sentence()));
    for of in counted.tables() {
        table(out, &of);
    }
    list(out, "Could not be counted", &counted.failures());
    list(out, "How it was counted", &counted.circumstances());
}

fn figure(out: &mut String, shown: &Shown<'_>) {
    line(
        out,
        &format!(
            "\n### {}: {}\n",
            escape(&shown.figure.figure),
            escape(&shown.figure.title)
        ),
    );
    line(out, &escape(&sentence(shown)));
    for of in beside::values(shown)
        .into_iter()
        .chain(beside::tables(shown))
    {
        table(out, &of);
    }
}

fn table(out: &mut String, table: &Table) {
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

/// Text that can't break a table or become a mark.
fn escape(text: &str) -> String {
    let text = text.replace(['\n', '\r'], " ");
    text.replace('|', "\\|")
        .replace('<', "&lt;")
        .replace('*', "\\*")
}
