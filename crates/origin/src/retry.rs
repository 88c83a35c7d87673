//! Retries: decides whether a failed request may be sent to another member. Pure functions and a budget.
//!
//! Read first: RFC 9110 §9.2.2 (idempotent methods), RFC 9112 §9.3.1 (retrying requests).

use std::fmt;

use lowroad_limits::{BucketState, CellRate, Rate};

/// Limits for retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Attempts per request, including the first.
    pub tries_max: u32,
    /// Retry budget: retries as a share of requests, in percent.
    pub budget_percent: u32,
    /// Retries per second that are always allowed: a share of few requests would be too small.
    pub budget_per_s: u32,
    /// Whether a request that timed out at one member is retried at another.
    pub after_timeouts: bool,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry {
            tries_max: 3,
            budget_percent: 20,
            budget_per_s: 5,
            after_timeouts: true,
        }
    }
}

/// How far an attempt got before it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Attempts so far, including this one.
    pub tries: u32,
    /// Whether the method is idempotent (RFC 9110 §9.2.2).
    pub is_idempotent: bool,
    /// Whether bytes of the request may have reached the member.
    pub sent: bool,
    /// Whether the request's body can be sent again.
    pub body: Body,
    /// The response, as far as it arrived.
    pub seen: Seen,
    /// Whether the attempt timed out.
    pub timed_out: bool,
}

/// Whether a request's body can be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// It can: there is none, none of it was read yet, or it is kept.
    Whole,
    /// It cannot: some of it is lost.
    Consumed,
}

/// How much of a response has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// None of it.
    Nothing,
    /// A status code that the caller would rather retry; none of it was sent to the client.
    Refusing,
    /// A part of it, which a second response could contradict.
    Some,
}

/// The reason against a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAgain {
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

impl fmt::Display for NotAgain {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            NotAgain::Tries => "it was tried as often as may be",
            NotAgain::ResponseSeen => "a part of the response had come",
            NotAgain::NotIdempotent => {
                "it may have been executed, and its method is not idempotent"
            }
            NotAgain::BodyConsumed => "its body is not kept",
            NotAgain::TimedOut => "its time was over",
            NotAgain::Budget => "there were too many retries",
        })
    }
}

/// Whether the request may be retried; if so, takes one retry from the budget.
///
/// # Errors
/// [`NotAgain`]
pub fn may_retry(
    retry: &Retry,
    failed: &Failed,
    budget: &mut Budget,
    now_ms: u64,
) -> Result<(), NotAgain> {
    // In the order of the most useful explanation for the operator.
    if failed.tries >= retry.tries_max {
        return Err(NotAgain::Tries);
    }
    if failed.seen == Seen::Some {
        return Err(NotAgain::ResponseSeen);
    }
    // RFC 9110 §9.2.2: a proxy must not automatically retry non-idempotent requests. One without sent bytes was not
    // executed.
    if failed.sent && !failed.is_idempotent {
        return Err(NotAgain::NotIdempotent);
    }
    if failed.body == Body::Consumed {
        return Err(NotAgain::BodyConsumed);
    }
    if failed.timed_out && !retry.after_timeouts {
        return Err(NotAgain::TimedOut);
    }
    // Last, so that requests that cannot be retried for another reason do not consume the budget.
    match budget.take(retry, now_ms) {
        true => Ok(()),
        false => Err(NotAgain::Budget),
    }
}

/// The cost of a retry, in percent points that requests earn.
const RETRY: u64 = 100;
/// Seconds of `budget_per_s` that can be saved up.
const SAVED_S_MAX: u64 = 10;
/// Requests whose share can be saved up.
const SAVED_REQUESTS_MAX: u64 = 1_000;

/// Retry budget: a token bucket that requests and time fill, and retries empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    /// In hundredths of a retry.
    by_requests: u64,
    by_time: Option<BucketState>,
}

impl Budget {
    /// Adds the share of a new request.
    pub fn requested(&mut self, retry: &Retry) {
        let percent = u64::from(retry.budget_percent);
        let max = SAVED_REQUESTS_MAX * percent;
        // Bounded, or a long healthy time would allow a burst of retries.
        self.by_requests = (self.by_requests + percent).min(max);
    }

    fn take(&mut self, retry: &Retry, now_ms: u64) -> bool {
        let per_s = u64::from(retry.budget_per_s);
        let rate = CellRate::new(Rate {
            requests: per_s,
            period_ms: 1_000,
            burst: SAVED_S_MAX * per_s,
        });
        // The bucket starts with the retries of one second.
        let first = || BucketState::with_tokens(per_s, rate, now_ms);
        let by_time = self.by_time.get_or_insert_with(first);
        // Requests' shares are spent first: the time-based part remains for low traffic.
        if self.by_requests >= RETRY {
            self.by_requests -= RETRY;
            return true;
        }
        per_s > 0 && by_time.take(rate, now_ms).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET_LOST: Failed = Failed {
        tries: 1,
        is_idempotent: true,
        sent: true,
        body: Body::Whole,
        seen: Seen::Nothing,
        timed_out: false,
    };

    fn judge(failed: Failed) -> Result<(), NotAgain> {
        may_retry(&Retry::default(), &failed, &mut Budget::default(), 0)
    }

    #[test]
    fn only_what_cannot_be_executed_twice_is_asked_again() {
        let post = |sent| Failed {
            is_idempotent: false,
            sent,
            ..GET_LOST
        };
        assert_eq!(judge(GET_LOST), Ok(()));
        assert_eq!(judge(post(false)), Ok(()));
        assert_eq!(judge(post(true)), Err(NotAgain::NotIdempotent));
        let seen = |seen| Failed { seen, ..GET_LOST };
        assert_eq!(judge(seen(Seen::Refusing)), Ok(()));
        assert_eq!(judge(seen(Seen::Some)), Err(NotAgain::ResponseSeen));
        let consumed = Failed {
            body: Body::Consumed,
            ..GET_LOST
        };
        assert_eq!(judge(consumed), Err(NotAgain::BodyConsumed));
        let third = Failed {
            tries: 3,
            ..GET_LOST
        };
        assert_eq!(judge(third), Err(NotAgain::Tries));
    }

    #[test]
    fn time_that_is_over_may_be_the_end() {
        let patient = Retry {
            after_timeouts: false,
            ..Retry::default()
        };
        let slow = Failed {
            timed_out: true,
            ..GET_LOST
        };
        assert_eq!(judge(slow), Ok(()));
        let judged = may_retry(&patient, &slow, &mut Budget::default(), 0);
        assert_eq!(judged, Err(NotAgain::TimedOut));
    }

    /// All members fail, at 1,000 requests a second: they get 20 % more requests, not three times as many.
    #[test]
    fn retries_do_not_multiply_load() {
        let (retry, mut budget, mut retries) = (Retry::default(), Budget::default(), 0);
        for now_ms in 0..10_000 {
            budget.requested(&retry);
            for tries in 1..3 {
                let failed = Failed { tries, ..GET_LOST };
                retries += u64::from(may_retry(&retry, &failed, &mut budget, now_ms).is_ok());
            }
        }
        assert!((2_000..=2_060).contains(&retries), "{retries}");
    }

    #[test]
    fn few_requests_have_their_retries_and_what_is_saved_is_bounded() {
        let (retry, mut budget) = (Retry::default(), Budget::default());
        let mut burst = |now_ms| {
            let again = |_: &u32| may_retry(&retry, &GET_LOST, &mut budget, now_ms).is_ok();
            (0..1_000).filter(again).count()
        };
        assert_eq!(burst(0), 5);
        assert_eq!(burst(1_000), 5);
        assert_eq!(burst(1_000_000), 50);
    }
}
