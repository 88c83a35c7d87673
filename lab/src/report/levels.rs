//! The benefit of each level: requests per 10^9 instructions, by level and load, as a table, a sentence and a
//! self-contained picture.

use super::beside::ReportTable;
use super::claims::CountedPaper;
use super::model::{ExperimentStudy, PointSpread};
use super::svg::{coordinate, element, escape, text};
use crate::experiment::counting::{CountUnit, PER_SECOND};
use crate::experiment::schema::AxisValue;
use crate::experiment::units::number;
use crate::icount::paper::figure::find;

/// A level, or a server that it is compared with.
struct ReportLevel {
    /// Its title in the table.
    title: &'static str,
    /// The server's name in experiments.
    server: &'static str,
    /// The server's name among those of paper `003`.
    server_in_003: &'static str,
    is_ours: bool,
}

const fn lowroad_level(
    title: &'static str,
    server: &'static str,
    server_in_003: &'static str,
) -> ReportLevel {
    ReportLevel {
        title,
        server,
        server_in_003,
        is_ours: true,
    }
}

const fn peer_level(server: &'static str) -> ReportLevel {
    ReportLevel {
        title: server,
        server,
        server_in_003: server,
        is_ours: false,
    }
}

/// The levels from the lowest to the highest, followed by the other servers.
const LEVELS: [ReportLevel; 14] = [
    lowroad_level("no operating system", "", "lowroad-bare"),
    lowroad_level("fast path", "lowroad-softirq", "lowroad-softirq"),
    lowroad_level("fast path before Apache", "apache-softirq", ""),
    lowroad_level("worker", "lowroad", "lowroad-pages"),
    lowroad_level("accelerator before nginx", "lowroad-accelerate", ""),
    lowroad_level("module, native", "lowroad-module", ""),
    lowroad_level("module, WebAssembly", "lowroad-wasm", ""),
    lowroad_level("FastCGI", "lowroad-fastcgi", ""),
    peer_level("nginx"),
    peer_level("nginx-cache"),
    peer_level("apache-prefork"),
    peer_level("nginx-fastcgi"),
    peer_level("nginx-php"),
    peer_level("apache-mod-php"),
];

/// The loads: title, experiment, point.
const LOADS: [(&str, &str, f64); 7] = [
    ("64 B", "002-figure-3", 64.0),
    ("8 KiB", "002-figure-3", 8192.0),
    ("static mix", "000-figure-2", 100.0),
    ("30 % dynamic", "000-figure-4", 50.0),
    ("all dynamic", "000-figure-3", 50.0),
    ("accelerated mix", "004-figure-4-5", 16.0),
    ("3,593 B", OF_003, 0.0),
];

/// The load that paper `003`'s own counts provide: a file, with one request per connection.
const OF_003: &str = "003";
const LOAD_003: &str = "static-close";

/// The benefit of the levels.
#[derive(Debug)]
pub struct LevelTable {
    /// By level and load: requests for 10^9 instructions.
    values: Vec<Vec<Option<f64>>>,
}

impl LevelTable {
    /// Computes the table from counted results.
    #[must_use]
    pub fn from_studies(studies: &[ExperimentStudy], papers: &[CountedPaper]) -> LevelTable {
        let value = |level: &ReportLevel, (_, experiment, x): &(&str, &str, f64)| match *experiment
        {
            OF_003 => paper_value(papers, level),
            name => study_value(studies, name, level, &AxisValue::Number(*x)),
        };
        let row = |level| LOADS.iter().map(|load| value(level, load)).collect();
        LevelTable {
            values: LEVELS.iter().map(row).collect(),
        }
    }

    /// The value of a level and a load, both by title.
    fn value_at(&self, level: &str, load: &str) -> Option<f64> {
        let level = LEVELS.iter().position(|it| it.title == level)?;
        let load = LOADS.iter().position(|(title, ..)| *title == load)?;
        self.values[level][load]
    }

    /// Loads with at least one value.
    fn columns(&self) -> Vec<usize> {
        let has_value = |column: &usize| self.values.iter().any(|row| row[*column].is_some());
        (0..LOADS.len()).filter(has_value).collect()
    }

    fn rows(&self) -> Vec<usize> {
        let has_value = |row: &usize| self.values[*row].iter().any(Option::is_some);
        (0..LEVELS.len()).filter(has_value).collect()
    }

    /// The table; `None` without values.
    #[must_use]
    pub fn table(&self) -> Option<ReportTable> {
        // Columns without any value, as after a run of a few experiments, are left out.
        let columns = self.columns();
        let mut head = vec!["level".to_owned()];
        head.extend(columns.iter().map(|column| LOADS[*column].0.to_owned()));
        let cell = |value: Option<f64>| value.map_or("–".into(), number);
        let line = |row: &usize| {
            let cells = columns
                .iter()
                .map(|column| cell(self.values[*row][*column]));
            std::iter::once(LEVELS[*row].title.to_owned())
                .chain(cells)
                .collect()
        };
        let rows: Vec<Vec<String>> = self.rows().iter().map(line).collect();
        (!rows.is_empty()).then(|| ReportTable {
            caption: "Requests for 10⁹ instructions of the whole machine".into(),
            head,
            rows,
        })
    }

    /// Summarizes the table in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let comparison = |level: &str, over: &str, load: &str, template: &str| {
            let times = self.value_at(level, load)? / self.value_at(over, load)?;
            Some(template.replace("{}", &number(times)))
        };
        let phrases = [
            comparison(
                "worker",
                "nginx",
                "64 B",
                "a worker answers {} times as many requests for 64 B as nginx for the same work",
            ),
            comparison(
                "fast path",
                "worker",
                "64 B",
                "the fast path {} times as many as a worker",
            ),
            comparison(
                "fast path",
                "worker",
                "static mix",
                "{} times as many of a static mix",
            ),
            comparison(
                "fast path before Apache",
                "apache-prefork",
                "accelerated mix",
                "before Apache it answers {} times as many as Apache alone",
            ),
            comparison(
                "module, native",
                "nginx-php",
                "all dynamic",
                "a module answers {} times as many dynamic requests as PHP behind nginx",
            ),
            comparison(
                "no operating system",
                "worker",
                "3,593 B",
                "without an operating system a file costs {} times less than in a worker",
            ),
        ];
        let phrases: Vec<String> = phrases.into_iter().flatten().collect();
        match phrases.split_first() {
            None => "Too few points were counted.".into(),
            Some((first, rest)) => {
                let mut sentences = vec![capital(first)];
                sentences.extend(rest.iter().cloned());
                format!("{}.", sentences.join("; "))
            }
        }
    }

    /// Draws the table as a self-contained SVG; `None` without values.
    #[must_use]
    pub fn picture(&self) -> Option<String> {
        const WIDTH: f64 = 760.0;
        const LEFT: f64 = 210.0;
        const BAR: f64 = 15.0;
        let columns = self.columns();
        if columns.is_empty() {
            return None;
        }
        let (mut out, mut y) = (String::new(), 24.0);
        for column in columns {
            let values: Vec<(usize, f64)> = (0..LEVELS.len())
                .filter_map(|row| Some((row, self.values[row][column]?)))
                .collect();
            let value_max = values.iter().map(|(_, value)| *value).fold(1.0, f64::max);
            out.push_str(&text("load", "start", (4.0, y), LOADS[column].0));
            y += 8.0;
            for (row, value) in values {
                let level = &LEVELS[row];
                let class = if level.is_ours { "ours" } else { "other" };
                // A bar is at least a pixel wide, so that small values stay visible.
                let width = (value / value_max * (WIDTH - LEFT - 80.0)).max(1.0);
                out.push_str(&text("name", "end", (LEFT - 6.0, y + 11.0), level.title));
                let size = [LEFT, y, width, BAR - 3.0].map(coordinate);
                let [x, top, width_text, high] = &size;
                out.push_str(&element(
                    "rect",
                    &[
                        ("class", class),
                        ("x", x),
                        ("y", top),
                        ("width", width_text),
                        ("height", high),
                    ],
                ));
                let end = (LEFT + width + 5.0, y + 11.0);
                out.push_str(&text("value", "start", end, &number(value)));
                y += BAR;
            }
            y += 26.0;
        }
        let title = escape("Requests for 10⁹ instructions of the whole machine, by load and level");
        Some(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" width=\"{WIDTH}\" height=\"{y}\" \
             role=\"img\"><title>{title}</title><style>{STYLE}</style>\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{y}\"/>{out}</svg>\n",
            y = coordinate(y)
        ))
    }
}

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#1c2024}.load{font-weight:600}.paper{fill:#fdfdfb}\
    .ours{fill:#0060b8}.other{fill:#9aa3ad}";

fn study_value(
    studies: &[ExperimentStudy],
    name: &str,
    level: &ReportLevel,
    x: &AxisValue,
) -> Option<f64> {
    let is_wanted = |study: &&ExperimentStudy| {
        study.experiment.by == CountUnit::Instructions && study.experiment.plain_name() == name
    };
    let study = studies.iter().find(is_wanted)?;
    let records = study.records.values();
    let records = records.filter(|record| record.server == level.server && record.x == *x);
    let rates = records.filter_map(|record| Some(record.measured()?.outcome.requests_per_s));
    Some(PointSpread::from_values(rates.collect())?.median)
}

fn paper_value(papers: &[CountedPaper], level: &ReportLevel) -> Option<f64> {
    let paper = papers.iter().find(|paper| paper.paper.number == OF_003)?;
    let instructions = find(&paper.figures, level.server_in_003, LOAD_003)?.median()?;
    Some(PER_SECOND / instructions)
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters
        .next()
        .map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + characters.as_str()
}
