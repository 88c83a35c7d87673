//! The growth of receive windows, within a budget of the endpoint.

use crate::settings::QuicSettings;

/// Round trips within which a client must fill its window to get a larger one.
const ROUND_TRIPS: u64 = 4;

/// Bytes by which windows of an endpoint may exceed those of new connections. A window is a promise to store bytes that
/// arrive out of order or are not read, so that clients could fill the memory otherwise.
#[derive(Debug)]
pub(crate) struct WindowBudget {
    pub remaining: u64,
    /// Windows that did not grow, since the budget was used up.
    pub withheld: u64,
}

/// The receive window of a connection: it doubles if the client fills it within a few round trips, since then the
/// window, not the path, limits an upload.
#[derive(Debug)]
pub(crate) struct WindowGrowth {
    first: u32,
    window: u32,
    /// Bytes read since `since_us`.
    read_len: u64,
    since_us: u64,
}

impl WindowGrowth {
    pub fn new(settings: &QuicSettings, now_us: u64) -> WindowGrowth {
        WindowGrowth {
            first: settings.window_first,
            window: settings.window_first,
            read_len: 0,
            since_us: now_us,
        }
    }

    /// Records read bytes. Returns the new window if it grows.
    pub fn record(
        &mut self,
        len: u64,
        now_us: u64,
        rtt_us: u64,
        max: u32,
        budget: &mut WindowBudget,
    ) -> Option<u32> {
        self.read_len += len;
        if self.read_len < u64::from(self.window) {
            return None;
        }
        let passed_us = now_us.saturating_sub(self.since_us);
        self.read_len = 0;
        self.since_us = now_us;
        if passed_us > rtt_us.saturating_mul(ROUND_TRIPS) || self.window >= max {
            return None;
        }
        let grown = self.window.saturating_mul(2).min(max);
        let wanted = u64::from(grown - self.window);
        if budget.remaining < wanted {
            budget.withheld += 1;
            return None;
        }
        budget.remaining -= wanted;
        self.window = grown;
        Some(grown)
    }

    /// Returns the growth to the budget, at the end of the connection.
    pub fn release(&self, budget: &mut WindowBudget) {
        budget.remaining += u64::from(self.window - self.first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_fast_clients_grow_up_to_maximum_and_budget() {
        let settings = QuicSettings::default();
        let max = settings.window_max;
        let mut budget = WindowBudget {
            remaining: 5 << 20,
            withheld: 0,
        };
        let mut fast = WindowGrowth::new(&settings, 0);
        assert_eq!(fast.record(100_000, 1000, 50_000, max, &mut budget), None);
        let grown = fast.record(31_072, 200_000, 50_000, max, &mut budget);
        assert_eq!(grown, Some(256 << 10));
        // Slow: a window in more than four round trips.
        let grown = fast.record(256 << 10, 400_001, 50_000, max, &mut budget);
        assert_eq!(grown, None);
        for _ in 0..10 {
            fast.record(u64::from(max), 400_001, 50_000, max, &mut budget);
        }
        assert_eq!((fast.window, budget.withheld), (max, 0));

        let mut other = WindowGrowth::new(&settings, 0);
        for _ in 0..10 {
            other.record(u64::from(max), 0, 50_000, max, &mut budget);
        }
        // 1,152 KiB are left.
        assert_eq!((other.window, budget.withheld), (1 << 20, 7));
        fast.release(&mut budget);
        other.release(&mut budget);
        assert_eq!(budget.remaining, 5 << 20);
    }
}
