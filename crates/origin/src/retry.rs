//! Retries: decides whether a failed request may be sent to another member. Pure functions and a budget.
//!
//! Read first: RFC 9110 §9.2.2 (idempotent methods), RFC 9112 §9.3.1 (retrying requests).

use std::fmt;

use lowroad_limits::{BucketState, CellRate, RequestRate};

/// Limits for retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// Attempts per request, including the first.
    pub tries_max: u32,
    /// Retry budget: retries as a share of requests, in percent.
    pub budget_percent: u32,
    /// Retries per second that are always allowed: a share of few requests would be too small.
    pub budget_per_s: u32,
    /// Whether a request that timed out at one member is retried at another.
    pub after_timeouts: bool,
}

impl Default for RetryLimits {
    fn default() -> RetryLimits {
        RetryLimits {
            tries_max: 3,
            budget_percent: 20,
            budget_per_s: 5,
            after_timeouts: true,
        }
    }
}

/// How far an attempt got before it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureStage {
    /// Attempts so far, including this one.
    pub tries: u32,
    /// Whether the method is idempotent (RFC 9110 §9.2.2).
    pub is_idempotent: bool,
    /// Whether bytes of the request may have reached the member.
    pub sent: bool,
    /// Whether the request's body can be sent again.
    pub body: BodyReplay,
    /// The response, as far as it arrived.
    pub evidence: RetryEvidence,
    /// Whether the attempt timed out.
    pub timed_out: bool,
}

/// Whether a request's body can be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyReplay {
    /// It can: there is none, none of it was read yet, or it is kept.
    Whole,
    /// It cannot: some of it is lost.
    Consumed,
}

/// How much of a response has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryEvidence {
    /// None of it.
    Nothing,
    /// A status code that the caller would rather retry; none of it was sent to the client.
    Refusing,
    /// A part of it, which a second response could contradict.
    Some,
}

/// The reason against a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRetry {
    /// The maximum of attempts is reached.
    Tries,
    /// A part of the response has arrived.
    ResponseSeen,
    /// It may have been executed, and its method is not idempotent.
    NotIdempotent,
    /// Its body is lost.
    BodyConsumed,
    /// It timed out, and timeouts are not retried.
    TimedOut,
    /// The retry budget is empty.
    Budget,
}

impl fmt::Display for NoRetry {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            NoRetry::Tries => "the maximum of attempts is reached",
            NoRetry::ResponseSeen => "a part of the response had arrived",
            NoRetry::NotIdempotent => "it may have been executed, and its method is not idempotent",
            NoRetry::BodyConsumed => "its body was not buffered",
            NoRetry::TimedOut => "it timed out",
            NoRetry::Budget => "the retry budget is used up",
        })
    }
}

/// Whether the request may be retried; if so, takes one retry from the budget.
///
/// # Errors
/// [`NoRetry`]
pub fn may_retry(
    retry: &RetryLimits,
    stage: &FailureStage,
    budget: &mut RetryBudget,
    now_ms: u64,
) -> Result<(), NoRetry> {
    // In the order of the most useful explanation for the operator.
    if stage.tries >= retry.tries_max {
        return Err(NoRetry::Tries);
    }
    // The client may have bytes of the response.
    if stage.evidence == RetryEvidence::Some {
        return Err(NoRetry::ResponseSeen);
    }
    // RFC 9110 §9.2.2: a proxy must not automatically retry non-idempotent requests. One without sent bytes was not
    // executed.
    if stage.sent && !stage.is_idempotent {
        return Err(NoRetry::NotIdempotent);
    }
    if stage.body == BodyReplay::Consumed {
        return Err(NoRetry::BodyConsumed);
    }
    if stage.timed_out && !retry.after_timeouts {
        return Err(NoRetry::TimedOut);
    }
    // Last, so that requests that cannot be retried for another reason do not consume the budget.
    match budget.take(retry, now_ms) {
        true => Ok(()),
        false => Err(NoRetry::Budget),
    }
}

/// The cost of a retry, in percent points that requests earn.
const RETRY: u64 = 100;
/// Seconds of `budget_per_s` that can be saved up.
const SAVED_S_MAX: u64 = 10;
/// The maximum of requests that count for the saved share.
const SAVED_REQUESTS_MAX: u64 = 1_000;

/// Retry budget: a token bucket that requests and time fill, and retries empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct RetryBudget {
    /// In hundredths of a retry.
    request_credit: u64,
    time_bucket: Option<BucketState>,
}

impl RetryBudget {
    /// Adds the share of a new request.
    pub fn add_request(&mut self, retry: &RetryLimits) {
        let percent = u64::from(retry.budget_percent);
        let max = SAVED_REQUESTS_MAX * percent;
        // Bounded, or a long healthy time would allow a burst of retries.
        self.request_credit = (self.request_credit + percent).min(max);
    }

    fn take(&mut self, retry: &RetryLimits, now_ms: u64) -> bool {
        let per_s = u64::from(retry.budget_per_s);
        let rate = CellRate::new(RequestRate {
            requests: per_s,
            period_ms: 1_000,
            burst: SAVED_S_MAX * per_s,
        });
        // Otherwise a server without traffic could never retry its first failures.
        // The bucket starts with the retries of one second.
        let first = || BucketState::with_tokens(per_s, rate, now_ms);
        let time_bucket = self.time_bucket.get_or_insert_with(first);
        // Requests' shares are spent first: the time-based part remains for low traffic.
        if self.request_credit >= RETRY {
            self.request_credit -= RETRY;
            return true;
        }
        per_s > 0 && time_bucket.take(rate, now_ms).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET_LOST: FailureStage = FailureStage {
        tries: 1,
        is_idempotent: true,
        sent: true,
        body: BodyReplay::Whole,
        evidence: RetryEvidence::Nothing,
        timed_out: false,
    };

    fn judge(failed: FailureStage) -> Result<(), NoRetry> {
        may_retry(
            &RetryLimits::default(),
            &failed,
            &mut RetryBudget::default(),
            0,
        )
    }

    #[test]
    fn only_what_cannot_be_executed_twice_is_asked_again() {
        let post = |sent| FailureStage {
            is_idempotent: false,
            sent,
            ..GET_LOST
        };
        assert_eq!(judge(GET_LOST), Ok(()));
        assert_eq!(judge(post(false)), Ok(()));
        assert_eq!(judge(post(true)), Err(NoRetry::NotIdempotent));
        let seen = |seen| FailureStage {
            evidence: seen,
            ..GET_LOST
        };
        assert_eq!(judge(seen(RetryEvidence::Refusing)), Ok(()));
        assert_eq!(judge(seen(RetryEvidence::Some)), Err(NoRetry::ResponseSeen));
        let consumed = FailureStage {
            body: BodyReplay::Consumed,
            ..GET_LOST
        };
        assert_eq!(judge(consumed), Err(NoRetry::BodyConsumed));
        let third = FailureStage {
            tries: 3,
            ..GET_LOST
        };
        assert_eq!(judge(third), Err(NoRetry::Tries));
    }

    #[test]
    fn time_that_is_over_may_be_the_end() {
        let patient = RetryLimits {
            after_timeouts: false,
            ..RetryLimits::default()
        };
        let slow = FailureStage {
            timed_out: true,
            ..GET_LOST
        };
        assert_eq!(judge(slow), Ok(()));
        let judged = may_retry(&patient, &slow, &mut RetryBudget::default(), 0);
        assert_eq!(judged, Err(NoRetry::TimedOut));
    }

    /// All members fail, at 1,000 requests a second: they get 20 % more requests, not three times as many.
    #[test]
    fn retries_do_not_multiply_load() {
        let (retry, mut budget, mut retries) = (RetryLimits::default(), RetryBudget::default(), 0);
        for now_ms in 0..10_000 {
            budget.add_request(&retry);
            for tries in 1..3 {
                let failed = FailureStage { tries, ..GET_LOST };
                retries += u64::from(may_retry(&retry, &failed, &mut budget, now_ms).is_ok());
            }
        }
        assert!((2_000..=2_060).contains(&retries), "{retries}");
    }

    #[test]
    fn few_requests_have_their_retries_and_what_is_saved_is_bounded() {
        let (retry, mut budget) = (RetryLimits::default(), RetryBudget::default());
        let mut burst = |now_ms| {
            let again = |_: &u32| may_retry(&retry, &GET_LOST, &mut budget, now_ms).is_ok();
            (0..1_000).filter(again).count()
        };
        assert_eq!(burst(0), 5);
        assert_eq!(burst(1_000), 5);
        assert_eq!(burst(1_000_000), 50);
    }
}
