//! What a run found: the figures, and their form in JSON (docs/lab.md says what each means).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A distribution of times, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeDistribution {
    /// How many were measured; the rest is 0 if none was.
    pub count: u64,
    /// Least.
    pub min: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Median.
    pub p50: u64,
    /// 75 of 100 are not longer.
    pub p75: u64,
    /// 90 of 100.
    pub p90: u64,
    /// 95 of 100.
    pub p95: u64,
    /// 99 of 100.
    pub p99: u64,
    /// 999 of 1000.
    pub p99_9: u64,
    /// Most.
    pub max: u64,
}

/// httperf's reply rate: samples of 5 seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplyRate {
    /// Number of whole 5-second samples; the rest is 0 if there was none.
    pub samples: u64,
    /// Replies a second: the least sample.
    pub min: f64,
    /// Mean of the samples.
    pub mean: f64,
    /// The greatest.
    pub max: f64,
    /// Standard deviation.
    pub stddev: f64,
}

/// One kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationClass {
    /// Its name.
    pub name: String,
    /// Right answers.
    pub requests: u64,
    /// Wrong answers, and requests that got none.
    pub errors: u64,
    /// Requests that were under way when time was up.
    #[serde(default)]
    pub unfinished: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// Latencies.
    pub latency_us: TimeDistribution,
}

/// SPECweb99's conformance: clients that were fast enough.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConformingClients {
    /// What a client had to reach, bits a second.
    pub least_bits_per_s: u64,
    /// Clients that did.
    pub connections: u64,
    /// Of all.
    pub share: f64,
}

/// The figures of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// Whether somebody ended it early.
    pub interrupted: bool,
    /// How long was counted.
    pub duration_s: f64,
    /// Right answers.
    pub requests: u64,
    /// Right answers a second.
    pub requests_per_s: f64,
    /// Requests a second that were due, in an open loop.
    pub offered_per_s: Option<f64>,
    /// Connections made.
    pub connections: u64,
    /// Connections made a second.
    pub connections_per_s: f64,
    /// Answers, right or wrong, for each connection made while it was counted.
    pub requests_per_connection: f64,
    /// Requests that were under way, or due and not sent, when time was up. In no other figure.
    #[serde(default)]
    pub unfinished: u64,
    /// Bytes received, heads and bodies.
    pub bytes: u64,
    /// Bytes received a second.
    pub bytes_per_s: f64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// From when the request was due (closed loop: sent) to the last byte of its answer.
    pub latency_us: TimeDistribution,
    /// From sending it to the last byte of its answer, whatever was due.
    pub service_us: TimeDistribution,
    /// httperf: first byte of the request sent to first byte of the answer.
    pub response_us: TimeDistribution,
    /// httperf: first to last byte of the answer.
    pub transfer_us: TimeDistribution,
    /// Handshake of TCP: paper `003`'s response time.
    pub connect_us: TimeDistribution,
    /// httperf: connecting to closed, of connections with an answer.
    pub connection_us: TimeDistribution,
    /// Handshake done to closed: paper `003`'s connection time.
    pub established_us: TimeDistribution,
    /// httperf's reply rate.
    pub reply_rate: ReplyRate,
    /// All errors.
    pub errors: u64,
    /// Errors by kind.
    pub errors_by_kind: BTreeMap<String, u64>,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// By kind of operation, if there are several.
    pub classes: Vec<OperationClass>,
    /// Conformance, where clients have a line speed.
    pub conforming: Option<ConformingClients>,
    /// Share of one CPU that the load generator itself used.
    pub cpu_share: f64,
}
