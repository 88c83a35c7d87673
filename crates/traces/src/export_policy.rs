//! The consequences of the outcome of an export: the next batch, or the same one again after a delay, and a message for
//! the log when the collector begins to fail and when it works again.

use std::time::Duration;

/// The delay after the first failure; each further one doubles it.
const DELAY_MIN_MS: u64 = 1_000;
/// The longest delay that follows from failures.
const DELAY_MAX_MS: u64 = 30_000;
/// The longest delay that a collector can request by Retry-After.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// The part of an export that a collector refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialSuccess {
    /// The number of refused spans.
    pub refused: u64,
    /// The reason, or advice if no span was refused.
    pub message: String,
}

/// The outcome of an attempt to export a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportOutcome {
    /// The collector accepted the batch, perhaps without some spans.
    Accepted(PartialSuccess),
    /// The collector refused the batch; a further attempt would not help.
    Refused(String),
    /// The collector can't be reached, does not answer, or is overloaded.
    Unavailable {
        /// The reason.
        reason: String,
        /// The delay that the collector requests.
        retry_after: Option<Duration>,
    },
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportStep {
    /// Continue with the next batch.
    Continue,
    /// Export the same batch again after this delay.
    RetryAfter(Duration),
}

/// A message for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportNotice {
    /// Exports began to fail, for this reason.
    Failing(String),
    /// Spans are refused, for this reason.
    Refusing(String),
    /// The collector accepts spans again.
    Recovered,
}

/// The state of the collector.
#[derive(Debug, Default)]
pub struct ExportState {
    /// The number of consecutive failures.
    failures: u32,
    /// A failure or refusal was reported, and no export has succeeded since.
    is_reported: bool,
}

impl ExportState {
    /// The step after an attempt, and the notice to be reported. `random` spreads the attempts of several servers.
    pub fn handle(
        &mut self,
        outcome: ExportOutcome,
        random: u64,
    ) -> (ExportStep, Option<ExportNotice>) {
        match outcome {
            ExportOutcome::Accepted(partial) if partial.refused > 0 => {
                self.failures = 0;
                let message = format!(
                    "{} spans of an export: {}",
                    partial.refused, partial.message
                );
                (
                    ExportStep::Continue,
                    self.report(ExportNotice::Refusing(message)),
                )
            }
            ExportOutcome::Accepted(_) => {
                self.failures = 0;
                let was_reported = std::mem::take(&mut self.is_reported);
                let notice = was_reported.then_some(ExportNotice::Recovered);
                (ExportStep::Continue, notice)
            }
            ExportOutcome::Refused(reason) => {
                self.failures = 0;
                (
                    ExportStep::Continue,
                    self.report(ExportNotice::Refusing(reason)),
                )
            }
            ExportOutcome::Unavailable {
                reason,
                retry_after,
            } => {
                self.failures = self.failures.saturating_add(1);
                // A collector can request a longer delay, but not a shorter one: attempts without a pause would use up a
                // processor.
                let own_delay = self.delay(random);
                let requested = retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
                let delay = own_delay.max(requested);
                (
                    ExportStep::RetryAfter(delay),
                    self.report(ExportNotice::Failing(reason)),
                )
            }
        }
    }

    /// The notice, unless the collector's state was reported before.
    fn report(&mut self, notice: ExportNotice) -> Option<ExportNotice> {
        let was_reported = std::mem::replace(&mut self.is_reported, true);
        (!was_reported).then_some(notice)
    }

    /// Exponential back-off: half of the delay is fixed, half is random.
    fn delay(&self, random: u64) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        let delay_ms = (DELAY_MIN_MS << doublings).min(DELAY_MAX_MS);
        Duration::from_millis(delay_ms / 2 + random % (delay_ms / 2 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unavailable(retry_after_s: Option<u64>) -> ExportOutcome {
        ExportOutcome::Unavailable {
            reason: "down".into(),
            retry_after: retry_after_s.map(Duration::from_secs),
        }
    }

    fn accepted() -> ExportOutcome {
        ExportOutcome::Accepted(PartialSuccess::default())
    }

    #[test]
    fn failure_and_recovery_are_reported_once() {
        let mut state = ExportState::default();
        assert_eq!(state.handle(accepted(), 0).1, None);
        let first = state.handle(unavailable(None), 0);
        assert_eq!(first.1, Some(ExportNotice::Failing("down".into())));
        assert_eq!(state.handle(unavailable(None), 0).1, None);
        assert_eq!(state.handle(ExportOutcome::Refused("no".into()), 0).1, None);
        assert_eq!(state.handle(accepted(), 0).1, Some(ExportNotice::Recovered));
        assert_eq!(state.handle(accepted(), 0).1, None);
    }

    #[test]
    fn delays_double_up_to_a_limit() {
        for (random, expected) in [
            (0, [500, 1000, 2000, 4000, 8000, 15_000, 15_000]),
            (u64::MAX, [0; 7]),
        ] {
            let mut state = ExportState::default();
            for expected_ms in expected {
                let (step, _) = state.handle(unavailable(None), random);
                let ExportStep::RetryAfter(delay) = step else {
                    panic!("{step:?}");
                };
                assert!(delay <= Duration::from_secs(30));
                if random == 0 {
                    assert_eq!(delay, Duration::from_millis(expected_ms));
                }
            }
        }
    }

    #[test]
    fn retry_after_replaces_the_delay_within_a_limit() {
        let mut state = ExportState::default();
        let step = state.handle(unavailable(Some(7)), 0).0;
        assert_eq!(step, ExportStep::RetryAfter(Duration::from_secs(7)));
        let step = state.handle(unavailable(Some(1_000_000)), 0).0;
        assert_eq!(step, ExportStep::RetryAfter(RETRY_AFTER_MAX));
        // A collector can't request attempts without a pause.
        let mut state = ExportState::default();
        let step = state.handle(unavailable(Some(0)), 0).0;
        let mut other = ExportState::default();
        assert_eq!(step, other.handle(unavailable(None), 0).0);
    }

    #[test]
    fn refused_spans_are_not_sent_again() {
        let mut state = ExportState::default();
        let partial = PartialSuccess {
            refused: 2,
            message: "too old".into(),
        };
        let (step, notice) = state.handle(ExportOutcome::Accepted(partial), 0);
        assert_eq!(step, ExportStep::Continue);
        let text = "2 spans of an export: too old";
        assert_eq!(notice, Some(ExportNotice::Refusing(text.into())));
    }
}
