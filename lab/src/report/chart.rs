//! Charts as SVG: line charts and horizontal bar charts. No I/O. Colours and fonts are classes, which the page's style
//! sheet defines.

use super::model::{FigureData, PointSpread, ServerSeries};
use super::scale::{AxisScale, fitting, linear_ticks, log_ticks};
use super::style::{line_class, marker, styles};
use super::svg::{coordinate, element, escape, line, text, text_width};
use crate::experiment::schema::{AxisParameter, AxisValue, FigureKind};
use crate::experiment::units::{ScaledUnit, number, size};

/// A figure's chart, `width` pixels wide; empty without data.
#[must_use]
pub fn draw(figure_data: &FigureData<'_>, width: f64) -> String {
    if figure_data.series.is_empty() {
        return String::new();
    }
    if is_lines(figure_data) {
        lines(figure_data, width)
    } else {
        bars(figure_data, width)
    }
}

/// Whether the chart has lines, which need a legend; bars are labelled.
#[must_use]
pub fn is_lines(figure_data: &FigureData<'_>) -> bool {
    let numbers = figure_data.xs().iter().all(|x| x.number().is_some());
    figure_data.figure.kind == FigureKind::Lines && numbers
}

/// The names of the servers with their line and marker, as HTML.
#[must_use]
pub fn legend(figure_data: &FigureData<'_>) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for (series, style) in figure_data.series.iter().zip(series_styles(figure_data)) {
        let stroke = line(&line_class(style), (1.0, 8.0), (29.0, 8.0));
        let mark = marker(style, 15.0, 8.0);
        let name = escape(&series.server);
        out.push_str(&format!(
            "<li><svg width=\"30\" height=\"16\" aria-hidden=\"true\">{stroke}{mark}</svg> {name}</li>"
        ));
    }
    out + "</ul>"
}

fn series_styles(figure_data: &FigureData<'_>) -> Vec<usize> {
    let names: Vec<&str> = figure_data
        .series
        .iter()
        .map(|series| series.server.as_str())
        .collect();
    styles(&names)
}

fn largest(figure_data: &FigureData<'_>) -> f64 {
    spreads(figure_data)
        .map(|spread| spread.high)
        .fold(0.0, f64::max)
}

fn spreads<'a>(figure_data: &'a FigureData<'_>) -> impl Iterator<Item = &'a PointSpread> {
    figure_data
        .series
        .iter()
        .flat_map(|series| series.points.iter().map(|point| &point.y))
}

fn open(width: f64, height: f64, title: &str) -> String {
    let (width, height) = (coordinate(width), coordinate(height));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\"><title>{}</title>",
        escape(title)
    )
}

/// The frame of a chart of lines.
struct ChartFrame {
    x: AxisScale,
    y: AxisScale,
    unit: ScaledUnit,
}

fn lines(figure_data: &FigureData<'_>, width: f64) -> String {
    let height = (width * 0.5).clamp(260.0, 380.0);
    let unit = figure_data.unit().scaled(largest(figure_data));
    let ((y_low, y_high), y_ticks) = y_axis(figure_data, unit);
    let labels: Vec<String> = y_ticks.iter().map(|tick| number(*tick)).collect();
    let left = 14.0
        + labels
            .iter()
            .map(|label| text_width(label))
            .fold(20.0, f64::max);
    let x_values: Vec<f64> = figure_data
        .xs()
        .iter()
        .filter_map(AxisValue::number)
        .collect();
    let (x_low, x_high) = x_range(figure_data, &x_values);
    let (top, bottom) = (30.0, height - 46.0);
    let frame = ChartFrame {
        x: AxisScale {
            low: x_low,
            high: x_high,
            log: figure_data.figure.log_x,
            from: left,
            to: width - 18.0,
        },
        y: AxisScale {
            low: y_low,
            high: y_high,
            log: is_log_y(figure_data),
            from: bottom,
            to: top,
        },
        unit,
    };
    let mut out = open(width, height, &figure_data.figure.title);
    out.push_str(&text("label", "start", (2.0, 14.0), unit.name));
    for (tick, label) in y_ticks.iter().zip(&labels) {
        let y = frame.y.position(*tick);
        out.push_str(&line("grid", (left, y), (width - 18.0, y)));
        out.push_str(&text("tick", "end", (left - 7.0, y + 4.0), label));
    }
    out.push_str(&x_axis(figure_data, &frame, &x_values, bottom));
    let middle = f64::midpoint(left, width - 18.0);
    let label = &figure_data.experiment.sweep.label;
    out.push_str(&text("label", "middle", (middle, height - 6.0), label));
    for (series, style) in figure_data.series.iter().zip(series_styles(figure_data)) {
        out.push_str(&curve(series, style, &frame));
    }
    out + "</svg>"
}

/// The range of the y axis and its ticks, in the displayed unit.
fn y_axis(figure_data: &FigureData<'_>, unit: ScaledUnit) -> ((f64, f64), Vec<f64>) {
    let high = largest(figure_data) / unit.divisor;
    let positive = spreads(figure_data)
        .map(|spread| spread.low)
        .filter(|low| *low > 0.0);
    let low = positive.fold(f64::INFINITY, f64::min) / unit.divisor;
    if is_log_y(figure_data) {
        // The axis has a margin around the data; ticks remain within it.
        let (low, high) = (low / 1.4, high * 1.4);
        let ticks = log_ticks(low, high);
        let within: Vec<f64> = ticks
            .iter()
            .copied()
            .filter(|t| (low..=high).contains(t))
            .collect();
        if !within.is_empty() {
            return ((low, high), within);
        }
        // No tick is within the margin, so the axis extends to the ticks around the data.
        return ((ticks[0], ticks[ticks.len() - 1]), ticks);
    }
    let ticks = linear_ticks(0.0, high, 5);
    ((ticks[0], ticks[ticks.len() - 1]), ticks)
}

/// Whether y is logarithmic: the file requests it, and at least one value is positive.
fn is_log_y(figure_data: &FigureData<'_>) -> bool {
    figure_data.figure.log_y && spreads(figure_data).any(|spread| spread.low > 0.0)
}

fn x_range(figure_data: &FigureData<'_>, values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match figure_data.figure.log_x {
        // A margin keeps the first marker from covering the axis.
        true => (low.max(1e-9) / 1.25, high.max(1e-9) * 1.25),
        false => (0.0, high.max(f64::MIN_POSITIVE) * 1.02),
    }
}

fn x_axis(figure_data: &FigureData<'_>, frame: &ChartFrame, values: &[f64], bottom: f64) -> String {
    let width = frame.x.to - frame.x.from;
    let ticks = match figure_data.figure.log_x {
        true => values.to_vec(),
        false => {
            let ticks = linear_ticks(0.0, frame.x.high, (width / 80.0) as usize);
            ticks
                .into_iter()
                .filter(|tick| *tick <= frame.x.high)
                .collect()
        }
    };
    let name = |tick: &f64| {
        if is_size(figure_data) {
            size(*tick)
        } else {
            number(*tick)
        }
    };
    let labels: Vec<String> = ticks.iter().map(name).collect();
    let positions: Vec<f64> = ticks.iter().map(|tick| frame.x.position(*tick)).collect();
    let widths: Vec<f64> = labels.iter().map(|label| text_width(label)).collect();
    let mut out = line("axis", (frame.x.from, bottom), (frame.x.to, bottom));
    for index in fitting(&positions, &widths) {
        let x = positions[index];
        out.push_str(&line("axis", (x, bottom), (x, bottom + 4.0)));
        out.push_str(&text("tick", "middle", (x, bottom + 18.0), &labels[index]));
    }
    out
}

/// Whether x is a number of bytes.
#[must_use]
pub fn is_size(figure_data: &FigureData<'_>) -> bool {
    matches!(&figure_data.experiment.sweep.parameter, AxisParameter::Workload(key) if key == "size")
}

fn curve(series: &ServerSeries, style: usize, frame: &ChartFrame) -> String {
    let unit = frame.unit.divisor;
    let position = |x: f64, y: f64| (frame.x.position(x), frame.y.position(y / unit));
    let mut points = Vec::new();
    let mut out = String::new();
    let mut markers = String::new();
    for point in &series.points {
        let Some(x) = point.x.number() else { continue };
        let (left, y) = position(x, point.y.median);
        points.push(format!("{},{}", coordinate(left), coordinate(y)));
        let (low, high) = (position(x, point.y.low).1, position(x, point.y.high).1);
        // A whisker of less than a pixel would only blur the marker.
        if (low - high).abs() > 1.0 {
            out.push_str(&whisker(style, left, low, high));
        }
        markers.push_str(&marker(style, left, y));
    }
    let class = line_class(style);
    out.push_str(&element(
        "polyline",
        &[("class", &class), ("points", &points.join(" "))],
    ));
    format!(
        "<g><title>{}</title>{out}{markers}</g>",
        escape(&series.server)
    )
}

/// A whisker over the range of the repeats.
fn whisker(style: usize, x: f64, low: f64, high: f64) -> String {
    let class = format!("spread s{style}");
    let end = |y: f64| line(&class, (x - 3.5, y), (x + 3.5, y));
    line(&class, (x, low), (x, high)) + &end(low) + &end(high)
}

const BAR: f64 = 22.0;
const GROUP_GAP: f64 = 30.0;

fn bars(figure_data: &FigureData<'_>, width: f64) -> String {
    let xs = figure_data.xs();
    let unit = figure_data.unit().scaled(largest(figure_data));
    let named = xs.len() > 1;
    let names = figure_data
        .series
        .iter()
        .map(|series| text_width(&series.server));
    // Long names must leave room for the bars on a narrow screen.
    let left = (names.fold(40.0, f64::max) + 12.0).min(width * 0.42);
    // Each value is written behind its bar, so the longest one decides the margin.
    let values = figure_data.series.iter().flat_map(|series| &series.points);
    let right_margin = values
        .map(|point| text_width(&value(point.y.median, unit)))
        .fold(20.0, f64::max)
        + 12.0;
    let ticks = linear_ticks(
        0.0,
        largest(figure_data) / unit.divisor,
        ((width - left) / 110.0) as usize,
    );
    let scale = AxisScale {
        low: 0.0,
        high: (largest(figure_data) / unit.divisor).max(f64::MIN_POSITIVE),
        log: false,
        from: left,
        to: width - right_margin,
    };
    let heading = if named { GROUP_GAP } else { 8.0 };
    let group = heading + BAR * figure_data.series.len() as f64;
    let bottom = group * xs.len() as f64 + 4.0;
    let height = bottom + 44.0;
    let mut out = open(width, height, &figure_data.figure.title);
    // With this tolerance a rounding error can't omit the last tick.
    for tick in ticks.iter().filter(|tick| **tick <= scale.high * 1.001) {
        let x = scale.position(*tick);
        out.push_str(&line("grid", (x, 4.0), (x, bottom)));
        out.push_str(&text("tick", "middle", (x, bottom + 16.0), &number(*tick)));
    }
    let styles = series_styles(figure_data);
    for (index, x) in xs.iter().enumerate() {
        let mut y = group * index as f64 + heading;
        if named {
            let name = x_name(figure_data, x);
            out.push_str(&text("group", "start", (2.0, y - 8.0), &name));
        }
        for (series, style) in figure_data.series.iter().zip(&styles) {
            out.push_str(&text("tick", "end", (left - 7.0, y + 15.0), &series.server));
            if let Some(point) = series.point_at(x) {
                out.push_str(&bar(&point.y, *style, y, &scale, unit));
            }
            y += BAR;
        }
    }
    out.push_str(&text(
        "label",
        "end",
        (width - 4.0, height - 6.0),
        unit.name,
    ));
    out + "</svg>"
}

fn bar(spread: &PointSpread, style: usize, y: f64, scale: &AxisScale, unit: ScaledUnit) -> String {
    let position = |value: f64| scale.position(value / unit.divisor);
    let end = position(spread.median);
    let (class, x) = (format!("bar s{style}"), coordinate(scale.from));
    // A bar is at least a pixel wide, so that the smallest value stays visible.
    let (top, width) = (coordinate(y + 2.0), coordinate((end - scale.from).max(1.0)));
    let height = coordinate(BAR - 4.0);
    let mut out = element(
        "rect",
        &[
            ("class", &class),
            ("x", &x),
            ("y", &top),
            ("width", &width),
            ("height", &height),
        ],
    );
    let (low, high) = (position(spread.low), position(spread.high));
    if high - low > 1.0 {
        let middle = y + BAR / 2.0;
        out.push_str(&line("whisker", (low, middle), (high, middle)));
    }
    let text_x = high.max(end) + 6.0;
    out + &text(
        "value",
        "start",
        (text_x, y + 15.0),
        &value(spread.median, unit),
    )
}

fn value(value: f64, unit: ScaledUnit) -> String {
    number(value / unit.divisor)
}

/// A point's name: `64 simultaneous connections`, `file size 4 KiB`, `dataset small`.
#[must_use]
pub fn x_name(figure_data: &FigureData<'_>, x: &AxisValue) -> String {
    let label = &figure_data.experiment.sweep.label;
    match x {
        AxisValue::Number(value) if is_size(figure_data) => format!("{label} {}", size(*value)),
        AxisValue::Number(value) => format!("{} {label}", number(*value)),
        AxisValue::Text(name) => format!("{label} {name}"),
    }
}
