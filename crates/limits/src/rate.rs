//! Token buckets by the generic cell rate algorithm (ITU-T I.371): the state is a single number, the time at which the
//! bucket will be full again, so that threads can share a bucket without a lock.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number of requests in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate {
    /// The number of requests in each period; at least 1.
    pub requests: u64,
    /// The length of the period; at least 1. In the configuration it is a second, a minute or an hour.
    pub period_ms: u64,
    /// The most requests at the same time; in the configuration 1 to 1 000 000. Default there: the number of requests
    /// in one second, but at least 1.
    pub burst: u64,
}

/// A rate in precomputed form: the time per token, and the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRate {
    /// The time to refill one token.
    token_ns: u64,
    /// The time to refill an empty bucket.
    burst_ns: u64,
}

/// The state of a bucket without its rate. Initially full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketState {
    /// When the bucket is full again.
    pub(crate) full_ns: u64,
}

/// A bucket that threads share. Initially full.
#[derive(Debug)]
pub struct TokenBucket {
    rate: CellRate,
    /// When the bucket is full again.
    full_ns: AtomicU64,
}

const MS_NS: u64 = 1_000_000;

impl CellRate {
    /// Precomputes a rate.
    pub const fn new(rate: RequestRate) -> CellRate {
        const fn at_least_1(count: u64) -> u64 {
            if count == 0 { 1 } else { count }
        }
        let period_ns = rate.period_ms.saturating_mul(MS_NS);
        // A rate of 0 would divide by zero; with 0 ns per token, the bucket would never be empty.
        let token_ns = at_least_1(period_ns / at_least_1(rate.requests));
        CellRate {
            token_ns,
            burst_ns: token_ns.saturating_mul(at_least_1(rate.burst)),
        }
    }
}

impl BucketState {
    /// A bucket with `count` tokens now.
    pub fn with_tokens(count: u64, rate: CellRate, now_ms: u64) -> BucketState {
        let missing_ns = rate
            .burst_ns
            .saturating_sub(rate.token_ns.saturating_mul(count));
        BucketState {
            full_ns: ns(now_ms).saturating_add(missing_ns),
        }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// The bucket is empty; the value is the time until the next token in ms.
    pub fn take(&mut self, rate: CellRate, now_ms: u64) -> Result<(), u64> {
        // A refused token must not be charged.
        let mut charged = *self;
        match charged.charge(1, rate, now_ms) {
            true => *self = charged,
            false => return Err((charged.missing_ns(now_ms) - rate.burst_ns).div_ceil(MS_NS)),
        }
        Ok(())
    }

    /// Takes tokens unconditionally. False if the bucket had too few: it then has a debt, which is refilled first.
    pub fn charge(&mut self, count: u64, rate: CellRate, now_ms: u64) -> bool {
        let tokens_ns = rate.token_ns.saturating_mul(count);
        // A bucket that has long been full starts from now: no more than the burst accumulates.
        self.full_ns = self.full_ns.max(ns(now_ms)).saturating_add(tokens_ns);
        self.missing_ns(now_ms) <= rate.burst_ns
    }

    /// Returns tokens; the bucket does not exceed its capacity.
    pub fn refund(&mut self, count: u64, rate: CellRate) {
        let tokens_ns = rate.token_ns.saturating_mul(count);
        self.full_ns = self.full_ns.saturating_sub(tokens_ns);
    }

    /// Whether the bucket is full.
    pub fn is_full(self, now_ms: u64) -> bool {
        self.missing_ns(now_ms) == 0
    }

    /// The time until the bucket is full.
    fn missing_ns(self, now_ms: u64) -> u64 {
        self.full_ns.saturating_sub(ns(now_ms))
    }
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(rate: RequestRate) -> TokenBucket {
        TokenBucket {
            rate: CellRate::new(rate),
            full_ns: AtomicU64::new(0),
        }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// The bucket is empty; the value is the time until the next token in ms.
    pub fn take(&self, now_ms: u64) -> Result<(), u64> {
        let try_take = |full_ns: u64| {
            let mut state = BucketState { full_ns };
            state.take(self.rate, now_ms).map(|()| state.full_ns)
        };
        // The closure runs again if another thread took a token in between.
        let updated = |full_ns: u64| try_take(full_ns).ok();
        match self.full_ns.fetch_update(Relaxed, Relaxed, updated) {
            Ok(_) => Ok(()),
            Err(full_ns) => try_take(full_ns).map(|_| ()),
        }
    }
}

/// The value of Retry-After for a wait: in seconds, at least one.
pub fn retry_after_s(wait_ms: u64) -> u64 {
    wait_ms.div_ceil(1000).max(1)
}

fn ns(ms: u64) -> u64 {
    ms.saturating_mul(MS_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(requests: u64, period_ms: u64, burst: u64) -> TokenBucket {
        TokenBucket::new(RequestRate {
            requests,
            period_ms,
            burst,
        })
    }

    fn taken(bucket: &TokenBucket, now_ms: u64) -> usize {
        (0..1000)
            .take_while(|_| bucket.take(now_ms).is_ok())
            .count()
    }

    #[test]
    fn burst_is_allowed_then_the_rate_applies() {
        let bucket = bucket(10, 1000, 5);
        assert_eq!(taken(&bucket, 7), 5);
        assert_eq!(bucket.take(7), Err(100));
        assert_eq!(bucket.take(106), Err(1));
        assert_eq!(bucket.take(107), Ok(()));
        assert_eq!(bucket.take(107), Err(100));
        // Unused tokens accumulate, up to the burst.
        assert_eq!(taken(&bucket, 307), 2);
        assert_eq!(taken(&bucket, 100_000), 5);
    }

    #[test]
    fn slow_and_fast_rates_have_no_rounding_error() {
        // The unit is ns, so that a million tokens a second have no rounding error.
        let slow = bucket(1, 3_600_000, 1);
        assert_eq!(slow.take(0), Ok(()));
        assert_eq!(slow.take(1), Err(3_599_999));
        assert_eq!(slow.take(3_600_000), Ok(()));
        let fast = bucket(1_000_000, 1000, 1000);
        let all: usize = (0..1000).map(|ms| taken(&fast, ms).min(1000)).sum();
        assert_eq!(all, 1_000_000);
    }

    #[test]
    fn lagging_clock_grants_no_tokens() {
        let bucket = bucket(1, 1000, 2);
        assert_eq!(taken(&bucket, 5000), 2);
        // The time of another worker may lag behind.
        assert_eq!(bucket.take(4990), Err(1010));
        assert_eq!(bucket.take(u64::MAX), Ok(()));
    }

    #[test]
    fn charge_beyond_the_burst_becomes_debt() {
        // A debt has to be refilled before the next token.
        let rate = CellRate::new(RequestRate {
            requests: 10,
            period_ms: 1000,
            burst: 3,
        });
        let mut bucket = BucketState::default();
        for _ in 0..3 {
            assert!(bucket.charge(1, rate, 1000));
        }
        assert!(!bucket.charge(1, rate, 1050));
        assert!(bucket.charge(1, rate, 1200), "two more since");
        assert!(!bucket.charge(1, rate, 1200));
        assert!(bucket.charge(3, rate, 1_000_000));
        assert!(!bucket.charge(1, rate, 1_000_000));
        bucket.refund(2, rate);
        assert!(bucket.charge(1, rate, 1_000_000));
        // A bucket cannot hold more than its burst.
        bucket.refund(100, rate);
        assert!(bucket.charge(3, rate, 1_000_000));
        assert!(!bucket.charge(1, rate, 1_000_000));
    }

    #[test]
    fn with_tokens_starts_with_a_partial_bucket() {
        let rate = CellRate::new(RequestRate {
            requests: 5,
            period_ms: 1000,
            burst: 50,
        });
        let taken = |bucket: &mut BucketState, now_ms| {
            let one = |_: &u32| bucket.take(rate, now_ms).is_ok();
            (0..1000).take_while(one).count()
        };
        let mut bucket = BucketState::with_tokens(5, rate, 7);
        assert_eq!(taken(&mut bucket, 7), 5);
        assert_eq!(taken(&mut bucket, 1007), 5);
        assert_eq!(taken(&mut bucket, 1_000_000), 50);
    }
}
