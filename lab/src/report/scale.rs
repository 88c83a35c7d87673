//! Axes: the mapping of values to positions, and the choice of ticks. No I/O.

/// An axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AxisScale {
    /// The value at the start.
    pub low: f64,
    /// The value at the end.
    pub high: f64,
    /// Whether the axis is logarithmic.
    pub log: bool,
    /// The position of the start.
    pub from: f64,
    /// The position of the end.
    pub to: f64,
}

impl AxisScale {
    /// The position of a value.
    #[must_use]
    pub fn position(&self, value: f64) -> f64 {
        let transform = |value: f64| {
            if self.log {
                value.max(f64::MIN_POSITIVE).ln()
            } else {
                value
            }
        };
        let (low, high) = (transform(self.low), transform(self.high));
        // A range of one value would make the divisor 0.
        let width = if high > low { high - low } else { 1.0 };
        let share = ((transform(value) - low) / width).clamp(0.0, 1.0);
        self.from + share * (self.to - self.from)
    }
}

/// Ticks at multiples of 1, 2 or 5 times a power of ten, about `count` of them. They cover the range from `low`, or 0,
/// to `high`.
#[must_use]
pub fn linear_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let span = (high - low).max(f64::MIN_POSITIVE);
    let rough = span / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power);
    let step = step
        .into_iter()
        // The tolerance prevents a rounding error from selecting the next larger step.
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * power);
    let first = (low / step).floor() as i64;
    // Without the tolerance a rounding error would add a tick beyond the end.
    let last = (high / step - 1e-9).ceil() as i64;
    (first..=last.max(first + 1))
        .map(|tick| tick as f64 * step)
        .collect()
}

/// Ticks at powers of ten around the range, with 2 and 5 in between if there are few.
#[must_use]
pub fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    // A logarithm needs positive values, and equal ones would give an empty range.
    let low = low.max(1e-9);
    let high = high.max(low * 1.001);
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let times: &[f64] = if last - first <= 2 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let candidates =
        (first..=last).flat_map(|power| times.iter().map(move |t| t * 10f64.powi(power)));
    let candidates: Vec<f64> = candidates.collect();
    let below = candidates
        .iter()
        .rposition(|tick| *tick <= low * 1.001)
        .unwrap_or(0);
    let above = candidates
        .iter()
        .position(|tick| *tick >= high * 0.999)
        .unwrap_or(candidates.len() - 1);
    candidates[below..=above.max(below + 1).min(candidates.len() - 1)].to_vec()
}

/// Selects the labels at `positions` with `widths` that can be drawn without overlap: the last one, and as many of the
/// others as fit, evenly spaced.
#[must_use]
pub fn fitting(positions: &[f64], widths: &[f64]) -> Vec<usize> {
    let count = positions.len();
    // The smallest stride at which no two labels touch shows as many of them as possible.
    for stride in 1..=count.max(1) {
        let indexes: Vec<usize> = (0..count)
            // The labels are counted from the end, since the last label is always drawn.
            .filter(|i| (count - 1 - i).is_multiple_of(stride))
            .collect();
        let touch = indexes.windows(2).any(|pair| {
            let gap = (positions[pair[1]] - positions[pair[0]]).abs();
            gap < f64::midpoint(widths[pair[0]], widths[pair[1]]) + 6.0
        });
        if !touch {
            return indexes;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        assert_eq!(
            linear_ticks(0.0, 47_000.0, 5),
            [0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0, 50_000.0]
        );
        assert_eq!(
            linear_ticks(0.0, 1.0, 5),
            [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
        );
        assert_eq!(linear_ticks(0.0, 0.0, 5).len(), 2);
        for high in [0.003, 1.0, 9.99, 1234.5, 7e9] {
            let ticks = linear_ticks(0.0, high, 5);
            assert!(
                ticks[0] == 0.0 && *ticks.last().expect("some") >= high * 0.999,
                "{ticks:?}"
            );
            assert!((2..=8).contains(&ticks.len()), "{ticks:?}");
        }
        assert_eq!(log_ticks(3.0, 40.0), [2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(
            log_ticks(30.0, 40_000.0),
            [10.0, 100.0, 1000.0, 10_000.0, 100_000.0]
        );
    }

    #[test]
    fn values_map_to_axis_positions() {
        let scale = AxisScale {
            low: 1.0,
            high: 100.0,
            log: true,
            from: 0.0,
            to: 200.0,
        };
        assert!((scale.position(10.0) - 100.0).abs() < 1e-9);
        assert_eq!(scale.position(0.0), 0.0);
        let flat = AxisScale {
            low: 5.0,
            high: 5.0,
            log: false,
            from: 0.0,
            to: 1.0,
        };
        assert!(flat.position(5.0).is_finite());
    }

    #[test]
    fn overlapping_labels_are_omitted() {
        assert_eq!(fitting(&[0.0, 50.0, 100.0], &[30.0; 3]), [0, 1, 2]);
        assert_eq!(
            fitting(&[0.0, 20.0, 40.0, 60.0, 80.0], &[30.0; 5]),
            [0, 2, 4]
        );
        assert_eq!(fitting(&[], &[]), Vec::<usize>::new());
    }
}
