//! Compares two runs of the same experiments point by point. No I/O.

use super::chart::x_name;
use super::model::{ExperimentStudy, FigureData};
use crate::experiment::agree::SAME;
use crate::experiment::units::FigureUnit;

/// One point, measured twice.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredPair {
    /// Experiment, figure, server and x.
    pub name: String,
    /// The values of this run and of the other, with unit.
    pub values: [String; 2],
    /// Relative difference of this run's value from the other's; limited to a hundred.
    pub more: f64,
    /// It is a time, which varies a lot near saturation.
    pub is_time: bool,
}

/// The points that both runs have.
#[must_use]
pub fn pairs(here: &[ExperimentStudy], there: &[ExperimentStudy]) -> Vec<MeasuredPair> {
    let mut pairs = Vec::new();
    for study in here {
        let twin = there
            .iter()
            .find(|twin| twin.experiment.name == study.experiment.name);
        let shown = twin.map(ExperimentStudy::shown).unwrap_or_default();
        for (one, other) in study.shown().iter().zip(&shown) {
            of_figure(one, other, &mut pairs);
        }
    }
    pairs
}

fn of_figure(one: &FigureData<'_>, other: &FigureData<'_>, pairs: &mut Vec<MeasuredPair>) {
    let unit = one.unit();
    for series in &one.series {
        let Some(twin) = other.series(&series.server) else {
            continue;
        };
        for point in &series.points {
            let Some(again) = twin.at(&point.x) else {
                continue;
            };
            let [now, then] = [point.y.median, again.y.median];
            let place = x_name(one, &point.x);
            pairs.push(MeasuredPair {
                name: format!(
                    "{}, {}: {}, {place}",
                    one.experiment.name, one.figure.title, series.server
                ),
                values: [now, then].map(|value| unit.show(value)),
                more: match now == then {
                    true => 0.0,
                    // The floor limits the share to a hundred, also for a value near 0.
                    false => (now - then) / then.abs().max(now.abs() / 100.0),
                },
                is_time: unit == FigureUnit::Microseconds,
            });
        }
    }
}

/// The points that differ, the largest difference first, and their number.
#[must_use]
pub fn text(pairs: &[MeasuredPair]) -> String {
    let is_same = |pair: &&MeasuredPair| pair.more.abs() <= SAME;
    let mut apart: Vec<&MeasuredPair> = pairs.iter().filter(|pair| !is_same(pair)).collect();
    apart.sort_by(|a, b| b.more.abs().total_cmp(&a.more.abs()));
    let mut lines: Vec<String> = apart.iter().map(|pair| line(pair)).collect();
    for (name, is_time) in [("times", true), ("others", false)] {
        let of = pairs.iter().filter(|pair| pair.is_time == is_time);
        let (all, same) = (of.clone().count(), of.filter(is_same).count());
        lines.push(format!("{name}: {same} of {all} points are within 3 %"));
    }
    lines.join("\n") + "\n"
}

fn line(pair: &MeasuredPair) -> String {
    let [now, then] = &pair.values;
    let percent = pair.more * 100.0;
    format!("{percent:+7.1} %  {}: {now}, {then} there", pair.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_farthest_is_first_and_all_are_counted() {
        let pair = |name: &str, more, is_time| MeasuredPair {
            name: name.to_owned(),
            values: ["1".to_owned(), "2".to_owned()],
            more,
            is_time,
        };
        let pairs = [
            pair("same", SAME, false),
            pair("near", -0.04, false),
            pair("far", 0.5, true),
        ];
        assert_eq!(
            text(&pairs),
            "  +50.0 %  far: 1, 2 there\n   -4.0 %  near: 1, 2 there\ntimes: 0 of 1 points are within 3 %\n\
             others: 1 of 2 points are within 3 %\n"
        );
    }
}
