//! Writes a snapshot as JSON for dashboards: the families of `/metrics` with the same names and labels.

use lowroad_metrics::{MetricKind, MetricSnapshot, SampleValue};
use lowroad_store::clock;
use serde_json::{Map, Value, json};

use super::snapshot_notes::SnapshotNotes;

/// Encodes the snapshot and the current time and notes.
pub fn write(snapshot: &MetricSnapshot, notes: SnapshotNotes) -> Vec<u8> {
    let families: Map<String, Value> = snapshot
        .families
        .iter()
        .filter(|family| !family.samples.is_empty())
        .map(|family| {
            let samples = family.samples.iter().map(|sample| {
                let labels: Map<String, Value> = sample
                    .labels
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), json!(value)))
                    .collect();
                match value(&sample.value) {
                    Some(value) => json!({"labels": labels, "value": value}),
                    None => json!({"labels": labels}),
                }
            });
            let samples: Vec<Value> = samples.collect();
            let description = json!({"type": kind(family.kind), "samples": samples});
            (family.name.clone(), description)
        })
        .collect();
    let time_ms = clock::unix_ms();
    let mut all = json!({"time_ms": time_ms, "metrics": families});
    notes.add_to(&mut all);
    all.to_string().into_bytes()
}

fn kind(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
        MetricKind::Info => "info",
    }
}

fn value(value: &SampleValue) -> Option<Value> {
    Some(match value {
        SampleValue::Whole(value) => json!(value),
        SampleValue::Real(value) => json!(value),
        SampleValue::Durations(durations) => {
            let buckets: Vec<[i64; 2]> = durations
                .native_buckets()
                .map(|(index, count)| [index.into(), count as i64])
                .collect();
            json!({
                "count": durations.count(),
                "sum": durations.sum_s(),
                // Bucket i has the upper bound 2^(i/8) s.
                "buckets": buckets,
            })
        }
        SampleValue::Labels => return None,
    })
}
