//! A limit on the number of events per second.

/// A counter that is reset at the start of each second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateBucket {
    per_second: u32,
    remaining: u32,
    second: u64,
}

const SECOND_US: u64 = 1_000_000;

impl RateBucket {
    /// Allows `per_second` events in each second.
    pub(crate) fn new(per_second: u32) -> RateBucket {
        RateBucket {
            per_second,
            remaining: per_second,
            second: 0,
        }
    }

    /// Whether one more event is within the limit; if so, counts it.
    pub(crate) fn take(&mut self, now_us: u64) -> bool {
        let second = now_us / SECOND_US;
        if second != self.second {
            self.second = second;
            self.remaining = self.per_second;
        }
        let is_within = self.remaining > 0;
        self.remaining -= u32::from(is_within);
        is_within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_is_reset_each_second() {
        let mut rate = RateBucket::new(2);
        let taken = [0, 1, 2, 1_000_000, 1_000_001, 1_999_999].map(|now_us| rate.take(now_us));
        assert_eq!(taken, [true, true, false, true, true, false]);
    }
}
