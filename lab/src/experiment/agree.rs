//! What the repeats of a point say: their median, and whether they agree or another one is worth its time. Pure.

/// Figures that differ by this share count as the same: what repeats of one may differ by.
pub const SAME: f64 = 0.03;
/// How often a point is counted at most.
pub const COUNTED_MOST: usize = 5;
/// How often a point is timed at most, at a rate. Times differ by what happens to come together; more repeats would say the same.
pub const TIMED_MOST: usize = 3;

/// The middle of what is sorted; of an even number, between the two in the middle. `None` of nothing.
#[must_use]
pub fn median(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    let upper = *sorted.get(half)?;
    Some(match sorted.len() % 2 {
        0 => f64::midpoint(sorted[half - 1], upper),
        _ => upper,
    })
}

/// Whether one more repeat is wanted, if `most` are allowed: the middle of those that there are stands alone. A server that
/// still learned in the first, or whose threads once took turns in another order, does not move the middle of three.
#[must_use]
pub fn wants_another(repeats: &[f64], most: usize) -> bool {
    (2..most).contains(&repeats.len()) && !agree(repeats)
}

/// Whether two are the same, or more than half of several are what their middle is.
fn agree(repeats: &[f64]) -> bool {
    let mut sorted = repeats.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(middle) = median(&sorted) else {
        return true;
    };
    let bound = SAME * middle.abs();
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
    fn two_that_agree_are_enough() {
        assert!(
            !wants_another(&[100.0], COUNTED_MOST),
            "that is what was planned"
        );
        assert!(!wants_another(&[100.0, 102.0], COUNTED_MOST));
        assert!(!wants_another(&[0.0, 0.0], COUNTED_MOST));
        assert!(
            wants_another(&[100.0, 103.09], COUNTED_MOST),
            "as the report says"
        );
    }

    #[test]
    fn of_more_the_middle_one_has_company() {
        assert!(!wants_another(&[110.0, 100.0, 101.0], COUNTED_MOST));
        assert!(wants_another(&[110.0, 100.0, 105.0], COUNTED_MOST));
        assert!(!wants_another(&[110.0, 100.0, 105.0], TIMED_MOST));
        assert!(
            wants_another(&[110.0, 100.0, 105.0, 104.0], COUNTED_MOST),
            "two of four"
        );
        assert!(
            !wants_another(&[120.0, 100.0, 110.0, 105.0, 115.0], COUNTED_MOST),
            "enough"
        );
    }
}
