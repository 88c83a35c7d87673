//! Limits the number of log lines about failures of a handler: the first failure of a kind gets a line, and later the
//! number of repetitions.

use std::sync::{Mutex, PoisonError};

/// The time for which equal failures are covered by one line.
const INTERVAL_MS: u64 = 10_000;
/// The maximum number of groups. Reasons may contain numbers; beyond this limit, failures are grouped by status only.
const KINDS_MAX: usize = 16;

/// The failures of a route.
#[derive(Default)]
pub struct RouteFailures(Mutex<Vec<FailureGroup>>);

/// Failures with the same status and reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureGroup {
    /// The status of the response.
    pub status: u16,
    reason: String,
    /// The number of the failure that was logged.
    pub number: String,
    /// The number of failures that were not logged.
    pub unlogged: u64,
    until_ms: u64,
}

/// How a failure is logged.
#[derive(Debug, PartialEq, Eq)]
pub enum FailureNotice {
    /// Log a line with this failure number.
    Line(String),
    /// Log nothing: the line with this failure number covers it.
    Covered(String),
}

impl RouteFailures {
    /// Counts a failure; `number` is called to create a failure number if a line is needed.
    pub fn count(
        &self,
        status: u16,
        reason: &str,
        now_ms: u64,
        number: impl FnOnce() -> String,
    ) -> FailureNotice {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = kinds.len() >= KINDS_MAX;
        // The number of groups is bounded: if a backend fails with ever new reasons, failures are grouped by status.
        let same = kinds
            .iter()
            .position(|kind| kind.status == status && kind.reason == reason);
        let similar = || {
            kinds
                .iter()
                .rposition(|kind| is_full && kind.status == status)
        };
        if let Some(at) = same.or_else(similar) {
            // The failure is only counted here; a line at the end of the interval contains the total.
            kinds[at].unlogged += 1;
            return FailureNotice::Covered(kinds[at].number.clone());
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

    /// Takes the groups with an interval that is over.
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
    fn failures_within_interval_share_one_log_line() {
        let faults = RouteFailures::default();
        let count = |status, now_ms, number: &str| {
            faults.count(status, "it is down", now_ms, || number.into())
        };
        assert_eq!(count(502, 0, "a"), FailureNotice::Line("a".into()));
        assert_eq!(count(502, 1, "b"), FailureNotice::Covered("a".into()));
        assert_eq!(count(504, 2, "c"), FailureNotice::Line("c".into()));
        assert_eq!(count(502, 9_999, "d"), FailureNotice::Covered("a".into()));
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
    fn failures_with_different_reasons_have_separate_lines() {
        let faults = RouteFailures::default();
        let count = |reason: &str, number: &str| faults.count(502, reason, 0, || number.into());
        assert_eq!(count("refused", "a"), FailureNotice::Line("a".into()));
        assert_eq!(count("garbage", "b"), FailureNotice::Line("b".into()));
        assert_eq!(count("refused", "c"), FailureNotice::Covered("a".into()));
        let more: Vec<u64> = faults
            .take_expired(10_000)
            .iter()
            .map(|kind| kind.unlogged)
            .collect();
        assert_eq!(more, [1, 0]);
    }

    #[test]
    fn number_of_log_lines_is_bounded_for_varying_reasons() {
        let faults = RouteFailures::default();
        let count = |status: u16, reason: &str| faults.count(status, reason, 0, || reason.into());
        let lines = (0..1000)
            .filter(|number| matches!(count(502, &number.to_string()), FailureNotice::Line(_)));
        assert_eq!(lines.count(), KINDS_MAX);
        // The first failure with a status always gets a line.
        assert_eq!(count(504, "silence"), FailureNotice::Line("silence".into()));
        assert_eq!(count(502, "0"), FailureNotice::Covered("0".into()));
        let last = (KINDS_MAX - 1).to_string();
        assert_eq!(count(502, "new"), FailureNotice::Covered(last));
    }
}
