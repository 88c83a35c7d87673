//! A histogram of durations, for percentiles.

/// The logarithm of the number of classes for each power of two. With 16 classes the error is at most a sixteenth.
const STEP_BITS: u32 = 4;
const STEPS: usize = 1 << STEP_BITS;
const CLASSES: usize = (64 - STEP_BITS as usize + 1) * STEPS;

/// Counts durations in 16 classes for each power of two.
#[derive(Clone)]
pub struct DurationHistogram {
    counts: Box<[u64]>,
    total: u64,
    largest: u64,
}

impl Default for DurationHistogram {
    fn default() -> DurationHistogram {
        DurationHistogram {
            counts: vec![0; CLASSES].into(),
            total: 0,
            largest: 0,
        }
    }
}

impl DurationHistogram {
    /// Adds a duration, µs.
    pub fn add(&mut self, duration_us: u64) {
        self.counts[class(duration_us)] += 1;
        self.total += 1;
        self.largest = self.largest.max(duration_us);
    }

    /// The duration that a share of the records, of 1, does not exceed, µs. At most 6 % too long.
    pub fn percentile_us(&self, share: f64) -> u64 {
        // At least the first record, so that a share of 0 is the shortest duration.
        let rank = (self.total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (class, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                // The class of the longest duration may end far beyond it.
                return end(class).min(self.largest);
            }
        }
        self.largest
    }

    /// The longest duration, µs.
    pub fn largest_us(&self) -> u64 {
        self.largest
    }

    /// The number of durations.
    pub fn total(&self) -> u64 {
        self.total
    }
}

fn class(value: u64) -> usize {
    let bits = u64::BITS - value.leading_zeros();
    // Small values have a class each.
    let shift = bits.saturating_sub(STEP_BITS + 1);
    // The shifted value has five bits; the first, always 1, adds 16 and so joins the classes without a gap.
    shift as usize * STEPS + (value >> shift) as usize
}

/// The largest value of a class.
fn end(class: usize) -> u64 {
    let shift = (class / STEPS).saturating_sub(1) as u32;
    let start = (class - shift as usize * STEPS) as u64;
    // The end of the last class is 2^64, which u64 can't hold.
    (((u128::from(start) + 1) << shift) - 1).min(u64::MAX.into()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_ends_within_a_sixteenth_of_its_values() {
        let values = (0..64).flat_map(|shift| {
            [
                1_u64 << shift,
                (1 << shift) + (1 << shift >> 1),
                u64::MAX >> shift,
            ]
        });
        for value in values.chain(0..200) {
            let end = end(class(value));
            assert!(end >= value && end - value <= value / 16, "{value}: {end}");
        }
    }

    #[test]
    fn percentiles() {
        let mut durations = DurationHistogram::default();
        assert_eq!(durations.percentile_us(0.5), 0);
        (1..=1000).for_each(|value| durations.add(value));
        for (share, expected) in [(0.5, 500), (0.9, 900), (0.99, 990), (1.0, 1000)] {
            let found = durations.percentile_us(share);
            assert!(
                (expected..=expected + expected / 16).contains(&found),
                "{share}: {found}"
            );
        }
        assert_eq!(durations.largest_us(), 1000);
    }
}
