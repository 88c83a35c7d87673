//! How much of what costs us more than the peer it may do, and what was counted. Knows no frames.

use super::settings::Rate;

/// A token bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    /// Spent and not made good.
    spent: u32,
    /// Until when it was filled, monotonic ms; 0 before it is first used.
    at_ms: u64,
}

impl Budget {
    /// Spends; false if there is not enough.
    pub(super) fn spend(&mut self, count: u32, rate: Rate, now_ms: u64) -> bool {
        let since_ms = now_ms.saturating_sub(self.at_ms);
        let fresh = since_ms.saturating_mul(u64::from(rate.per_s)) / 1000;
        if fresh > 0 || self.spent == 0 {
            self.at_ms = now_ms;
            self.earn(u32::try_from(fresh).unwrap_or(u32::MAX));
        }
        self.spent = self.spent.saturating_add(count);
        self.spent <= rate.burst
    }

    /// Makes good.
    pub(super) fn earn(&mut self, count: u32) {
        self.spent = self.spent.saturating_sub(count);
    }
}

/// What came that should be rare. One for all connections of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Streams that the peer reset.
    pub resets: u64,
    /// Streams that were reset for the peer's faults.
    pub faults: u64,
    /// Streams refused for there being too many.
    pub refused: u64,
    /// Messages that were malformed.
    pub malformed: u64,
    /// Frames of little use.
    pub glitches: u64,
    /// Connections that were ended for a fault of the peer.
    pub ended: u64,
    /// Of these, those that wanted too much.
    pub floods: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fills_with_time_up_to_its_burst() {
        let rate = Rate {
            burst: 3,
            per_s: 10,
        };
        let mut budget = Budget::default();
        for _ in 0..3 {
            assert!(budget.spend(1, rate, 1000));
        }
        assert!(!budget.spend(1, rate, 1050));
        assert!(budget.spend(1, rate, 1200), "two more since");
        assert!(!budget.spend(1, rate, 1200));
        assert!(budget.spend(3, rate, 1_000_000));
        assert!(!budget.spend(1, rate, 1_000_000));
        budget.earn(2);
        assert!(budget.spend(1, rate, 1_000_000));
    }
}
