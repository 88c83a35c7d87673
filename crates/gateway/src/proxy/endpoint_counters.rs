//! Counts the requests to one origin server, and measures how long its connections and responses take.
//!
//! All workers share these counters. A request to an origin costs thousands of instructions, so atomic additions are
//! cheap enough.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lowroad_handler::upstream_status::{FAILURE_REASONS, HealthCounts, UpstreamRequests};
use lowroad_metrics::{LatencyDistribution, LatencyHistogram};
use lowroad_origin::group::{AttemptOutcome, CircuitEvent};

/// The counters of an origin server.
#[derive(Default)]
pub struct EndpointCounters {
    responses: AtomicU64,
    failures: [AtomicU64; FAILURE_REASONS.len()],
    ejections: AtomicU64,
    recoveries: AtomicU64,
    checks_passed: AtomicU64,
    checks_failed: AtomicU64,
    unretried: AtomicU64,
    connect_times: LatencyHistogram,
    response_times: LatencyHistogram,
}

/// The index of a failed outcome in [`FAILURE_REASONS`]; `None` if the server did not fail.
fn failure_index(outcome: AttemptOutcome) -> Option<usize> {
    match outcome {
        AttemptOutcome::Answered | AttemptOutcome::Cancelled => None,
        AttemptOutcome::ConnectFailed => Some(0),
        AttemptOutcome::TimedOut => Some(1),
        AttemptOutcome::Lost => Some(2),
        AttemptOutcome::Malformed => Some(3),
        AttemptOutcome::ServerError => Some(4),
    }
}

/// The name of a failure; `None` if the server did not fail.
pub fn failure_reason(outcome: AttemptOutcome) -> Option<&'static str> {
    failure_index(outcome).map(|index| FAILURE_REASONS[index])
}

impl EndpointCounters {
    /// Counts a request to the server.
    pub fn count(&self, outcome: AttemptOutcome) {
        match failure_index(outcome) {
            Some(index) => self.failures[index].fetch_add(1, Relaxed),
            None if outcome == AttemptOutcome::Answered => self.responses.fetch_add(1, Relaxed),
            None => return,
        };
    }

    /// Counts a change of the circuit breaker.
    pub fn count_circuit_event(&self, event: CircuitEvent) {
        match event {
            CircuitEvent::Ejected { .. } => self.ejections.fetch_add(1, Relaxed),
            CircuitEvent::Recovered { .. } => self.recoveries.fetch_add(1, Relaxed),
        };
    }

    /// Counts a health check.
    pub fn count_check(&self, has_passed: bool) {
        match has_passed {
            true => self.checks_passed.fetch_add(1, Relaxed),
            false => self.checks_failed.fetch_add(1, Relaxed),
        };
    }

    /// Counts a request that was not retried because its body exceeded the limit.
    pub fn count_unretried(&self) {
        self.unretried.fetch_add(1, Relaxed);
    }

    /// The number of requests that were not retried because of their body.
    pub fn unretried(&self) -> u64 {
        self.unretried.load(Relaxed)
    }

    /// The counted changes of the circuit breaker, and health checks.
    pub fn health(&self) -> HealthCounts {
        HealthCounts {
            ejections: self.ejections.load(Relaxed),
            recoveries: self.recoveries.load(Relaxed),
            checks_passed: self.checks_passed.load(Relaxed),
            checks_failed: self.checks_failed.load(Relaxed),
        }
    }

    /// The counted requests.
    pub fn requests(&self) -> UpstreamRequests {
        UpstreamRequests {
            responses: self.responses.load(Relaxed),
            failures: std::array::from_fn(|index| self.failures[index].load(Relaxed)),
        }
    }

    /// Records the time since `start` until a new connection was ready.
    pub fn record_connect(&self, start: Instant) {
        self.connect_times
            .record_shared(microseconds(start.elapsed()));
    }

    /// Records the time since `start`, when the request was ready to be sent, until the head of the response.
    pub fn record_response(&self, start: Instant) {
        self.response_times
            .record_shared(microseconds(start.elapsed()));
    }

    /// The durations of connecting.
    pub fn connect_times(&self) -> LatencyDistribution {
        let mut sum = LatencyDistribution::default();
        self.connect_times.add_to(&mut sum);
        sum
    }

    /// The durations until the head of a response.
    pub fn response_times(&self) -> LatencyDistribution {
        let mut sum = LatencyDistribution::default();
        self.response_times.add_to(&mut sum);
        sum
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_reason() {
        let counters = EndpointCounters::default();
        for (outcome, times) in [
            (AttemptOutcome::Answered, 1),
            (AttemptOutcome::ConnectFailed, 2),
            (AttemptOutcome::TimedOut, 3),
            (AttemptOutcome::Lost, 4),
            (AttemptOutcome::Malformed, 5),
            (AttemptOutcome::ServerError, 6),
            (AttemptOutcome::Cancelled, 7),
        ] {
            (0..times).for_each(|_| counters.count(outcome));
        }
        let expected = UpstreamRequests {
            responses: 1,
            failures: [2, 3, 4, 5, 6],
        };
        assert_eq!(counters.requests(), expected);
    }
}
