//! Limits the log lines for a handler's failures: one for the first of its kind, and later one with the number of
//! repetitions.

use std::sync::{Mutex, PoisonError};

/// The time for which a line covers equal failures.
const INTERVAL_MS: u64 = 10_000;
/// The maximum number of groups. Reasons may contain numbers; beyond this, failures are grouped by status only.
const KINDS_MAX: usize = 16;

/// The failures of one route.
#[derive(Default)]
pub struct RouteFailures(Mutex<Vec<FailureGroup>>);

/// Failures with one status and one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureGroup {
    /// The status in the response.
    pub status: u16,
    reason: String,
    /// The number of the logged failure.
    pub number: String,
    /// The count of failures without a line.
    pub unlogged: u64,
    until_ms: u64,
}

/// The handling of a failure.
#[derive(Debug, PartialEq, Eq)]
pub enum FailureNotice {
    /// Log a line with this number.
    Line(String),
    /// Log nothing: the line with this number covers it.
    Another(String),
}

impl RouteFailures {
    /// Counts a failure; `number` creates a number if a line is needed.
    pub fn count(
        &self,
        status: u16,
        reason: &str,
        now_ms: u64,
        number: impl FnOnce() -> String,
    ) -> FailureNotice {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = kinds.len() >= KINDS_MAX;
        // Bounded: a backend that fails in ever new ways shares lines by status.
        let same = kinds
            .iter()
            .position(|kind| kind.status == status && kind.reason == reason);
        let similar = || {
            kinds
                .iter()
                .rposition(|kind| is_full && kind.status == status)
        };
        if let Some(at) = same.or_else(similar) {
            // Counted only: the line at the end of the interval gives the number.
            kinds[at].unlogged += 1;
            return FailureNotice::Another(kinds[at].number.clone());
        }
        let number = number();
        kinds.push(FailureGroup {
            status,
            reason: reason.into(),
            number: number.clone(),
            unlogged: 0,
            until_ms: now_ms + INTERVAL_MS,
        });
        FailureNotice::Line(number)
    }

    /// Takes the groups after their time is over.
    pub fn take_expired(&self, now_ms: u64) -> Vec<FailureGroup> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kinds
            .extract_if(.., |kind| kind.until_ms <= now_ms)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stands_for_the_failures_that_follow() {
        let faults = RouteFailures::default();
        let count = |status, now_ms, number: &str| {
            faults.count(status, "it is down", now_ms, || number.into())
        };
        assert_eq!(count(502, 0, "a"), FailureNotice::Line("a".into()));
        assert_eq!(count(502, 1, "b"), FailureNotice::Another("a".into()));
        assert_eq!(count(504, 2, "c"), FailureNotice::Line("c".into()));
        assert_eq!(count(502, 9_999, "d"), FailureNotice::Another("a".into()));
        assert_eq!(faults.take_expired(9_999), []);
        let over = faults.take_expired(10_000);
        let over: Vec<_> = over
            .iter()
            .map(|kind| (kind.status, &*kind.number, kind.unlogged))
            .collect();
        assert_eq!(over, [(502, "a", 2)]);
        assert_eq!(count(502, 10_001, "e"), FailureNotice::Line("e".into()));
        assert_eq!(faults.take_expired(10_002)[0].unlogged, 0);
    }

    #[test]
    fn another_reason_has_another_line() {
        let faults = RouteFailures::default();
        let count = |reason: &str, number: &str| faults.count(502, reason, 0, || number.into());
        assert_eq!(count("refused", "a"), FailureNotice::Line("a".into()));
        assert_eq!(count("garbage", "b"), FailureNotice::Line("b".into()));
        assert_eq!(count("refused", "c"), FailureNotice::Another("a".into()));
        let more: Vec<u64> = faults
            .take_expired(10_000)
            .iter()
            .map(|kind| kind.unlogged)
            .collect();
        assert_eq!(more, [1, 0]);
    }

    #[test]
    fn reasons_without_number_have_no_lines_without_number() {
        let faults = RouteFailures::default();
        let count = |status: u16, reason: &str| faults.count(status, reason, 0, || reason.into());
        let lines = (0..1000)
            .filter(|number| matches!(count(502, &number.to_string()), FailureNotice::Line(_)));
        assert_eq!(lines.count(), KINDS_MAX);
        // The first failure of a status always has a line.
        assert_eq!(count(504, "silence"), FailureNotice::Line("silence".into()));
        assert_eq!(count(502, "0"), FailureNotice::Another("0".into()));
        let last = (KINDS_MAX - 1).to_string();
        assert_eq!(count(502, "new"), FailureNotice::Another(last));
    }
}
