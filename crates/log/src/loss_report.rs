//! Decides when the error log reports lost entries, without clock or log: the caller passes the time.
//!
//! A single success is no recovery. A datagram to a closed port is accepted by the kernel and refused only later, and a
//! receiver may accept a connection and close it at once. The end is therefore reported after [`RECOVERY`] without an
//! error.

use std::time::{Duration, Instant};

/// The time without an error after which the destination counts as working again.
pub const RECOVERY: Duration = Duration::from_secs(5);
/// The first pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The entries lost by a failing destination.
#[derive(Debug, Default)]
pub struct LossReport {
    /// The number of entries lost since the destination failed; `None` while it works.
    lost: Option<u64>,
    /// The first success after the last failure.
    working_since: Option<Instant>,
}

impl LossReport {
    /// Records a failure. Returns whether it is to be reported: the destination worked before.
    pub fn note_failure(&mut self) -> bool {
        self.working_since = None;
        let is_first = self.lost.is_none();
        self.lost.get_or_insert(0);
        is_first
    }

    /// Counts lost entries, while the destination fails.
    pub fn count_lost(&mut self, count: u64) {
        if let Some(lost) = &mut self.lost {
            *lost += count;
        }
    }

    /// Records a success. Returns the number of lost entries if the recovery is to be reported.
    pub fn note_success(&mut self, now: Instant) -> Option<u64> {
        self.lost?;
        let since = *self.working_since.get_or_insert(now);
        if now.saturating_duration_since(since) < RECOVERY {
            return None;
        }
        self.working_since = None;
        self.lost.take()
    }
}

/// The pauses between tries (exponential back-off). They start again with the shortest one after a recovery.
#[derive(Debug, Default)]
pub(crate) struct RetryPolicy {
    report: LossReport,
    pause: Duration,
    /// The time before which there is no try.
    retry_at: Option<Instant>,
}

impl RetryPolicy {
    /// Whether to try now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.retry_at.is_none_or(|retry_at| now >= retry_at)
    }

    /// Records a failure. Returns whether it is to be reported.
    pub(crate) fn note_failure(&mut self, now: Instant) -> bool {
        self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.retry_at = Some(now + self.pause);
        self.report.note_failure()
    }

    /// Counts lost entries.
    pub(crate) fn count_lost(&mut self, count: u64) {
        self.report.count_lost(count);
    }

    /// Records a success. Returns the number of lost entries if the recovery is to be reported.
    pub(crate) fn note_success(&mut self, now: Instant) -> Option<u64> {
        self.retry_at = None;
        // The pause stays until the recovery: single successes between failures must not shorten it.
        let lost = self.report.note_success(now)?;
        self.pause = Duration::ZERO;
        Some(lost)
    }

    /// Ends the current pause.
    pub(crate) fn end_pause(&mut self) {
        self.retry_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times of tries, ms, of a destination for which each send is a success except as `is_failure` says, with a
    /// message each 100 ms; and the reports.
    fn run(minutes: u64, is_failure: impl Fn(u64) -> bool) -> (Vec<u64>, Vec<String>) {
        let start = Instant::now();
        let mut policy = RetryPolicy::default();
        let (mut failures, mut reports) = (Vec::new(), Vec::new());
        let mut tries = 0;
        for ms in (0..minutes * 60_000).step_by(100) {
            let now = start + Duration::from_millis(ms);
            if !policy.is_due(now) {
                policy.count_lost(1);
                continue;
            }
            tries += 1;
            if is_failure(tries) {
                failures.push(ms);
                if policy.note_failure(now) {
                    reports.push("failed".to_owned());
                }
                policy.count_lost(1);
            } else if let Some(lost) = policy.note_success(now) {
                reports.push(format!("again at {ms}: {lost}"));
            }
        }
        (failures, reports)
    }

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let (failures, reports) = run(5, |_| true);
        assert_eq!(
            failures,
            [
                0, 500, 1500, 3500, 7500, 15_500, 31_500, 63_500, 123_500, 183_500, 243_500
            ]
        );
        assert_eq!(reports, ["failed"]);
    }

    #[test]
    fn successes_between_failures_are_no_recovery() {
        // A closed UDP port: the send after each error succeeds, since the kernel learns of the error only later.
        let (failures, reports) = run(5, |number| number % 2 == 1);
        let pauses: Vec<u64> = failures.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(
            pauses,
            [
                600, 1100, 2100, 4100, 8100, 16_100, 32_100, 60_100, 60_100, 60_100
            ]
        );
        assert_eq!(reports, ["failed"]);
    }

    #[test]
    fn recovery_is_reported_after_some_seconds_without_an_error() {
        // Three failures, then only successes from 3,500 ms on; and a later failure, with the shortest pause.
        let (failures, reports) = run(1, |number| number <= 3 || number == 300);
        assert_eq!(failures[..3], [0, 500, 1500]);
        assert_eq!(
            reports,
            ["failed", "again at 8500: 35", "failed", "again at 38600: 5"]
        );
    }
}
