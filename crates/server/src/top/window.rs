//! Rates from the snapshots of the last seconds, as in the dashboard (`dashboard/src/rates.ts`).

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::Value;

/// The snapshots of the last seconds.
pub struct SnapshotWindow {
    len_ms: u64,
    snapshots: VecDeque<Value>,
}

/// The labels of a series, and its growth per second.
pub struct SeriesRate<'a> {
    labels: &'a Value,
    /// The growth per second.
    pub rate: f64,
}

impl SeriesRate<'_> {
    /// The value of a label; empty without the label.
    pub fn label(&self, name: &str) -> &str {
        label(self.labels, name)
    }
}

/// The value of a label; empty without the label.
pub fn label<'a>(labels: &'a Value, name: &str) -> &'a str {
    labels[name].as_str().unwrap_or_default()
}

impl SnapshotWindow {
    /// Creates a window of this length.
    pub fn new(len_ms: u64) -> SnapshotWindow {
        SnapshotWindow {
            len_ms,
            snapshots: VecDeque::new(),
        }
    }

    /// Adds a snapshot. A server that has restarted counts from 0, so earlier snapshots are forgotten.
    pub fn push(&mut self, snapshot: Value) {
        if self
            .latest()
            .is_some_and(|last| is_restart(last, &snapshot) || time_ms(&snapshot) <= time_ms(last))
        {
            self.snapshots.clear();
        }
        let now_ms = time_ms(&snapshot);
        self.snapshots.push_back(snapshot);
        // One snapshot at or before the beginning of the window is kept, so that the window is covered completely.
        while self.snapshots.len() > 2
            && now_ms.saturating_sub(time_ms(&self.snapshots[1])) >= self.len_ms
        {
            self.snapshots.pop_front();
        }
    }

    /// The latest snapshot.
    pub fn latest(&self) -> Option<&Value> {
        self.snapshots.back()
    }

    /// Seconds between the first and the last snapshot; 0 before there are two.
    pub fn seconds(&self) -> f64 {
        match (self.snapshots.front(), self.latest()) {
            (Some(first), Some(last)) => {
                time_ms(last).saturating_sub(time_ms(first)) as f64 / 1000.0
            }
            _ => 0.0,
        }
    }

    /// The rate of each series of a counter.
    pub fn rates(&self, name: &str) -> Vec<SeriesRate<'_>> {
        let seconds = self.seconds();
        let (Some(first), Some(last)) = (self.snapshots.front(), self.latest()) else {
            return Vec::new();
        };
        if seconds == 0.0 {
            return Vec::new();
        }
        let before: HashMap<String, f64> = samples(first, name)
            .iter()
            .map(|sample| (sample["labels"].to_string(), number(sample)))
            .collect();
        let rates = samples(last, name).iter().map(|sample| {
            let labels = &sample["labels"];
            let earlier = before.get(&labels.to_string()).unwrap_or(&0.0);
            SeriesRate {
                labels,
                rate: (number(sample) - earlier).max(0.0) / seconds,
            }
        });
        rates.collect()
    }

    /// The rate of a counter, added up over the series that `is_chosen` accepts.
    pub fn rate(&self, name: &str, is_chosen: impl Fn(&SeriesRate<'_>) -> bool) -> f64 {
        let rates = self.rates(name);
        let chosen = rates.iter().filter(|it| is_chosen(it));
        chosen.map(|it| it.rate).sum()
    }

    /// The sum of a family's latest numbers; `None` without the family.
    pub fn gauge(&self, name: &str) -> Option<f64> {
        let samples = samples(self.latest()?, name);
        (!samples.is_empty()).then(|| samples.iter().map(number).sum())
    }

    /// The samples of a family in the latest snapshot.
    pub fn samples(&self, name: &str) -> &[Value] {
        self.latest().map_or(&[], |latest| samples(latest, name))
    }

    /// The quantile of the durations within the window, in seconds, over the series that `is_chosen` accepts by label;
    /// `None` without durations.
    pub fn quantile(
        &self,
        name: &str,
        share: f64,
        is_chosen: impl Fn(&Value) -> bool,
    ) -> Option<f64> {
        let mut counts: BTreeMap<i64, f64> = BTreeMap::new();
        let mut add = |snapshot: &Value, factor: f64| {
            let samples = samples(snapshot, name).iter();
            for sample in samples.filter(|sample| is_chosen(&sample["labels"])) {
                for bucket in sample["value"]["buckets"].as_array().into_iter().flatten() {
                    if let (Some(index), Some(count)) = (bucket[0].as_i64(), bucket[1].as_f64()) {
                        *counts.entry(index).or_default() += factor * count;
                    }
                }
            }
        };
        let (first, last) = (self.snapshots.front()?, self.latest()?);
        add(last, 1.0);
        add(first, -1.0);
        let rank = share * counts.values().sum::<f64>();
        let mut below = 0.0;
        for (index, count) in counts.into_iter().filter(|(_, count)| *count > 0.0) {
            if below + count >= rank {
                // All buckets have the same width on a logarithmic scale; bucket i ends at 2^(i/8) s.
                let part = (rank - below) / count;
                return Some(((index as f64 - 1.0 + part) / 8.0).exp2());
            }
            below += count;
        }
        None
    }
}

fn time_ms(snapshot: &Value) -> u64 {
    snapshot["time_ms"].as_u64().unwrap_or(0)
}

fn samples<'a>(snapshot: &'a Value, name: &str) -> &'a [Value] {
    let samples = snapshot["metrics"][name]["samples"].as_array();
    samples.map_or(&[], Vec::as_slice)
}

/// The number of a sample; 0 for durations.
pub fn number(sample: &Value) -> f64 {
    sample["value"].as_f64().unwrap_or(0.0)
}

/// Whether the later snapshot comes from another process.
fn is_restart(before: &Value, after: &Value) -> bool {
    let sum = |snapshot, name| samples(snapshot, name).iter().map(number).sum::<f64>();
    let starts = [before, after].map(|it| sum(it, "process_start_time_seconds"));
    let heads = [before, after].map(|it| sum(it, "lowroad_request_heads_received"));
    // Start times are computed from clock ticks, so those of one process may differ by rounding.
    (starts[0] - starts[1]).abs() > 0.5 || heads[1] < heads[0]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot(time_ms: u64, start_s: f64, count: u64) -> Value {
        let buckets = json!([[8, count], [16, 0]]);
        json!({"time_ms": time_ms, "metrics": {
            "process_start_time_seconds": {"samples": [{"labels": {}, "value": start_s}]},
            "lowroad_requests": {"samples": [{"labels": {"site": "a"}, "value": count}]},
            "durations": {"samples": [{"labels": {}, "value": {"count": count, "buckets": buckets}}]},
        }})
    }

    #[test]
    fn rates_are_those_of_the_window() {
        let mut window = SnapshotWindow::new(5_000);
        for second in 0..20 {
            window.push(snapshot(second * 1000, 1.0, second * second));
        }
        assert_eq!(window.seconds(), 5.0);
        let rate = window.rate("lowroad_requests", |it| it.label("site") == "a");
        assert_eq!(rate, f64::from(19 * 19 - 14 * 14) / 5.0);
        assert_eq!(
            window.rate("lowroad_requests", |it| it.label("site") == "b"),
            0.0
        );
        let median = window
            .quantile("durations", 0.5, |_| true)
            .expect("durations");
        assert!((1.8..2.0).contains(&median), "{median}");
    }

    #[test]
    fn restart_begins_a_new_window() {
        let mut window = SnapshotWindow::new(5_000);
        assert!(window.latest().is_none() && window.rates("lowroad_requests").is_empty());
        window.push(snapshot(1_000, 1.0, 100));
        window.push(snapshot(2_000, 2.0, 3));
        assert_eq!(window.seconds(), 0.0);
        assert!(window.rates("lowroad_requests").is_empty());
        assert_eq!(window.quantile("durations", 0.5, |_| true), None);
        // Another program may answer.
        window.push(json!([]));
        assert_eq!(window.gauge("x"), None);
    }
}
