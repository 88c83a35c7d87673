//! The number of requests per connection: text form and probability distributions.

use std::str::FromStr;

use crate::random::SplitMix;

/// The number of requests per connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PerConnection {
    /// Unlimited: the connection stays open until the end of the run.
    Unlimited,
    /// A constant number, at least 1.
    Fixed(u64),
    /// Geometric with this mean, at least 1: the connection ends after each request with the same probability.
    Geometric(f64),
    /// Uniform from the first to the second number, both included; the first is at least 1.
    Uniform(u64, u64),
}

impl PerConnection {
    /// Draws the number for a new connection, at least 1.
    pub fn draw(&self, random: &mut SplitMix) -> u64 {
        match *self {
            PerConnection::Unlimited => u64::MAX,
            PerConnection::Fixed(number) => number,
            PerConnection::Geometric(mean) => geometric(mean, random),
            PerConnection::Uniform(min, max) => min + random.below(max - min + 1),
        }
    }
}

/// Draws by inversion: the probability of more than n requests is (1 - 1/mean)^n.
fn geometric(mean: f64, random: &mut SplitMix) -> u64 {
    // The divisor below would be the logarithm of 0.
    if mean <= 1.0 {
        return 1;
    }
    // 1 - u is never 0: the logarithm of 0 would be infinite.
    let extra = (1.0 - random.unit()).ln() / (1.0 - 1.0 / mean).ln();
    1 + extra as u64
}

impl FromStr for PerConnection {
    type Err = String;

    fn from_str(text: &str) -> Result<PerConnection, String> {
        parse(text).ok_or_else(|| {
            format!(
                "{text:?} is not a number of requests per connection: give inf, a number from 1 \
                 on (5), geometric:MEAN (geometric:7.3) or uniform:LEAST-MOST (uniform:5-15)"
            )
        })
    }
}

fn parse(text: &str) -> Option<PerConnection> {
    if text == "inf" {
        return Some(PerConnection::Unlimited);
    }
    if let Some(mean) = text.strip_prefix("geometric:") {
        let mean: f64 = mean.parse().ok()?;
        return (1.0..=1e12)
            .contains(&mean)
            .then_some(PerConnection::Geometric(mean));
    }
    if let Some(range) = text.strip_prefix("uniform:") {
        let (min, max) = range.split_once('-')?;
        let (min, max): (u64, u64) = (min.parse().ok()?, max.parse().ok()?);
        // The last condition keeps `max - min + 1` within 64 bits.
        let sensible = min >= 1 && min <= max && max < u64::MAX;
        return sensible.then_some(PerConnection::Uniform(min, max));
    }
    let number = text.parse().ok()?;
    (number >= 1).then_some(PerConnection::Fixed(number))
}

impl std::fmt::Display for PerConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PerConnection::Unlimited => f.write_str("inf"),
            PerConnection::Fixed(number) => write!(f, "{number}"),
            PerConnection::Geometric(mean) => write!(f, "geometric:{mean}"),
            PerConnection::Uniform(min, max) => write!(f, "uniform:{min}-{max}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trip() {
        for text in ["inf", "1", "5", "geometric:7.3", "uniform:5-15"] {
            let parsed: PerConnection = text.parse().expect(text);
            assert_eq!(parsed.to_string(), text);
        }
        for text in [
            "",
            "0",
            "-1",
            "geometric:0.5",
            "geometric:NaN",
            "uniform:0-3",
            "uniform:5-4",
        ] {
            let error = text.parse::<PerConnection>().expect_err(text);
            assert!(error.contains("uniform:5-15"), "{error}");
        }
    }

    #[test]
    fn geometric_distribution_has_expected_mean_and_share_of_ones() {
        let (mean, draws) = (7.3, 1_000_000u64);
        let mut random = SplitMix::new(3);
        let (mut sum, mut ones) = (0, 0);
        for _ in 0..draws {
            let number = PerConnection::Geometric(mean).draw(&mut random);
            assert!(number >= 1);
            sum += number;
            ones += u64::from(number == 1);
        }
        let chance = 1.0 / mean;
        let mean_deviation = (mean * (mean - 1.0) / draws as f64).sqrt();
        assert!((sum as f64 / draws as f64 - mean).abs() < 4.5 * mean_deviation);
        let ones_deviation = (chance * (1.0 - chance) / draws as f64).sqrt();
        assert!((ones as f64 / draws as f64 - chance).abs() < 4.5 * ones_deviation);
    }
}
