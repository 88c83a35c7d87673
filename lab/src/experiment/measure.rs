//! The measures that figures show: names in experiment files, values, units and directions.

use serde::{Deserialize, Serialize};

use super::bench::MeasurementResult;
use super::units::FigureUnit;
use crate::load::LoadResult;
use crate::load::outcome::TimeDistribution;

/// A measure of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OutcomeMeasure {
    name: String,
}

/// Names without a dot.
const PLAIN: &[&str] = &[
    "requests_per_s",
    "connections_per_s",
    "bytes_per_s",
    "bits_per_s",
    "reply_rate",
    "capacity",
    "errors_share",
    "conforming_share",
    "instructions",
];
/// Distributions.
const TIMES: &[&str] = &[
    "latency_us",
    "service_us",
    "response_us",
    "transfer_us",
    "connect_us",
    "connection_us",
    "established_us",
];
/// Statistics of a distribution.
const STATISTICS: &[&str] = &[
    "min", "mean", "stddev", "p50", "p75", "p90", "p95", "p99", "p99_9", "max",
];

impl TryFrom<String> for OutcomeMeasure {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let is_known = match name.split_once('.') {
            None => PLAIN.contains(&name.as_str()),
            Some(("extra", key)) => key.ends_with("_us") || key.ends_with("_share"),
            Some((times, statistic)) => TIMES.contains(&times) && STATISTICS.contains(&statistic),
        };
        if is_known {
            return Ok(Self { name });
        }
        Err(format!(
            "no measure {name:?}: there are {}, and TIMES.STATISTIC with TIMES one of {} and \
             STATISTIC one of {}, and extra.NAME_us, extra.NAME_share",
            PLAIN.join(", "),
            TIMES.join(", "),
            STATISTICS.join(", ")
        ))
    }
}

impl From<OutcomeMeasure> for String {
    fn from(measure: OutcomeMeasure) -> String {
        measure.name
    }
}

impl OutcomeMeasure {
    /// The name in the file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the measure is the result of a search.
    #[must_use]
    pub fn is_capacity(&self) -> bool {
        self.name == "capacity"
    }

    /// The measure's unit.
    #[must_use]
    pub fn unit(&self) -> FigureUnit {
        match self.name.as_str() {
            "connections_per_s" => FigureUnit::ConnectionsPerS,
            "bytes_per_s" => FigureUnit::BytesPerS,
            "bits_per_s" => FigureUnit::BitsPerS,
            "instructions" => FigureUnit::Instructions,
            name if name.ends_with("_share") => FigureUnit::Share,
            name if name.contains("_us") => FigureUnit::Microseconds,
            _ => FigureUnit::RequestsPerS,
        }
    }

    /// Whether lower values are better.
    #[must_use]
    pub fn lower_is_better(&self) -> bool {
        match self.unit() {
            FigureUnit::Microseconds | FigureUnit::Instructions => true,
            // All other shares are of errors or of processor time.
            FigureUnit::Share => self.name != "conforming_share",
            _ => false,
        }
    }

    /// The name in a sentence.
    #[must_use]
    pub fn description(&self) -> String {
        let plain = match self.name.as_str() {
            "requests_per_s" => "requests a second",
            "connections_per_s" => "connections a second",
            "bytes_per_s" | "bits_per_s" => "throughput",
            "reply_rate" => "reply rate",
            "capacity" => "capacity",
            "instructions" => "instructions a request",
            "errors_share" => "share of errors",
            "conforming_share" => "share of conforming connections",
            name => return time_description(name),
        };
        plain.into()
    }

    /// The measure's value in a result; `None` if it was not measured.
    #[must_use]
    pub fn value(&self, measured: &MeasurementResult) -> Option<f64> {
        let outcome = &measured.outcome;
        match self.name.split_once('.') {
            None => plain_value(&self.name, measured),
            Some(("extra", key)) => measured.extras.get(key).copied(),
            Some((times, statistic)) => {
                let times = select_times(times, outcome)?;
                // The fields of an empty distribution are 0, which would look like a measurement.
                (times.count > 0).then(|| select_statistic(statistic, times))
            }
        }
    }
}

fn time_description(name: &str) -> String {
    let (times, statistic) = name.split_once('.').unwrap_or((name, ""));
    if times == "extra" {
        let statistic_name = statistic.trim_end_matches("_us").trim_end_matches("_share");
        let kind = if statistic.ends_with("_us") {
            "time"
        } else {
            "share"
        };
        return format!(
            "{} {kind}",
            statistic_name.replace('_', " ").replace("cpu", "CPU")
        );
    }
    let times_name = match times {
        "latency_us" => "latency",
        "service_us" => "service time",
        "response_us" => "time to the first byte",
        "transfer_us" => "transfer time",
        "connect_us" => "response time (handshake)",
        "connection_us" => "connection time",
        _ => "connection time after the handshake",
    };
    let statistic = match statistic {
        "p50" => "median".to_owned(),
        "p99_9" => "99.9th percentile of the".to_owned(),
        "min" => "least".to_owned(),
        "max" => "greatest".to_owned(),
        "stddev" => "standard deviation of the".to_owned(),
        percentile_name => match percentile_name.strip_prefix('p') {
            Some(number) => format!("{number}th percentile of the"),
            None => percentile_name.to_owned(),
        },
    };
    format!("{statistic} {times_name}")
}

fn plain_value(name: &str, measured: &MeasurementResult) -> Option<f64> {
    let outcome = &measured.outcome;
    match name {
        "requests_per_s" => Some(outcome.requests_per_s),
        "connections_per_s" => Some(outcome.connections_per_s),
        "bytes_per_s" => Some(outcome.bytes_per_s),
        "bits_per_s" => Some(outcome.bytes_per_s * 8.0),
        // A run shorter than a sample has no rate; its 0 would look like a measurement.
        "reply_rate" => (outcome.reply_rate.samples > 0).then_some(outcome.reply_rate.mean),
        "capacity" => measured.capacity_per_s,
        "instructions" => measured.instructions,
        "errors_share" => Some(errors_share(outcome)),
        "conforming_share" => outcome
            .conforming
            .as_ref()
            .map(|conforming| conforming.share),
        _ => None,
    }
}

/// The share of errors in all requests.
#[must_use]
pub fn errors_share(outcome: &LoadResult) -> f64 {
    let total = outcome.requests + outcome.errors;
    // A run without any request must not appear to be free of errors.
    if total == 0 {
        1.0
    } else {
        outcome.errors as f64 / total as f64
    }
}

fn select_times<'a>(name: &str, outcome: &'a LoadResult) -> Option<&'a TimeDistribution> {
    Some(match name {
        "latency_us" => &outcome.latency_us,
        "service_us" => &outcome.service_us,
        "response_us" => &outcome.response_us,
        "transfer_us" => &outcome.transfer_us,
        "connect_us" => &outcome.connect_us,
        "connection_us" => &outcome.connection_us,
        "established_us" => &outcome.established_us,
        _ => return None,
    })
}

fn select_statistic(name: &str, times: &TimeDistribution) -> f64 {
    match name {
        "mean" => times.mean,
        "stddev" => times.stddev,
        "min" => times.min as f64,
        "p50" => times.p50 as f64,
        "p75" => times.p75 as f64,
        "p90" => times.p90 as f64,
        "p95" => times.p95 as f64,
        "p99" => times.p99 as f64,
        "p99_9" => times.p99_9 as f64,
        _ => times.max as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(name: &str) -> Result<OutcomeMeasure, String> {
        OutcomeMeasure::try_from(name.to_owned())
    }

    #[test]
    fn measure_names_are_checked() {
        for name in [
            "requests_per_s",
            "connect_us.mean",
            "capacity",
            "extra.handshake_us",
        ] {
            assert_eq!(measure(name).expect(name).name(), name);
        }
        for name in [
            "requests",
            "connect_us",
            "connect_us.middle",
            "extra.handshake",
            "",
        ] {
            assert!(measure(name).expect_err(name).contains("there are"));
        }
    }

    #[test]
    fn missing_measures_have_no_value() {
        let measured = MeasurementResult::default();
        assert_eq!(
            measure("connect_us.mean").expect("known").value(&measured),
            None
        );
        assert_eq!(measure("capacity").expect("known").value(&measured), None);
        assert_eq!(
            measure("errors_share").expect("known").value(&measured),
            Some(1.0)
        );
    }
}
