//! Random numbers that are equal in every run and version of the lab. File sets and traffic depend on them, so a
//! library that may change its generator is unsuitable.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// Creates a generator; equal seeds draw equal numbers.
    pub fn new(seed: u64) -> SplitMix {
        SplitMix(seed)
    }

    /// Creates one of many generators for a seed. Similar initial states would give the same sequence, shifted, so both
    /// numbers pass through the generator first.
    pub fn stream(seed: u64, number: u64) -> SplitMix {
        let start = SplitMix(seed).next_u64() ^ number;
        SplitMix(SplitMix(start).next_u64())
    }

    /// The next number, uniform over all of `u64`.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform over `0..end`; `end` must not be 0. The bias is below 2^-32 for the values of `end` that the lab uses.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Uniform over `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        // 53 bits are the precision of an f64; with more, the result could be rounded up to 1.
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_matches_the_reference_implementation() {
        // The first outputs of the reference implementation for the seed 1234567.
        let mut random = SplitMix::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn neighbouring_generators_are_disjoint() {
        let draw = |seed, number| {
            let mut random = SplitMix::stream(seed, number);
            (0..1000)
                .map(|_| random.next_u64())
                .collect::<std::collections::HashSet<_>>()
        };
        assert!(draw(1, 0).is_disjoint(&draw(1, 1)));
        assert!(draw(1, 0).is_disjoint(&draw(2, 0)));
        assert_eq!(draw(1, 7), draw(1, 7));
    }
}
