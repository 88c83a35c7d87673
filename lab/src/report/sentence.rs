//! Summarizes a figure in a sentence, computed from its data. Servers are compared at the same x; the sentence also has
//! their best points if these are at another x.

use super::chart::x_name;
use super::model::{FigureData, SeriesPoint, ServerRatio, ServerSeries};
use crate::experiment::counting::CountUnit;
use crate::experiment::units::number;

/// A server's series, and the compared point of the series.
#[derive(Clone, Copy)]
struct ComparedPoint<'a> {
    series: &'a ServerSeries,
    point: &'a SeriesPoint,
}

/// The sentence on a figure.
#[must_use]
pub fn sentence(figure_data: &FigureData<'_>) -> String {
    if figure_data.series.is_empty() {
        return no_data(figure_data);
    }
    let Some((subject, against)) = pair(figure_data) else {
        return single_series(figure_data);
    };
    let Some((own_point, other_point)) = common_x(figure_data, subject, against) else {
        return format!(
            "{} and {} have no point in common.",
            subject.server, against.server
        );
    };
    let own_compared = ComparedPoint {
        series: subject,
        point: own_point,
    };
    let other_compared = ComparedPoint {
        series: against,
        point: other_point,
    };
    let (compared, bests) = (
        comparison(figure_data, own_compared, other_compared),
        bests(figure_data, own_compared, other_compared),
    );
    format!(
        "{compared}{bests}{}.",
        leader(figure_data, subject, against)
    )
}

fn no_data(figure_data: &FigureData<'_>) -> String {
    match figure_data
        .absent
        .iter()
        .find(|absent_server| absent_server.is_pending)
    {
        Some(absent_server) if figure_data.missing.is_empty() => {
            format!(
                "No server of this figure could be measured ({}: {}).",
                absent_server.name, absent_server.reason
            )
        }
        _ => "Nothing of this figure has been measured yet.".into(),
    }
}

fn lower_is_better(figure_data: &FigureData<'_>) -> bool {
    figure_data.figure.measure.lower_is_better()
}

/// The subject of the sentence, and the server that it is compared with.
fn pair<'a>(figure_data: &'a FigureData<'_>) -> Option<(&'a ServerSeries, &'a ServerSeries)> {
    let figure = figure_data.figure;
    let lower = lower_is_better(figure_data);
    let named = |name: &Option<String>| name.as_ref().and_then(|name| figure_data.series(name));
    let subject = named(&figure.subject)
        .or_else(|| figure_data.series("lowroad"))
        .or_else(|| best(figure_data, lower, &[]))?;
    let against = named(&figure.against)
        // A server can't be compared with itself.
        .filter(|series| series.server != subject.server)
        .or_else(|| best(figure_data, lower, &[&subject.server]))?;
    Some((subject, against))
}

/// The server with the best value, apart from those in `without`.
fn best<'a>(
    figure_data: &'a FigureData<'_>,
    lower: bool,
    without: &[&str],
) -> Option<&'a ServerSeries> {
    let value = |series: &ServerSeries| series.best(lower).map_or(0.0, |point| point.y.median);
    let other_series = figure_data
        .series
        .iter()
        .filter(|series| !without.contains(&series.server.as_str()));
    other_series.min_by(|a, b| {
        let order = value(a).total_cmp(&value(b));
        if lower { order } else { order.reverse() }
    })
}

fn single_series(figure_data: &FigureData<'_>) -> String {
    let series = &figure_data.series[0];
    let lower = lower_is_better(figure_data);
    let point = series
        .best(lower)
        .expect("a series that is shown has a point");
    let kind = match lower {
        true => format!("its least {} is", figure_data.figure.measure.description()),
        false => "it reaches".to_owned(),
    };
    format!(
        "Only {} has been measured: {kind} {}{}.",
        series.server,
        show(figure_data, point),
        x_phrase(figure_data, point)
    )
}

/// The x of the comparison: for throughput the subject's best point that both servers have, for times the greatest load
/// that both have.
fn common_x<'a>(
    figure_data: &FigureData<'_>,
    subject: &'a ServerSeries,
    against: &'a ServerSeries,
) -> Option<(&'a SeriesPoint, &'a SeriesPoint)> {
    let both = |own_point: &'a SeriesPoint| {
        against
            .point_at(&own_point.x)
            .map(|other| (own_point, other))
    };
    let mut common: Vec<_> = subject.points.iter().filter_map(both).collect();
    if !lower_is_better(figure_data) {
        // For throughput the best common point is last; for times the greatest x is.
        common.sort_by(|(a, _), (b, _)| a.y.median.total_cmp(&b.y.median));
    }
    common.pop()
}

fn comparison(
    figure_data: &FigureData<'_>,
    subject: ComparedPoint<'_>,
    against: ComparedPoint<'_>,
) -> String {
    let ComparedPoint {
        series: subject,
        point: own_point,
    } = subject;
    let ComparedPoint {
        series: against,
        point: other_point,
    } = against;
    let x_text = match x_phrase(figure_data, own_point) {
        x_text if x_text.is_empty() => String::new(),
        x_text => format!("{},", capital(x_text.trim_start())),
    };
    let verb = match lower_is_better(figure_data) {
        true => format!(
            "the {} of {} is",
            figure_data.figure.measure.description(),
            subject.server
        ),
        false => format!("{} reaches", subject.server),
    };
    let begin = if x_text.is_empty() {
        capital_of(&verb, lower_is_better(figure_data))
    } else {
        format!("{x_text} {verb}")
    };
    format!(
        "{begin} {}, {}",
        show(figure_data, own_point),
        times(figure_data, own_point, other_point, &against.server)
    )
}

/// Capitalizes a verb at the start of a phrase; names of servers stay unchanged.
fn capital_of(verb: &str, begins_a_phrase: bool) -> String {
    match begins_a_phrase {
        true => capital(verb),
        false => verb.to_owned(),
    }
}

/// Describes the relation of two values: by a factor, or by a percentage if they differ by less than a tenth.
fn times(
    figure_data: &FigureData<'_>,
    own_point: &SeriesPoint,
    other: &SeriesPoint,
    name: &str,
) -> String {
    let other_text = show(figure_data, other);
    if other.y.median <= 0.0 || own_point.y.median <= 0.0 {
        return format!("compared with the {other_text} of {name}");
    }
    let ratio = ratio_of(figure_data, own_point, other);
    if ratio.times < 0.1 {
        let ratio = ratio.inverse();
        let (factor, doubt_text) = (number(ratio.times), doubt(&ratio, own_point, other));
        return format!("{factor} times less than the {other_text} of {name}{doubt_text}");
    }
    let doubt_text = doubt(&ratio, own_point, other);
    format!(
        "{} times the {other_text} of {name}{doubt_text}",
        number(ratio.times)
    )
}

fn ratio_of(
    figure_data: &FigureData<'_>,
    own_point: &SeriesPoint,
    other: &SeriesPoint,
) -> ServerRatio {
    // Counts are repeated until they agree, which makes a confidence interval invalid.
    match figure_data.experiment.by {
        CountUnit::Clock => own_point.y.ratio(&other.y),
        CountUnit::Instructions => own_point.y.range(&other.y),
    }
}

/// The interval of the ratio, and whether the difference may be due to chance; empty for single measurements.
fn doubt(ratio: &ServerRatio, own_point: &SeriesPoint, other: &SeriesPoint) -> String {
    if own_point.y.count < 2 && other.y.count < 2 {
        return String::new();
    }
    let kind = if ratio.confident { "95 %: " } else { "" };
    let may_be = match ratio.is_possibly_equal() {
        true => ", no more than the repeats differ among themselves",
        false => "",
    };
    format!(
        " ({kind}{} to {}{may_be})",
        number(ratio.low),
        number(ratio.high)
    )
}

/// The best points of both servers, if the servers are compared at another x.
fn bests(
    figure_data: &FigureData<'_>,
    subject: ComparedPoint<'_>,
    against: ComparedPoint<'_>,
) -> String {
    if lower_is_better(figure_data) {
        return String::new();
    }
    let best_at_another_x = |ComparedPoint { series, point }: ComparedPoint<'_>| {
        let best = series.best(false)?;
        (best.x != point.x).then(|| {
            format!(
                "; {} is best{} with {}",
                series.server,
                x_phrase(figure_data, best),
                show(figure_data, best)
            )
        })
    };
    [subject, against]
        .into_iter()
        .filter_map(best_at_another_x)
        .collect()
}

/// The best server, if it is neither of the two that are compared.
fn leader(figure_data: &FigureData<'_>, subject: &ServerSeries, against: &ServerSeries) -> String {
    let lower = lower_is_better(figure_data);
    // Times are best under the lightest load, which tells little about a server.
    if lower {
        return String::new();
    }
    let Some(first) = best(figure_data, lower, &[]) else {
        return String::new();
    };
    if first.server == against.server {
        return String::new();
    }
    if first.server == subject.server {
        let second = best(figure_data, lower, &[&subject.server]);
        let doubt_text = second.map_or("", |second| equality_note(figure_data, subject, second));
        return match figure_data.series.len() {
            // With only two servers, the comparison already shows which one is faster.
            0..3 => String::new(),
            count => format!("; it is the fastest of {count}{doubt_text}"),
        };
    }
    let point = first
        .best(lower)
        .expect("a series that is shown has a point");
    format!(
        "; the fastest is {} with {}{}{}",
        first.server,
        show(figure_data, point),
        x_phrase(figure_data, point),
        equality_note(figure_data, first, subject)
    )
}

/// A note if the best points of two servers may be equal.
fn equality_note(
    figure_data: &FigureData<'_>,
    first: &ServerSeries,
    second: &ServerSeries,
) -> &'static str {
    match (first.best(false), second.best(false)) {
        (Some(first_best), Some(second_best))
            if first_best.y.count > 1
                && ratio_of(figure_data, first_best, second_best).is_possibly_equal() =>
        {
            " (no more than the repeats differ among themselves)"
        }
        _ => "",
    }
}

fn show(figure_data: &FigureData<'_>, point: &SeriesPoint) -> String {
    figure_data.unit().show(point.y.median)
}

/// ` at 64 simultaneous connections`; empty if there is only one point.
fn x_phrase(figure_data: &FigureData<'_>, point: &SeriesPoint) -> String {
    match figure_data.xs().len() {
        0 | 1 => String::new(),
        _ => format!(" at {}", x_name(figure_data, &point.x)),
    }
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters
        .next()
        .map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + characters.as_str()
}
