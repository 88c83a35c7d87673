//! Histogram of durations with exponential buckets, those of Prometheus' native histograms with schema 3: eight for
//! each power of two, so that the bounds of a bucket are 9 % apart.
//!
//! One thread records, with plain loads and stores, or several with atomic additions; any thread may read. The bounds of the classic buckets are powers
//! of two (in seconds), which are also bounds of native buckets, so both kinds are computed from the same counts.
//!
//! Source: Prometheus documentation, "Native histograms" (schemas, bucket boundaries).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of buckets for each power of two: 2 to the power of the schema.
const BUCKETS_PER_OCTAVE: usize = 8;
/// The schema of native histograms with this number of buckets.
pub const NATIVE_SCHEMA: i32 = 3;
/// Durations up to 2^`EXPONENT_MIN` s (0.95 us) are in the first bucket.
const EXPONENT_MIN: i32 = -20;
/// Durations beyond 2^`EXPONENT_MAX` s (17 min) are in the last bucket.
const EXPONENT_MAX: i32 = 10;
const OCTAVES: usize = (EXPONENT_MAX - EXPONENT_MIN) as usize;
/// Includes one bucket below the first octave, and one above the last.
const BUCKET_COUNT: usize = OCTAVES * BUCKETS_PER_OCTAVE + 2;
/// The powers of two, in seconds, at which classic buckets end: 0.12 ms to 64 s.
const CLASSIC_EXPONENTS: std::ops::RangeInclusive<i32> = -13..=6;

/// A histogram of durations.
#[derive(Debug)]
pub struct LatencyHistogram {
    sum_us: AtomicU64,
    buckets: [AtomicU64; BUCKET_COUNT],
}

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        LatencyHistogram {
            sum_us: AtomicU64::new(0),
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// Adds without a locked instruction, since only one thread writes.
#[inline]
fn add(value: &AtomicU64, n: u64) {
    value.store(value.load(Relaxed).wrapping_add(n), Relaxed);
}

impl LatencyHistogram {
    /// Records a duration. Only one thread may record into a histogram.
    #[inline]
    pub fn record(&self, duration_us: u64) {
        self.record_in(bucket_index(duration_us), duration_us, 1);
    }

    /// Records `count` equal durations with a known bucket.
    #[inline]
    pub fn record_in(&self, bucket: BucketIndex, duration_us: u64, count: u64) {
        add(&self.sum_us, duration_us.wrapping_mul(count));
        add(&self.buckets[bucket.0 % BUCKET_COUNT], count);
    }

    /// Records a duration in a histogram that several threads use; all of them must use this function.
    pub fn record_shared(&self, duration_us: u64) {
        self.sum_us.fetch_add(duration_us, Relaxed);
        self.buckets[bucket_index(duration_us).0].fetch_add(1, Relaxed);
    }

    /// Adds the recorded durations to `sum`.
    pub fn add_to(&self, sum: &mut LatencyDistribution) {
        sum.sum_us += self.sum_us.load(Relaxed);
        for (sum, bucket) in sum.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.load(Relaxed);
        }
    }
}

/// The bucket of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketIndex(usize);

/// Finds the bucket of a duration. The exponent of its floating-point form gives the octave (power of two), and
/// comparing the mantissa with the seven bounds gives the bucket within the octave.
#[inline]
pub fn bucket_index(duration_us: u64) -> BucketIndex {
    // A signed integer is converted by one instruction. 53 bits suffice for the microseconds of 285 years.
    let bits = (duration_us.min(i64::MAX as u64) as i64 as f64 * 1e-6).to_bits();
    let exponent = (bits >> 52) as i32 - 1023;
    let mantissa = bits & ((1 << 52) - 1);
    if exponent < EXPONENT_MIN || duration_us == 0 {
        return BucketIndex(0);
    }
    if exponent >= EXPONENT_MAX {
        return BucketIndex(BUCKET_COUNT - 1);
    }
    // A bucket includes its upper bound, so a mantissa of zero belongs to the previous octave.
    let bounds_below = usize::from(BOUNDS_BELOW[(mantissa >> MANTISSA_PART_SHIFT) as usize]);
    let within = bounds_below + usize::from(mantissa > MANTISSA_BOUNDS[bounds_below]);
    let octave = (exponent - EXPONENT_MIN) as usize;
    BucketIndex(octave * BUCKETS_PER_OCTAVE + within)
}

/// The mantissas of an octave are divided into 16 equal parts by their first four bits, so that each part has at most
/// one bound.
const MANTISSA_PART_SHIFT: u32 = 48;
/// The number of bounds below each part of the mantissas.
const BOUNDS_BELOW: [u8; 16] = {
    let mut below = [0; 16];
    let mut part = 0;
    while part < below.len() {
        let start = (part as u64) << MANTISSA_PART_SHIFT;
        let mut bound = 0;
        while MANTISSA_BOUNDS[bound] < start {
            bound += 1;
        }
        below[part] = bound as u8;
        part += 1;
    }
    below
};

/// The mantissas of 2^(n/8) for n = 0 to 7, and a bound above all mantissas.
const MANTISSA_BOUNDS: [u64; BUCKETS_PER_OCTAVE + 1] = [
    0,
    0x0001_72b8_3c7d_517b,
    0x0003_06fe_0a31_b715,
    0x0004_bfda_d536_2a27,
    0x0006_a09e_667f_3bcd,
    0x0008_ace5_422a_a0db,
    0x000a_e89f_995a_d3ad,
    0x000d_5818_dcfb_a487,
    u64::MAX,
];

/// The distribution of the durations of all threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyDistribution {
    sum_us: u64,
    buckets: Vec<u64>,
}

impl Default for LatencyDistribution {
    fn default() -> LatencyDistribution {
        LatencyDistribution {
            sum_us: 0,
            buckets: vec![0; BUCKET_COUNT],
        }
    }
}

impl LatencyDistribution {
    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of the durations in seconds.
    pub fn sum_s(&self) -> f64 {
        self.sum_us as f64 / 1e6
    }

    /// Adds another distribution.
    pub fn add(&mut self, other: &LatencyDistribution) {
        self.sum_us += other.sum_us;
        for (sum, n) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += n;
        }
    }

    /// The classic buckets: upper bound in seconds, and number of durations, not cumulative. The bound of the last is
    /// infinity.
    pub fn classic_buckets(&self) -> Vec<(f64, u64)> {
        let mut start = 0;
        let mut buckets = Vec::new();
        for exponent in CLASSIC_EXPONENTS {
            let end = (exponent - EXPONENT_MIN) as usize * BUCKETS_PER_OCTAVE + 1;
            let count = self.buckets[start..end].iter().sum();
            buckets.push((f64::from(exponent).exp2(), count));
            start = end;
        }
        buckets.push((f64::INFINITY, self.buckets[start..].iter().sum()));
        buckets
    }

    /// The native buckets that are not empty: index in [`NATIVE_SCHEMA`], and number of durations.
    pub fn native_buckets(&self) -> impl Iterator<Item = (i32, u64)> {
        let filled = self.buckets.iter().enumerate().filter(|(_, n)| **n > 0);
        // Native index i ends at 2^(i/8); the first bucket here ends at 2^EXPONENT_MIN.
        filled.map(|(index, n)| (EXPONENT_MIN * BUCKETS_PER_OCTAVE as i32 + index as i32, *n))
    }

    /// The quantile `part` (0 to 1) in seconds, interpolated within its bucket; 0 if there are no durations.
    pub fn quantile_s(&self, part: f64) -> f64 {
        let rank = part * self.count() as f64;
        let mut below = 0;
        for (index, n) in self.native_buckets() {
            if (below + n) as f64 >= rank {
                let within = (rank - below as f64) / n as f64;
                return ((f64::from(index) - 1.0 + within) / BUCKETS_PER_OCTAVE as f64).exp2();
            }
            below += n;
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bounds of a bucket in seconds.
    fn bounds(bucket: BucketIndex) -> (f64, f64) {
        let upper = f64::from(EXPONENT_MIN) + bucket.0 as f64 / 8.0;
        ((upper - 1.0 / 8.0).exp2(), upper.exp2())
    }

    #[test]
    fn duration_is_within_the_bounds_of_its_bucket() {
        for us in (1..5000).chain((5000..900_000_000).step_by(104_729)) {
            let (low, high) = bounds(bucket_index(us));
            let s = us as f64 * 1e-6;
            assert!(low < s && s <= high, "{us} us: {low} to {high}");
        }
    }

    #[test]
    fn bucket_includes_its_upper_bound() {
        for exponent in 0..8u32 {
            let us = 1_000_000 << exponent;
            let (_, high) = bounds(bucket_index(us));
            assert_eq!(high, us as f64 / 1e6);
        }
    }

    #[test]
    fn extreme_durations_are_in_the_first_and_last_bucket() {
        assert_eq!(bucket_index(0), BucketIndex(0));
        assert_eq!(bucket_index(u64::MAX), BucketIndex(BUCKET_COUNT - 1));
        let histogram = LatencyHistogram::default();
        histogram.record(0);
        histogram.record(2_000_000_000);
        let mut sum = LatencyDistribution::default();
        histogram.add_to(&mut sum);
        assert_eq!(sum.count(), 2);
        assert_eq!(sum.classic_buckets().last(), Some(&(f64::INFINITY, 1)));
        assert_eq!(sum.sum_s(), 2000.0);
    }

    #[test]
    fn classic_and_native_buckets_count_the_same_durations() {
        let mut sum = LatencyDistribution::default();
        let histogram = LatencyHistogram::default();
        let durations: Vec<u64> = (0..2000).map(|n| n * n * 37).collect();
        durations.iter().for_each(|us| histogram.record(*us));
        histogram.add_to(&mut sum);
        let native: u64 = sum.native_buckets().map(|(_, n)| n).sum();
        let classic: u64 = sum.classic_buckets().iter().map(|(_, n)| n).sum();
        assert_eq!((native, classic), (2000, 2000));
        let mut low = 0.0;
        for (high, n) in sum.classic_buckets() {
            let s = |us: &u64| *us as f64 / 1e6;
            let expected = durations.iter().filter(|us| s(us) > low && s(us) <= high);
            // The duration 0 belongs to the first bucket.
            assert_eq!(n, expected.count() as u64 + u64::from(low == 0.0));
            low = high;
        }
    }

    #[test]
    fn quantiles_are_exact_to_a_bucket() {
        let histogram = LatencyHistogram::default();
        (1..=1000).for_each(|ms| histogram.record(ms * 1000));
        let mut sum = LatencyDistribution::default();
        assert_eq!(sum.quantile_s(0.5), 0.0);
        histogram.add_to(&mut sum);
        for (part, expected) in [(0.5, 0.5), (0.9, 0.9), (0.99, 0.99)] {
            let error = sum.quantile_s(part) / expected - 1.0;
            assert!(error.abs() < 0.09, "{part}: {error}");
        }
    }
}
