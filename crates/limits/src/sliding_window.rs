//! A limit that holds exactly in every period: it stores the time of each event, so it suits small limits.

use alloc::collections::VecDeque;

/// At most `max` events in a sliding period.
#[derive(Clone, Debug)]
pub struct SlidingWindow {
    max: usize,
    period_s: u64,
    /// The times of the last `max` events, the oldest first.
    times_s: VecDeque<u64>,
}

impl SlidingWindow {
    /// A limit of `max` events in `period_s`.
    pub fn new(max: usize, period_s: u64) -> SlidingWindow {
        SlidingWindow {
            max,
            period_s,
            times_s: VecDeque::new(),
        }
    }

    /// Records an event.
    ///
    /// # Errors
    /// The limit is reached; the value is the time from which on an event is possible.
    pub fn take(&mut self, now_s: u64) -> Result<(), u64> {
        while self
            .times_s
            .front()
            .is_some_and(|&time_s| time_s + self.period_s <= now_s)
        {
            self.times_s.pop_front();
        }
        if self.times_s.len() < self.max {
            self.times_s.push_back(now_s);
            return Ok(());
        }
        // The next event is possible when the oldest leaves the window.
        let oldest_s = self.times_s.front().copied();
        Err(oldest_s.map_or(u64::MAX, |oldest_s| oldest_s + self.period_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_700_000_000;

    #[test]
    fn window_slides_with_the_oldest_event() {
        let mut rate = SlidingWindow::new(2, 3600);
        assert_eq!(rate.take(NOW_S), Ok(()));
        assert_eq!(rate.take(NOW_S + 100), Ok(()));
        assert_eq!(rate.take(NOW_S + 200), Err(NOW_S + 3600));
        assert_eq!(rate.take(NOW_S + 3600), Ok(()));
        assert_eq!(rate.take(NOW_S + 3601), Err(NOW_S + 3700));
        assert_eq!(SlidingWindow::new(0, 60).take(NOW_S), Err(u64::MAX));
    }
}
