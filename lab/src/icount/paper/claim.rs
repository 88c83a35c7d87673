//! What a paper says of its servers, and whether instructions bear it out today. Pure.

use super::figure::{CountedFigure, find};
use crate::experiment::agree::SAME;

/// A server and a load.
pub type ClaimPoint = (&'static str, &'static str);

/// Something that instructions can judge: by the same work, how many times as many requests does `of` answer
/// as `over`?
#[derive(Debug)]
pub struct PaperClaim {
    /// Where the paper says it.
    pub place: &'static str,
    /// What it says.
    pub what: &'static str,
    /// What it says of the factor.
    pub factor: ClaimFactor,
    /// The server that it is about.
    pub of: ClaimPoint,
    /// What it is compared with.
    pub over: ClaimPoint,
}

/// What a paper says of a factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClaimFactor {
    /// So many times.
    Times(f64),
    /// More than once, without a number.
    More,
    /// As many, without a number: what differs costs the server nothing.
    Same,
}

/// A figure or a claim that instructions say nothing of.
#[derive(Debug)]
pub struct UnjudgedClaim {
    /// Where the paper has it.
    pub place: &'static str,
    /// Why.
    pub why: &'static str,
}

/// What has become of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimVerdict {
    /// It holds.
    Holds,
    /// So it is, but less.
    Less,
    /// It does not hold.
    Fails,
}

impl PaperClaim {
    /// Our factor: the work of `over` by that of `of`; `None` where one of them has no figure.
    pub fn ours(&self, figures: &[CountedFigure]) -> Option<f64> {
        let work = |(server, load): ClaimPoint| find(figures, server, load)?.middle();
        let (of, over) = (work(self.of)?, work(self.over)?);
        (of > 0.0).then(|| over / of)
    }

    /// What our factor says of the paper's.
    pub fn verdict(&self, ours: f64) -> ClaimVerdict {
        match self.factor {
            ClaimFactor::Times(paper) if ours >= paper => ClaimVerdict::Holds,
            ClaimFactor::Times(_) if ours > 1.0 => ClaimVerdict::Less,
            ClaimFactor::More if ours > 1.0 => ClaimVerdict::Holds,
            ClaimFactor::Same if (ours - 1.0).abs() <= SAME => ClaimVerdict::Holds,
            _ => ClaimVerdict::Fails,
        }
    }
}

impl ClaimFactor {
    /// In a table.
    pub fn text(self) -> String {
        match self {
            ClaimFactor::Times(factor) => times(factor),
            ClaimFactor::More => "more".to_owned(),
            ClaimFactor::Same => "the same".to_owned(),
        }
    }
}

impl ClaimVerdict {
    /// In a table.
    pub fn text(self) -> &'static str {
        match self {
            ClaimVerdict::Holds => "holds",
            ClaimVerdict::Less => "holds, but for less",
            ClaimVerdict::Fails => "does not hold",
        }
    }
}

/// A factor in two figures.
pub fn times(factor: f64) -> String {
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
            place: "figure 1",
            what: "more",
            factor,
            of: ("a", "l"),
            over: ("b", "l"),
        }
    }

    #[test]
    fn the_factor_is_of_requests_by_the_same_work() {
        let figures = [figure("a", "l", &[100]), figure("b", "l", &[250])];
        assert_eq!(claim(ClaimFactor::More).ours(&figures), Some(2.5));
        assert_eq!(claim(ClaimFactor::More).ours(&figures[..1]), None);
        let failed = [figure("a", "l", &[100]), figure("b", "l", &[])];
        assert_eq!(claim(ClaimFactor::More).ours(&failed), None);
    }

    #[test]
    fn verdicts() {
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
    fn factors_are_short() {
        assert_eq!(times(1.666), "1.7 ×");
        assert_eq!(times(19.8), "20 ×");
    }
}
