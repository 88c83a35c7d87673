//! Compares two runs of the same experiments point by point. No I/O.

use super::chart::x_name;
use super::model::{ExperimentStudy, FigureData};
use crate::experiment::agree::TOLERANCE;
use crate::experiment::units::FigureUnit;

/// One point, measured twice.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredPair {
    /// Experiment, figure, server and x.
    pub name: String,
    /// The values of this run and of the other, with unit.
    pub values: [String; 2],
    /// Relative difference of this run's value from the other's, at most 100.
    pub difference: f64,
    /// Whether the value is a time, which varies a lot near saturation.
    pub is_time: bool,
}

/// The points that both runs have.
#[must_use]
pub fn pairs(studies: &[ExperimentStudy], other_studies: &[ExperimentStudy]) -> Vec<MeasuredPair> {
    let mut pairs = Vec::new();
    for study in studies {
        let counterpart = other_studies
            .iter()
            .find(|candidate| candidate.experiment.name == study.experiment.name);
        let other_figures = counterpart
            .map(ExperimentStudy::figure_data)
            .unwrap_or_default();
        for (figure, other_figure) in study.figure_data().iter().zip(&other_figures) {
            compare_figure(figure, other_figure, &mut pairs);
        }
    }
    pairs
}

fn compare_figure(
    figure: &FigureData<'_>,
    other_figure: &FigureData<'_>,
    pairs: &mut Vec<MeasuredPair>,
) {
    let unit = figure.unit();
    for series in &figure.series {
        let Some(other_series) = other_figure.series(&series.server) else {
            continue;
        };
        for point in &series.points {
            let Some(other_point) = other_series.point_at(&point.x) else {
                continue;
            };
            let [now, before] = [point.y.median, other_point.y.median];
            let x_text = x_name(figure, &point.x);
            pairs.push(MeasuredPair {
                name: format!(
                    "{}, {}: {}, {x_text}",
                    figure.experiment.name, figure.figure.title, series.server
                ),
                values: [now, before].map(|value| unit.show(value)),
                difference: match now == before {
                    true => 0.0,
                    // The lower bound of the divisor limits the result to 100, even if the other value is near 0.
                    false => (now - before) / before.abs().max(now.abs() / 100.0),
                },
                is_time: unit == FigureUnit::Microseconds,
            });
        }
    }
}

/// Describes the points that differ, the largest difference first, and their number.
#[must_use]
pub fn text(pairs: &[MeasuredPair]) -> String {
    let is_same = |pair: &&MeasuredPair| pair.difference.abs() <= TOLERANCE;
    let mut differing: Vec<&MeasuredPair> = pairs.iter().filter(|pair| !is_same(pair)).collect();
    // The largest differences first, since a reader looks for them.
    differing.sort_by(|a, b| b.difference.abs().total_cmp(&a.difference.abs()));
    let mut lines: Vec<String> = differing.iter().map(|pair| line(pair)).collect();
    for (name, is_time) in [("times", true), ("others", false)] {
        let selected = pairs.iter().filter(|pair| pair.is_time == is_time);
        let (total, same_count) = (selected.clone().count(), selected.filter(is_same).count());
        lines.push(format!(
            "{name}: {same_count} of {total} points are within 3 %"
        ));
    }
    lines.join("\n") + "\n"
}

fn line(pair: &MeasuredPair) -> String {
    let [now, before] = &pair.values;
    let percent = pair.difference * 100.0;
    format!("{percent:+7.1} %  {}: {now}, {before} there", pair.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_sorted_and_counted() {
        let pair = |name: &str, more, is_time| MeasuredPair {
            name: name.to_owned(),
            values: ["1".to_owned(), "2".to_owned()],
            difference: more,
            is_time,
        };
        let pairs = [
            pair("same", TOLERANCE, false),
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
