//! Request metrics: number, level, status and duration of requests.
//!
//! Each worker writes its own [`RequestMetrics`] without locks; a scrape adds up the metrics of all workers. Durations
//! need a precise clock, which the event loop does not read otherwise. The clock is read at most twice per turn: when
//! the first request of the turn arrives, and at the end of the turn, when its responses have been written.

use std::sync::{Arc, OnceLock};

use lowroad_engine::Exchange;
use lowroad_engine::counters::WorkerCounter;
use lowroad_http::status::StatusCode;
use lowroad_limits::RefusalReason;
use lowroad_metrics::latency_histogram::bucket_index;
use lowroad_metrics::scope_registry::SCOPE_COUNT_MAX;
use lowroad_metrics::{LatencyDistribution, LatencyHistogram, MetricScope};
use lowroad_response_cache::storage::HitKind;
use lowroad_store::clock;

use crate::access::{AccessRecord, RequestOutcome};
use crate::answering_rule::AnsweringRule;
use crate::decision::CLIENT_GONE;
use crate::request_traces::ServerSpan;

/// Classes of status codes: the first digit of the code. 0 is for passed-through connections: their responses are not
/// read.
pub const CODE_CLASSES: [&str; 6] = ["unknown", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// The levels at which this process answers.
pub const LEVELS: [&str; 3] = ["worker", "handler", "origin"];

/// The cache outcome of a response, and the level that generated the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseSource(u8);

impl ResponseSource {
    /// The name of each source's cache outcome, and the index of its level in [`LEVELS`].
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

    /// The name of the cache outcome.
    pub fn outcome(self) -> &'static str {
        ResponseSource::ALL[self.index()].0
    }

    /// The level that produced the response.
    pub fn level(self) -> &'static str {
        LEVELS[self.level_index()]
    }

    /// The index of the level in [`LEVELS`].
    pub fn level_index(self) -> usize {
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
            RequestOutcome::Generated => 2,
            RequestOutcome::Stale | RequestOutcome::Stored(HitKind::StaleIfError) => 3,
            RequestOutcome::Program | RequestOutcome::ProgramStored(_) => 4,
            RequestOutcome::Stored(HitKind::Fetched | HitKind::Coalesced) => 5,
            RequestOutcome::Stored(HitKind::Validated) => 6,
            RequestOutcome::Passed => 7,
        })
    }
}

/// The request metrics of one worker, by scope.
pub struct RequestMetrics {
    /// The metrics of a scope, allocated at its first request.
    scopes: Box<[OnceLock<Box<ScopeMetrics>>]>,
    /// The durations of event loop turns in which requests arrived.
    turns: LatencyHistogram,
    /// The delays of the event loop in handling timers and unread bytes.
    lags: LatencyHistogram,
}

impl Default for RequestMetrics {
    fn default() -> RequestMetrics {
        let scopes = std::iter::repeat_with(OnceLock::new);
        RequestMetrics {
            scopes: scopes.take(SCOPE_COUNT_MAX).collect(),
            turns: LatencyHistogram::default(),
            lags: LatencyHistogram::default(),
        }
    }
}

/// The metrics of the requests of one site or route.
#[derive(Default)]
pub struct ScopeMetrics {
    /// The number of requests, by source and status class.
    requests: [[WorkerCounter; CODE_CLASSES.len()]; ResponseSource::ALL.len()],
    /// The number of body bytes sent.
    body_bytes: WorkerCounter,
    /// The number of responses that were not sent completely.
    truncated: WorkerCounter,
    /// The number of requests refused at each limit, in the order of [`RefusalReason::ALL`].
    refusals: [WorkerCounter; RefusalReason::ALL.len()],
    /// The number of requests that rules answered, in the order of [`AnsweringRule::ALL`].
    rules: [WorkerCounter; AnsweringRule::ALL.len()],
    /// The durations by level, in the order of [`LEVELS`].
    durations: [OnceLock<Box<LevelDurations>>; LEVELS.len()],
}

/// The durations of the requests of one scope at one level.
#[derive(Default)]
struct LevelDurations {
    /// Responses that were written and sent in the same turn: their head and their end are sent together, so this is
    /// both the time to the first byte and the whole duration.
    same_turn: LatencyHistogram,
    /// The whole duration of the other responses.
    whole: LatencyHistogram,
    /// The time to the first byte of the other responses.
    first_byte: LatencyHistogram,
}

/// The metrics of a scope, added up over all workers.
#[derive(Default)]
pub struct ScopeTotals {
    /// The number of requests, by source and status class.
    pub requests: [[u64; CODE_CLASSES.len()]; ResponseSource::ALL.len()],
    /// The number of body bytes sent.
    pub body_bytes: u64,
    /// The number of responses that were not sent completely.
    pub truncated: u64,
    /// The number of requests refused at each limit, in the order of [`RefusalReason::ALL`].
    pub refusals: [u64; RefusalReason::ALL.len()],
    /// The number of requests that rules answered, in the order of [`AnsweringRule::ALL`].
    pub rules: [u64; AnsweringRule::ALL.len()],
    /// The time from the head of the request to the end of the response, by level.
    pub durations: [LatencyDistribution; LEVELS.len()],
    /// The time from the head of the request to the head of the response, by level.
    pub first_byte: [LatencyDistribution; LEVELS.len()],
}

impl RequestMetrics {
    #[inline]
    fn scope(&self, scope: MetricScope) -> &ScopeMetrics {
        self.scopes[scope.index()].get_or_init(Box::default)
    }

    #[inline]
    fn durations(&self, scope: MetricScope, level: usize) -> &LevelDurations {
        self.scope(scope).durations[level].get_or_init(Box::default)
    }

    /// Adds the durations of turns to `sum`.
    pub fn add_turns_to(&self, sum: &mut LatencyDistribution) {
        self.turns.add_to(sum);
    }

    /// Adds the lags of the event loop to `sum`.
    pub fn add_lags_to(&self, sum: &mut LatencyDistribution) {
        self.lags.add_to(sum);
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
        totals.truncated += metrics.truncated.value();
        for (sum, counter) in totals.refusals.iter_mut().zip(&metrics.refusals) {
            *sum += counter.value();
        }
        for (sum, counter) in totals.rules.iter_mut().zip(&metrics.rules) {
            *sum += counter.value();
        }
        for (level, durations) in metrics.durations.iter().enumerate() {
            if let Some(durations) = durations.get() {
                durations.same_turn.add_to(&mut totals.durations[level]);
                durations.whole.add_to(&mut totals.durations[level]);
                durations.same_turn.add_to(&mut totals.first_byte[level]);
                durations.first_byte.add_to(&mut totals.first_byte[level]);
            }
        }
    }
}

/// The data of a response that are needed when it has been sent.
pub struct ResponseRecord {
    scope: MetricScope,
    source: ResponseSource,
    /// Whether the duration is recorded; false for tunnels.
    is_timed: bool,
    /// The status, if the request is counted when the response has ended: only then it is known whether the client
    /// still existed.
    uncounted_status: Option<u16>,
    /// The time at which the head of the request was complete, monotonic us.
    started_us: u64,
    /// The start of the turn in which the response was written, monotonic us.
    answered_us: u64,
    /// The record for the access log, if there is a log.
    pub access: Option<Box<AccessRecord>>,
    /// The span, if the request is traced.
    pub span: Option<Box<ServerSpan>>,
}

impl ResponseRecord {
    /// Whether the client had closed the connection before the response, of which `body_len` bytes of the body were
    /// sent, all of them if `is_whole`.
    pub fn is_client_gone(&self, body_len: u64, is_whole: bool) -> bool {
        self.uncounted_status.is_some() && !is_whole && body_len == 0
    }
}

/// Records the requests of one worker.
pub struct MetricsRecorder {
    metrics: Arc<RequestMetrics>,
    /// The time at which the first request of this turn arrived, monotonic us; 0 before it.
    turn_start_us: u64,
    /// Responses to requests of this turn that also ended in it: they have the same duration.
    same_turn: Vec<ResponseGroup>,
    /// Responses to earlier requests that ended in this turn.
    ended: Vec<EndedResponse>,
}

/// Responses of one scope and level.
struct ResponseGroup {
    scope: MetricScope,
    level: usize,
    count: u64,
}

/// A response that was sent completely or truncated.
struct EndedResponse {
    scope: MetricScope,
    level: usize,
    started_us: u64,
    answered_us: u64,
}

impl Default for MetricsRecorder {
    fn default() -> MetricsRecorder {
        MetricsRecorder {
            metrics: Arc::default(),
            turn_start_us: 0,
            same_turn: Vec::with_capacity(16),
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
        let uncounted_status = exchange.has_client_ended.then_some(status.code());
        if uncounted_status.is_none() {
            self.count(scope, source, status.code());
        }
        if let Some(reason) = exchange.refusal_reason {
            self.metrics.scope(scope).refusals[reason.index()].bump();
        }
        if let Some(index) = AnsweringRule::index(exchange) {
            self.metrics.scope(scope).rules[index].bump();
        }
        ResponseRecord {
            scope,
            source,
            is_timed: status.code() >= 200,
            uncounted_status,
            started_us: exchange.started_us,
            answered_us: self.turn_start_us(),
            access,
            span: None,
        }
    }

    /// Counts a connection that is passed through, starting with a request.
    pub fn record_passed(
        &mut self,
        scope: MetricScope,
        access: Option<Box<AccessRecord>>,
    ) -> ResponseRecord {
        let source = ResponseSource::from(RequestOutcome::Passed);
        self.count(scope, source, 0);
        ResponseRecord {
            scope,
            source,
            is_timed: false,
            uncounted_status: None,
            started_us: 0,
            answered_us: 0,
            access,
            span: None,
        }
    }

    #[inline]
    fn count(&self, scope: MetricScope, source: ResponseSource, status: u16) {
        let class = usize::from(status / 100).min(CODE_CLASSES.len() - 1);
        self.metrics.scope(scope).requests[source.index()][class].bump();
    }

    /// Records the end of a response: `body_len` bytes of its body were sent, all of them if `is_whole`.
    #[inline]
    pub fn sent(&mut self, record: &ResponseRecord, body_len: u64, is_whole: bool) {
        if let Some(status) = record.uncounted_status {
            let is_gone = record.is_client_gone(body_len, is_whole);
            let status = if is_gone { CLIENT_GONE.code() } else { status };
            self.count(record.scope, record.source, status);
        }
        let scope = self.metrics.scope(record.scope);
        scope.body_bytes.add(body_len);
        if !is_whole {
            scope.truncated.bump();
        }
        if !record.is_timed {
            return;
        }
        let (scope, level) = (record.scope, record.source.level_index());
        if record.started_us != self.turn_start_us {
            self.ended.push(EndedResponse {
                scope,
                level,
                started_us: record.started_us,
                answered_us: record.answered_us,
            });
            return;
        }
        match self.same_turn.last_mut() {
            Some(group) if group.scope == scope && group.level == level => group.count += 1,
            _ => self.same_turn.push(ResponseGroup {
                scope,
                level,
                count: 1,
            }),
        }
    }

    /// Records the delay of the event loop in handling a timer or unread bytes.
    #[inline]
    pub fn record_lag(&self, lag_ms: u64) {
        self.metrics.lags.record(lag_ms.saturating_mul(1000));
    }

    /// Records the durations of the responses that ended in this turn.
    #[inline]
    pub fn turn_ended(&mut self) {
        let turn_start_us = std::mem::take(&mut self.turn_start_us);
        if turn_start_us != 0 || !self.ended.is_empty() {
            self.record_durations(turn_start_us);
        }
    }

    /// Records the duration of the turn, and of the responses that ended in it.
    fn record_durations(&mut self, turn_start_us: u64) {
        let now_us = clock::monotonic_us();
        if turn_start_us > 0 {
            let turn_us = now_us.saturating_sub(turn_start_us);
            let turn_bucket = bucket_index(turn_us);
            self.metrics.turns.record_in(turn_bucket, turn_us, 1);
            for group in self.same_turn.drain(..) {
                let durations = self.metrics.durations(group.scope, group.level);
                let count = group.count;
                durations.same_turn.record_in(turn_bucket, turn_us, count);
            }
        }
        for ended in self.ended.drain(..) {
            let durations = self.metrics.durations(ended.scope, ended.level);
            let whole_us = now_us.saturating_sub(ended.started_us);
            if ended.answered_us == turn_start_us {
                durations.same_turn.record(whole_us);
            } else {
                // A head is sent at the end of the turn that wrote it, of which only the start is known.
                let first_byte_us = ended.answered_us.saturating_sub(ended.started_us);
                durations.whole.record(whole_us);
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
    fn response_source_agrees_with_logged_outcome() {
        let ways = [
            HitKind::Hit,
            HitKind::Fetched,
            HitKind::Coalesced,
            HitKind::Validated,
            HitKind::StaleIfError,
        ];
        let mut outcomes = vec![
            RequestOutcome::Hit,
            RequestOutcome::Miss,
            RequestOutcome::Generated,
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
    fn response_sent_in_one_turn_has_equal_first_byte_and_total_duration() {
        let mut recorder = MetricsRecorder::default();
        let started_us = recorder.turn_start_us();
        let status = StatusCode::OK;
        let record = recorder.record(&exchange(started_us), status, RequestOutcome::Hit, None);
        recorder.sent(&record, 7, true);
        assert_eq!(totals(&recorder).durations[0].count(), 0);
        recorder.turn_ended();
        let totals = totals(&recorder);
        assert_eq!(totals.requests[0][2], 1);
        assert_eq!((totals.body_bytes, totals.truncated), (7, 0));
        assert_eq!(totals.durations[0].count(), 1);
        assert_eq!(totals.durations[0], totals.first_byte[0]);
    }

    #[test]
    fn first_byte_of_streamed_response_precedes_its_end() {
        let mut recorder = MetricsRecorder::default();
        let started_us = recorder.turn_start_us().saturating_sub(2_000_000);
        let status = StatusCode::OK;
        let record = recorder.record(&exchange(started_us), status, RequestOutcome::Passed, None);
        recorder.turn_ended();
        let first_turn_us = record.answered_us;
        // A later turn.
        while recorder.turn_start_us() == first_turn_us {
            recorder.turn_ended();
        }
        recorder.sent(&record, 7, false);
        recorder.turn_ended();
        let totals = totals(&recorder);
        assert_eq!(totals.truncated, 1);
        assert!(totals.first_byte[2].sum_s() >= 2.0);
        assert!(totals.durations[2].sum_s() > totals.first_byte[2].sum_s());
    }

    #[test]
    fn request_of_a_client_that_may_be_gone_is_counted_at_its_end() {
        for (body_len, is_whole, class) in [(7, true, 2), (3, false, 2), (0, false, 4)] {
            let mut recorder = MetricsRecorder::default();
            let mut exchange = exchange(1);
            exchange.has_client_ended = true;
            let record = recorder.record(&exchange, StatusCode::OK, RequestOutcome::Passed, None);
            assert_eq!(totals(&recorder).requests[7], [0; 6]);
            recorder.sent(&record, body_len, is_whole);
            let counts = totals(&recorder).requests[7];
            assert_eq!((counts[class], counts.iter().sum::<u64>()), (1, 1));
        }
    }

    #[test]
    fn tunnel_has_no_duration() {
        let mut recorder = MetricsRecorder::default();
        let record = recorder.record_passed(MetricScope::NO_SITE, None);
        recorder.sent(&record, 1000, true);
        recorder.turn_ended();
        let totals = totals(&recorder);
        assert_eq!(totals.requests[7][0], 1);
        assert!(totals.durations.iter().all(|level| level.count() == 0));
    }
}
