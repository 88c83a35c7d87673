//! The figures of a run and their JSON form (lab/README.md defines each).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A distribution of times, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeDistribution {
    /// Number of measurements; if 0, the other fields are 0 too.
    pub count: u64,
    /// Minimum.
    pub min: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Median.
    pub p50: u64,
    /// 75th percentile.
    pub p75: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p99_9: u64,
    /// Maximum.
    pub max: u64,
}

/// httperf's reply rate: samples of 5 seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplyRate {
    /// Number of whole 5-second samples; if 0, the other fields are 0 too.
    pub samples: u64,
    /// Minimum of the samples, replies a second.
    pub min: f64,
    /// Mean of the samples.
    pub mean: f64,
    /// Maximum of the samples.
    pub max: f64,
    /// Standard deviation.
    pub stddev: f64,
}

/// One kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationClass {
    /// Its name.
    pub name: String,
    /// Correct responses.
    pub requests: u64,
    /// Wrong responses, and requests without a response.
    pub errors: u64,
    /// Requests that were outstanding at the end.
    #[serde(default)]
    pub unfinished: u64,
    /// Body bytes.
    pub body_bytes: u64,
    /// Latencies.
    pub latency_us: TimeDistribution,
}

/// SPECweb99's conformance: the clients that reached the required speed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConformingClients {
    /// The required speed, bits a second.
    pub least_bits_per_s: u64,
    /// Clients that reached it.
    pub connections: u64,
    /// Their share of all clients.
    pub share: f64,
}

/// The figures of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// Whether the run was ended early.
    pub interrupted: bool,
    /// How long counting lasted.
    pub duration_s: f64,
    /// Correct responses.
    pub requests: u64,
    /// Correct responses a second.
    pub requests_per_s: f64,
    /// Requests a second that were due, in an open loop.
    pub offered_per_s: Option<f64>,
    /// Connections established.
    pub connections: u64,
    /// Connections established a second.
    pub connections_per_s: f64,
    /// Responses, correct or not, for each connection that was established during counting.
    pub requests_per_connection: f64,
    /// Requests that were outstanding, or due and unsent, at the end. No other figure includes them.
    #[serde(default)]
    pub unfinished: u64,
    /// Bytes received, heads and bodies.
    pub bytes: u64,
    /// Bytes received a second.
    pub bytes_per_s: f64,
    /// Body bytes received.
    pub body_bytes: u64,
    /// From the due time of the request (closed loop: the send time) to the last byte of its response.
    pub latency_us: TimeDistribution,
    /// From the send time to the last byte of the response, regardless of the due time.
    pub service_us: TimeDistribution,
    /// httperf: first byte of the request sent to first byte of the response.
    pub response_us: TimeDistribution,
    /// httperf: first to last byte of the response.
    pub transfer_us: TimeDistribution,
    /// The TCP handshake: paper `003`'s response time.
    pub connect_us: TimeDistribution,
    /// httperf: from connect to close, of connections with a response.
    pub connection_us: TimeDistribution,
    /// From the end of the handshake to the close: paper `003`'s connection time.
    pub established_us: TimeDistribution,
    /// httperf's reply rate.
    pub reply_rate: ReplyRate,
    /// All errors.
    pub errors: u64,
    /// Errors by kind.
    pub errors_by_kind: BTreeMap<String, u64>,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Figures by kind of operation, if there are several.
    pub classes: Vec<OperationClass>,
    /// Conformance, where clients have a line speed.
    pub conforming: Option<ConformingClients>,
    /// The CPU time of the load generator itself, as a share of one CPU.
    pub cpu_share: f64,
}
