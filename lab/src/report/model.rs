//! Aggregates result records into the data of figures: medians and ranges by server and x, servers without figures and
//! the reasons, and missing points. Independent of drawing.

use std::collections::BTreeMap;

use crate::experiment::agree::median;
use crate::experiment::plan::{MeasurementStep, RunSelection, points, steps};
use crate::experiment::results::{
    MeasurementRole, MissingReason, PointResult, ResultKey, ResultRecord,
};
use crate::experiment::schema::{AxisValue, ExperimentConfig, FigureConfig};
use crate::experiment::units::FigureUnit;

/// An experiment with its results.
#[derive(Debug)]
pub struct ExperimentStudy {
    /// The experiment.
    pub experiment: ExperimentConfig,
    /// Its results.
    pub records: BTreeMap<ResultKey, ResultRecord>,
    /// Anomalies of the results files.
    pub notes: Vec<String>,
}

/// The repeats of one point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PointSpread {
    /// The median.
    pub median: f64,
    /// The minimum.
    pub low: f64,
    /// The maximum.
    pub high: f64,
    /// Number of repeats.
    pub count: usize,
    /// Mean of the repeats' logarithms.
    log_mean: f64,
    /// Variance of the repeats' logarithms; 0 for a single repeat.
    log_variance: f64,
}

impl PointSpread {
    /// Aggregates values; `None` if empty.
    #[must_use]
    pub fn from_values(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let median = median(&values)?;
        // The floor keeps a value of 0 from having an infinite logarithm.
        let logs: Vec<f64> = values.iter().map(|value| value.max(1e-9).ln()).collect();
        let log_mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let squares: f64 = logs.iter().map(|log| (log - log_mean).powi(2)).sum();
        Some(Self {
            median,
            low,
            high,
            count: values.len(),
            log_mean,
            // The sample variance; 0 for a single value.
            log_variance: squares / (logs.len().max(2) - 1) as f64,
        })
    }

    /// The ratio of the medians of two points, with a 95 % confidence interval (Welch's interval of the logarithms). If
    /// one of the points has fewer than three repeats, the result is that of [`PointSpread::range`].
    #[must_use]
    pub fn ratio(&self, other: &Self) -> ServerRatio {
        let times = self.median / other.median;
        // The variance of two values is too uncertain for a confidence interval.
        if self.count < 3 || other.count < 3 {
            return self.range(other);
        }
        let variance_share = |spread: &Self| spread.log_variance / spread.count as f64;
        // The smaller sample decides: the interval may become too wide, but not too narrow.
        let freedom = self.count.min(other.count) - 1;
        let half = student(freedom) * (variance_share(self) + variance_share(other)).sqrt();
        let middle = self.log_mean - other.log_mean;
        ServerRatio {
            times,
            low: (middle - half).exp(),
            high: (middle + half).exp(),
            confident: true,
        }
    }

    /// The ratio of the medians of two points, with the extremes of the ratio. Used for counts: whether a count has
    /// more than two repeats depends on its values, so a confidence interval would be invalid.
    #[must_use]
    pub fn range(&self, other: &Self) -> ServerRatio {
        ServerRatio {
            times: self.median / other.median,
            low: self.low / other.high,
            high: self.high / other.low,
            confident: false,
        }
    }

    /// The range of the repeats as a share of the median.
    #[must_use]
    pub fn relative_spread(&self) -> f64 {
        match self.median > 0.0 {
            true => (self.high - self.low) / self.median,
            false => 0.0,
        }
    }

    /// Whether the ranges of two points overlap.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

/// The ratio of two servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerRatio {
    /// The ratio of the medians.
    pub times: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// Whether the ends are those of a 95 % confidence interval, not the extremes.
    pub confident: bool,
}

impl ServerRatio {
    /// Whether the interval contains 1.
    #[must_use]
    pub fn is_possibly_equal(&self) -> bool {
        self.low <= 1.0 && self.high >= 1.0
    }

    /// The inverse ratio.
    #[must_use]
    pub fn inverse(&self) -> ServerRatio {
        ServerRatio {
            times: 1.0 / self.times,
            low: 1.0 / self.high,
            high: 1.0 / self.low,
            confident: self.confident,
        }
    }
}

/// Student's t for a two-sided 95 % interval. `freedom` is the smaller degree of freedom of the two samples, the
/// conservative choice.
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [
        12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    ];
    match freedom {
        0 => f64::INFINITY,
        in_table if in_table <= TABLE.len() => TABLE[in_table - 1],
        11..=19 => 2.1,
        _ => 2.0,
    }
}

/// One point of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesPoint {
    /// The point's x.
    pub x: AxisValue,
    /// The point's repeats.
    pub y: PointSpread,
}

/// One server's line, or bars.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSeries {
    /// The server.
    pub server: String,
    /// The points, in order of x.
    pub points: Vec<SeriesPoint>,
    /// Errors over all measurements of the server.
    pub errors: u64,
    /// Requests over all measurements of the server, errors included.
    pub requests: u64,
}

impl ServerSeries {
    /// The point at an x.
    #[must_use]
    pub fn point_at(&self, x: &AxisValue) -> Option<&SeriesPoint> {
        self.points.iter().find(|point| point.x == *x)
    }

    /// The best point.
    #[must_use]
    pub fn best(&self, lower_is_better: bool) -> Option<&SeriesPoint> {
        let by_median = |a: &&SeriesPoint, b: &&SeriesPoint| a.y.median.total_cmp(&b.y.median);
        match lower_is_better {
            true => self.points.iter().min_by(by_median),
            false => self.points.iter().max_by(by_median),
        }
    }
}

/// A server without figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentServer {
    /// Its name.
    pub name: String,
    /// The reason.
    pub reason: String,
    /// Whether the server may become available: a level that is not implemented yet, or a package that is not
    /// installed.
    pub is_pending: bool,
}

/// A figure with its data.
#[derive(Debug)]
pub struct FigureData<'a> {
    /// The experiment.
    pub experiment: &'a ExperimentConfig,
    /// The figure's settings.
    pub figure: &'a FigureConfig,
    /// The drawn servers, in the order of the file.
    pub series: Vec<ServerSeries>,
    /// The servers without figures.
    pub absent: Vec<AbsentServer>,
    /// Points that are not measured yet, as text.
    pub missing: Vec<String>,
}

impl FigureData<'_> {
    /// The unit of the figure's values.
    #[must_use]
    pub fn unit(&self) -> FigureUnit {
        self.experiment.by.unit(&self.figure.measure)
    }

    /// A server's series.
    #[must_use]
    pub fn series(&self, server: &str) -> Option<&ServerSeries> {
        self.series.iter().find(|series| series.server == server)
    }

    /// All x of all series, in order.
    #[must_use]
    pub fn xs(&self) -> Vec<AxisValue> {
        let mut xs: Vec<AxisValue> = Vec::new();
        for point in self.series.iter().flat_map(|series| &series.points) {
            if !xs.contains(&point.x) {
                xs.push(point.x.clone());
            }
        }
        sort(&mut xs, self.experiment);
        xs
    }

    /// The reason why a server has no figures.
    #[must_use]
    pub fn reason(&self, server: &str) -> Option<&str> {
        let absent_server = self
            .absent
            .iter()
            .find(|absent_server| absent_server.name == server)?;
        Some(&absent_server.reason)
    }
}

impl ExperimentStudy {
    /// Each figure with its data.
    #[must_use]
    pub fn figure_data(&self) -> Vec<FigureData<'_>> {
        self.experiment
            .figures
            .iter()
            .map(|figure| self.figure(figure))
            .collect()
    }

    /// Whether there is any figure.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.records
            .values()
            .any(|record| record.measured().is_some())
    }

    /// Whether any record is computed, not measured.
    #[must_use]
    pub fn pretended(&self) -> bool {
        self.records.values().any(|record| record.pretended)
    }

    fn figure<'a>(&'a self, figure: &'a FigureConfig) -> FigureData<'a> {
        let mut data = FigureData {
            experiment: &self.experiment,
            figure,
            series: Vec::new(),
            absent: Vec::new(),
            missing: Vec::new(),
        };
        for server in &self.experiment.servers {
            if !figure.only.is_empty() && !figure.only.contains(&server.name) {
                continue;
            }
            let series = self.one_series(figure, &server.name);
            match self.absence(figure, &server.name, &series) {
                Some(absent_server) => data.absent.push(absent_server),
                None if series.points.is_empty() => {
                    data.missing
                        .push(format!("{}: nothing is measured yet", server.name));
                }
                None => {
                    data.missing.extend(self.incomplete(&series));
                    data.series.push(series);
                }
            }
        }
        data.absent.extend(
            self.experiment
                .not_here
                .iter()
                .map(|unavailable| AbsentServer {
                    name: unavailable.name.clone(),
                    reason: unavailable.reason.clone(),
                    is_pending: false,
                }),
        );
        data
    }

    fn records_of<'a>(&'a self, server: &'a str) -> impl Iterator<Item = &'a ResultRecord> {
        let is_server = move |record: &&ResultRecord| {
            record.role == MeasurementRole::Point && record.server == server
        };
        self.records.values().filter(is_server)
    }

    fn one_series(&self, figure: &FigureConfig, server: &str) -> ServerSeries {
        let mut by_x: Vec<(AxisValue, Vec<f64>)> = Vec::new();
        let (mut errors, mut requests) = (0, 0);
        for record in self.records_of(server) {
            let Some(measured) = record.measured() else {
                continue;
            };
            errors += measured.outcome.errors;
            requests += measured.outcome.errors + measured.outcome.requests;
            let Some(value) = figure.measure.value(measured) else {
                continue;
            };
            match by_x.iter_mut().find(|(x, _)| *x == record.x) {
                Some((_, values)) => values.push(value),
                None => by_x.push((record.x.clone(), vec![value])),
            }
        }
        let mut xs: Vec<AxisValue> = by_x.iter().map(|(x, _)| x.clone()).collect();
        sort(&mut xs, &self.experiment);
        let point = |x: AxisValue| {
            let values = by_x.iter().find(|(other, _)| *other == x)?.1.clone();
            Some(SeriesPoint {
                x,
                y: PointSpread::from_values(values)?,
            })
        };
        ServerSeries {
            server: server.to_owned(),
            points: xs.into_iter().filter_map(point).collect(),
            errors,
            requests,
        }
    }

    /// Why a server has no figures, if there is a reason.
    fn absence(
        &self,
        figure: &FigureConfig,
        server: &str,
        series: &ServerSeries,
    ) -> Option<AbsentServer> {
        if !series.points.is_empty() {
            return None;
        }
        let absent_with = |reason: String, is_pending| {
            Some(AbsentServer {
                name: server.to_owned(),
                reason,
                is_pending,
            })
        };
        if self
            .records_of(server)
            .any(|record| record.measured().is_some())
        {
            let name = figure.measure.name();
            return absent_with(format!("its measurements contain no {name}"), true);
        }
        let failed = self
            .records_of(server)
            .find_map(|record| match &record.found {
                PointResult::Failed {
                    why: missing_reason,
                    text,
                } => Some((*missing_reason, text.clone())),
                PointResult::Measured(_) => None,
            });
        let (missing_reason, text) = failed?;
        absent_with(text, missing_reason != MissingReason::Broken)
    }

    fn incomplete(&self, series: &ServerSeries) -> Option<String> {
        let experiment = &self.experiment;
        let selection = RunSelection::default();
        let count = match experiment.sweep.values.is_empty() {
            // Without the capacity the rates are unknown, but their number is known.
            true => experiment.sweep.relative_to_capacity.len() * experiment.repeats as usize,
            false => {
                let points = points(experiment, None, &selection);
                let steps = steps(experiment, &points, &selection);
                let is_own =
                    |step: &&MeasurementStep| experiment.servers[step.server].name == series.server;
                steps.iter().filter(is_own).count()
            }
        };
        let measured = self
            .records_of(&series.server)
            // An additional repeat of one point does not make up for a missing repeat of another.
            .filter(|record| record.measured().is_some() && record.repeat < experiment.repeats)
            .count();
        let failed = self.records_of(&series.server).find_map(failure);
        let reason_text = failed.map_or(String::new(), |text| {
            format!(" ({})", text.lines().next().unwrap_or_default())
        });
        (measured < count).then(|| {
            format!(
                "{}: {measured} of {count} measurements{reason_text}",
                series.server
            )
        })
    }
}

/// Why a record has no figures.
fn failure(record: &ResultRecord) -> Option<&str> {
    match &record.found {
        PointResult::Failed { text, .. } => Some(text),
        PointResult::Measured(_) => None,
    }
}

/// Sorts numbers by size, and categories in the order of the file.
fn sort(xs: &mut [AxisValue], experiment: &ExperimentConfig) {
    let rank = |x: &AxisValue| {
        let position = experiment.sweep.values.iter().position(|value| value == x);
        position.unwrap_or(usize::MAX)
    };
    xs.sort_by(|a, b| match (a, b) {
        (AxisValue::Number(a), AxisValue::Number(b)) => a.total_cmp(b),
        _ => rank(a).cmp(&rank(b)),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_has_median_range_and_ratio_interval() {
        let spread = |values: &[f64]| PointSpread::from_values(values.to_vec());
        assert_eq!(spread(&[]), None);
        let three = spread(&[3.0, 1.0, 2.0]).expect("values");
        assert_eq!(
            (three.median, three.low, three.high, three.count),
            (2.0, 1.0, 3.0, 3)
        );
        assert_eq!(spread(&[1.0, 2.0]).expect("values").median, 1.5);
        let ratio = three.ratio(&spread(&[10.0, 10.0, 10.0]).expect("values"));
        assert!(
            ratio.confident && ratio.low < 0.1 && ratio.high > 0.3,
            "{ratio:?}"
        );
        let two = spread(&[1.0, 2.0]).expect("values");
        let ratio = two.ratio(&spread(&[4.0]).expect("a value"));
        assert_eq!((ratio.times, ratio.low, ratio.high), (0.375, 0.25, 0.5));
        assert!(three.overlaps(&spread(&[3.0, 5.0]).expect("values")));
        assert!(!three.overlaps(&spread(&[3.1]).expect("values")));
    }
}
