//! The claims of a paper about its servers, and their verdicts by instruction counts. No I/O.

use super::figure::{CountedFigure, find};
use crate::experiment::agree::TOLERANCE;

/// A server and a load.
pub type ClaimPoint = (&'static str, &'static str);

/// A claim that instruction counts can test: with equal work, how many times as many requests does `subject` answer as
/// `baseline`?
#[derive(Debug)]
pub struct PaperClaim {
    /// The location in the paper.
    pub page: &'static str,
    /// The claim in words.
    pub statement: &'static str,
    /// The claimed factor.
    pub factor: ClaimFactor,
    /// The server of the claim.
    pub subject: ClaimPoint,
    /// The server that it is compared with.
    pub baseline: ClaimPoint,
}

/// A claimed factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClaimFactor {
    /// This many times.
    Times(f64),
    /// More than 1, without a number.
    More,
    /// Equal, without a number: the difference costs no work.
    Same,
}

/// A figure or claim that instruction counts can't test.
#[derive(Debug)]
pub struct UnjudgedClaim {
    /// The location in the paper.
    pub page: &'static str,
    /// The reason.
    pub reason: &'static str,
}

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimVerdict {
    /// The claim holds.
    Holds,
    /// The direction holds, but the measured factor is smaller.
    Less,
    /// The claim fails.
    Fails,
}

impl PaperClaim {
    /// The measured factor: the instructions of `baseline` divided by those of `subject`; `None` if either figure is
    /// missing.
    pub fn measured_factor(&self, figures: &[CountedFigure]) -> Option<f64> {
        let instructions = |(server, load): ClaimPoint| find(figures, server, load)?.median();
        let (subject, baseline) = (instructions(self.subject)?, instructions(self.baseline)?);
        (subject > 0.0).then(|| baseline / subject)
    }

    /// Judges the claim by the measured factor.
    pub fn verdict(&self, measured: f64) -> ClaimVerdict {
        match self.factor {
            ClaimFactor::Times(paper) if measured >= paper => ClaimVerdict::Holds,
            ClaimFactor::Times(_) if measured > 1.0 => ClaimVerdict::Less,
            ClaimFactor::More if measured > 1.0 => ClaimVerdict::Holds,
            ClaimFactor::Same if (measured - 1.0).abs() <= TOLERANCE => ClaimVerdict::Holds,
            _ => ClaimVerdict::Fails,
        }
    }
}

impl ClaimFactor {
    /// The text in a table.
    pub fn text(self) -> String {
        match self {
            ClaimFactor::Times(factor) => factor_text(factor),
            ClaimFactor::More => "more".to_owned(),
            ClaimFactor::Same => "the same".to_owned(),
        }
    }
}

impl ClaimVerdict {
    /// The text in a table.
    pub fn text(self) -> &'static str {
        match self {
            ClaimVerdict::Holds => "holds",
            ClaimVerdict::Less => "holds, with a smaller ratio",
            ClaimVerdict::Fails => "does not hold",
        }
    }
}

/// Formats a factor with two digits.
pub fn factor_text(factor: f64) -> String {
    match factor {
        factor if factor < 9.95 => format!("{factor:.1} ×"),
        _ => format!("{factor:.0} ×"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figure::tests::figure;
    use super::*;

    fn claim(factor: ClaimFactor) -> PaperClaim {
        PaperClaim {
            page: "figure 1",
            statement: "more",
            factor,
            subject: ("a", "l"),
            baseline: ("b", "l"),
        }
    }

    #[test]
    fn measured_factor_is_the_ratio_of_instructions() {
        let figures = [figure("a", "l", &[100]), figure("b", "l", &[250])];
        assert_eq!(
            claim(ClaimFactor::More).measured_factor(&figures),
            Some(2.5)
        );
        assert_eq!(
            claim(ClaimFactor::More).measured_factor(&figures[..1]),
            None
        );
        let failed = [figure("a", "l", &[100]), figure("b", "l", &[])];
        assert_eq!(claim(ClaimFactor::More).measured_factor(&failed), None);
    }

    #[test]
    fn verdict_compares_measured_with_claimed_factor() {
        let cases = [
            (ClaimFactor::Times(2.0), 2.0, ClaimVerdict::Holds),
            (ClaimFactor::Times(2.0), 1.9, ClaimVerdict::Less),
            (ClaimFactor::Times(2.0), 0.9, ClaimVerdict::Fails),
            (ClaimFactor::More, 1.1, ClaimVerdict::Holds),
            (ClaimFactor::More, 1.0, ClaimVerdict::Fails),
            (ClaimFactor::Same, 1.02, ClaimVerdict::Holds),
            (ClaimFactor::Same, 1.1, ClaimVerdict::Fails),
        ];
        for (factor, ours, verdict) in cases {
            assert_eq!(claim(factor).verdict(ours), verdict, "{factor:?} {ours}");
        }
    }

    #[test]
    fn factors_are_printed_with_two_digits() {
        assert_eq!(factor_text(1.666), "1.7 ×");
        assert_eq!(factor_text(19.8), "20 ×");
    }
}
