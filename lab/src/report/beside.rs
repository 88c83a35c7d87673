//! The paper's numbers with the measured ones, as tables of text: points, ratios, and the expectations of table 1 of
//! paper `003`. Independent of HTML.

use super::chart::x_name;
use super::expected;
use super::model::{FigureData, PointSpread, ServerSeries};
use crate::experiment::schema::{AxisValue, OurRatio, PaperRatio, PaperSeries};
use crate::experiment::units::{FigureUnit, number};

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportTable {
    /// Its caption.
    pub caption: String,
    /// The names of its columns.
    pub head: Vec<String>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
}

impl ReportTable {
    fn new(caption: &str, head: &[&str], rows: Vec<Vec<String>>) -> Option<Self> {
        let head = head.iter().map(|&name| name.to_owned()).collect();
        (!rows.is_empty()).then(|| Self {
            caption: caption.to_owned(),
            head,
            rows,
        })
    }
}

/// All numbers of the paper's text, with the measured ones.
#[must_use]
pub fn tables(shown: &FigureData<'_>) -> Vec<ReportTable> {
    let figure = shown.figure;
    let ratios = figure
        .paper_ratio
        .iter()
        .map(|ratio| ratio_row(shown, ratio))
        .collect();
    let points = figure
        .paper_series
        .iter()
        .flat_map(|series| series_rows(shown, series))
        .collect();
    let ratios = ReportTable::new(
        "Ratios",
        &[
            "What, in the paper",
            "Paper",
            "Ours",
            "Which of ours",
            "Place in the paper",
        ],
        ratios,
    );
    let points = ReportTable::new(
        "Numbers",
        &[
            "Server and point",
            "Paper",
            "Ours",
            "Which of ours",
            "Place in the paper",
        ],
        points,
    );
    let expected = if figure.expected_003 {
        expected_table(shown)
    } else {
        None
    };
    [ratios, points, expected].into_iter().flatten().collect()
}

/// All measured values: a row for each x and a column for each server, or transposed if there are more servers than x.
#[must_use]
pub fn values(shown: &FigureData<'_>) -> Option<ReportTable> {
    let unit = shown.unit();
    let cell = |series: &ServerSeries, x: &AxisValue| {
        series
            .at(x)
            .map_or("–".into(), |point| spread(unit, &point.y))
    };
    let servers: Vec<&str> = shown
        .series
        .iter()
        .map(|series| series.server.as_str())
        .collect();
    let xs = shown.xs();
    let names: Vec<String> = xs.iter().map(|x| x_name(shown, x)).collect();
    let caption = "Medians, and least to greatest of the repeats";
    if servers.len() > xs.len() {
        let row = |series: &ServerSeries| {
            let cells = xs.iter().map(|x| cell(series, x));
            std::iter::once(series.server.clone())
                .chain(cells)
                .collect()
        };
        let head: Vec<&str> = std::iter::once("server")
            .chain(names.iter().map(String::as_str))
            .collect();
        return ReportTable::new(caption, &head, shown.series.iter().map(row).collect());
    }
    let row = |(x, name): (&AxisValue, &String)| {
        let cells = shown.series.iter().map(|series| cell(series, x));
        std::iter::once(name.clone()).chain(cells).collect()
    };
    let head: Vec<&str> = std::iter::once(shown.experiment.sweep.label.as_str())
        .chain(servers)
        .collect();
    ReportTable::new(caption, &head, xs.iter().zip(&names).map(row).collect())
}

fn spread(unit: FigureUnit, spread: &PointSpread) -> String {
    let median = unit.show(spread.median);
    if spread.count < 2 {
        return median;
    }
    format!(
        "{median} ({} to {})",
        unit.show(spread.low),
        unit.show(spread.high)
    )
}

fn ratio_row(shown: &FigureData<'_>, ratio: &PaperRatio) -> Vec<String> {
    let (ours, which) = match &ratio.ours {
        None => ("–".into(), "no equivalent here".into()),
        Some(ours) => (ours_value(shown, ours), ours_name(shown, ours)),
    };
    vec![
        ratio.what.clone(),
        times(ratio.value),
        ours,
        which,
        ratio.place.clone(),
    ]
}

/// A ratio in a table.
pub(super) fn times(value: f64) -> String {
    format!("{} ×", number(value))
}

/// The servers of a ratio.
pub(super) fn ours_name(shown: &FigureData<'_>, ours: &OurRatio) -> String {
    let at = ours.at.as_ref().map_or("best of each".into(), |x| {
        format!("at {}", x_name(shown, x))
    });
    format!("{} over {}, {at}", ours.of, ours.over)
}

fn ours_value(shown: &FigureData<'_>, ours: &OurRatio) -> String {
    match ratio(shown, ours) {
        Some(value) => times(value),
        None => {
            let absent = [&ours.of, &ours.over]
                .into_iter()
                .find(|name| shown.series(name).is_none());
            match absent {
                Some(name) => format!("not here: {name}"),
                None => "not measured at this point".into(),
            }
        }
    }
}

/// A ratio of measured medians.
#[must_use]
pub fn ratio(shown: &FigureData<'_>, ours: &OurRatio) -> Option<f64> {
    let value = |name: &str| {
        let series = shown.series(name)?;
        let point = match &ours.at {
            Some(x) => series.at(x),
            None => series.best(shown.figure.measure.lower_is_better()),
        };
        point.map(|point| point.y.median)
    };
    let (of, over) = (value(&ours.of)?, value(&ours.over)?);
    (over > 0.0).then(|| of / over)
}

fn series_rows(shown: &FigureData<'_>, series: &PaperSeries) -> Vec<Vec<String>> {
    let row = |(x, y): &(AxisValue, f64)| {
        let (ours, which) = our_point(shown, series, x);
        vec![
            format!("{}, {}", series.name, x_name(shown, x)),
            format!("{} {}", number(*y), series.unit),
            ours,
            which,
            series.place.clone(),
        ]
    };
    series.points.iter().map(row).collect()
}

/// The measured value at the paper's x; without one, the best, or for times the last.
fn our_point(shown: &FigureData<'_>, series: &PaperSeries, x: &AxisValue) -> (String, String) {
    let Some(name) = &series.ours else {
        return ("–".into(), "no equivalent here".into());
    };
    let Some(ours) = shown.series(name) else {
        return ("not here".into(), name.clone());
    };
    let unit = shown.unit();
    let relative = &shown.experiment.sweep.relative_to_capacity;
    // Rates relative to a capacity may equal the paper's x by chance only.
    if let Some(point) = ours.at(x).filter(|_| relative.is_empty()) {
        return (unit.show(point.y.median), name.clone());
    }
    // Rates that are shares of a capacity do not correspond to the paper's rates, so no point matches its x.
    if shown.figure.measure.lower_is_better() && !relative.is_empty() {
        return ("–".into(), "ours are at shares of a capacity".into());
    }
    // Times are compared at the highest load, since the paper's are at capacity.
    let (point, word) = match shown.figure.measure.lower_is_better() {
        true => (ours.points.last(), "last"),
        false => (ours.best(false), "best"),
    };
    let point = point.expect("a series that is shown has a point");
    let which = format!("{name}, {word}: {}", x_name(shown, &point.x));
    (unit.show(point.y.median), which)
}

fn expected_table(shown: &FigureData<'_>) -> Option<ReportTable> {
    let fixed = shown.experiment.load.static_rate.unwrap_or(0.0);
    let mut head = vec![
        "Dynamic/s".to_owned(),
        "Static/s".to_owned(),
        "Paper's table 1".to_owned(),
        "Formula, on the wire".to_owned(),
        "Formula, content only".to_owned(),
    ];
    head.extend(
        shown
            .series
            .iter()
            .map(|series| format!("{} (content)", series.server)),
    );
    let mbit = |bits: f64| FigureUnit::BitsPerS.show(bits);
    let row = |(dynamic, paper): &(f64, Option<f64>)| {
        let x = AxisValue::Number(*dynamic);
        let ours = shown.series.iter().map(|series| series.at(&x));
        let mut row = vec![
            number(*dynamic),
            number(fixed),
            paper.map_or("–".into(), |paper| format!("{paper} Mbit/s")),
            mbit(expected::bits_per_s(*dynamic, fixed)),
            mbit(expected::content_bits_per_s(*dynamic, fixed)),
        ];
        row.extend(ours.map(|point| point.map_or("–".into(), |point| mbit(point.y.median))));
        row
    };
    // The paper's rows, and the measured rates that the paper lacks.
    let paper = expected::TABLE.iter().filter(|(_, of, _)| *of == fixed);
    let mut rows: Vec<(f64, Option<f64>)> = paper
        .map(|(dynamic, _, paper)| (*dynamic, Some(*paper)))
        .collect();
    let own: Vec<f64> = shown.xs().iter().filter_map(AxisValue::number).collect();
    let new = |dynamic: &f64| !rows.iter().any(|(other, _)| other == dynamic);
    let own: Vec<_> = own
        .into_iter()
        .filter(new)
        .map(|dynamic| (dynamic, None))
        .collect();
    rows.extend(own);
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let rows = rows.iter().map(row).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    ReportTable::new("Table 1: expected and measured throughput", &head, rows)
}
