//! The report as plain text, for output that is not a terminal.

use std::fmt::Write as _;

use super::report::{ReportTable, ServerReport};
use super::table::{TextTable, rate};

/// Maximum number of rows of a table.
const ROWS_MAX: usize = 20;
/// The width of the first column.
const FIRST_WIDTH: usize = 60;

/// The tables with their titles and the columns by which they are sorted.
const TABLES: [(ReportTable, &str, usize); 4] = [
    (ReportTable::Urls, "hottest URLs", 1),
    (ReportTable::Sites, "sites and routes", 1),
    (ReportTable::Origins, "origins", 0),
    (ReportTable::Errors, "latest errors and warnings", 2),
];

/// Formats the report about a server.
pub fn server_text(report: &ServerReport) -> String {
    let mut out = String::new();
    // Writing to a string does not fail, here and below.
    let _ = writeln!(out, "{}", report.title);
    let figures = report.figures.iter();
    let figures: Vec<String> = figures
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let _ = writeln!(out, "{}\n\nlevels", figures.join(", "));
    for level in &report.levels {
        let text = level.rate.map_or_else(
            || "not configured".into(),
            |it| format!("{} req/s", rate(it)),
        );
        let _ = writeln!(out, "  {:<8} {text}", level.name);
    }
    for (table, title, sort) in TABLES {
        let mut table = report.table(table).clone();
        table.sort(sort);
        let _ = writeln!(out, "\n{title}");
        add_table(&table, &mut out);
    }
    out
}

fn add_table(table: &TextTable, out: &mut String) {
    if table.rows.is_empty() {
        let _ = writeln!(out, "  {}", table.empty);
        return;
    }
    let titles: Vec<&str> = table.columns.iter().map(|it| it.title).collect();
    add_line(table, &titles, out);
    for row in table.rows.iter().take(ROWS_MAX) {
        let texts: Vec<&str> = row.iter().map(|cell| &*cell.text).collect();
        add_line(table, &texts, out);
    }
    if table.rows.len() > ROWS_MAX {
        let _ = writeln!(out, "  and {} more", table.rows.len() - ROWS_MAX);
    }
}

fn add_line(table: &TextTable, texts: &[&str], out: &mut String) {
    let mut line = String::new();
    for (index, (column, text)) in table.columns.iter().zip(texts).enumerate() {
        let width = if index == 0 {
            FIRST_WIDTH
        } else {
            column.width.into()
        };
        let _ = match column.is_number {
            true => write!(line, "  {text:>width$}"),
            false => write!(line, "  {text:<width$}"),
        };
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::example_report;
    use super::*;

    #[test]
    fn text_has_all_parts() {
        let text = server_text(&example_report());
        for part in [
            "lowroad 1.2.3, up 1 min 45 s\nreq/s 1,000, hits 100.0 %",
            "\nlevels\n  origin   100 req/s\n",
            "\n  softirq  not configured\n",
            "\nhottest URLs\n",
            "\n  http://a.example/index.html ",
            "\norigins\n",
            "connection refused\n",
            "\nlatest errors and warnings\n",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        assert!(!text.contains('\u{1b}'));
    }
}
