//! Restart back-off: the delay before a child is started again.

use std::time::Duration;

/// The restart delays of one child, which double as long as its lifetimes are short.
#[derive(Clone, Debug)]
pub struct RestartBackoff {
    min: Duration,
    max: Duration,
    long_life: Duration,
    next: Duration,
}

impl RestartBackoff {
    /// Delays from `min` to `max`; a child that has run for `long_life` counts as successfully started.
    pub const fn new(min: Duration, max: Duration, long_life: Duration) -> RestartBackoff {
        RestartBackoff {
            min,
            max,
            long_life,
            next: min,
        }
    }

    /// The delay after a child that failed to start.
    pub fn record_failure(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(self.max);
        delay
    }

    /// The delay after a child with this lifetime.
    pub fn record_end(&mut self, lifetime: Duration) -> Duration {
        if self.is_long(lifetime) {
            self.reset();
        }
        self.record_failure()
    }

    /// Whether a child with this lifetime counts as successfully started.
    pub fn is_long(&self, lifetime: Duration) -> bool {
        lifetime >= self.long_life
    }

    /// Resets the delay after a successful start.
    pub fn reset(&mut self) {
        self.next = self.min;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_until_a_long_lifetime() {
        let [min, max, long] = [1, 30, 60].map(Duration::from_secs);
        let mut backoff = RestartBackoff::new(min, max, long);
        let delays: Vec<_> = (0..7)
            .map(|at| match at % 2 {
                0 => backoff.record_failure().as_secs(),
                // A short lifetime counts like a failed start.
                _ => backoff.record_end(long - min).as_secs(),
            })
            .collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(backoff.record_end(long), min);
        assert_eq!(backoff.record_failure(), 2 * min);
        backoff.reset();
        assert_eq!(backoff.record_failure(), min);
    }
}
