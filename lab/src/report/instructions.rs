//! Instructions per request from the results of `lowroad-lab icount --json`, with the counts of paper `002`.
//! Independent of guests.

use std::collections::BTreeSet;
use std::path::Path;

use super::claims::CountedPaper;
use super::svg::escape;
use crate::icount::table::{CountRow, size_text, thousands};
use crate::log_size::LogSizes;

/// The results of a report that are counted besides the experiments.
#[derive(Debug, Default)]
pub struct CountedResults {
    /// The standard table; empty if it was not counted.
    pub rows: Vec<CountRow>,
    /// The counts of papers.
    pub papers: Vec<CountedPaper>,
    /// The sizes of access logs; empty if they were not counted.
    pub log_sizes: Vec<LogSizes>,
}

/// The file of the standard table among the results.
pub const FILE: &str = "icount.json";

/// Paper `002`, section 5.2: 64 B, a connection for each request.
const PAPER: &str = "Paper 002, section 5.2, counted 26,000 instructions a request for AFPA on Linux \
    and 31,000 on Windows 2000, at 64 B with a connection for each request.";

/// The counts of the standard table in a folder of results; empty if there are none.
///
/// # Errors
/// The file can't be parsed.
pub fn read(results: &Path) -> Result<Vec<CountRow>, String> {
    let path = results.join(FILE);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let read_error = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(&path).map_err(|error| read_error(&error))?;
    serde_json::from_str(&text).map_err(|error| read_error(&error))
}

/// The counts as a section of the HTML page; empty without counts.
pub fn html(rows: &[CountRow]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let cells = |tag: &str, texts: &[String]| -> String {
        let cell = |text: &String| format!("<{tag}>{}", escape(text));
        texts.iter().map(cell).collect()
    };
    let mut lines = table(rows).into_iter();
    let head = lines.next().unwrap_or_default();
    let body: String = lines
        .map(|line| format!("<tr>{}</tr>\n", cells("td", &line)))
        .collect();
    format!(
        "<section id=\"instructions\">\n<h2>Instructions a request</h2>\n<p><strong>{}</strong></p>\n\
         <p class=\"soft\">{} {PAPER}</p>\n<div class=\"scroll\"><table><thead><tr>{}</thead>\n{body}\
         </table></div>\n</section>\n",
        escape(&sentence(rows)),
        WHAT,
        cells("th", &head)
    )
}

/// The counts as a section of the summary; empty without counts.
pub fn markdown(rows: &[CountRow]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let line = |texts: &Vec<String>| format!("| {} |\n", texts.join(" | "));
    let lines = table(rows);
    let rule = format!("|{}\n", "---|".repeat(lines[0].len()));
    let body: String = lines[1..].iter().map(line).collect();
    let head = line(&lines[0]);
    format!(
        "\n## Instructions a request\n\n**{}**\n\n{WHAT} {PAPER}\n\n{head}{rule}{body}",
        sentence(rows)
    )
}

const WHAT: &str = "Of the whole machine, for one more request, in a guest under emulation \
    (lowroad-lab icount).";

/// A sentence that compares Lowroad with the best of the other servers, for 64 B and one request per connection.
fn sentence(rows: &[CountRow]) -> String {
    let small: Vec<&CountRow> = rows
        .iter()
        .filter(|row| row.size == 64 && row.mode == "close" && row.instructions.is_some())
        .collect();
    let lowroad = small.iter().find(|row| row.server == "lowroad");
    // howl is a bound and not a full server, so it is not compared.
    let other_rows = small
        .iter()
        .filter(|row| !["lowroad", "howl"].contains(&row.server.as_str()));
    let best = other_rows.min_by_key(|row| row.instructions);
    match (lowroad, best) {
        (Some(lowroad), Some(best)) => {
            let (lowroad_count, best_count) = (count(lowroad), count(best));
            format!(
                "For 64 B and a connection lowroad needs {} instructions, {:.2} times the {} of {}.",
                thousands(lowroad_count),
                lowroad_count as f64 / best_count.max(1) as f64,
                thousands(best_count),
                best.server
            )
        }
        _ => "Too few points were counted to compare lowroad with others.".to_owned(),
    }
}

fn count(row: &CountRow) -> u64 {
    row.instructions.unwrap_or(0)
}

/// Head and rows of the table: a row for each server, with its counts by mode and size.
fn table(rows: &[CountRow]) -> Vec<Vec<String>> {
    let columns: BTreeSet<(bool, u64)> = rows
        .iter()
        .map(|row| (row.mode == "close", row.size))
        .collect();
    let title = |(close, size): &(bool, u64)| {
        let mode = if *close { "a connection each" } else { "kept" };
        format!("{}, {mode}", size_text(*size))
    };
    let mut lines = vec![vec!["server".to_owned()]];
    lines[0].extend(columns.iter().map(title));
    let mut servers: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        if !servers.iter().any(|(name, _)| *name == row.server) {
            servers.push((&row.server, &row.version));
        }
    }
    for (name, version) in servers {
        let mut line = vec![format!("{name} {version}").trim().to_owned()];
        line.extend(columns.iter().map(|(close, size)| {
            let matching = rows.iter().find(|row| {
                row.server == name && (row.mode == "close") == *close && row.size == *size
            });
            let instructions = matching.and_then(|row| row.instructions);
            instructions.map_or("-".to_owned(), thousands)
        }));
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(server: &str, mode: &str, instructions: Option<u64>) -> CountRow {
        CountRow {
            server: server.into(),
            version: "1".into(),
            size: 64,
            mode: mode.into(),
            instructions,
            requests: 10,
            failure: None,
        }
    }

    #[test]
    fn lowroad_is_compared_with_the_best_peer() {
        let rows = [
            row("lowroad", "close", Some(90_000)),
            row("howl", "close", Some(80_000)),
            row("nginx", "close", Some(100_000)),
            row("nginx", "ka", None),
        ];
        let text = markdown(&rows);
        assert!(text.contains("90,000 instructions, 0.90 times the 100,000 of nginx"));
        assert!(
            text.contains("| server | 64 B, kept | 64 B, a connection each |"),
            "{text}"
        );
        assert!(text.contains("| nginx 1 | - | 100,000 |"), "{text}");
        assert!(html(&rows).contains("<td>90,000"));
        assert_eq!(markdown(&[]), "");
    }
}
