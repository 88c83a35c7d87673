//! The due times of requests or connections in an open loop, in time since the beginning of the run. Reads no clock.

/// Evenly spaced due times; during the ramp the interval shrinks as the rate grows.
#[derive(Clone, Debug)]
pub(crate) struct RampSchedule {
    rate_per_s: f64,
    ramp_s: f64,
    /// Sequence number of this thread's next due time.
    next: u64,
    /// The number of threads: each thread takes every `step`-th due time.
    step: u64,
    next_ns: u64,
}

impl RampSchedule {
    pub(crate) fn new(rate_per_s: f64, ramp_s: f64, thread: u64, threads: u64) -> RampSchedule {
        let mut schedule = RampSchedule {
            rate_per_s,
            ramp_s,
            next: thread,
            step: threads,
            next_ns: 0,
        };
        schedule.next_ns = schedule.due_ns(thread);
        schedule
    }

    /// The next due time.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Advances to the next due time.
    pub(crate) fn advance(&mut self) {
        self.next += self.step;
        // The time is computed from the number, not added to the time before, so that rounding errors do not
        // accumulate.
        self.next_ns = self.due_ns(self.next);
    }

    /// The due time of request `number`: while the rate rises from 0 to r over R seconds, r t^2 / 2R requests are due
    /// until t.
    fn due_ns(&self, number: u64) -> u64 {
        // f64 is exact for whole numbers up to 2^53, more than any run has requests.
        let number = number as f64;
        // The number of requests during the ramp: half of that at the full rate.
        let in_ramp = self.rate_per_s * self.ramp_s / 2.0;
        let due_s = if number < in_ramp {
            (2.0 * number * self.ramp_s / self.rate_per_s).sqrt()
        } else {
            self.ramp_s + (number - in_ramp) / self.rate_per_s
        };
        (due_s * 1e9) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(mut schedule: RampSchedule, count: usize) -> Vec<u64> {
        let mut take = || {
            let due_ns = schedule.next_ns();
            schedule.advance();
            due_ns
        };
        (0..count).map(|_| take()).collect()
    }

    #[test]
    fn constant_rate_is_evenly_spaced() {
        let due = times(RampSchedule::new(1000.0, 0.0, 0, 1), 4);
        assert_eq!(due, [0, 1_000_000, 2_000_000, 3_000_000]);
    }

    #[test]
    fn due_times_alternate_between_threads() {
        let due = times(RampSchedule::new(1000.0, 0.0, 1, 2), 3);
        assert_eq!(due, [1_000_000, 3_000_000, 5_000_000]);
    }

    #[test]
    fn rate_rises_linearly_during_the_ramp() {
        let due = times(RampSchedule::new(100.0, 2.0, 0, 1), 201);
        assert!(due.is_sorted());
        // Half as many in the ramp as at the full rate, then one every 10 ms.
        assert_eq!(due[100], 2_000_000_000);
        assert_eq!(due[200], 3_000_000_000);
    }
}
