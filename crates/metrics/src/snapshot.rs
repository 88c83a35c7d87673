//! [`MetricSnapshot`]: the values of all metrics at one moment, independent of the exposition format.

use crate::latency_histogram::LatencyDistribution;

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A sum that only grows.
    Counter,
    /// A value that increases and decreases.
    Gauge,
    /// A distribution of durations in seconds.
    Histogram,
    /// Labels that describe the program; the value is always 1.
    Info,
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue {
    /// A count or a number of bytes.
    Whole(u64),
    /// A time in seconds or a share.
    Real(f64),
    /// Durations.
    Durations(LatencyDistribution),
    /// The labels are the value ([`MetricKind::Info`]).
    Labels,
}

/// One labelled value of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSample {
    /// The names and values of the labels.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: SampleValue,
}

/// A metric with its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFamily {
    /// The name without the suffix `_total`, which is added for counters in every format.
    pub name: String,
    /// One line of description.
    pub help: &'static str,
    /// The kind.
    pub kind: MetricKind,
    /// The samples.
    pub samples: Vec<MetricSample>,
}

/// All metrics at one moment.
#[derive(Clone, Debug, Default)]
pub struct MetricSnapshot {
    /// The families in the order of the output.
    pub families: Vec<MetricFamily>,
}

impl MetricSnapshot {
    /// Adds a family, and returns it, so that samples can be added.
    pub fn family(
        &mut self,
        kind: MetricKind,
        name: impl Into<String>,
        help: &'static str,
    ) -> &mut MetricFamily {
        self.families.push(MetricFamily {
            name: name.into(),
            help,
            kind,
            samples: Vec::new(),
        });
        self.families.last_mut().expect("pushed just now")
    }

    /// Adds a counter without labels.
    pub fn counter(&mut self, name: impl Into<String>, help: &'static str, value: u64) {
        self.family(MetricKind::Counter, name, help)
            .whole(&[], value);
    }

    /// Adds a gauge without labels.
    pub fn gauge(&mut self, name: impl Into<String>, help: &'static str, value: u64) {
        self.family(MetricKind::Gauge, name, help).whole(&[], value);
    }
}

impl MetricFamily {
    /// Adds a sample with a whole number.
    pub fn whole(&mut self, labels: &[(&'static str, &str)], value: u64) {
        self.sample(labels, SampleValue::Whole(value));
    }

    /// Adds a sample with a real number.
    pub fn real(&mut self, labels: &[(&'static str, &str)], value: f64) {
        self.sample(labels, SampleValue::Real(value));
    }

    /// Adds a sample.
    pub fn sample(&mut self, labels: &[(&'static str, &str)], value: SampleValue) {
        let labels = labels
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        self.samples.push(MetricSample {
            labels: labels.collect(),
            value,
        });
    }
}
