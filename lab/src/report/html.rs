//! The HTML page: a single file with style sheet and charts, without scripts.

use std::fmt::Write;

use super::beside::{self, ReportTable};
use super::chart;
use super::claims::CountedPaper;
use super::instructions::{self, CountedResults};
use super::levels::LevelTable;
use super::log_sizes;
use super::model::{ExperimentStudy, FigureData};
use super::parts;
use super::sentence::sentence;
use super::svg::escape;
use super::verdict;

/// Width of charts on a desktop screen.
const WIDE: f64 = 820.0;
/// Width of charts on a telephone.
const NARROW: f64 = 360.0;

/// The page with experiments and instruction counts.
#[must_use]
pub fn page(studies: &[ExperimentStudy], problems: &[String], counts: &CountedResults) -> String {
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Lowroad lab: the papers' experiments on today's servers</title>\n<style>\n",
    );
    out.push_str(include_str!("page.css"));
    out.push_str("</style>\n<h1>The papers' experiments on today's servers</h1>\n");
    out.push_str(
        "<p class=\"soft\">Each figure was run with the servers, kernel and machine named beside \
         it. The papers' machines were others: compare ratios and shapes, not numbers. Workloads \
         are like those of the benchmarks they are named after, and results are not benchmark \
         results.</p>\n",
    );
    if studies.iter().any(ExperimentStudy::pretended) {
        out.push_str(
            "<p class=\"notice\"><strong>A rehearsal:</strong> figures here are computed, not \
             measured (<code>lowroad-lab run --rehearse</code>).</p>\n",
        );
    }
    for problem in problems {
        push(
            &mut out,
            &format!("<p class=\"notice\">{}</p>\n", escape(problem)),
        );
    }
    let (measured, unmeasured) = parts::measured(studies);
    out.push_str(&contents(&measured));
    out.push_str(&levels(&LevelTable::from_studies(studies, &counts.papers)));
    if let Some(claims) = verdict::table(&verdict::judge_all(studies, &counts.log_sizes)) {
        out.push_str("<h2 id=\"claims\">Verdicts on the papers' claims</h2>\n");
        out.push_str(&html_table(&claims, "stack"));
    }
    if let Some(sizes) = log_sizes::table(&counts.log_sizes) {
        out.push_str("<h2 id=\"log-sizes\">Sizes of access logs</h2>\n");
        out.push_str(&html_table(&sizes, "stack"));
    }
    out.push_str(&summary(&measured));
    out.push_str(&list("Without a measurement", &unmeasured));
    for study in measured {
        out.push_str(&section(study));
    }
    for counted_paper in &counts.papers {
        out.push_str(&claims(counted_paper));
    }
    out.push_str(&instructions::html(&counts.rows));
    out + "</html>\n"
}

fn push(out: &mut String, text: &str) {
    out.push_str(text);
}

/// The value of each level, at the top of the page.
fn levels(levels: &LevelTable) -> String {
    let (Some(table), Some(picture)) = (levels.table(), levels.picture()) else {
        return String::new();
    };
    format!(
        "<h2 id=\"levels\">What each level is worth today</h2>\n<p class=\"finding\">{}</p>\n{}\
         <div class=\"scroll\">{picture}</div>\n",
        escape(&levels.sentence()),
        html_table(&table, "")
    )
}

fn contents(studies: &[&ExperimentStudy]) -> String {
    let mut out = String::from("<nav aria-label=\"Contents\"><h4>Contents</h4><ol>\n");
    for study in studies {
        let ExperimentStudy { experiment, .. } = study;
        let title = format!("{}{}", experiment.title, parts::method_text(study));
        let (name, title) = (escape(&experiment.name), escape(&title));
        writeln!(
            out,
            "<li><a href=\"#{name}\">{title}</a> <span class=\"soft\">{}, {}</span></li>",
            escape(&experiment.paper),
            escape(&experiment.figure)
        )
        .expect("a string takes all");
    }
    out + "</ol></nav>\n"
}

fn summary(studies: &[&ExperimentStudy]) -> String {
    let mut rows = Vec::new();
    for study in studies {
        for (index, figure_data) in study.figure_data().iter().enumerate() {
            let anchor = format!("#{}-{index}", study.experiment.name);
            let figure = format!("Paper {}", parts::figure_name(study, figure_data.figure));
            if !figure_data.series.is_empty() {
                rows.push((anchor, figure, sentence(figure_data)));
            }
        }
    }
    let mut out = String::from("<h2 id=\"summary\">Summary</h2>\n");
    if !rows.is_empty() {
        out.push_str("<table class=\"stack\"><thead><tr><th>Figure<th>What it shows</thead>\n");
        for (anchor, figure, text) in rows {
            let (anchor, figure, text) = (escape(&anchor), escape(&figure), escape(&text));
            push(
                &mut out,
                &format!("<tr><td><a href=\"{anchor}\">{figure}</a><td>{text}</tr>\n"),
            );
        }
        out.push_str("</table>\n");
    }
    out
}

fn section(study: &ExperimentStudy) -> String {
    let experiment = &study.experiment;
    let name = escape(&experiment.name);
    let mut out = format!(
        "<section>\n<h2 id=\"{name}\">{}</h2>\n<p class=\"soft\">Paper {}, {}; experiment \
         <code>{name}</code></p>\n<p>{}</p>\n",
        escape(&format!(
            "{}{}",
            experiment.title,
            parts::method_text(study)
        )),
        escape(&experiment.paper),
        escape(&experiment.figure),
        escape(&experiment.question)
    );
    if let Some(differs) = &experiment.differs {
        let text = escape(differs);
        push(
            &mut out,
            &format!("<p class=\"soft\">What differs from the paper: {text}</p>\n"),
        );
    }
    for note in &study.notes {
        push(
            &mut out,
            &format!("<p class=\"notice\">{}</p>\n", escape(note)),
        );
    }
    let all_figures = study.figure_data();
    let drawn = all_figures.iter().enumerate();
    for (index, figure_data) in drawn.filter(|(_, figure_data)| !figure_data.series.is_empty()) {
        out.push_str(&figure(figure_data, &format!("{name}-{index}")));
    }
    let merged_lines = |lines: &dyn Fn(&FigureData<'_>) -> Vec<String>| {
        parts::merged(all_figures.iter().map(lines))
    };
    out.push_str(&list(
        "Not complete",
        &merged_lines(&|figure_data| figure_data.missing.clone()),
    ));
    out.push_str(&list("Errors", &merged_lines(&parts::errors)));
    out.push_str(&list(
        "Servers that no longer exist",
        &merged_lines(&|figure_data| parts::absent_lines(figure_data, true)),
    ));
    out.push_str(&list(
        "Could not be measured",
        &merged_lines(&|figure_data| parts::absent_lines(figure_data, false)),
    ));
    out.push_str(&circumstances(study));
    out + "</section>\n"
}

/// The claims of a paper, judged by instructions.
fn claims(counted_paper: &CountedPaper) -> String {
    let mut out = format!(
        "<section id=\"instructions-{}\">\n<h2>{}</h2>\n<p class=\"finding\">{}</p>\n",
        counted_paper.paper.number,
        escape(&counted_paper.title()),
        escape(&counted_paper.sentence())
    );
    for table in counted_paper.tables() {
        out.push_str(&html_table(&table, ""));
    }
    out.push_str(&list("Could not be counted", &counted_paper.failures()));
    out.push_str(&list("How it was counted", &counted_paper.circumstances()));
    out + "</section>\n"
}

fn figure(figure_data: &FigureData<'_>, id: &str) -> String {
    let mut out = format!(
        "<h3 id=\"{id}\">{}: {}</h3>\n<p class=\"finding\">{}</p>\n",
        escape(&capital(&figure_data.figure.figure)),
        escape(&figure_data.figure.title),
        escape(&sentence(figure_data))
    );
    if !figure_data.series.is_empty() {
        // An SVG scales its labels with its width, so each kind of screen gets its own drawing.
        for (class, width) in [("wide", WIDE), ("narrow", NARROW)] {
            let drawn = chart::draw(figure_data, width);
            push(&mut out, &format!("<div class=\"{class}\">{drawn}</div>\n"));
        }
        if chart::is_lines(figure_data) {
            out.push_str(&chart::legend(figure_data));
        }
    }
    for table in beside::tables(figure_data) {
        out.push_str(&html_table(&table, "stack"));
    }
    if let Some(table) = beside::values(figure_data) {
        let table = html_table(&table, "");
        push(
            &mut out,
            &format!("<details><summary>All values</summary>{table}</details>\n"),
        );
    }
    out
}

fn circumstances(study: &ExperimentStudy) -> String {
    let configurations = parts::configurations(study);
    if configurations.is_empty() {
        return String::new();
    }
    let mut out = list("How it was measured", &parts::circumstances(study));
    out.push_str("<h4>Servers</h4>\n");
    for configuration in configurations {
        let stands_for = configuration.stands_for.map_or(String::new(), |name| {
            format!(" <span class=\"soft\">stands for {}</span>", escape(name))
        });
        push(
            &mut out,
            &format!(
                "<details><summary>{}: {}{stands_for}</summary><pre>{}</pre></details>\n",
                escape(configuration.server),
                escape(configuration.version),
                escape(configuration.text)
            ),
        );
    }
    out
}

fn list(title: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let items: String = lines
        .iter()
        .map(|line| format!("<li>{}</li>", escape(line)))
        .collect();
    format!("<h4>{title}</h4><ul>{items}</ul>\n")
}

fn html_table(table: &ReportTable, class: &str) -> String {
    let mut out = format!(
        "<div class=\"scroll\"><table class=\"{class}\"><caption>{}</caption><thead><tr>",
        escape(&table.caption)
    );
    for name in &table.head {
        push(&mut out, &format!("<th>{}</th>", escape(name)));
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (cell, name) in row.iter().zip(&table.head) {
            push(
                &mut out,
                &format!("<td data-name=\"{}\">{}</td>", escape(name), unbroken(cell)),
            );
        }
        out.push_str("</tr>\n");
    }
    out + "</tbody></table></div>\n"
}

/// The text of a cell. Short texts, such as numbers with units, are not wrapped.
fn unbroken(cell: &str) -> String {
    let text = escape(cell);
    if cell.chars().count() > 16 {
        text
    } else {
        text.replace(' ', "\u{a0}")
    }
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters
        .next()
        .map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + characters.as_str()
}
