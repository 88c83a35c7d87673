//! One sentence that says what a figure shows, computed from its data.

use super::chart::x_name;
use super::model::{Point, Series, Shown};
use crate::experiment::units::number;

/// The sentence.
#[must_use]
pub fn sentence(shown: &Shown<'_>) -> String {
    if shown.series.is_empty() {
        return nothing(shown);
    }
    let Some((subject, against)) = pair(shown) else {
        return alone(shown);
    };
    let compared = match shown.figure.measure.lower_is_better() {
        true => at_last(shown, subject, against),
        false => at_best(shown, subject, against),
    };
    format!("{compared}{}.", leader(shown, subject, against))
}

fn nothing(shown: &Shown<'_>) -> String {
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

/// Whom the sentence is about, and whom it compares with.
fn pair<'a>(shown: &'a Shown<'_>) -> Option<(&'a Series, &'a Series)> {
    let figure = shown.figure;
    let lower = figure.measure.lower_is_better();
    let named = |name: &Option<String>| name.as_ref().and_then(|name| shown.series(name));
    let subject = named(&figure.subject)
        .or_else(|| shown.series("lowroad"))
        .or_else(|| best(shown, lower, &[]))?;
    let against = named(&figure.against)
        .filter(|series| series.server != subject.server)
        .or_else(|| best(shown, lower, &[&subject.server]))?;
    Some((subject, against))
}

/// The server with the best value, of those that are not `without`.
fn best<'a>(shown: &'a Shown<'_>, lower: bool, without: &[&str]) -> Option<&'a Series> {
    let value = |series: &Series| series.best(lower).map_or(0.0, |point| point.y.median);
    let others = shown
        .series
        .iter()
        .filter(|series| !without.contains(&series.server.as_str()));
    others.min_by(|a, b| {
        let order = value(a).total_cmp(&value(b));
        if lower { order } else { order.reverse() }
    })
}

fn alone(shown: &Shown<'_>) -> String {
    let series = &shown.series[0];
    let lower = shown.figure.measure.lower_is_better();
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

/// Throughputs: best against best.
fn at_best(shown: &Shown<'_>, subject: &Series, against: &Series) -> String {
    let of = |series: &Series| series.best(false).expect("a series has a point").clone();
    let (own, other) = (of(subject), of(against));
    let begin = match place(shown, &own) {
        at if at.is_empty() => at,
        at => format!("At its best{at} "),
    };
    let at = if own.x == other.x {
        String::new()
    } else {
        place(shown, &other)
    };
    format!(
        "{begin}{} reaches {}, {} the {} of {}{at}{}",
        subject.server,
        show(shown, &own),
        times(&own, &other),
        show(shown, &other),
        against.server,
        doubt(&own, &other)
    )
}

/// Times: at the last point that both have.
fn at_last(shown: &Shown<'_>, subject: &Series, against: &Series) -> String {
    let both = |point: &&Point| against.at(&point.x).is_some();
    let Some(own) = subject.points.iter().rev().find(both) else {
        return format!(
            "{} and {} have no point in common",
            subject.server, against.server
        );
    };
    let other = against.at(&own.x).expect("both have it");
    format!(
        "{} {} of {} is {}, {} the {} of {}{}",
        place(shown, own)
            .strip_prefix(' ')
            .map_or("The".into(), |at| format!("{} the", capital(at))),
        shown.figure.measure.words(),
        subject.server,
        show(shown, own),
        times(own, other),
        show(shown, other),
        against.server,
        doubt(own, other)
    )
}

fn times(own: &Point, other: &Point) -> String {
    if other.y.median <= 0.0 {
        return "compared with".into();
    }
    format!("{} times", number(own.y.median / other.y.median))
}

/// Says when the difference may be chance.
fn doubt(own: &Point, other: &Point) -> &'static str {
    let several = own.y.count > 1 && other.y.count > 1;
    match several && own.y.overlaps(&other.y) {
        true => " (no more than the repeats differ among themselves)",
        false => "",
    }
}

/// Who is best, if it is neither.
fn leader(shown: &Shown<'_>, subject: &Series, against: &Series) -> String {
    let lower = shown.figure.measure.lower_is_better();
    let Some(first) = best(shown, lower, &[]) else {
        return String::new();
    };
    // In a figure of times, best values lie at the lightest load and say little.
    if lower || first.server == subject.server {
        return if lower || shown.series.len() < 3 {
            String::new()
        } else {
            let second = best(shown, lower, &[&subject.server]);
            let doubt = second.map_or("", |second| doubt_of_bests(subject, second, lower));
            format!("; it is the fastest of {}{doubt}", shown.series.len())
        };
    }
    if first.server == against.server {
        return String::new();
    }
    let point = first
        .best(lower)
        .expect("a series that is shown has a point");
    format!(
        "; the fastest is {} with {}{}",
        first.server,
        show(shown, point),
        doubt_of_bests(first, subject, lower)
    )
}

fn doubt_of_bests(one: &Series, other: &Series, lower: bool) -> &'static str {
    match (one.best(lower), other.best(lower)) {
        (Some(one), Some(other)) => doubt(one, other),
        _ => "",
    }
}

fn show(shown: &Shown<'_>, point: &Point) -> String {
    shown.figure.measure.unit().show(point.y.median)
}

/// ` at 64 simultaneous connections`, and nothing where there is only one point.
fn place(shown: &Shown<'_>, point: &Point) -> String {
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
