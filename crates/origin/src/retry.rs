//! Whether a request that failed may be asked of another member. Pure; it knows nothing of members or
//! connections.
//!
//! Read first: RFC 9110 §9.2.2 (idempotent methods), RFC 9112 §9.3.1 (retrying requests).

use std::fmt;

use lowroad_limits::{BucketState, CellRate, Rate};

/// What bounds retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How often a request is asked at most, the first time included.
    pub tries_max: u32,
    /// Retries are at most this share of requests, in percent.
    pub budget_percent: u32,
    /// So many retries a second are allowed in any case: few requests have small shares.
    pub budget_per_s: u32,
    /// A request whose time was over at one member is asked of another.
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

/// How far a try came before it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// How often the request was asked so far, this try included.
    pub tries: u32,
    /// Whether to ask twice is the same as to ask once (RFC 9110 §9.2.2).
    pub is_idempotent: bool,
    /// Whether something of the request may have reached the member.
    pub sent: bool,
    /// What is left of the request's body.
    pub body: Body,
    /// What came back.
    pub seen: Seen,
    /// The try's time was over.
    pub timed_out: bool,
}

/// What is left of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// There is none, or nothing of it was taken yet, or it is kept and can be sent anew.
    Whole,
    /// Some of it is gone.
    Consumed,
}

/// What came of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Nothing,
    /// Its status, for which the caller would ask another; the client has nothing of it.
    Refusing,
    /// Something of it, so that another could contradict it.
    Some,
}

/// Why a request is not asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAgain {
    /// It was asked as often as may be.
    Tries,
    /// Something of the response was seen.
    ResponseSeen,
    /// It may have been executed, and must not be twice.
    NotIdempotent,
    /// Its body is gone.
    BodyConsumed,
    /// Its time was over, and that is no reason.
    TimedOut,
    /// There were too many retries.
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

/// Whether the request may be asked again; takes that from the budget.
///
/// # Errors
/// [`NotAgain`]
pub fn may_retry(
    retry: &Retry,
    failed: &Failed,
    budget: &mut Budget,
    now_ms: u64,
) -> Result<(), NotAgain> {
    if failed.tries >= retry.tries_max {
        return Err(NotAgain::Tries);
    }
    if failed.seen == Seen::Some {
        return Err(NotAgain::ResponseSeen);
    }
    if failed.sent && !failed.is_idempotent {
        return Err(NotAgain::NotIdempotent);
    }
    if failed.body == Body::Consumed {
        return Err(NotAgain::BodyConsumed);
    }
    if failed.timed_out && !retry.after_timeouts {
        return Err(NotAgain::TimedOut);
    }
    match budget.take(retry, now_ms) {
        true => Ok(()),
        false => Err(NotAgain::Budget),
    }
}

/// A retry costs so much of what requests bring, in percent.
const RETRY: u64 = 100;
/// Of how many seconds the retries may be saved up.
const SAVED_S_MAX: u64 = 10;
/// Of how many requests.
const SAVED_REQUESTS_MAX: u64 = 1_000;

/// How many retries there may be still. Requests and time fill it, retries empty it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    /// In hundredths of a retry.
    by_requests: u64,
    by_time: Option<BucketState>,
}

impl Budget {
    /// A request came, for the first time.
    pub fn requested(&mut self, retry: &Retry) {
        let percent = u64::from(retry.budget_percent);
        let max = SAVED_REQUESTS_MAX * percent;
        self.by_requests = (self.by_requests + percent).min(max);
    }

    fn take(&mut self, retry: &Retry, now_ms: u64) -> bool {
        let per_s = u64::from(retry.budget_per_s);
        let rate = CellRate::new(Rate {
            requests: per_s,
            period_ms: 1_000,
            burst: SAVED_S_MAX * per_s,
        });
        // The first second's are there from the start.
        let first = || BucketState::with_tokens(per_s, rate, now_ms);
        let by_time = self.by_time.get_or_insert_with(first);
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

    /// All members fail, at 1,000 requests a second: they get 20 % more, not three times as many.
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
