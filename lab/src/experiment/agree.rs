//! Compares the repeated measurements of a point: computes their median and decides whether another repeat is needed.
//! No I/O.

/// Figures that differ by at most this share count as equal; repeats usually differ by less.
pub const TOLERANCE: f64 = 0.03;
/// Maximum number of counted repeats.
pub const COUNTED_REPEATS_MAX: usize = 5;
/// Maximum number of timed repeats at a rate. The variation of times is random; more repeats would not reduce it.
pub const TIMED_REPEATS_MAX: usize = 3;

/// The median of sorted values; the mean of the two middle values for an even number. `None` if empty.
#[must_use]
pub fn median(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    let upper = *sorted.get(half)?;
    Some(match sorted.len() % 2 {
        0 => f64::midpoint(sorted[half - 1], upper),
        _ => upper,
    })
}

/// Whether one more repeat is needed, up to `repeats_max`: fewer than half of the repeats are close to their median. A
/// single outlier, such as a server that was still warming up or had its threads scheduled differently, does not move
/// the median of three.
#[must_use]
pub fn needs_another(repeats: &[f64], repeats_max: usize) -> bool {
    (2..repeats_max).contains(&repeats.len()) && !agree(repeats)
}

/// Whether two values agree, or more than half of several agree with their median.
fn agree(repeats: &[f64]) -> bool {
    let mut sorted = repeats.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(middle) = median(&sorted) else {
        return true;
    };
    let bound = TOLERANCE * middle.abs();
    // The median of two values is their mean, so they are compared with each other.
    if let [low, high] = sorted[..] {
        return high - low <= bound;
    }
    let is_same = |repeat: &&f64| (*repeat - middle).abs() <= bound;
    2 * sorted.iter().filter(is_same).count() > sorted.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_agreeing_repeats_are_enough() {
        assert!(
            !needs_another(&[100.0], COUNTED_REPEATS_MAX),
            "that is what was planned"
        );
        assert!(!needs_another(&[100.0, 102.0], COUNTED_REPEATS_MAX));
        assert!(!needs_another(&[0.0, 0.0], COUNTED_REPEATS_MAX));
        assert!(
            needs_another(&[100.0, 103.09], COUNTED_REPEATS_MAX),
            "as the report says"
        );
    }

    #[test]
    fn majority_near_the_median_is_enough() {
        assert!(!needs_another(&[110.0, 100.0, 101.0], COUNTED_REPEATS_MAX));
        assert!(needs_another(&[110.0, 100.0, 105.0], COUNTED_REPEATS_MAX));
        assert!(!needs_another(&[110.0, 100.0, 105.0], TIMED_REPEATS_MAX));
        assert!(
            needs_another(&[110.0, 100.0, 105.0, 104.0], COUNTED_REPEATS_MAX),
            "two of four"
        );
        assert!(
            !needs_another(&[120.0, 100.0, 110.0, 105.0, 115.0], COUNTED_REPEATS_MAX),
            "enough"
        );
    }
}
