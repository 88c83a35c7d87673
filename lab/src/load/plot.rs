//! Plots latency percentiles, in the terminal or as a picture. No I/O.

use super::outcome::TimeDistribution;
use crate::experiment::units::{FigureUnit, number};
use crate::report::svg::{coordinate, element, line, text};

/// Percentiles, each with its name, its share and its time; the last is the maximum.
fn shares(times: &TimeDistribution) -> [(&'static str, f64, u64); 7] {
    // The maximum is one of `count` measurements, so its share is below 100 %, which the axis of nines could not show.
    let share_max = 100.0 - 100.0 / times.count.max(2) as f64;
    [
        ("50", 50.0, times.p50),
        ("75", 75.0, times.p75),
        ("90", 90.0, times.p90),
        ("95", 95.0, times.p95),
        ("99", 99.0, times.p99),
        ("99.9", 99.9, times.p99_9),
        ("all", share_max.max(99.95), times.max),
    ]
}

/// Plots for a terminal: a bar for each percentile, on a logarithmic scale that starts at the minimum.
pub(super) fn terminal(times: &TimeDistribution) -> String {
    const WIDTH: f64 = 50.0;
    let min_time = times.min.max(1) as f64;
    // At least 1e-9, since the span would be 0 if all times are equal.
    let span = (times.max.max(2) as f64 / min_time).ln().max(1e-9);
    let bar = |(name, _, time): (&str, f64, u64)| {
        let share = (time.max(1) as f64 / min_time).ln().max(0.0) / span;
        let bar = "█".repeat((share * WIDTH).round() as usize);
        let time_text = FigureUnit::Microseconds.show(time as f64);
        format!(
            "{name:>6} {} {time_text:>9}  {bar}\n",
            if name == "all" { " " } else { "%" }
        )
    };
    let bars: String = shares(times).into_iter().map(bar).collect();
    format!(
        "latency, logarithmic from {}\n{bars}",
        FigureUnit::Microseconds.show(min_time)
    )
}

/// Draws a self-contained SVG. On its percentile axis 90, 99 and 99.9 % are equidistant.
pub(super) fn picture(times: &TimeDistribution, title: &str) -> String {
    const WIDTH: f64 = 640.0;
    const HEIGHT: f64 = 320.0;
    const LEFT: f64 = 80.0;
    const BOTTOM: f64 = 280.0;
    // The axis counts nines, so that 90, 99 and 99.9 % are equidistant.
    let nines = |share: f64| -(1.0 - share / 100.0).log10();
    let points = shares(times);
    let right = nines(points[points.len() - 1].1);
    let unit = FigureUnit::Microseconds.scaled(times.max as f64);
    let max_time = (times.max.max(1) as f64) / unit.divisor;
    let x = |share: f64| LEFT + nines(share) / right * (WIDTH - LEFT - 20.0);
    let y = |time: f64| BOTTOM - time / unit.divisor / max_time * (BOTTOM - 50.0);
    let mut out = text("title", "start", (8.0, 18.0), title);
    out.push_str(&text(
        "soft",
        "start",
        (8.0, 36.0),
        &format!("latency, {}", unit.name),
    ));
    for step in 0..=4 {
        let time = max_time * f64::from(step) / 4.0;
        let height = y(time * unit.divisor);
        out.push_str(&line("grid", (LEFT, height), (WIDTH - 20.0, height)));
        out.push_str(&text(
            "soft",
            "end",
            (LEFT - 6.0, height + 4.0),
            &number(time),
        ));
    }
    let mut curve = Vec::new();
    for (name, share, time) in points {
        let point = (x(share), y(time as f64));
        curve.push(format!("{},{}", coordinate(point.0), coordinate(point.1)));
        // The labels of 95 % and of the maximum would overlap others.
        if !["95", "all"].contains(&name) {
            out.push_str(&text(
                "soft",
                "middle",
                (point.0, BOTTOM + 18.0),
                &format!("{name} %"),
            ));
        }
    }
    out.push_str(&element(
        "polyline",
        &[("class", "curve"), ("points", &curve.join(" "))],
    ));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\"><style>{STYLE}</style><rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>{out}</svg>\n"
    )
}

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#1c2024}.title{font-weight:600}.soft{fill:#5b646e}\
    .paper{fill:#fdfdfb}.grid{stroke:#d9dcdf}.curve{fill:none;stroke:#0060b8;stroke-width:2}";

#[cfg(test)]
mod tests {
    use super::*;

    fn times() -> TimeDistribution {
        TimeDistribution {
            count: 1000,
            min: 10,
            p50: 100,
            p75: 200,
            p90: 300,
            p95: 400,
            p99: 1000,
            p99_9: 5000,
            max: 10_000,
            ..TimeDistribution::default()
        }
    }

    #[test]
    fn bar_length_is_logarithmic_in_latency() {
        let text = terminal(&times());
        let bar = |name: &str| {
            let line = text
                .lines()
                .find(|line| line.trim_start().starts_with(name));
            line.expect(name).matches('█').count()
        };
        assert_eq!((bar("50"), bar("99 "), bar("all")), (17, 33, 50), "{text}");
    }

    #[test]
    fn svg_is_well_formed_even_without_samples() {
        for times in [times(), TimeDistribution::default()] {
            let drawn = picture(&times, "a < b");
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
            assert!(drawn.contains("a &lt; b"));
        }
    }
}
