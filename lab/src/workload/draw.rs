//! Weighted random choice in constant time, and the weights that the workloads use.

use crate::random::SplitMix;

/// A distribution over `0..n` (Walker's alias method, built as by Vose).
#[derive(Clone, Debug)]
pub(crate) struct WeightedChoice {
    /// For each column: the share of the column's own value, and the value that the remaining share stands for.
    columns: Vec<(f64, u32)>,
}

impl WeightedChoice {
    /// Creates the distribution from weights, which need not sum to 1. At least one is needed, none may be negative,
    /// and their sum must be positive.
    pub(crate) fn new(weights: &[f64]) -> WeightedChoice {
        let sum: f64 = weights.iter().sum();
        assert!(sum > 0.0 && sum.is_finite(), "weights need a positive sum");
        let scale = weights.len() as f64 / sum;
        let mut heights: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
        let mut columns: Vec<(f64, u32)> = (0..weights.len() as u32)
            .map(|index| (1.0, index))
            .collect();
        let (mut low, mut high): (Vec<usize>, Vec<usize>) =
            (0..heights.len()).partition(|&column| heights[column] < 1.0);
        // Vose's construction: each column below the average is filled up from one above it, which may then be below
        // the average.
        while let (Some(&small), Some(&large)) = (low.last(), high.last()) {
            low.pop();
            columns[small] = (heights[small], large as u32);
            heights[large] -= 1.0 - heights[small];
            if heights[large] < 1.0 {
                high.pop();
                low.push(large);
            }
        }
        // Rounding may leave columns in either list; these consist entirely of their own value.
        WeightedChoice { columns }
    }

    /// Draws one of `0..n`.
    pub(crate) fn pick(&self, random: &mut SplitMix) -> usize {
        // Two random numbers: a column, and a height within it.
        let column = random.below(self.columns.len() as u64) as usize;
        let (own_share, alias) = self.columns[column];
        if random.unit() < own_share {
            column
        } else {
            alias as usize
        }
    }
}

/// Zipf's law with exponent 1: the weights of the ranks 1 to `ranks`.
pub(crate) fn zipf(ranks: usize) -> Vec<f64> {
    (1..=ranks).map(|rank| 1.0 / rank as f64).collect()
}

/// Poisson's law with this mean, truncated to `0..values`.
pub(crate) fn poisson(mean: f64, values: usize) -> Vec<f64> {
    // Each weight follows from the one before: factorials would overflow, and weights need no common factor.
    let mut weight = 1.0;
    (0..values)
        .map(|value| {
            if value > 0 {
                weight *= mean / value as f64;
            }
            weight
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Fails unless the counts fit the weights: a chi-square test at about 4.5 standard deviations of a normal
    /// distribution (Wilson and Hilferty's approximation).
    pub(crate) fn assert_fits(counts: &[u64], weights: &[f64], what: &str) {
        assert_eq!(counts.len(), weights.len(), "{what}");
        let drawn: u64 = counts.iter().sum();
        let sum: f64 = weights.iter().sum();
        let mut chi_square = 0.0;
        let mut freedom = -1.0;
        for (&count, weight) in counts.iter().zip(weights) {
            let due = drawn as f64 * weight / sum;
            if due == 0.0 {
                assert_eq!(count, 0, "{what}: drawn, but has no weight");
                continue;
            }
            assert!(due >= 5.0, "{what}: too few draws to judge");
            chi_square += (count as f64 - due).powi(2) / due;
            freedom += 1.0;
        }
        let deviation = 2.0 / (9.0 * freedom);
        let z = ((chi_square / freedom).cbrt() - (1.0 - deviation)) / f64::sqrt(deviation);
        assert!(
            z.abs() < 4.5,
            "{what}: {z:.1} standard deviations off; {counts:?}"
        );
    }

    #[test]
    fn choice_frequencies_match_weights() {
        for weights in [
            vec![1.0],
            vec![1.0, 0.0, 3.0],
            zipf(156),
            poisson(4.0, 9),
            vec![0.001, 1.0],
        ] {
            let weighted = WeightedChoice::new(&weights);
            let mut counts = vec![0; weights.len()];
            let mut random = SplitMix::new(5);
            for _ in 0..1_000_000 {
                counts[weighted.pick(&mut random)] += 1;
            }
            if weights.len() > 1 {
                assert_fits(&counts, &weights, &format!("{} weights", weights.len()));
            }
        }
    }

    #[test]
    fn assert_fits_detects_a_half_per_cent_error() {
        let result = std::panic::catch_unwind(|| {
            assert_fits(&[502_500, 497_500], &[1.0, 1.0], "half a per cent off");
        });
        assert!(result.is_err());
    }

    #[test]
    fn poisson_has_two_equal_peaks_at_a_whole_mean() {
        let weights = poisson(4.0, 9);
        assert!((weights[3] - weights[4]).abs() < 1e-9);
        assert!(weights[4] > weights[5] && weights[5] > weights[2]);
    }
}
