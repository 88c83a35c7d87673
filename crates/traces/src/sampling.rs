//! Head sampling: whether a trace is recorded is decided at its first request, by its identifier alone, so that all
//! servers with the same rate decide alike.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::context::TraceId;

/// The share of new traces that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRate {
    /// A trace is recorded if 63 bits of its identifier are below this number.
    threshold: u64,
}

impl SampleRate {
    /// The rate in millionths, at most a million.
    pub fn from_millionths(millionths: u32) -> SampleRate {
        let share = u128::from(millionths.min(1_000_000)) << 63;
        SampleRate {
            // At most 2^63.
            threshold: (share / 1_000_000) as u64,
        }
    }

    /// Whether a new trace is recorded; as `TraceIdRatioBased` of OpenTelemetry's SDKs.
    pub fn samples(self, trace_id: TraceId) -> bool {
        trace_id.low_bits() >> 1 < self.threshold
    }
}

/// A rate that all workers share, and that may change at any time.
#[derive(Debug)]
pub struct SharedSampleRate {
    millionths: AtomicU32,
}

impl Default for SharedSampleRate {
    /// All traces.
    fn default() -> SharedSampleRate {
        SharedSampleRate {
            millionths: AtomicU32::new(1_000_000),
        }
    }
}

impl SharedSampleRate {
    /// The rate for the next decision.
    pub fn current(&self) -> SampleRate {
        SampleRate::from_millionths(self.millionths())
    }

    /// The rate in millionths.
    pub fn millionths(&self) -> u32 {
        // Relaxed suffices: a worker may apply the new rate somewhat later.
        self.millionths.load(Relaxed)
    }

    /// Sets the rate in millionths, at most a million.
    pub fn set_millionths(&self, millionths: u32) {
        self.millionths.store(millionths.min(1_000_000), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::IdGenerator;

    #[test]
    fn rates_of_zero_and_one_are_exact() {
        let (lowest, highest) = (TraceId::from_random(1), TraceId::from_random(u128::MAX));
        for id in [lowest, highest] {
            assert!(SampleRate::from_millionths(1_000_000).samples(id));
            assert!(!SampleRate::from_millionths(0).samples(id));
        }
    }

    #[test]
    fn shared_rate_changes() {
        let (rate, highest) = (SharedSampleRate::default(), TraceId::from_random(u128::MAX));
        assert!(rate.current().samples(highest));
        rate.set_millionths(10_000);
        assert_eq!(rate.millionths(), 10_000);
        assert!(!rate.current().samples(highest));
    }

    #[test]
    fn share_of_sampled_traces_is_the_rate() {
        let rate = SampleRate::from_millionths(10_000);
        let mut generator = IdGenerator::new([1, 2]);
        let ids = std::iter::repeat_with(|| generator.trace_id());
        let sampled = ids.take(100_000).filter(|id| rate.samples(*id)).count();
        assert!((900..1100).contains(&sampled), "{sampled}");
    }

    #[test]
    fn higher_rate_samples_the_traces_of_a_lower_one() {
        let mut generator = IdGenerator::new([3, 4]);
        let (low, high) = (
            SampleRate::from_millionths(100_000),
            SampleRate::from_millionths(200_000),
        );
        for _ in 0..10_000 {
            let id = generator.trace_id();
            assert!(!low.samples(id) || high.samples(id));
        }
    }
}
