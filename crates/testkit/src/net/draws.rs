//! A deterministic pseudorandom number generator.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): a
/// counter, and a function that mixes it.
#[derive(Clone, Debug)]
pub struct RandomDraws {
    state: u64,
}

impl RandomDraws {
    /// The numbers of the sequence with this seed and this sequence number.
    pub fn new(seed: u64, sequence: u64) -> RandomDraws {
        RandomDraws {
            // Both arguments are mixed, so that adjacent seeds and sequences give unrelated numbers.
            state: mix(seed) ^ mix(!sequence),
        }
    }

    /// A 64-bit number.
    pub fn number(&mut self) -> u64 {
        // The constants are those of SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number below `end`, which is not 0. The slight bias does not matter for tests.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("64 bits at most");
        usize::try_from(self.number() % end).expect("below a usize")
    }

    /// True in this percentage of cases.
    pub fn percent(&mut self, percent: f64) -> bool {
        // A double represents integers of 53 bits exactly.
        let unit = (self.number() >> 11) as f64 / (1u64 << 53) as f64;
        unit * 100.0 < percent
    }
}

fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers_and_other_seeds_differ() {
        let draw = |seed, stream| {
            let mut draws = RandomDraws::new(seed, stream);
            [draws.number(), draws.number()]
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(2, 1));
        assert_ne!(draw(0, 0), draw(0, 1));
    }

    #[test]
    fn percent_is_true_in_about_that_percentage_of_calls() {
        let mut draws = RandomDraws::new(7, 0);
        let hits = (0..100_000).filter(|_| draws.percent(2.0)).count();
        assert!((1_800..2_200).contains(&hits), "{hits}");
        assert!(!draws.percent(0.0) && draws.percent(100.0));
    }
}
