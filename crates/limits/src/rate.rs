//! How many requests there may be in a time: a token bucket, kept as the time at which it will be full again (the generic
//! cell rate algorithm of ITU-T I.371). One number, so that it takes no lock.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// So many requests in so much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// At least 1.
    pub requests: u64,
    /// At least 1.
    pub period_ms: u64,
    /// How many may come at a time; at least 1.
    pub burst: u64,
}

/// The bucket of one class: full when it is new.
#[derive(Debug)]
pub struct Bucket {
    pace: Pace,
    /// When it is full again, in ns.
    full_ns: AtomicU64,
}

/// How fast a bucket fills, and how much it can hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The time of one token.
    pub(crate) token_ns: u64,
    /// The time of all tokens that it can hold.
    burst_ns: u64,
}

pub(crate) const MS_NS: u64 = 1_000_000;

impl Pace {
    pub(crate) fn of(rate: Rate) -> Pace {
        let period_ns = rate.period_ms.saturating_mul(MS_NS);
        let token_ns = (period_ns / rate.requests.max(1)).max(1);
        Pace {
            token_ns,
            burst_ns: token_ns.saturating_mul(rate.burst.max(1)),
        }
    }

    /// When a bucket that is full at `full_ns` will be if a token is taken now; if it has none, the ms after which it has.
    pub(crate) fn take(self, full_ns: u64, now_ns: u64) -> Result<u64, u64> {
        let full_ns = full_ns.max(now_ns).saturating_add(self.token_ns);
        match (full_ns - now_ns).checked_sub(self.burst_ns) {
            None | Some(0) => Ok(full_ns),
            Some(wait_ns) => Err(wait_ns.div_ceil(MS_NS)),
        }
    }
}

impl Bucket {
    /// One that is full.
    pub fn new(rate: Rate) -> Bucket {
        Bucket {
            pace: Pace::of(rate),
            full_ns: AtomicU64::new(0),
        }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// There is none; the ms after which there is one.
    pub fn take(&self, now_ms: u64) -> Result<(), u64> {
        let now_ns = now_ms.saturating_mul(MS_NS);
        let emptier = |full_ns: u64| self.pace.take(full_ns, now_ns).ok();
        match self.full_ns.fetch_update(Relaxed, Relaxed, emptier) {
            Ok(_) => Ok(()),
            Err(full_ns) => self.pace.take(full_ns, now_ns).map(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(requests: u64, period_ms: u64, burst: u64) -> Bucket {
        Bucket::new(Rate {
            requests,
            period_ms,
            burst,
        })
    }

    fn taken(bucket: &Bucket, now_ms: u64) -> usize {
        (0..1000)
            .take_while(|_| bucket.take(now_ms).is_ok())
            .count()
    }

    #[test]
    fn a_burst_may_come_and_then_as_many_as_the_rate_says() {
        let bucket = bucket(10, 1000, 5);
        assert_eq!(taken(&bucket, 7), 5);
        assert_eq!(bucket.take(7), Err(100));
        assert_eq!(bucket.take(106), Err(1));
        assert_eq!(bucket.take(107), Ok(()));
        assert_eq!(bucket.take(107), Err(100));
        // What nobody took is kept, up to the burst.
        assert_eq!(taken(&bucket, 307), 2);
        assert_eq!(taken(&bucket, 100_000), 5);
    }

    #[test]
    fn slow_and_fast_rates_are_kept() {
        let slow = bucket(1, 3_600_000, 1);
        assert_eq!(slow.take(0), Ok(()));
        assert_eq!(slow.take(1), Err(3_599_999));
        assert_eq!(slow.take(3_600_000), Ok(()));
        let fast = bucket(1_000_000, 1000, 1000);
        let all: usize = (0..1000).map(|ms| taken(&fast, ms).min(1000)).sum();
        assert_eq!(all, 1_000_000);
    }

    #[test]
    fn a_clock_that_is_behind_gives_nothing_away() {
        let bucket = bucket(1, 1000, 2);
        assert_eq!(taken(&bucket, 5000), 2);
        // Another worker's time may be older.
        assert_eq!(bucket.take(4990), Err(1010));
        assert_eq!(bucket.take(u64::MAX), Ok(()));
    }
}
