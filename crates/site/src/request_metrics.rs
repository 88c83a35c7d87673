//! Metrics of requests: how many, from which level, with which status, and how long they took.
//!
//! Each worker writes its own [`RequestMetrics`] without locks; a scrape adds them up. Durations need a precise clock,
//! which the event loop does not read. It is read at most twice a turn: when the first request of the turn arrives, and
//! when the turn, and with it the responses written in it, has ended.

use std::sync::{Arc, OnceLock};

use lowroad_engine::Exchange;
use lowroad_engine::counters::WorkerCounter;
use lowroad_http::status::StatusCode;
use lowroad_metrics::latency_histogram::bucket_index;
use lowroad_metrics::scope_registry::SCOPE_COUNT_MAX;
use lowroad_metrics::{LatencyDistribution, LatencyHistogram, MetricScope};
use lowroad_response_cache::storage::HitKind;
use lowroad_store::clock;

use crate::access::{AccessRecord, RequestOutcome};

/// Classes of status codes: the code's first digit. 0 is for connections that are passed through unread.
pub const CODE_CLASSES: [&str; 6] = ["unknown", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// The levels that this process answers at.
pub const LEVELS: [&str; 3] = ["worker", "handler", "origin"];

/// What the cache did for a response, and the level that produced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseSource(u8);

impl ResponseSource {
    /// Each source with its outcome and the index of its level in [`LEVELS`].
    const ALL: [(&'static str, usize); 8] = [
        ("hit", 0),
        ("miss", 0),
        ("made", 0),
        ("stale", 0),
        ("made", 1),
        ("miss", 2),
        ("revalidated", 2),
        ("pass", 2),
    ];

    /// All sources.
    pub fn all() -> impl Iterator<Item = ResponseSource> {
        (0..ResponseSource::ALL.len()).map(|index| ResponseSource(index as u8))
    }

    /// The word for what the cache did.
    pub fn outcome(self) -> &'static str {
        ResponseSource::ALL[self.index()].0
    }

    /// The level that produced the response.
    pub fn level(self) -> &'static str {
        LEVELS[self.level_index()]
    }

    fn level_index(self) -> usize {
        ResponseSource::ALL[self.index()].1
    }

    fn index(self) -> usize {
        usize::from(self.0) % ResponseSource::ALL.len()
    }
}

impl From<RequestOutcome> for ResponseSource {
    #[inline]
    fn from(outcome: RequestOutcome) -> ResponseSource {
        ResponseSource(match outcome {
            RequestOutcome::Hit | RequestOutcome::Stored(HitKind::Hit) => 0,
            RequestOutcome::Miss => 1,
            RequestOutcome::Made => 2,
            RequestOutcome::Stale | RequestOutcome::Stored(HitKind::OnError) => 3,
            RequestOutcome::Program | RequestOutcome::ProgramStored(_) => 4,
            RequestOutcome::Stored(HitKind::Made | HitKind::Shared) => 5,
            RequestOutcome::Stored(HitKind::Validated) => 6,
            RequestOutcome::Passed => 7,
        })
    }
}

/// Metrics of one worker's requests, by scope.
pub struct RequestMetrics {
    /// Allocated with the first request of a scope.
    scopes: Box<[OnceLock<Box<ScopeMetrics>>]>,
    /// Durations of the event loop's turns that had requests.
    turns: LatencyHistogram,
}

impl Default for RequestMetrics {
    fn default() -> RequestMetrics {
        let scopes = std::iter::repeat_with(OnceLock::new);
        RequestMetrics {
            scopes: scopes.take(SCOPE_COUNT_MAX).collect(),
            turns: LatencyHistogram::default(),
        }
    }
}

/// Metrics of the requests of one site or route.
#[derive(Default)]
pub struct ScopeMetrics {
    /// By source and class of status.
    requests: [[WorkerCounter; CODE_CLASSES.len()]; ResponseSource::ALL.len()],
    /// Bytes of bodies that were sent.
    body_bytes: WorkerCounter,
    /// Responses that were not sent completely.
    cut: WorkerCounter,
    /// By level, in the order of [`LEVELS`].
    durations: [OnceLock<Box<LevelDurations>>; LEVELS.len()],
}

/// Durations of the requests of one scope at one level.
#[derive(Default)]
struct LevelDurations {
    whole: LatencyHistogram,
    first_byte: LatencyHistogram,
}

/// The sum of a scope's metrics over the workers.
#[derive(Default)]
pub struct ScopeTotals {
    /// By source and class of status.
    pub requests: [[u64; CODE_CLASSES.len()]; ResponseSource::ALL.len()],
    /// Bytes of bodies that were sent.
    pub body_bytes: u64,
    /// Responses that were not sent completely.
    pub cut: u64,
    /// From a request's head to the end of its response, by level.
    pub durations: [LatencyDistribution; LEVELS.len()],
    /// From a request's head to the head of its response, by level.
    pub first_byte: [LatencyDistribution; LEVELS.len()],
}

impl RequestMetrics {
    #[inline]
    fn scope(&self, scope: MetricScope) -> &ScopeMetrics {
        self.scopes[scope.index()].get_or_init(Box::default)
    }

    /// Adds the durations of turns to `sum`.
    pub fn add_turns_to(&self, sum: &mut LatencyDistribution) {
        self.turns.add_to(sum);
    }

    /// Adds the metrics of a scope to `totals`.
    pub fn add_to(&self, scope: MetricScope, totals: &mut ScopeTotals) {
        let Some(metrics) = self.scopes[scope.index()].get() else {
            return;
        };
        for (sums, counters) in totals.requests.iter_mut().zip(&metrics.requests) {
            for (sum, counter) in sums.iter_mut().zip(counters) {
                *sum += counter.value();
            }
        }
        totals.body_bytes += metrics.body_bytes.value();
        totals.cut += metrics.cut.value();
        for (level, durations) in metrics.durations.iter().enumerate() {
            if let Some(durations) = durations.get() {
                durations.whole.add_to(&mut totals.durations[level]);
                durations.first_byte.add_to(&mut totals.first_byte[level]);
            }
        }
    }
}

/// What is known of a response while it is sent.
pub struct ResponseRecord {
    scope: MetricScope,
    source: ResponseSource,
    /// Whether its duration is that of a request, not of a tunnel.
    is_timed: bool,
    /// When the request's head was complete, monotonic us.
    started_us: u64,
    /// The start of the turn in which the response was written, monotonic us.
    answered_us: u64,
    /// Its line of the access log, if there is a log.
    pub access: Option<Box<AccessRecord>>,
}

/// Records the requests of one worker.
pub struct MetricsRecorder {
    metrics: Arc<RequestMetrics>,
    /// The time of this turn's first request, monotonic us; 0 before it.
    turn_start_us: u64,
    /// Responses that were sent completely, or cut, in this turn.
    ended: Vec<EndedResponse>,
}

struct EndedResponse {
    scope: MetricScope,
    source: ResponseSource,
    started_us: u64,
    answered_us: u64,
}

impl Default for MetricsRecorder {
    fn default() -> MetricsRecorder {
        MetricsRecorder {
            metrics: Arc::default(),
            turn_start_us: 0,
            ended: Vec::with_capacity(64),
        }
    }
}

impl MetricsRecorder {
    /// The metrics, for scrapes.
    pub fn metrics(&self) -> Arc<RequestMetrics> {
        self.metrics.clone()
    }

    /// The time of this turn, monotonic us.
    #[inline]
    pub fn turn_start_us(&mut self) -> u64 {
        if self.turn_start_us == 0 {
            self.turn_start_us = clock::monotonic_us();
        }
        self.turn_start_us
    }

    /// Counts an answered request.
    #[inline]
    pub fn record(
        &mut self,
        exchange: &Exchange,
        status: StatusCode,
        outcome: RequestOutcome,
        access: Option<Box<AccessRecord>>,
    ) -> ResponseRecord {
        let scope = MetricScope::from_number(exchange.metric_scope);
        let source = ResponseSource::from(outcome);
        self.count(scope, source, status.code());
        ResponseRecord {
            scope,
            source,
            is_timed: status.code() >= 200,
            started_us: exchange.started_us,
            answered_us: self.turn_start_us(),
            access,
        }
    }

    /// Counts a connection that is passed through from a request on.
    pub fn record_passed(&mut self, access: Option<Box<AccessRecord>>) -> ResponseRecord {
        let source = ResponseSource::from(RequestOutcome::Passed);
        self.count(MetricScope::NO_SITE, source, 0);
        ResponseRecord {
            scope: MetricScope::NO_SITE,
            source,
            is_timed: false,
            started_us: 0,
            answered_us: 0,
            access,
        }
    }

    #[inline]
    fn count(&self, scope: MetricScope, source: ResponseSource, status: u16) {
        let class = usize::from(status / 100).min(CODE_CLASSES.len() - 1);
        self.metrics.scope(scope).requests[source.index()][class].bump();
    }

    /// Notes that a response was sent: `body_len` bytes of its body, and all of them if `is_whole`.
    #[inline]
    pub fn sent(&mut self, record: &ResponseRecord, body_len: u64, is_whole: bool) {
        let scope = self.metrics.scope(record.scope);
        scope.body_bytes.add(body_len);
        if !is_whole {
            scope.cut.bump();
        }
        if record.is_timed {
            self.ended.push(EndedResponse {
                scope: record.scope,
                source: record.source,
                started_us: record.started_us,
                answered_us: record.answered_us,
            });
        }
    }

    /// Records the durations of the turn's responses.
    #[inline]
    pub fn turn_ended(&mut self) {
        let turn_start_us = std::mem::take(&mut self.turn_start_us);
        if !self.ended.is_empty() {
            self.record_durations(turn_start_us);
        }
    }

    fn record_durations(&mut self, turn_start_us: u64) {
        let now_us = clock::monotonic_us();
        if turn_start_us > 0 {
            self.metrics
                .turns
                .record(now_us.saturating_sub(turn_start_us));
        }
        for ended in self.ended.drain(..) {
            let level = ended.source.level_index();
            let durations = &self.metrics.scope(ended.scope).durations[level];
            let durations = durations.get_or_init(Box::default);
            let whole_us = now_us.saturating_sub(ended.started_us);
            let bucket = bucket_index(whole_us);
            durations.whole.record_in(bucket, whole_us);
            // The head of a response leaves when its turn ends. If that was an earlier turn, its start is known.
            if ended.answered_us == turn_start_us {
                durations.first_byte.record_in(bucket, whole_us);
            } else {
                let first_byte_us = ended.answered_us.saturating_sub(ended.started_us);
                durations.first_byte.record(first_byte_us);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use lowroad_engine::ListenerId;
    use lowroad_http::version::HttpVersion;

    use super::*;

    fn exchange(started_us: u64) -> Exchange {
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mut exchange = Exchange::without_client(ListenerId(0), peer, HttpVersion::Http11, 1, 1);
        exchange.started_us = started_us;
        exchange
    }

    fn totals(recorder: &MetricsRecorder) -> ScopeTotals {
        let mut totals = ScopeTotals::default();
        recorder.metrics().add_to(MetricScope::NO_SITE, &mut totals);
        totals
    }

    #[test]
    fn the_source_of_a_response_agrees_with_its_log_line() {
        let ways = [
            HitKind::Hit,
            HitKind::Made,
            HitKind::Shared,
            HitKind::Validated,
            HitKind::OnError,
        ];
        let mut outcomes = vec![
            RequestOutcome::Hit,
            RequestOutcome::Miss,
            RequestOutcome::Made,
            RequestOutcome::Program,
            RequestOutcome::Stale,
            RequestOutcome::Passed,
        ];
        outcomes.extend(ways.map(RequestOutcome::Stored));
        outcomes.extend(ways.map(RequestOutcome::ProgramStored));
        for outcome in outcomes {
            let source = ResponseSource::from(outcome);
            assert_eq!(source.outcome(), outcome.as_str(), "{outcome:?}");
        }
    }

    #[test]
    fn a_response_of_one_turn_has_one_duration() {
        let mut recorder = MetricsRecorder::default();
        let started_us = recorder.turn_start_us();
        let status = StatusCode::OK;
        let record = recorder.record(&exchange(started_us), status, RequestOutcome::Hit, None);
        recorder.sent(&record, 7, true);
        assert_eq!(totals(&recorder).durations[0].count(), 0);
        recorder.turn_ended();
        let totals = totals(&recorder);
        assert_eq!(totals.requests[0][2], 1);
        assert_eq!((totals.body_bytes, totals.cut), (7, 0));
        assert_eq!(totals.durations[0].count(), 1);
        assert_eq!(totals.durations[0], totals.first_byte[0]);
    }

    #[test]
    fn the_first_byte_of_a_long_response_is_earlier_than_its_end() {
        let mut recorder = MetricsRecorder::default();
        let started_us = recorder.turn_start_us().saturating_sub(2_000_000);
        let status = StatusCode::OK;
        let record = recorder.record(&exchange(started_us), status, RequestOutcome::Passed, None);
        recorder.turn_ended();
        let first_turn_us = record.answered_us;
        // Another turn, at a later time.
        while recorder.turn_start_us() == first_turn_us {
            recorder.turn_ended();
        }
        recorder.sent(&record, 7, false);
        recorder.turn_ended();
        let totals = totals(&recorder);
        assert_eq!(totals.cut, 1);
        assert!(totals.first_byte[2].sum_s() >= 2.0);
        assert!(totals.durations[2].sum_s() > totals.first_byte[2].sum_s());
    }

    #[test]
    fn a_tunnel_has_no_duration() {
        let mut recorder = MetricsRecorder::default();
        let record = recorder.record_passed(None);
        recorder.sent(&record, 1000, true);
        recorder.turn_ended();
        let totals = totals(&recorder);
        assert_eq!(totals.requests[7][0], 1);
        assert!(totals.durations.iter().all(|level| level.count() == 0));
    }
}
