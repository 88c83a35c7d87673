//! The comparison as a Markdown table: a line for each load, a column for each server. No I/O.

use std::fmt::Write;

use super::super::table::thousands;
use super::PaperComparison;
use super::figure::{CountedFigure, find, rounded};

/// Mark of a figure with differing repeats.
const MARK: &str = " *";

/// A table of a paper's figures, without the servers and loads that have no figures.
pub fn markdown(paper: &PaperComparison, figures: &[CountedFigure]) -> String {
    let mut out = String::new();
    let lines = cells(paper, figures);
    for (index, line) in lines.iter().enumerate() {
        // A plain * would start emphasis in Markdown.
        let _ = writeln!(out, "| {} |", line.join(" | ").replace('*', "\\*"));
        if index == 0 {
            let _ = writeln!(out, "|{}", "---|".repeat(line.len()));
        }
    }
    if figures.iter().any(CountedFigure::is_doubtful) {
        let _ = writeln!(out, "\n\\* its repeats are more than 3 % apart");
    }
    for (server, reason) in failures(paper, figures) {
        let _ = writeln!(out, "\n{server}: {}", reason.trim().replace('\n', "\n    "));
    }
    out
}

/// Head and rows of the table; figures with differing repeats are marked.
pub fn cells(paper: &PaperComparison, figures: &[CountedFigure]) -> Vec<Vec<String>> {
    let is_measured = |name: &str| figures.iter().any(|figure| figure.server == name);
    let subjects = paper
        .subjects
        .iter()
        .filter(|subject| is_measured(subject.name));
    let subjects: Vec<_> = subjects.collect();
    let mut head = vec!["instructions a request".to_owned()];
    head.extend(subjects.iter().map(|subject| subject.title.to_owned()));
    let mut lines = vec![head];
    for load in paper.loads {
        let figure = |server: &str| find(figures, server, load.name);
        if subjects
            .iter()
            .all(|subject| figure(subject.name).is_none())
        {
            continue;
        }
        let cells = subjects.iter().map(|subject| cell(figure(subject.name)));
        lines.push([load.title.to_owned()].into_iter().chain(cells).collect());
    }
    lines
}

/// The figure in a cell: empty if it was not requested, a dash if it is missing.
fn cell(figure: Option<&CountedFigure>) -> String {
    let Some(figure) = figure else {
        return String::new();
    };
    let Some(middle) = figure.median() else {
        return "-".to_owned();
    };
    let mark = if figure.is_doubtful() { MARK } else { "" };
    thousands(rounded(middle)) + mark
}

/// The reasons for missing figures, each reason of a server only once.
pub fn failures<'a>(
    paper: &PaperComparison,
    figures: &'a [CountedFigure],
) -> Vec<(&'static str, &'a str)> {
    let mut reported = Vec::new();
    for subject in paper.subjects {
        let own_figures = figures
            .iter()
            .filter(|figure| figure.server == subject.name);
        for reason in own_figures.filter_map(|figure| figure.failure.as_deref()) {
            if !reported.contains(&(subject.title, reason)) {
                reported.push((subject.title, reason));
            }
        }
    }
    reported
}

#[cfg(test)]
mod tests {
    use super::super::figure::tests::figure;
    use super::super::find_paper;
    use super::*;

    #[test]
    fn table_has_selected_figures_and_marks_doubtful_ones() {
        let paper = find_paper("003").expect("known");
        let figures = [
            figure("lowroad-bare", "static-kept", &[3020, 3030]),
            figure("nginx-php", "static-kept", &[47_000, 57_000]),
            figure("nginx-php", "rows1-anew-kept", &[]),
        ];
        let text = markdown(paper, &figures);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].matches('|').count(), 4, "{text}");
        assert!(lines[2].ends_with("| 3,030 | 52,000 \\* |"), "{text}");
        assert!(lines[3].ends_with("|  | - |"), "{text}");
        assert!(text.contains("more than 3 %"));
        assert_eq!(text.matches("it failed").count(), 1);
        assert!(text.matches('\n').count() < 9, "{text}");
    }
}
