//! Tables that show the paper's numbers beside the measured ones: points, ratios, and the expected values of table 1 of
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

/// Tables of all numbers in the paper's text with the measured ones.
#[must_use]
pub fn tables(figure_data: &FigureData<'_>) -> Vec<ReportTable> {
    let figure = figure_data.figure;
    let ratios = figure
        .paper_ratio
        .iter()
        .map(|ratio| ratio_row(figure_data, ratio))
        .collect();
    let points = figure
        .paper_series
        .iter()
        .flat_map(|series| series_rows(figure_data, series))
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
        expected_table(figure_data)
    } else {
        None
    };
    [ratios, points, expected].into_iter().flatten().collect()
}

/// A table of all measured values: a row for each x and a column for each server, or transposed if there are more
/// servers than values of x.
#[must_use]
pub fn values(figure_data: &FigureData<'_>) -> Option<ReportTable> {
    let unit = figure_data.unit();
    let cell = |series: &ServerSeries, x: &AxisValue| {
        series
            .point_at(x)
            .map_or("–".into(), |point| spread(unit, &point.y))
    };
    let servers: Vec<&str> = figure_data
        .series
        .iter()
        .map(|series| series.server.as_str())
        .collect();
    let xs = figure_data.xs();
    let names: Vec<String> = xs.iter().map(|x| x_name(figure_data, x)).collect();
    let caption = "Medians, and least to greatest of the repeats";
    // The longer side becomes the rows, so that the table fits on a page.
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
        return ReportTable::new(caption, &head, figure_data.series.iter().map(row).collect());
    }
    let row = |(x, name): (&AxisValue, &String)| {
        let cells = figure_data.series.iter().map(|series| cell(series, x));
        std::iter::once(name.clone()).chain(cells).collect()
    };
    let head: Vec<&str> = std::iter::once(figure_data.experiment.sweep.label.as_str())
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

fn ratio_row(figure_data: &FigureData<'_>, ratio: &PaperRatio) -> Vec<String> {
    let (our_value, our_name) = match &ratio.ours {
        None => ("–".into(), "no equivalent here".into()),
        Some(our_ratio) => (
            our_ratio_value(figure_data, our_ratio),
            our_ratio_name(figure_data, our_ratio),
        ),
    };
    vec![
        ratio.what.clone(),
        times(ratio.value),
        our_value,
        our_name,
        ratio.place.clone(),
    ]
}

/// A ratio in a table.
pub(super) fn times(value: f64) -> String {
    format!("{} ×", number(value))
}

/// The names of the servers in a ratio.
pub(super) fn our_ratio_name(figure_data: &FigureData<'_>, our_ratio: &OurRatio) -> String {
    let at_text = our_ratio.at.as_ref().map_or("best of each".into(), |x| {
        format!("at {}", x_name(figure_data, x))
    });
    format!("{} over {}, {at_text}", our_ratio.of, our_ratio.over)
}

fn our_ratio_value(figure_data: &FigureData<'_>, our_ratio: &OurRatio) -> String {
    match ratio(figure_data, our_ratio) {
        Some(value) => times(value),
        None => {
            let absent_name = [&our_ratio.of, &our_ratio.over]
                .into_iter()
                .find(|name| figure_data.series(name).is_none());
            match absent_name {
                Some(name) => format!("not here: {name}"),
                None => "not measured at this point".into(),
            }
        }
    }
}

/// A ratio of measured medians.
#[must_use]
pub fn ratio(figure_data: &FigureData<'_>, our_ratio: &OurRatio) -> Option<f64> {
    let value = |name: &str| {
        let series = figure_data.series(name)?;
        let point = match &our_ratio.at {
            Some(x) => series.point_at(x),
            None => series.best(figure_data.figure.measure.lower_is_better()),
        };
        point.map(|point| point.y.median)
    };
    let (numerator, over) = (value(&our_ratio.of)?, value(&our_ratio.over)?);
    (over > 0.0).then(|| numerator / over)
}

fn series_rows(figure_data: &FigureData<'_>, series: &PaperSeries) -> Vec<Vec<String>> {
    let row = |(x, y): &(AxisValue, f64)| {
        let (our_value, our_name) = our_point(figure_data, series, x);
        vec![
            format!("{}, {}", series.name, x_name(figure_data, x)),
            format!("{} {}", number(*y), series.unit),
            our_value,
            our_name,
            series.place.clone(),
        ]
    };
    series.points.iter().map(row).collect()
}

/// The measured value at the paper's x. If the paper gives no x, it is the best value, or for times that of the last
/// point.
fn our_point(
    figure_data: &FigureData<'_>,
    series: &PaperSeries,
    x: &AxisValue,
) -> (String, String) {
    let Some(name) = &series.ours else {
        return ("–".into(), "no equivalent here".into());
    };
    let Some(our_series) = figure_data.series(name) else {
        return ("not here".into(), name.clone());
    };
    let unit = figure_data.unit();
    let relative = &figure_data.experiment.sweep.relative_to_capacity;
    // If rates are relative to a capacity, one could equal the paper's x only by chance.
    if let Some(point) = our_series.point_at(x).filter(|_| relative.is_empty()) {
        return (unit.show(point.y.median), name.clone());
    }
    // Rates that are shares of a capacity do not correspond to the paper's rates, so no point has the paper's x.
    if figure_data.figure.measure.lower_is_better() && !relative.is_empty() {
        return ("–".into(), "ours are at shares of a capacity".into());
    }
    // Times are compared at the highest load, since the paper's are at capacity.
    let (point, kind) = match figure_data.figure.measure.lower_is_better() {
        true => (our_series.points.last(), "last"),
        false => (our_series.best(false), "best"),
    };
    let point = point.expect("a series that is shown has a point");
    let our_name = format!("{name}, {kind}: {}", x_name(figure_data, &point.x));
    (unit.show(point.y.median), our_name)
}

fn expected_table(figure_data: &FigureData<'_>) -> Option<ReportTable> {
    let fixed = figure_data.experiment.load.static_rate.unwrap_or(0.0);
    let mut head = vec![
        "Dynamic/s".to_owned(),
        "Static/s".to_owned(),
        "Paper's table 1".to_owned(),
        "Formula, on the wire".to_owned(),
        "Formula, content only".to_owned(),
    ];
    head.extend(
        figure_data
            .series
            .iter()
            .map(|series| format!("{} (content)", series.server)),
    );
    let mbit = |bits: f64| FigureUnit::BitsPerS.show(bits);
    let row = |(dynamic, paper): &(f64, Option<f64>)| {
        let x = AxisValue::Number(*dynamic);
        let our_points = figure_data.series.iter().map(|series| series.point_at(&x));
        let mut row = vec![
            number(*dynamic),
            number(fixed),
            paper.map_or("–".into(), |paper| format!("{paper} Mbit/s")),
            mbit(expected::bits_per_s(*dynamic, fixed)),
            mbit(expected::content_bits_per_s(*dynamic, fixed)),
        ];
        row.extend(our_points.map(|point| point.map_or("–".into(), |point| mbit(point.y.median))));
        row
    };
    // The rows of the paper, then the measured rates that the paper does not have.
    let paper = expected::TABLE
        .iter()
        .filter(|(_, table_static, _)| *table_static == fixed);
    let mut rows: Vec<(f64, Option<f64>)> = paper
        .map(|(dynamic, _, paper)| (*dynamic, Some(*paper)))
        .collect();
    let own_rates: Vec<f64> = figure_data
        .xs()
        .iter()
        .filter_map(AxisValue::number)
        .collect();
    let new = |dynamic: &f64| !rows.iter().any(|(row_rate, _)| row_rate == dynamic);
    let new_rates: Vec<_> = own_rates
        .into_iter()
        .filter(new)
        .map(|dynamic| (dynamic, None))
        .collect();
    rows.extend(new_rates);
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let rows = rows.iter().map(row).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    ReportTable::new("Table 1: expected and measured throughput", &head, rows)
}
