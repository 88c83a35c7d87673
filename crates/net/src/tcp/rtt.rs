//! Round trip time and retransmission timeout (RFC 6298).

/// The timeout before the first measurement.
const INITIAL_US: u32 = 1_000_000;
const MIN_US: u32 = 200_000;
const MAX_US: u32 = 60_000_000;

/// The RTT estimator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttEstimator {
    /// 0 if not measured yet.
    smoothed_us: u32,
    variance_us: u32,
    timeout_us: u32,
    backoff: u8,
    /// The sequence number that, once acknowledged, ends the measurement.
    until: u32,
    /// The start of the measurement; `None` if none is running.
    since_us: Option<u64>,
}

impl RttEstimator {
    pub(crate) fn new() -> RttEstimator {
        RttEstimator {
            smoothed_us: 0,
            variance_us: 0,
            timeout_us: INITIAL_US,
            backoff: 0,
            until: 0,
            since_us: None,
        }
    }

    /// Starts a measurement, unless one is running: new data up to `end` was sent.
    pub(crate) fn sent(&mut self, end: u32, now_us: u64) {
        if self.since_us.is_none() {
            self.until = end;
            self.since_us = Some(now_us);
        }
    }

    /// Discards the measurement after a retransmission: its ACK would be ambiguous (Karn's algorithm).
    pub(crate) fn forget(&mut self) {
        self.since_us = None;
    }

    /// Handles an ACK of all data below `una`.
    pub(crate) fn acked(&mut self, una: u32, now_us: u64) {
        self.backoff = 0;
        if let Some(since_us) = self.since_us
            && !crate::bytes::before(una, self.until)
        {
            self.since_us = None;
            self.sample(
                u32::try_from(now_us - since_us)
                    .unwrap_or(MAX_US)
                    .min(MAX_US),
            );
        }
    }

    /// Adds a measurement.
    pub(crate) fn sample(&mut self, rtt_us: u32) {
        if self.smoothed_us == 0 {
            self.smoothed_us = rtt_us.max(1);
            self.variance_us = rtt_us / 2;
        } else {
            let error = self.smoothed_us.abs_diff(rtt_us);
            self.variance_us = self.variance_us - self.variance_us / 4 + error / 4;
            self.smoothed_us = (self.smoothed_us - self.smoothed_us / 8 + rtt_us / 8).max(1);
        }
        // RFC 6298 §2.3.
        self.timeout_us = (self.smoothed_us + 4 * self.variance_us).clamp(MIN_US, MAX_US);
    }

    /// Doubles the timeout after it has expired.
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    /// The current retransmission timeout.
    pub(crate) fn timeout_us(&self) -> u64 {
        (u64::from(self.timeout_us) << self.backoff).min(u64::from(MAX_US))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_follows_the_measured_rtt() {
        let mut rtt = RttEstimator::new();
        assert_eq!(rtt.timeout_us(), 1_000_000);
        rtt.sent(10, 0);
        rtt.sent(20, 50_000);
        rtt.acked(9, 60_000);
        assert_eq!(rtt.timeout_us(), 1_000_000);
        rtt.acked(10, 100_000);
        assert_eq!(rtt.timeout_us(), 300_000);
        for _ in 0..100 {
            rtt.sample(1_000);
        }
        assert_eq!(rtt.timeout_us(), 200_000);
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.timeout_us(), 800_000);
        for _ in 0..300 {
            rtt.back_off();
        }
        assert_eq!(rtt.timeout_us(), 60_000_000);
        rtt.sent(30, 0);
        rtt.forget();
        rtt.acked(30, 5_000_000);
        assert_eq!(rtt.timeout_us(), 200_000);
    }
}
