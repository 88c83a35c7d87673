//! Writes a snapshot in the exposition formats of Prometheus, with the library `prometheus-client`.

use std::fmt;
use std::sync::Mutex;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, MetricEncoder, NativeHistogram, NativeHistogramBuckets,
    NoLabelSet, prometheus_protobuf, prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::latency_histogram::{LatencyDistribution, NATIVE_SCHEMA};
use crate::snapshot::{MetricFamily, MetricKind, MetricSnapshot, SampleValue};

/// A format of `GET /metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// Prometheus' text format, version 0.0.4.
    PrometheusText,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
    /// Prometheus' protocol buffers, the only format with native histograms.
    PrometheusProtobuf,
}

impl ExpositionFormat {
    /// Chooses the format by the client's Accept field. Weights (`q`) are ignored, since Prometheus lists the formats
    /// in the order of its preference.
    pub fn from_accept(accept: &str) -> ExpositionFormat {
        let first = accept.split(',').find_map(|range| {
            let name = range.split(';').next()?.trim();
            match name {
                "application/vnd.google.protobuf" => Some(ExpositionFormat::PrometheusProtobuf),
                "application/openmetrics-text" => Some(ExpositionFormat::OpenMetrics),
                "text/plain" | "text/*" | "*/*" => Some(ExpositionFormat::PrometheusText),
                _ => None,
            }
        });
        first.unwrap_or(ExpositionFormat::PrometheusText)
    }

    /// The Content-Type of the format.
    pub fn content_type(self) -> &'static str {
        match self {
            ExpositionFormat::PrometheusText => "text/plain; version=0.0.4; charset=utf-8",
            ExpositionFormat::OpenMetrics => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
            ExpositionFormat::PrometheusProtobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// Writes the snapshot; `None` if the library rejects a value.
    pub fn write(self, snapshot: MetricSnapshot) -> Option<Vec<u8>> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(SnapshotCollector(Mutex::new(snapshot))));
        let mut out = String::new();
        match self {
            ExpositionFormat::PrometheusText => {
                prometheus_text::encode(&mut out, &registry).ok()?
            }
            ExpositionFormat::OpenMetrics => text::encode(&mut out, &registry).ok()?,
            ExpositionFormat::PrometheusProtobuf => {
                return prometheus_protobuf::encode_to_vec(&registry).ok();
            }
        }
        Some(out.into_bytes())
    }
}

/// Provides a snapshot to the library.
#[derive(Debug)]
struct SnapshotCollector(Mutex<MetricSnapshot>);

impl Collector for SnapshotCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.0.lock().map_err(|_| fmt::Error)?;
        // A family without samples is omitted, since it would be written as a heading without values.
        let filled = snapshot.families.iter().filter(|it| !it.samples.is_empty());
        for family in filled {
            let metric_type = match family.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
                MetricKind::Histogram => MetricType::Histogram,
                MetricKind::Info => MetricType::Info,
            };
            let name = family.name.as_str();
            let mut family_encoder =
                encoder.encode_descriptor(name, family.help, None, metric_type)?;
            samples(family, &mut family_encoder)?;
        }
        Ok(())
    }
}

fn samples(family: &MetricFamily, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    for sample in &family.samples {
        let labels = SampleLabels(&sample.labels);
        if let SampleValue::Labels = sample.value {
            encoder.encode_info(&labels)?;
            continue;
        }
        let mut encoder = encoder.encode_family(&labels)?;
        match (&sample.value, family.kind) {
            (SampleValue::Whole(value), MetricKind::Counter) => {
                encoder.encode_counter::<NoLabelSet, _, u64>(value, None)?;
            }
            (SampleValue::Real(value), MetricKind::Counter) => {
                encoder.encode_counter::<NoLabelSet, _, f64>(value, None)?;
            }
            (SampleValue::Whole(value), _) => encoder.encode_gauge(value)?,
            (SampleValue::Real(value), _) => encoder.encode_gauge(value)?,
            (SampleValue::Durations(durations), _) => histogram(durations, &mut encoder)?,
            (SampleValue::Labels, _) => {}
        }
    }
    Ok(())
}

fn histogram(durations: &LatencyDistribution, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    let (spans, deltas) = sparse_buckets(durations);
    let native = NativeHistogram {
        schema: NATIVE_SCHEMA,
        zero_threshold: 0.0,
        zero_count: 0,
        negative: NativeHistogramBuckets {
            spans: &[],
            deltas: &[],
        },
        positive: NativeHistogramBuckets {
            spans: &spans,
            deltas: &deltas,
        },
        created: None,
    };
    encoder.encode_histogram_with_native::<NoLabelSet>(
        durations.sum_s(),
        durations.count(),
        &durations.classic_buckets(),
        None,
        native,
    )
}

/// The native buckets in the form of the protocol: the spans of consecutive buckets (offset from the previous span, and
/// length), and for each bucket the difference of its count from the previous one.
fn sparse_buckets(durations: &LatencyDistribution) -> (Vec<(i32, u32)>, Vec<i64>) {
    let (mut spans, mut deltas): (Vec<(i32, u32)>, Vec<i64>) = (Vec::new(), Vec::new());
    let (mut next_index, mut count_before) = (0, 0);
    for (index, count) in durations.native_buckets() {
        match spans.last_mut().filter(|_| index == next_index) {
            Some((_, len)) => *len += 1,
            None => spans.push((index - next_index, 1)),
        }
        deltas.push(count as i64 - count_before);
        (next_index, count_before) = (index + 1, count as i64);
    }
    (spans, deltas)
}

/// The labels of a sample.
struct SampleLabels<'a>(&'a [(&'static str, String)]);

impl EncodeLabelSet for SampleLabels<'_> {
    fn encode(
        &self,
        encoder: &mut prometheus_client::encoding::LabelSetEncoder<'_>,
    ) -> fmt::Result {
        for (name, value) in self.0 {
            use prometheus_client::encoding::EncodeLabel;
            (*name, value.as_str()).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency_histogram::LatencyHistogram;

    fn snapshot() -> MetricSnapshot {
        let mut snapshot = MetricSnapshot::default();
        let requests = snapshot.family(MetricKind::Counter, "lowroad_requests", "Requests.");
        requests.whole(&[("site", "a\"b\\c\nd"), ("level", "worker")], 7);
        snapshot.gauge("lowroad_open_connections", "Open connections.", 3);
        let durations = LatencyHistogram::default();
        [100, 100, 900, 1_000_000]
            .into_iter()
            .for_each(|us| durations.record(us));
        let mut sum = LatencyDistribution::default();
        durations.add_to(&mut sum);
        let family = snapshot.family(MetricKind::Histogram, "lowroad_seconds", "Durations.");
        family.sample(&[("level", "worker")], SampleValue::Durations(sum));
        let info = snapshot.family(MetricKind::Info, "lowroad_build", "The program.");
        info.sample(&[("version", "1")], SampleValue::Labels);
        snapshot
    }

    fn text(format: ExpositionFormat) -> String {
        String::from_utf8(format.write(snapshot()).expect("valid values")).expect("UTF-8")
    }

    #[test]
    fn text_format_adds_the_total_suffix_to_counters() {
        let text = text(ExpositionFormat::PrometheusText);
        assert!(
            text.contains("# TYPE lowroad_requests_total counter\n"),
            "{text}"
        );
        let line = "lowroad_requests_total{site=\"a\\\"b\\\\c\\nd\",level=\"worker\"} 7\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("lowroad_open_connections 3\n"), "{text}");
        assert!(
            text.contains("lowroad_seconds_count{level=\"worker\"} 4\n"),
            "{text}"
        );
        assert!(text.contains("le=\"+Inf\""), "{text}");
        assert!(!text.contains("# EOF"), "{text}");
    }

    #[test]
    fn openmetrics_ends_with_eof() {
        let text = text(ExpositionFormat::OpenMetrics);
        assert!(text.contains("# TYPE lowroad_requests counter\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn native_histogram_has_spans_and_deltas() {
        let histogram = LatencyHistogram::default();
        // 1 s and 2 s are bounds: indices 0 and 8.
        [1_000_000, 1_000_000, 1_050_000, 2_000_000]
            .into_iter()
            .for_each(|us| histogram.record(us));
        let mut sum = LatencyDistribution::default();
        histogram.add_to(&mut sum);
        let (spans, deltas) = sparse_buckets(&sum);
        assert_eq!(spans, [(0, 2), (6, 1)]);
        assert_eq!(deltas, [2, -1, 0]);
        assert!(
            ExpositionFormat::PrometheusProtobuf
                .write(snapshot())
                .is_some()
        );
    }

    #[test]
    fn accept_selects_the_format() {
        for (accept, expected) in [
            ("", ExpositionFormat::PrometheusText),
            ("*/*", ExpositionFormat::PrometheusText),
            ("text/html", ExpositionFormat::PrometheusText),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3",
                ExpositionFormat::OpenMetrics,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,text/plain;q=0.1",
                ExpositionFormat::PrometheusProtobuf,
            ),
        ] {
            assert_eq!(ExpositionFormat::from_accept(accept), expected, "{accept}");
        }
    }
}
