//! A sentence that summarises a figure, computed from its data. Servers are compared at the same x; the best points
//! are added if they are at another x.

use super::chart::x_name;
use super::model::{FigureData, SeriesPoint, ServerRatio, ServerSeries};
use crate::experiment::counting::CountUnit;
use crate::experiment::units::number;

/// A server's series, and its point in a comparison.
#[derive(Clone, Copy)]
struct ComparedPoint<'a> {
    series: &'a ServerSeries,
    point: &'a SeriesPoint,
}

/// The sentence.
#[must_use]
pub fn sentence(shown: &FigureData<'_>) -> String {
    if shown.series.is_empty() {
        return nothing(shown);
    }
    let Some((subject, against)) = pair(shown) else {
        return alone(shown);
    };
    let Some((own, other)) = same_place(shown, subject, against) else {
        return format!(
            "{} and {} have no point in common.",
            subject.server, against.server
        );
    };
    let own = ComparedPoint {
        series: subject,
        point: own,
    };
    let other = ComparedPoint {
        series: against,
        point: other,
    };
    let (compared, bests) = (compared(shown, own, other), bests(shown, own, other));
    format!("{compared}{bests}{}.", leader(shown, subject, against))
}

fn nothing(shown: &FigureData<'_>) -> String {
    match shown.absent.iter().find(|absent| absent.may_come) {
        Some(absent) if shown.missing.is_empty() => {
            format!(
                "No server of this figure could be measured ({}: {}).",
                absent.name, absent.reason
            )
        }
        _ => "Nothing of this figure has been measured yet.".into(),
    }
}

fn lower_is_better(shown: &FigureData<'_>) -> bool {
    shown.figure.measure.lower_is_better()
}

/// The subject of the sentence, and the server that it is compared with.
fn pair<'a>(shown: &'a FigureData<'_>) -> Option<(&'a ServerSeries, &'a ServerSeries)> {
    let figure = shown.figure;
    let lower = lower_is_better(shown);
    let named = |name: &Option<String>| name.as_ref().and_then(|name| shown.series(name));
    let subject = named(&figure.subject)
        .or_else(|| shown.series("lowroad"))
        .or_else(|| best(shown, lower, &[]))?;
    let against = named(&figure.against)
        // A server is not compared with itself.
        .filter(|series| series.server != subject.server)
        .or_else(|| best(shown, lower, &[&subject.server]))?;
    Some((subject, against))
}

/// The server with the best value, apart from those in `without`.
fn best<'a>(shown: &'a FigureData<'_>, lower: bool, without: &[&str]) -> Option<&'a ServerSeries> {
    let value = |series: &ServerSeries| series.best(lower).map_or(0.0, |point| point.y.median);
    let others = shown
        .series
        .iter()
        .filter(|series| !without.contains(&series.server.as_str()));
    others.min_by(|a, b| {
        let order = value(a).total_cmp(&value(b));
        if lower { order } else { order.reverse() }
    })
}

fn alone(shown: &FigureData<'_>) -> String {
    let series = &shown.series[0];
    let lower = lower_is_better(shown);
    let point = series
        .best(lower)
        .expect("a series that is shown has a point");
    let what = match lower {
        true => format!("its least {} is", shown.figure.measure.words()),
        false => "it reaches".to_owned(),
    };
    format!(
        "Only {} has been measured: {what} {}{}.",
        series.server,
        show(shown, point),
        place(shown, point)
    )
}

/// The x of the comparison: for throughput the subject's best, for times the greatest load that both have.
fn same_place<'a>(
    shown: &FigureData<'_>,
    subject: &'a ServerSeries,
    against: &'a ServerSeries,
) -> Option<(&'a SeriesPoint, &'a SeriesPoint)> {
    let both = |own: &'a SeriesPoint| against.at(&own.x).map(|other| (own, other));
    let mut common: Vec<_> = subject.points.iter().filter_map(both).collect();
    if !lower_is_better(shown) {
        // For throughput the best common point is last; for times the greatest x is.
        common.sort_by(|(a, _), (b, _)| a.y.median.total_cmp(&b.y.median));
    }
    common.pop()
}

fn compared(
    shown: &FigureData<'_>,
    subject: ComparedPoint<'_>,
    against: ComparedPoint<'_>,
) -> String {
    let ComparedPoint {
        series: subject,
        point: own,
    } = subject;
    let ComparedPoint {
        series: against,
        point: other,
    } = against;
    let at = match place(shown, own) {
        at if at.is_empty() => String::new(),
        at => format!("{},", capital(at.trim_start())),
    };
    let verb = match lower_is_better(shown) {
        true => format!(
            "the {} of {} is",
            shown.figure.measure.words(),
            subject.server
        ),
        false => format!("{} reaches", subject.server),
    };
    let begin = if at.is_empty() {
        capital_of(&verb, lower_is_better(shown))
    } else {
        format!("{at} {verb}")
    };
    format!(
        "{begin} {}, {}",
        show(shown, own),
        times(shown, own, other, &against.server)
    )
}

/// A verb in capitalised form at the start of a phrase; names of servers stay unchanged.
fn capital_of(verb: &str, begins_a_phrase: bool) -> String {
    match begins_a_phrase {
        true => capital(verb),
        false => verb.to_owned(),
    }
}

/// The relation of two values: a factor from a tenth on, and a percentage below.
fn times(shown: &FigureData<'_>, own: &SeriesPoint, other: &SeriesPoint, name: &str) -> String {
    let theirs = show(shown, other);
    if other.y.median <= 0.0 || own.y.median <= 0.0 {
        return format!("compared with the {theirs} of {name}");
    }
    let ratio = ratio_of(shown, own, other);
    if ratio.times < 0.1 {
        let ratio = ratio.inverse();
        let (factor, doubt) = (number(ratio.times), doubt(&ratio, own, other));
        return format!("{factor} times less than the {theirs} of {name}{doubt}");
    }
    let doubt = doubt(&ratio, own, other);
    format!(
        "{} times the {theirs} of {name}{doubt}",
        number(ratio.times)
    )
}

fn ratio_of(shown: &FigureData<'_>, own: &SeriesPoint, other: &SeriesPoint) -> ServerRatio {
    match shown.experiment.by {
        CountUnit::Clock => own.y.ratio(&other.y),
        CountUnit::Instructions => own.y.range(&other.y),
    }
}

/// The interval of the ratio, and whether the difference may be chance; empty for single measurements.
fn doubt(ratio: &ServerRatio, own: &SeriesPoint, other: &SeriesPoint) -> String {
    if own.y.count < 2 && other.y.count < 2 {
        return String::new();
    }
    let kind = if ratio.confident { "95 %: " } else { "" };
    let may_be = match ratio.may_be_one() {
        true => ", no more than the repeats differ among themselves",
        false => "",
    };
    format!(
        " ({kind}{} to {}{may_be})",
        number(ratio.low),
        number(ratio.high)
    )
}

/// The best points of both, if they are at another x.
fn bests(shown: &FigureData<'_>, subject: ComparedPoint<'_>, against: ComparedPoint<'_>) -> String {
    if lower_is_better(shown) {
        return String::new();
    }
    let best_at_another_x = |ComparedPoint { series, point }: ComparedPoint<'_>| {
        let best = series.best(false)?;
        (best.x != point.x).then(|| {
            format!(
                "; {} is best{} with {}",
                series.server,
                place(shown, best),
                show(shown, best)
            )
        })
    };
    [subject, against]
        .into_iter()
        .filter_map(best_at_another_x)
        .collect()
}

/// The best server, if it is neither of the two.
fn leader(shown: &FigureData<'_>, subject: &ServerSeries, against: &ServerSeries) -> String {
    let lower = lower_is_better(shown);
    // The best times are at the lightest load, which is not informative.
    if lower {
        return String::new();
    }
    let Some(first) = best(shown, lower, &[]) else {
        return String::new();
    };
    if first.server == against.server {
        return String::new();
    }
    if first.server == subject.server {
        let second = best(shown, lower, &[&subject.server]);
        let doubt = second.map_or("", |second| same(shown, subject, second));
        return match shown.series.len() {
            // Of two servers the comparison itself shows which is faster.
            0..3 => String::new(),
            all => format!("; it is the fastest of {all}{doubt}"),
        };
    }
    let point = first
        .best(lower)
        .expect("a series that is shown has a point");
    format!(
        "; the fastest is {} with {}{}{}",
        first.server,
        show(shown, point),
        place(shown, point),
        same(shown, first, subject)
    )
}

/// Whether the best points of two may be equal.
fn same(shown: &FigureData<'_>, one: &ServerSeries, other: &ServerSeries) -> &'static str {
    match (one.best(false), other.best(false)) {
        (Some(one), Some(other)) if one.y.count > 1 && ratio_of(shown, one, other).may_be_one() => {
            " (no more than the repeats differ among themselves)"
        }
        _ => "",
    }
}

fn show(shown: &FigureData<'_>, point: &SeriesPoint) -> String {
    shown.unit().show(point.y.median)
}

/// ` at 64 simultaneous connections`; empty if there is only one point.
fn place(shown: &FigureData<'_>, point: &SeriesPoint) -> String {
    match shown.xs().len() {
        0 | 1 => String::new(),
        _ => format!(" at {}", x_name(shown, &point.x)),
    }
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters
        .next()
        .map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + characters.as_str()
}
