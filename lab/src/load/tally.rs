//! Counts the results of one thread, sums them over threads, and computes the [`LoadResult`].

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::outcome::{LoadResult, OperationClass, ReplyRate, TimeDistribution};

/// Maximum of the histograms: an hour.
const TIME_US_MAX: u64 = 3_600_000_000;
/// httperf's sampling interval of the reply rate.
pub(crate) const REPLY_SAMPLE_NS: u64 = 5_000_000_000;

/// The ways in which a request or connection can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The connection was refused.
    ConnectRefused,
    /// The handshake did not complete in time.
    ConnectTimeout,
    /// The server is unreachable.
    ConnectUnreachable,
    /// The client has no local port left.
    PortsExhausted,
    /// The client has no descriptor left.
    DescriptorsExhausted,
    /// The TLS handshake failed: certificate or version.
    Tls,
    /// The connection was reset.
    Reset,
    /// The connection ended before the response was complete.
    Closed,
    /// The server reset the stream (HTTP/2).
    StreamReset,
    /// No bytes arrived for too long.
    Timeout,
    /// The response is not HTTP.
    Malformed,
    /// The response exceeds the maximum length.
    Endless,
    /// A response without an outstanding request.
    Unasked,
    /// The status differs from the expected one.
    WrongStatus,
    /// The length differs.
    WrongLength,
    /// The content differs.
    WrongChecksum,
    /// A pattern of the script has no match.
    Lacking,
}

impl ErrorKind {
    /// All kinds.
    pub const ALL: [ErrorKind; 17] = [
        ErrorKind::ConnectRefused,
        ErrorKind::ConnectTimeout,
        ErrorKind::ConnectUnreachable,
        ErrorKind::PortsExhausted,
        ErrorKind::DescriptorsExhausted,
        ErrorKind::Tls,
        ErrorKind::Reset,
        ErrorKind::Closed,
        ErrorKind::StreamReset,
        ErrorKind::Timeout,
        ErrorKind::Malformed,
        ErrorKind::Endless,
        ErrorKind::Unasked,
        ErrorKind::WrongStatus,
        ErrorKind::WrongLength,
        ErrorKind::WrongChecksum,
        ErrorKind::Lacking,
    ];

    /// The name in the JSON output.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::ConnectRefused => "connect_refused",
            ErrorKind::ConnectTimeout => "connect_timeout",
            ErrorKind::ConnectUnreachable => "connect_unreachable",
            ErrorKind::PortsExhausted => "ports_exhausted",
            ErrorKind::DescriptorsExhausted => "descriptors_exhausted",
            ErrorKind::Tls => "tls",
            ErrorKind::Reset => "reset",
            ErrorKind::Closed => "closed",
            ErrorKind::StreamReset => "stream_reset",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Malformed => "malformed",
            ErrorKind::Endless => "endless",
            ErrorKind::Unasked => "unasked",
            ErrorKind::WrongStatus => "wrong_status",
            ErrorKind::WrongLength => "wrong_length",
            ErrorKind::WrongChecksum => "wrong_checksum",
            ErrorKind::Lacking => "lacking",
        }
    }
}

/// A histogram of times, recorded in nanoseconds and read in microseconds.
#[derive(Clone)]
pub(crate) struct NanoHistogram(Histogram<u64>);

impl NanoHistogram {
    fn new() -> NanoHistogram {
        // Three significant digits: a percentile is accurate to 0.1 %.
        NanoHistogram(Histogram::new_with_bounds(1, TIME_US_MAX, 3).expect("valid bounds"))
    }

    pub(crate) fn record_ns(&mut self, ns: u64) {
        // A time beyond the maximum counts as the maximum; `record` would fail.
        self.0.saturating_record(ns / 1000);
    }

    pub(crate) fn add(&mut self, other: &NanoHistogram) {
        self.0.add(&other.0).expect("equal bounds");
    }

    pub(crate) fn quantile_us(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }

    pub(crate) fn times(&self) -> TimeDistribution {
        if self.0.is_empty() {
            return TimeDistribution::default();
        }
        TimeDistribution {
            count: self.0.len(),
            min: self.0.min(),
            mean: self.0.mean(),
            stddev: self.0.stdev(),
            p50: self.quantile_us(0.5),
            p75: self.quantile_us(0.75),
            p90: self.quantile_us(0.9),
            p95: self.quantile_us(0.95),
            p99: self.quantile_us(0.99),
            p99_9: self.quantile_us(0.999),
            max: self.0.max(),
        }
    }
}

impl Default for NanoHistogram {
    fn default() -> Self {
        NanoHistogram::new()
    }
}

/// The counts of one kind of operation.
#[derive(Clone, Default)]
pub(crate) struct ClassTally {
    pub requests: u64,
    pub errors: u64,
    pub unfinished: u64,
    pub body_bytes: u64,
    pub latency: NanoHistogram,
}

/// The counts of one thread, or of all threads.
#[derive(Clone)]
pub(crate) struct LoadTally {
    /// Correct responses.
    pub requests: u64,
    /// Responses, correct or not.
    pub answers: u64,
    pub connections: u64,
    pub bytes: u64,
    pub body_bytes: u64,
    /// Requests that were outstanding, or due and unsent, at the end.
    pub unfinished: u64,
    pub latency: NanoHistogram,
    pub service: NanoHistogram,
    pub response: NanoHistogram,
    pub transfer: NanoHistogram,
    pub connect: NanoHistogram,
    pub connection: NanoHistogram,
    pub established: NanoHistogram,
    pub classes: Vec<ClassTally>,
    errors: [u64; ErrorKind::ALL.len()],
    /// Errors before counting began.
    early_errors: [u64; ErrorKind::ALL.len()],
    statuses: Vec<u64>,
    replies: Vec<u64>,
}

impl LoadTally {
    pub(crate) fn new(classes: usize) -> LoadTally {
        LoadTally {
            requests: 0,
            answers: 0,
            connections: 0,
            bytes: 0,
            body_bytes: 0,
            unfinished: 0,
            latency: NanoHistogram::new(),
            service: NanoHistogram::new(),
            response: NanoHistogram::new(),
            transfer: NanoHistogram::new(),
            connect: NanoHistogram::new(),
            connection: NanoHistogram::new(),
            established: NanoHistogram::new(),
            classes: vec![ClassTally::default(); classes],
            errors: [0; ErrorKind::ALL.len()],
            early_errors: [0; ErrorKind::ALL.len()],
            // The counts are indexed by status, which is cheaper for each response than a map.
            statuses: vec![0; 1000],
            replies: Vec::new(),
        }
    }

    pub(crate) fn error(&mut self, kind: ErrorKind) {
        self.errors[kind as usize] += 1;
    }

    /// Counts a request of this class that was outstanding at the end.
    pub(crate) fn unfinished(&mut self, class: u8) {
        self.unfinished += 1;
        self.classes[usize::from(class)].unfinished += 1;
    }

    /// Counts an error before counting began.
    pub(crate) fn early_error(&mut self, kind: ErrorKind) {
        self.early_errors[kind as usize] += 1;
    }

    /// Counts the early errors like all others: they are the only information if the server was never reached.
    pub(crate) fn adopt_early_errors(&mut self) {
        add_each(&mut self.errors, &self.early_errors);
    }

    pub(crate) fn status(&mut self, status: u16) {
        // Three digits are parsed, so 999 is the maximum.
        self.statuses[usize::from(status.min(999))] += 1;
    }

    /// Counts a reply that arrived `after_ns` after counting began.
    pub(crate) fn reply(&mut self, after_ns: u64) {
        let sample = (after_ns / REPLY_SAMPLE_NS) as usize;
        if self.replies.len() <= sample {
            self.replies.resize(sample + 1, 0);
        }
        self.replies[sample] += 1;
    }

    pub(crate) fn errors(&self) -> u64 {
        self.errors.iter().sum()
    }

    pub(crate) fn add(&mut self, other: &LoadTally) {
        self.requests += other.requests;
        self.answers += other.answers;
        self.connections += other.connections;
        self.bytes += other.bytes;
        self.body_bytes += other.body_bytes;
        self.unfinished += other.unfinished;
        self.latency.add(&other.latency);
        self.service.add(&other.service);
        self.response.add(&other.response);
        self.transfer.add(&other.transfer);
        self.connect.add(&other.connect);
        self.connection.add(&other.connection);
        self.established.add(&other.established);
        for (class, other_class) in self.classes.iter_mut().zip(&other.classes) {
            class.requests += other_class.requests;
            class.errors += other_class.errors;
            class.unfinished += other_class.unfinished;
            class.body_bytes += other_class.body_bytes;
            class.latency.add(&other_class.latency);
        }
        add_each(&mut self.errors, &other.errors);
        add_each(&mut self.statuses, &other.statuses);
        let len = self.replies.len().max(other.replies.len());
        // Threads may end in different samples.
        self.replies.resize(len, 0);
        add_each(&mut self.replies, &other.replies);
    }

    /// The figures, after `duration_s` seconds of counting.
    pub(crate) fn outcome(&self, duration_s: f64, classes: &[String]) -> LoadResult {
        let per_s = |count: u64| count as f64 / duration_s.max(1e-9);
        let by_kind = ErrorKind::ALL
            .iter()
            .map(|kind| (kind.name().to_string(), self.errors[*kind as usize]))
            .filter(|(_, count)| *count > 0);
        let statuses = (0u16..).zip(&self.statuses).filter(|(_, n)| **n > 0);
        LoadResult {
            duration_s,
            requests: self.requests,
            requests_per_s: per_s(self.requests),
            connections: self.connections,
            connections_per_s: per_s(self.connections),
            requests_per_connection: if self.connections == 0 {
                0.0
            } else {
                self.answers as f64 / self.connections as f64
            },
            unfinished: self.unfinished,
            bytes: self.bytes,
            bytes_per_s: per_s(self.bytes),
            body_bytes: self.body_bytes,
            latency_us: self.latency.times(),
            service_us: self.service.times(),
            response_us: self.response.times(),
            transfer_us: self.transfer.times(),
            connect_us: self.connect.times(),
            connection_us: self.connection.times(),
            established_us: self.established.times(),
            reply_rate: self.reply_rate(duration_s),
            errors: self.errors(),
            errors_by_kind: by_kind.collect(),
            statuses: statuses.map(|(s, n)| (s, *n)).collect::<BTreeMap<_, _>>(),
            classes: self.class_figures(classes),
            ..LoadResult::default()
        }
    }

    fn class_figures(&self, names: &[String]) -> Vec<OperationClass> {
        // A single class would repeat the totals.
        if names.len() < 2 {
            return Vec::new();
        }
        let figures = names
            .iter()
            .zip(&self.classes)
            .map(|(name, class)| OperationClass {
                name: name.clone(),
                requests: class.requests,
                errors: class.errors,
                unfinished: class.unfinished,
                body_bytes: class.body_bytes,
                latency_us: class.latency.times(),
            });
        figures.collect()
    }

    fn reply_rate(&self, duration_s: f64) -> ReplyRate {
        let sample_s = REPLY_SAMPLE_NS as f64 / 1e9;
        // Only complete samples count: the last, incomplete one would look like a low rate.
        let sample_count = (duration_s / sample_s) as usize;
        let rates: Vec<f64> = (0..sample_count)
            .map(|index| self.replies.get(index).copied().unwrap_or(0) as f64 / sample_s)
            .collect();
        if rates.is_empty() {
            return ReplyRate::default();
        }
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
        // The sample standard deviation; 0 for a single sample.
        let stddev = (squares / (rates.len().max(2) - 1) as f64).sqrt();
        ReplyRate {
            samples: rates.len() as u64,
            min: rates.iter().copied().fold(f64::INFINITY, f64::min),
            mean,
            max: rates.iter().copied().fold(0.0, f64::max),
            stddev,
        }
    }
}

fn add_each(sums: &mut [u64], from: &[u64]) {
    sums.iter_mut()
        .zip(from)
        .for_each(|(sum, from)| *sum += from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_of_threads_are_summed() {
        let (mut one, mut other) = (LoadTally::new(2), LoadTally::new(2));
        one.latency.record_ns(1_000_000);
        other.latency.record_ns(3_000_000);
        one.error(ErrorKind::Reset);
        other.error(ErrorKind::Reset);
        other.error(ErrorKind::Closed);
        one.status(200);
        one.reply(0);
        other.reply(REPLY_SAMPLE_NS + 1);
        one.add(&other);
        let names = ["a".to_string(), "b".to_string()];
        let outcome = one.outcome(10.0, &names);
        assert_eq!(outcome.latency_us.count, 2);
        // The histogram has three significant figures.
        assert!((2998..=3002).contains(&outcome.latency_us.max));
        assert_eq!(outcome.errors, 3);
        assert_eq!(outcome.errors_by_kind["reset"], 2);
        assert_eq!(outcome.statuses[&200], 1);
        assert_eq!(outcome.reply_rate.samples, 2);
        assert!((outcome.reply_rate.mean - 0.2).abs() < 1e-9);
        assert_eq!(outcome.classes.len(), 2);
    }
}
