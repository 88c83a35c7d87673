//! Whether the repeats of a counted point agree, or another one is worth its time. Pure.

use crate::report::model::SAME;

/// How often a point is measured at most.
const MOST: usize = 5;

/// Whether there is to be one more repeat: the middle one of those that there are stands alone. A server that still learned in the
/// first, and one whose threads took turns in another order once, don't move the middle of three.
#[must_use]
pub fn wants_another(repeats: &[f64]) -> bool {
    (2..MOST).contains(&repeats.len()) && !agree(repeats)
}

/// Whether more than half of them are what the middle one is.
fn agree(repeats: &[f64]) -> bool {
    let mut sorted = repeats.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted[sorted.len() / 2];
    let is_same = |repeat: &&f64| (*repeat - middle).abs() <= SAME * middle.abs();
    2 * sorted.iter().filter(is_same).count() > sorted.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_that_agree_are_enough() {
        assert!(!wants_another(&[100.0]), "that is what was planned");
        assert!(!wants_another(&[100.0, 102.0]));
        assert!(!wants_another(&[0.0, 0.0]));
        assert!(wants_another(&[100.0, 106.0]));
    }

    #[test]
    fn of_more_the_middle_one_has_company() {
        assert!(!wants_another(&[110.0, 100.0, 101.0]));
        assert!(wants_another(&[110.0, 100.0, 105.0]));
        assert!(wants_another(&[110.0, 100.0, 105.0, 104.0]), "two of four");
        assert!(
            !wants_another(&[120.0, 100.0, 110.0, 105.0, 115.0]),
            "enough"
        );
    }
}
