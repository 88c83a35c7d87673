//! The failures of an order, classified by their remedy, and the delay before the next order.

use std::fmt;

use super::RenewalJitter;

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 3600;
const DAY_S: u64 = 86_400;
/// The longest Retry-After that is obeyed: after a longer time, the operator may have resolved the cause.
const RETRY_AFTER_S_MAX: u64 = 7 * DAY_S;

/// The class of a failure, by the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Remedied by time: the authority does not respond, or reports an internal error.
    Unreachable,
    /// Remedied by time: the authority's rate limit was exceeded.
    RateLimited,
    /// Remedied by the operator: the authority cannot validate a name, or refuses the order.
    Refused,
    /// Remedied by the authority: its response is not valid ACME, or its certificate is not the ordered one.
    WrongAnswer,
    /// Remedied by the operator: a problem with a file, a folder or the hook on this machine.
    Local,
}

/// The reason for which there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeFailure {
    /// The failure's class.
    pub kind: FailureKind,
    /// The authority's Retry-After in seconds.
    pub retry_after_s: Option<u64>,
    /// A message for the operator.
    pub text: String,
}

impl AcmeFailure {
    pub(crate) fn new(kind: FailureKind, text: impl Into<String>) -> AcmeFailure {
        AcmeFailure {
            kind,
            retry_after_s: None,
            text: text.into(),
        }
    }

    pub(crate) fn local(text: impl fmt::Display) -> AcmeFailure {
        AcmeFailure::new(FailureKind::Local, text.to_string())
    }

    /// The delay after this number of consecutive failures: exponential backoff up to a limit, plus a random quarter at
    /// most, to spread the retries of many names. For short-lived certificates, the backoff is limited to a twentieth
    /// of `lifetime_s`.
    pub(super) fn delay_s(
        &self,
        failures: u32,
        lifetime_s: Option<u64>,
        jitter: RenewalJitter,
    ) -> u64 {
        let (first_s, max_s) = match self.kind {
            FailureKind::Unreachable | FailureKind::Local => (MINUTE_S, HOUR_S),
            FailureKind::RateLimited => (HOUR_S, DAY_S),
            FailureKind::Refused => (15 * MINUTE_S, DAY_S),
            FailureKind::WrongAnswer => (5 * MINUTE_S, 6 * HOUR_S),
        };
        // The shift is bounded to prevent overflow.
        let doubled_s = first_s << failures.saturating_sub(1).min(16);
        // A short-lived certificate must not expire during a delay.
        let limit_s = lifetime_s.map_or(max_s, |lifetime_s| max_s.min(lifetime_s / 20));
        let backoff_s = doubled_s.min(limit_s.max(first_s));
        let retry_after_s = self.retry_after_s.unwrap_or(0).min(RETRY_AFTER_S_MAX);
        let min_s = match (self.kind, self.retry_after_s) {
            // The authority's own delay replaces the backoff.
            (FailureKind::RateLimited, Some(_)) => retry_after_s.max(MINUTE_S),
            _ => backoff_s.max(retry_after_s),
        };
        min_s + jitter.share_of(backoff_s / 4)
    }
}

impl fmt::Display for AcmeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for AcmeFailure {}
