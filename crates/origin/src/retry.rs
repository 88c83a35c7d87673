//! Retries: decides whether a failed request may be sent to another member. A retry budget limits the additional load.
//!
//! Read first: RFC 9110 §9.2.2 (idempotent methods), RFC 9112 §9.3.1 (retrying requests).

use std::fmt;

use lowroad_limits::{BucketState, CellRate, RequestRate};

/// Limits for retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// The maximum number of attempts per request, including the first.
    pub tries_max: u32,
    /// Retry budget: retries as a share of requests, in percent.
    pub budget_percent: u32,
    /// Retries per second that are always allowed, since a percentage of few requests would be too small.
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
    /// The number of attempts so far, including the failed one.
    pub tries: u32,
    /// Whether the method is idempotent (RFC 9110 §9.2.2).
    pub is_idempotent: bool,
    /// Whether bytes of the request may have reached the member.
    pub sent: bool,
    /// Whether the request's body can be sent again.
    pub body: BodyReplay,
    /// The response, as far as it arrived.
    pub response: ResponseProgress,
    /// Whether the attempt timed out.
    pub timed_out: bool,
}

/// Whether a request's body can be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyReplay {
    /// Yes: there is no body, or none of it was read yet, or it is buffered.
    Whole,
    /// No: some of it was sent and not buffered.
    Consumed,
}

/// How much of a response has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseProgress {
    /// Nothing.
    Nothing,
    /// A status code that the caller would retry (503); nothing was sent to the client.
    RetryableStatus,
    /// A part of the response, which a second response could contradict.
    Started,
}

/// Why a request must not be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRetry {
    /// The maximum number of attempts is reached.
    Tries,
    /// A part of the response has arrived.
    ResponseSeen,
    /// The request may have been executed, and its method is not idempotent.
    NotIdempotent,
    /// The body of the request cannot be sent again.
    BodyConsumed,
    /// The request timed out, and timeouts are not retried.
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
    // Checked in this order, so that the operator gets the most useful explanation.
    if stage.tries >= retry.tries_max {
        return Err(NoRetry::Tries);
    }
    // The client may have received bytes of the response.
    if stage.response == ResponseProgress::Started {
        return Err(NoRetry::ResponseSeen);
    }
    // RFC 9110 §9.2.2: a proxy must not automatically retry non-idempotent requests. A request of which nothing was
    // sent was not executed.
    if stage.sent && !stage.is_idempotent {
        return Err(NoRetry::NotIdempotent);
    }
    if stage.body == BodyReplay::Consumed {
        return Err(NoRetry::BodyConsumed);
    }
    if stage.timed_out && !retry.after_timeouts {
        return Err(NoRetry::TimedOut);
    }
    // Checked last, so that requests that cannot be retried for another reason do not consume the budget.
    match budget.take(retry, now_ms) {
        true => Ok(()),
        false => Err(NoRetry::Budget),
    }
}

/// The cost of a retry; each request earns `budget_percent`.
const RETRY_COST: u64 = 100;
/// The maximum time for which `budget_per_s` accumulates, in seconds.
const SAVED_S_MAX: u64 = 10;
/// The maximum number of requests for which `budget_percent` accumulates.
const SAVED_REQUESTS_MAX: u64 = 1_000;

/// Retry budget: a token bucket that is filled by requests and by time, and emptied by retries.
#[derive(Clone, Copy, Debug, Default)]
pub struct RetryBudget {
    /// The credit that requests have earned, in hundredths of a retry.
    request_credit: u64,
    time_bucket: Option<BucketState>,
}

impl RetryBudget {
    /// Adds the share of a new request to the budget.
    pub fn add_request(&mut self, retry: &RetryLimits) {
        let percent = u64::from(retry.budget_percent);
        let max = SAVED_REQUESTS_MAX * percent;
        // The credit is limited, since otherwise a long healthy time would allow a burst of retries.
        self.request_credit = (self.request_credit + percent).min(max);
    }

    fn take(&mut self, retry: &RetryLimits, now_ms: u64) -> bool {
        let per_s = u64::from(retry.budget_per_s);
        let rate = CellRate::new(RequestRate {
            requests: per_s,
            period_ms: 1_000,
            burst: SAVED_S_MAX * per_s,
        });
        // The bucket starts with the retries of one second, so that the first failures without earlier traffic can be
        // retried.
        let first = || BucketState::with_tokens(per_s, rate, now_ms);
        let time_bucket = self.time_bucket.get_or_insert_with(first);
        // The credit of requests is spent first; the time-based part remains for low traffic.
        if self.request_credit >= RETRY_COST {
            self.request_credit -= RETRY_COST;
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
        response: ResponseProgress::Nothing,
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
    fn only_requests_that_cannot_be_executed_twice_are_retried() {
        let post = |sent| FailureStage {
            is_idempotent: false,
            sent,
            ..GET_LOST
        };
        assert_eq!(judge(GET_LOST), Ok(()));
        assert_eq!(judge(post(false)), Ok(()));
        assert_eq!(judge(post(true)), Err(NoRetry::NotIdempotent));
        let seen = |seen| FailureStage {
            response: seen,
            ..GET_LOST
        };
        assert_eq!(judge(seen(ResponseProgress::RetryableStatus)), Ok(()));
        assert_eq!(
            judge(seen(ResponseProgress::Started)),
            Err(NoRetry::ResponseSeen)
        );
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
    fn timeouts_are_retried_only_if_configured() {
        let patient = RetryLimits {
            after_timeouts: false,
            ..RetryLimits::default()
        };
        let slow = FailureStage {
            timed_out: true,
            ..GET_LOST
        };
        assert_eq!(judge(slow), Ok(()));
        let result = may_retry(&patient, &slow, &mut RetryBudget::default(), 0);
        assert_eq!(result, Err(NoRetry::TimedOut));
    }

    /// All members fail, with 1,000 requests a second: they get 20 % more requests, and not three times as many.
    #[test]
    fn retry_budget_limits_additional_load() {
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
    fn retries_per_second_are_allowed_and_credit_is_limited() {
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
