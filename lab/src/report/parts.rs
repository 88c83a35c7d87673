//! Texts that the HTML page and the Markdown page share: machines, versions, errors, repeats.

use std::collections::BTreeSet;

use super::model::{ExperimentStudy, FigureData, ServerSeries};
use crate::experiment::ResultRecord;
use crate::experiment::agree::TOLERANCE;
use crate::experiment::counting::CountUnit;
use crate::experiment::schema::{AxisParameter, FigureConfig, PaceKind};
use crate::experiment::units::number;

/// Experiments with figures, and the names of the others with the reason if known. An experiment counts as measured if
/// it has figures either by the clock or by instructions.
pub fn measured(studies: &[ExperimentStudy]) -> (Vec<&ExperimentStudy>, Vec<String>) {
    let measured: Vec<&ExperimentStudy> =
        studies.iter().filter(|study| study.is_measured()).collect();
    let is_measured = |name: &str| measured.iter().any(|it| it.experiment.plain_name() == name);
    let without = studies.iter().filter(|study| {
        study.experiment.by == CountUnit::Clock && !is_measured(&study.experiment.name)
    });
    let name = |study: &ExperimentStudy| {
        let experiment = &study.experiment;
        let source = format!("{}, {}", experiment.paper, experiment.figure);
        match experiment.uncountable() {
            Some(reason) => format!("{source}: not by instructions, as {reason}"),
            None => source,
        }
    };
    let unmeasured = without.map(name).collect();
    (measured, unmeasured)
}

/// A figure's location in its paper, and how it was measured if not by the clock.
pub fn figure_name(study: &ExperimentStudy, figure: &FigureConfig) -> String {
    format!(
        "{}, {}{}",
        study.experiment.paper,
        figure.figure,
        method_text(study)
    )
}

/// The suffix of a title that tells how the experiment was measured.
pub fn method_text(study: &ExperimentStudy) -> &'static str {
    match study.experiment.by {
        CountUnit::Clock => "",
        CountUnit::Instructions => ", by instructions",
    }
}

/// A server's version and configuration.
pub struct ServerConfiguration<'a> {
    /// The server's name.
    pub server: &'a str,
    /// The server of the paper that this server represents.
    pub stands_for: Option<&'a str>,
    /// The server's version.
    pub version: &'a str,
    /// The server's configuration.
    pub text: &'a str,
}

/// The configurations of an experiment's servers, in the order of the file; only of servers with figures.
pub fn configurations(study: &ExperimentStudy) -> Vec<ServerConfiguration<'_>> {
    let configuration = |server: &str| {
        study
            .records
            .values()
            .find(|record| record.server == server && record.measured().is_some())
    };
    let servers = study.experiment.servers.iter();
    servers
        .filter_map(|server| {
            let record = configuration(&server.name)?;
            Some(ServerConfiguration {
                server: &server.name,
                stands_for: server.stands_for.as_deref(),
                version: &record.version,
                text: &record.configuration,
            })
        })
        .collect()
}

/// The conditions of the measurement: load, repeats, spread, machine, date.
pub fn circumstances(study: &ExperimentStudy) -> Vec<String> {
    let experiment = &study.experiment;
    let measured = || {
        study
            .records
            .values()
            .filter(|record| record.measured().is_some())
    };
    let mut lines = match experiment.by {
        CountUnit::Clock => by_clock(study),
        CountUnit::Instructions => by_instructions(study),
    };
    let machines: BTreeSet<String> = measured()
        .map(|record| record.machine.to_string())
        .collect();
    lines.extend(
        machines
            .into_iter()
            .map(|machine| format!("Measured on {machine}.")),
    );
    let first = measured().map(|record| record.unix_s).min();
    let last = measured().map(|record| record.unix_s).max();
    if let (Some(first), Some(last)) = (first, last) {
        lines.push(format!("From {} to {}.", date(first), date(last)));
    }
    lines.extend(spread(study));
    lines.extend(wide_spreads(study));
    lines.extend(limited(study));
    lines
}

fn by_clock(study: &ExperimentStudy) -> Vec<String> {
    let load = &study.experiment.load;
    let mut lines = vec![format!(
        "Workload {}{}; {}, load generator with {}; {} s a point after {} s of warm-up; {}, \
         interleaved.",
        study.experiment.workload.name,
        settings(study),
        pace(study),
        counted_noun(load.threads, "thread"),
        number(load.duration_s),
        number(load.warmup_s),
        counted_noun(repeats(study), "repeat")
    )];
    lines.extend(durations(study));
    lines
}

fn by_instructions(study: &ExperimentStudy) -> Vec<String> {
    vec![format!(
        "Workload {}{}; {}; each server in a guest of its own with one processor, under emulation, {}; instructions of \
         the whole machine, 10⁹ of which stand for a second.",
        study.experiment.workload.name,
        settings(study),
        pace(study),
        repeated(study.experiment.repeats, repeats(study)),
    )]
}

/// Describes the number of repeats; points with repeats that disagree have more than planned.
fn repeated(planned: u32, repeats_max: u32) -> String {
    match repeats_max > planned {
        true => format!("{planned} to {repeats_max} repeats"),
        false => counted_noun(repeats_max, "repeat"),
    }
}

/// The actual number of repeats, which may be less than in the file.
fn repeats(study: &ExperimentStudy) -> u32 {
    let repeats = study
        .records
        .values()
        .map(|record| record.repeat.saturating_add(1));
    repeats.max().unwrap_or(0)
}

/// Describes the points with repeated counts that differ.
fn wide_spreads(study: &ExperimentStudy) -> Vec<String> {
    if study.experiment.by == CountUnit::Clock {
        return Vec::new();
    }
    let all_figures = study.figure_data();
    let Some(first) = all_figures.first() else {
        return Vec::new();
    };
    let points = |series: &ServerSeries| {
        let spread_points = series
            .points
            .iter()
            .filter(|point| point.y.relative_spread() > TOLERANCE);
        let named = spread_points.map(|point| {
            let spread_percent = number(point.y.relative_spread() * 100.0);
            format!("{} at {}: {spread_percent} %", series.server, point.x)
        });
        named.collect::<Vec<_>>()
    };
    let spread_texts: Vec<String> = first.series.iter().flat_map(points).collect();
    match spread_texts.is_empty() {
        true => Vec::new(),
        false => vec![format!(
            "Repeats more than 3 % apart: {}.",
            spread_texts.join("; ")
        )],
    }
}

/// Reports the cases where the load generator used all its processor time, so that it was the bottleneck. Over
/// loopback, the kernel attributes much of the server's work to the load generator.
fn limited(study: &ExperimentStudy) -> Option<String> {
    // A thread that is busy nine tenths of the time has no reserve.
    let full_share = 0.9 * f64::from(study.experiment.load.threads);
    let shares: Vec<f64> = study
        .records
        .values()
        .filter_map(ResultRecord::measured)
        .map(|measured| measured.outcome.cpu_share)
        .collect();
    let busy = shares.iter().filter(|share| **share >= full_share).count();
    (busy > 0).then(|| {
        format!(
            "In {busy} of {} measurements the load generator used all processor time of its threads: \
             there the server could have answered more.",
            shares.len()
        )
    })
}

fn pace(study: &ExperimentStudy) -> String {
    let load = &study.experiment.load;
    let swept = study.experiment.sweep.parameter == AxisParameter::Connections;
    let connections = counted_noun(load.connections, "connection");
    match load.pace {
        PaceKind::Closed if swept => "closed loop".into(),
        PaceKind::Closed => format!("closed loop of {connections}"),
        PaceKind::Requests => format!("open loop of requests over {connections}"),
        PaceKind::Connections => {
            format!("open loop of new connections, at most {connections} at a time")
        }
    }
}

fn counted_noun(count: u32, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

fn settings(study: &ExperimentStudy) -> String {
    let settings = &study.experiment.workload.settings;
    if settings.is_empty() {
        return String::new();
    }
    let texts: Vec<String> = settings
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    format!(" ({})", texts.join(", "))
}

/// Reports points with a duration that differs from that in the file.
fn durations(study: &ExperimentStudy) -> Option<String> {
    let record = study.records.values().find_map(ResultRecord::measured)?;
    let measured_s = record.outcome.duration_s;
    let planned_s = study.experiment.load.duration_s;
    let is_different = measured_s > 0.0 && (measured_s - planned_s).abs() > 0.2 * planned_s;
    is_different.then(|| {
        format!(
            "Points here lasted {} s, not as planned.",
            number(measured_s)
        )
    })
}

/// The range of repeats over all points of the first figure.
fn spread(study: &ExperimentStudy) -> Option<String> {
    let all_figures = study.figure_data();
    let first = all_figures.first()?;
    let points = first.series.iter().flat_map(|series| &series.points);
    let mut shares: Vec<f64> = points
        .filter(|point| point.y.count > 1 && point.y.median > 0.0)
        .map(|point| (point.y.high - point.y.low) / point.y.median)
        .collect();
    shares.sort_by(f64::total_cmp);
    let middle = shares.get(shares.len() / 2)?;
    let largest_share = shares.last()?;
    Some(format!(
        "Spread of the repeats (greatest less least, over the median): {} % at the middle point, \
         {} % at the worst.",
        number(middle * 100.0),
        number(largest_share * 100.0)
    ))
}

/// A date in the format of HTTP.
pub fn date(unix_s: u64) -> String {
    String::from_utf8_lossy(&lowroad_http::date::format(unix_s)).into_owned()
}

/// The lines about several figures of an experiment. Each line occurs only once, since figures share runs.
pub fn merged<'a>(lines: impl Iterator<Item = Vec<String>> + 'a) -> Vec<String> {
    let mut unique: Vec<String> = Vec::new();
    for line in lines.flatten() {
        if !unique.contains(&line) {
            unique.push(line);
        }
    }
    unique
}

/// Describes the servers without figures: those that may become available, or those that can't.
pub fn absent_lines(figure_data: &FigureData<'_>, is_pending: bool) -> Vec<String> {
    let selected = figure_data
        .absent
        .iter()
        .filter(|absent_server| absent_server.is_pending == is_pending);
    selected
        .map(|absent_server| format!("{}: {}", absent_server.name, absent_server.reason))
        .collect()
}

/// Describes the servers with errors.
pub fn errors(figure_data: &FigureData<'_>) -> Vec<String> {
    let with_errors = figure_data.series.iter().filter(|series| series.errors > 0);
    with_errors
        .map(|series| {
            let share = series.errors as f64 / series.requests.max(1) as f64 * 100.0;
            format!(
                "{}: {} errors in {} requests ({} %)",
                series.server,
                number(series.errors as f64),
                number(series.requests as f64),
                number(share)
            )
        })
        .collect()
}
