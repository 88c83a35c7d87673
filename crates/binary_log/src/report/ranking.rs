//! Counts records by the value of a property.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use lowroad_log::AccessEntry;

/// Maximum number of distinct values. Records of further values are counted together: a client that sends many URLs
/// must not use up the memory.
const VALUES_MAX: usize = 100_000;
/// Maximum length of a value; longer ones are distinguished by this many bytes.
const VALUE_LEN_MAX: usize = 1024;

/// The totals of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyTotals {
    /// The number of records.
    pub requests: u64,
    /// The sum of body bytes.
    pub body_bytes: u64,
    /// The sum of durations, µs.
    pub duration_us: u64,
    /// The longest duration, µs.
    pub longest_us: u64,
}

impl KeyTotals {
    fn add(&mut self, entry: &AccessEntry<'_>) {
        self.requests += 1;
        self.body_bytes = self.body_bytes.saturating_add(entry.body_bytes);
        self.duration_us = self.duration_us.saturating_add(entry.duration_us);
        self.longest_us = self.longest_us.max(entry.duration_us);
    }
}

/// Totals by value.
#[derive(Default)]
pub struct RankedCounts {
    totals: HashMap<Box<[u8]>, KeyTotals, RandomState>,
    beyond: KeyTotals,
}

impl RankedCounts {
    /// Adds a record under a value.
    pub fn add(&mut self, value: &[u8], entry: &AccessEntry<'_>) {
        let value = value.get(..VALUE_LEN_MAX).unwrap_or(value);
        // Looked up before `entry`, which needs an owned key: most values are known and need no allocation.
        if let Some(totals) = self.totals.get_mut(value) {
            totals.add(entry);
        } else if self.totals.len() < VALUES_MAX {
            self.totals.entry(value.into()).or_default().add(entry);
        } else {
            self.beyond.add(entry);
        }
    }

    /// The number of distinct values, up to the limit.
    pub fn distinct(&self) -> usize {
        self.totals.len()
    }

    /// The number of records.
    pub fn requests(&self) -> u64 {
        let counted: u64 = self.totals.values().map(|totals| totals.requests).sum();
        counted + self.beyond.requests
    }

    /// Records of values that are not distinguished.
    pub fn beyond(&self) -> KeyTotals {
        self.beyond
    }

    /// The values with most records.
    pub fn top(&self, count: usize) -> Vec<(&[u8], KeyTotals)> {
        let mut all: Vec<_> = self
            .totals
            .iter()
            .map(|(value, totals)| (&value[..], *totals))
            .collect();
        // Equal counts are ordered by value, so that the output is reproducible.
        all.sort_by(|one, other| {
            other
                .1
                .requests
                .cmp(&one.1.requests)
                .then(one.0.cmp(other.0))
        });
        all.truncate(count);
        all
    }
}
