//! Counts the requests to one origin server, and measures how long its connections and responses take.
//!
//! All workers share these counters. A request to an origin costs thousands of instructions, so atomic additions are
//! cheap enough.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lowroad_handler::upstream_status::{FAILURE_REASONS, UpstreamRequests};
use lowroad_metrics::{LatencyDistribution, LatencyHistogram};
use lowroad_origin::group::{AttemptOutcome, MemberCounters};

/// The counters of an origin server.
#[derive(Default)]
pub struct EndpointCounters {
    responses: AtomicU64,
    failures: [AtomicU64; FAILURE_REASONS.len()],
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

/// The requests of a member, as its group has counted them.
pub fn member_requests(counts: &MemberCounters) -> UpstreamRequests {
    UpstreamRequests {
        responses: counts.answered,
        failures: [
            counts.connect_failed,
            counts.timed_out,
            counts.lost,
            counts.malformed,
            counts.server_errors,
        ],
    }
}

impl EndpointCounters {
    /// Counts a request to a server without a group. A group counts the requests of its members itself.
    pub fn count(&self, outcome: AttemptOutcome) {
        match failure_index(outcome) {
            Some(index) => self.failures[index].fetch_add(1, Relaxed),
            None if outcome == AttemptOutcome::Answered => self.responses.fetch_add(1, Relaxed),
            None => return,
        };
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
    fn outcomes_of_single_servers_and_members_have_the_same_reasons() {
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
        let member = MemberCounters {
            answered: 1,
            connect_failed: 2,
            timed_out: 3,
            lost: 4,
            malformed: 5,
            server_errors: 6,
            cancelled: 7,
            ..MemberCounters::default()
        };
        assert_eq!(counters.requests(), member_requests(&member));
        assert_eq!(counters.requests().failures, [2, 3, 4, 5, 6]);
    }
}
