//! Random draws for generated logs.

use crate::random::SplitMix;

/// Draws from several distributions.
pub struct RandomDraws(SplitMix);

impl RandomDraws {
    /// Creates a generator with a seed.
    pub fn new(seed: u64) -> RandomDraws {
        RandomDraws(SplitMix::new(seed))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// A number above 0 and at most 1, so its logarithm is finite.
    pub fn unit(&mut self) -> f64 {
        1.0 - self.0.unit()
    }

    /// One of `0..weights.len()`.
    pub fn weighted(&mut self, weights: &[f64]) -> usize {
        let sum: f64 = weights.iter().sum();
        let mut left = self.unit() * sum;
        for (number, weight) in weights.iter().enumerate() {
            left -= weight;
            if left <= 0.0 {
                return number;
            }
        }
        weights.len() - 1
    }

    /// A rank of Zipf's law with exponent 1 over `0..ranks`, by its continuous form.
    pub fn zipf(&mut self, ranks: u64) -> u64 {
        let rank = ((ranks as f64 + 1.0).ln() * self.unit()).exp() - 1.0;
        (rank as u64).min(ranks - 1)
    }

    /// A duration: most requests are hits of tens of µs, one of ten takes ms.
    pub fn duration_us(&mut self) -> u64 {
        let median = match self.below(10) {
            0 => 4000.0,
            _ => 40.0,
        };
        // Log-normal by the sum of uniform draws.
        let normal: f64 = (0..6).map(|_| self.unit()).sum::<f64>() - 3.0;
        (median * (normal * 0.7).exp()) as u64
    }
}
