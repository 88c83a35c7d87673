//! The standard table: its rows as text and JSON, and the ratio of Lowroad to the best other server. No I/O.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::drive::ConnectionMode;

/// The name of the server that is compared with the others.
pub const OURS: &str = "lowroad";

/// One figure, or the reason why it is missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CountRow {
    /// The server's name.
    pub server: String,
    /// The server's version; empty if it is not installed.
    pub version: String,
    /// Body length in bytes; 0 for a workload.
    pub size: u64,
    /// `ka`, `close`, or the name of a workload.
    pub mode: String,
    /// Instructions of the whole machine for one more request.
    pub instructions: Option<u64>,
    /// Requests answered for this figure.
    pub requests: u64,
    /// Why the figure is missing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<String>,
}

/// The subject of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountColumn {
    /// A page of this many bytes.
    Page(ConnectionMode, u64),
    /// A named workload.
    Mix(&'static str),
}

impl CountColumn {
    /// The value of [`CountRow::mode`].
    pub fn mode(&self) -> &'static str {
        match self {
            CountColumn::Page(mode, _) => mode.name(),
            CountColumn::Mix(name) => name,
        }
    }

    /// The value of [`CountRow::size`].
    pub fn size(&self) -> u64 {
        match self {
            CountColumn::Page(_, size) => *size,
            CountColumn::Mix(_) => 0,
        }
    }

    /// The title in the table's head.
    pub fn title(&self) -> String {
        match self {
            CountColumn::Page(mode, size) => format!("{} {}", mode.name(), size_text(*size)),
            CountColumn::Mix(name) => (*name).to_owned(),
        }
    }

    /// The width of the column: that of the figure or, if wider, that of the title with a gap.
    fn width(&self) -> usize {
        FIGURE.max(self.title().len() + GAP)
    }

    fn matches_row(&self, row: &CountRow) -> bool {
        row.mode == self.mode() && row.size == self.size()
    }
}

/// The columns, which define the layout of a line.
#[derive(Clone, Debug)]
pub struct CountTable {
    columns: Vec<CountColumn>,
}

const NAME: usize = 22;
const VERSION: usize = 10;
const FIGURE: usize = 14;
/// Gap between two titles.
const GAP: usize = 2;

impl CountTable {
    /// A table with a column for each size in each mode.
    pub fn new(modes: &[ConnectionMode], sizes: &[u64]) -> CountTable {
        let mode_columns =
            |&mode: &ConnectionMode| sizes.iter().map(move |&size| CountColumn::Page(mode, size));
        CountTable {
            columns: modes.iter().flat_map(mode_columns).collect(),
        }
    }

    /// A table with one column, for a workload.
    pub fn of_mix(name: &'static str) -> CountTable {
        CountTable {
            columns: vec![CountColumn::Mix(name)],
        }
    }

    /// The columns.
    pub fn columns(&self) -> &[CountColumn] {
        &self.columns
    }

    /// Whether a column uses TLS.
    pub fn has_tls(&self) -> bool {
        let is_tls =
            |column: &CountColumn| matches!(column, CountColumn::Page(mode, _) if mode.is_tls());
        self.columns.iter().any(is_tls)
    }

    /// The head of the table.
    pub fn head(&self) -> String {
        let titles = self
            .columns
            .iter()
            .map(|column| format!("{:>width$}", column.title(), width = column.width()));
        let mut modes: Vec<ConnectionMode> = Vec::new();
        for column in &self.columns {
            if let CountColumn::Page(mode, _) = column
                && !modes.contains(mode)
            {
                modes.push(*mode);
            }
        }
        let legend = modes
            .iter()
            .map(|mode| format!("{}: {}", mode.name(), mode.title()));
        format!(
            "Instructions a request, of the whole machine ({})\n\n\
             {:<NAME$}{:<VERSION$}{}",
            legend.collect::<Vec<_>>().join("; "),
            "server",
            "version",
            titles.collect::<String>()
        )
    }

    /// The line of a server, followed by the reasons for missing figures, each reason once.
    pub fn line(&self, rows: &[CountRow]) -> String {
        let Some(first) = rows.first() else {
            return String::new();
        };
        let mut line = format!("{:<NAME$}{:<VERSION$}", first.server, first.version);
        for column in &self.columns {
            let figure = figure(rows, *column).map_or("-".into(), thousands);
            let _ = write!(line, "{figure:>width$}", width = column.width());
        }
        let mut reported: Vec<&str> = Vec::new();
        for reason in rows.iter().filter_map(|row| row.failure.as_deref()) {
            if !reported.contains(&reason) {
                reported.push(reason);
                let _ = write!(line, "\n    {}", reason.trim().replace('\n', "\n    "));
            }
        }
        line
    }

    /// The ratios of Lowroad to the best other server, where both have figures.
    pub fn ratios(&self, rows: &[CountRow]) -> Option<String> {
        let rows_of = |is_lowroad: bool| -> Vec<CountRow> {
            let selected = rows.iter().filter(|row| (row.server == OURS) == is_lowroad);
            selected.cloned().collect()
        };
        let (lowroad_rows, other_rows) = (rows_of(true), rows_of(false));
        let (mut ratios, mut names) = (String::new(), String::new());
        let mut has_ratios = false;
        for &column in &self.columns {
            let best = best(&other_rows, column);
            let (ratio, name) = match (figure(&lowroad_rows, column), best) {
                (Some(figure), Some((best_figure, name))) => {
                    has_ratios = true;
                    (format!("{:.2}", figure as f64 / best_figure as f64), name)
                }
                _ => ("-".into(), ""),
            };
            let width = column.width();
            let _ = write!(ratios, "{ratio:>width$}");
            let _ = write!(names, "{name:>width$}");
        }
        let width = NAME + VERSION;
        let title = format!("{OURS} to the best other");
        has_ratios.then(|| format!("{title:<width$}{ratios}\n{:<width$}{names}", ""))
    }
}

fn figure(rows: &[CountRow], column: CountColumn) -> Option<u64> {
    rows.iter()
        .find(|row| column.matches_row(row))?
        .instructions
}

fn best(rows: &[CountRow], column: CountColumn) -> Option<(u64, &str)> {
    rows.iter()
        // howl is a bound, not a full server; the levels and the image are parts of Lowroad.
        .filter(|row| !["howl", "lowroad-bare"].contains(&row.server.as_str()))
        .filter(|row| !row.server.ends_with("-softirq") && !row.server.ends_with("-proxy"))
        .filter(|row| column.matches_row(row))
        .filter_map(|row| Some((row.instructions?, row.server.as_str())))
        .min()
}

/// Formats a size: `64 B`, `1 KB`, `100 KB`, `3 MB`.
pub fn size_text(size: u64) -> String {
    const UNITS: [(u64, &str); 2] = [(1 << 20, "MB"), (1 << 10, "KB")];
    let unit = UNITS
        .iter()
        .find(|(unit, _)| size >= *unit && size.is_multiple_of(*unit));
    match unit {
        Some((unit, name)) => format!("{} {name}", size / unit),
        None => format!("{size} B"),
    }
}

/// Formats `93400` as `93,400`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(server: &str, mode: ConnectionMode, size: u64, instructions: Option<u64>) -> CountRow {
        CountRow {
            server: server.into(),
            version: "1.0".into(),
            size,
            mode: mode.name().into(),
            instructions,
            requests: 4300,
            failure: instructions.is_none().then(|| "it failed\nbadly".into()),
        }
    }

    #[test]
    fn numbers_and_sizes_are_formatted() {
        assert_eq!(thousands(7), "7");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(size_text(64), "64 B");
        assert_eq!(size_text(102_400), "100 KB");
        assert_eq!(size_text(3 << 20), "3 MB");
        assert_eq!(size_text(1500), "1500 B");
    }

    #[test]
    fn row_lists_each_failure_reason_once() {
        let table = CountTable::new(&[ConnectionMode::KeepAlive, ConnectionMode::Close], &[64]);
        let rows = [
            row("nginx", ConnectionMode::KeepAlive, 64, Some(39_500)),
            row("nginx", ConnectionMode::Close, 64, None),
        ];
        let line = table.line(&rows);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words,
            ["nginx", "1.0", "39,500", "-", "it", "failed", "badly"]
        );
        assert!(table.head().contains("close 64 B"));
        let twice = [
            row("x", ConnectionMode::Close, 64, None),
            row("x", ConnectionMode::Close, 1024, None),
        ];
        assert_eq!(table.line(&twice).matches("it failed").count(), 1);
    }

    #[test]
    fn column_titles_and_figures_are_aligned() {
        let modes = [
            ConnectionMode::KeepAlive,
            ConnectionMode::Close,
            ConnectionMode::Tls,
            ConnectionMode::TlsFull,
            ConnectionMode::TlsResumed,
        ];
        let table = CountTable::new(&modes, &[64, 1024, 102_400]);
        let rows: Vec<CountRow> = ["lowroad", "nginx"]
            .iter()
            .flat_map(|server| {
                let columns = table.columns().iter();
                columns.map(|column| CountRow {
                    size: column.size(),
                    mode: column.mode().into(),
                    ..row(server, ConnectionMode::Close, 0, Some(1_234_567))
                })
            })
            .collect();
        let head = table.head();
        let head = head.lines().last().expect("a line of titles");
        let titles = table.columns().iter().map(CountColumn::title);
        for title in titles {
            assert!(head.contains(&format!("  {title}")), "{title}: {head}");
        }
        let ratios = table.ratios(&rows).expect("both");
        let lines = [table.line(&rows[..15]), table.line(&rows[15..])];
        for line in lines.iter().map(String::as_str).chain(ratios.lines()) {
            assert_eq!(line.len(), head.len(), "{line}\n{head}");
        }
    }

    #[test]
    fn ratio_compares_with_the_best_full_server() {
        let table = CountTable::new(&[ConnectionMode::KeepAlive], &[64, 1024]);
        let rows = [
            row("lowroad", ConnectionMode::KeepAlive, 64, Some(20_000)),
            row("nginx", ConnectionMode::KeepAlive, 64, Some(40_000)),
            row("h2o", ConnectionMode::KeepAlive, 64, Some(25_000)),
            row("howl", ConnectionMode::KeepAlive, 64, Some(15_000)),
            row("nginx-softirq", ConnectionMode::KeepAlive, 64, Some(5_000)),
            row("lowroad-bare", ConnectionMode::KeepAlive, 64, Some(3_000)),
        ];
        let text = table.ratios(&rows).expect("both");
        assert!(text.contains("0.80") && text.contains("h2o"), "{text}");
        assert_eq!(table.ratios(&rows[..1]), None);
    }

    #[test]
    fn json_omits_absent_failure() {
        let json = |row: &CountRow| serde_json::to_string(row).expect("plain data");
        assert!(!json(&row("x", ConnectionMode::Close, 1, Some(5))).contains("failure"));
        let failed = row("x", ConnectionMode::Close, 1, None);
        assert_eq!(
            serde_json::from_str::<CountRow>(&json(&failed)).expect("ours"),
            failed
        );
    }
}
