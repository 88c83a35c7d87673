//! What a paper says of its servers, and whether instructions bear it out today. Pure.

use super::figure::{Figure, find};
use crate::experiment::agree::SAME;

/// A server and a load.
pub type At = (&'static str, &'static str);

/// Something that instructions can judge: by the same work, how many times as many requests does `of` answer
/// as `over`?
#[derive(Debug)]
pub struct Claim {
    /// Where the paper says it.
    pub place: &'static str,
    /// What it says.
    pub what: &'static str,
    /// What it says of the factor.
    pub factor: Factor,
    /// The server that it is about.
    pub of: At,
    /// What it is compared with.
    pub over: At,
}

/// What a paper says of a factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Factor {
    /// So many times.
    Times(f64),
    /// More than once, without a number.
    More,
    /// As many, without a number: what differs costs the server nothing.
    Same,
}

/// A figure or a claim that instructions say nothing of.
#[derive(Debug)]
pub struct Unjudged {
    /// Where the paper has it.
    pub place: &'static str,
    /// Why.
    pub why: &'static str,
}

/// What has become of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Holds,
    /// So it is, but less.
    Less,
    /// It does not hold.
    Fails,
}

impl Claim {
    /// Our factor: the work of `over` by that of `of`; `None` where one of them has no figure.
    pub fn ours(&self, figures: &[Figure]) -> Option<f64> {
        let work = |(server, load): At| find(figures, server, load)?.middle();
        let (of, over) = (work(self.of)?, work(self.over)?);
        (of > 0.0).then(|| over / of)
    }

    /// What our factor says of the paper's.
    pub fn verdict(&self, ours: f64) -> Verdict {
        match self.factor {
            Factor::Times(paper) if ours >= paper => Verdict::Holds,
            Factor::Times(_) if ours > 1.0 => Verdict::Less,
            Factor::More if ours > 1.0 => Verdict::Holds,
            Factor::Same if (ours - 1.0).abs() <= SAME => Verdict::Holds,
            _ => Verdict::Fails,
        }
    }
}

impl Factor {
    /// In a table.
    pub fn text(self) -> String {
        match self {
            Factor::Times(factor) => times(factor),
            Factor::More => "more".to_owned(),
            Factor::Same => "the same".to_owned(),
        }
    }
}

impl Verdict {
    /// In a table.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Less => "holds, but for less",
            Verdict::Fails => "does not hold",
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

    fn claim(factor: Factor) -> Claim {
        Claim {
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
        assert_eq!(claim(Factor::More).ours(&figures), Some(2.5));
        assert_eq!(claim(Factor::More).ours(&figures[..1]), None);
        let failed = [figure("a", "l", &[100]), figure("b", "l", &[])];
        assert_eq!(claim(Factor::More).ours(&failed), None);
    }

    #[test]
    fn verdicts() {
        let cases = [
            (Factor::Times(2.0), 2.0, Verdict::Holds),
            (Factor::Times(2.0), 1.9, Verdict::Less),
            (Factor::Times(2.0), 0.9, Verdict::Fails),
            (Factor::More, 1.1, Verdict::Holds),
            (Factor::More, 1.0, Verdict::Fails),
            (Factor::Same, 1.02, Verdict::Holds),
            (Factor::Same, 1.1, Verdict::Fails),
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
