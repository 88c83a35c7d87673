//! The papers' claims as ratios, with the measured ratios and a verdict. No I/O.

use super::beside::{ReportTable, our_ratio_name, ratio, times};
use super::log_sizes;
use super::model::{ExperimentStudy, FigureData};
use crate::experiment::agree::TOLERANCE;
use crate::experiment::counting::CountUnit;
use crate::experiment::schema::PaperRatio;
use crate::log_size::LogSizes;

/// The verdict on a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum ReportVerdict {
    /// The measured ratio is as large as the paper's, or larger.
    Holds,
    /// The direction holds, but the measured ratio is smaller.
    Less,
    /// The claim does not hold.
    Fails,
    /// The claim can't be tested, for this reason.
    Untested(String),
}

impl ReportVerdict {
    /// Judges a measured ratio. A claimed ratio near 1 means that two servers are about equal: the claim holds if the
    /// measured ratio is as close to 1, within the tolerance of repeats.
    #[must_use]
    pub fn from_factors(paper: f64, measured: f64) -> ReportVerdict {
        const SMALL: f64 = 1.05;
        // Ratios below 1 are inverted, so that both directions are compared in the same way.
        let (paper, measured) = match paper < 1.0 {
            true => (1.0 / paper, 1.0 / measured),
            false => (paper, measured),
        };
        // The paper found no difference, so the claim is equality and is tested in both directions.
        if paper < SMALL {
            let bound = paper * (1.0 + TOLERANCE);
            return match (1.0 / bound..=bound).contains(&measured) {
                true => ReportVerdict::Holds,
                false => ReportVerdict::Fails,
            };
        }
        match measured {
            measured if measured >= paper * (1.0 - TOLERANCE) => ReportVerdict::Holds,
            measured if measured > 1.0 + TOLERANCE => ReportVerdict::Less,
            _ => ReportVerdict::Fails,
        }
    }

    /// The text in a table.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            ReportVerdict::Holds => "holds".into(),
            ReportVerdict::Less => "holds, with a smaller ratio".into(),
            ReportVerdict::Fails => "does not hold".into(),
            ReportVerdict::Untested(reason) => format!("could not be tested here: {reason}"),
        }
    }
}

/// A claim with its verdict.
#[derive(Debug)]
pub struct JudgedClaim {
    /// The location in the paper.
    pub place: String,
    /// The claimed ratio.
    pub claim: String,
    /// The source in the paper.
    pub source: String,
    /// The measured ratio and its servers.
    pub ours: String,
    /// The verdict.
    pub verdict: ReportVerdict,
}

/// Judges all claims: of all figures, where counted results take precedence over timed ones, and of the sizes of logs.
#[must_use]
pub fn judge_all(studies: &[ExperimentStudy], log_sizes: &[LogSizes]) -> Vec<JudgedClaim> {
    let mut judged = Vec::new();
    let by_instructions = |name: &str| {
        let is_same = |study: &&ExperimentStudy| {
            study.experiment.by == CountUnit::Instructions && study.experiment.plain_name() == name
        };
        studies.iter().find(is_same)
    };
    for study in studies
        .iter()
        .filter(|it| it.experiment.by == CountUnit::Clock)
    {
        // Counts are reproducible, unlike times.
        let better = by_instructions(&study.experiment.name).filter(|study| study.is_measured());
        for figure_data in better.unwrap_or(study).figure_data() {
            let figure_claims = figure_data.figure.paper_ratio.iter();
            judged.extend(figure_claims.map(|claim| judge(&figure_data, claim)));
        }
    }
    judged.extend(log_sizes::judge(log_sizes));
    judged
}

fn judge(figure_data: &FigureData<'_>, claim: &PaperRatio) -> JudgedClaim {
    let our_ratio = claim.ours.as_ref();
    let value = our_ratio.and_then(|our_ratio| ratio(figure_data, our_ratio));
    let verdict = match value {
        Some(value) => ReportVerdict::from_factors(claim.value, value),
        None => ReportVerdict::Untested(untested_reason(figure_data, claim)),
    };
    let value_text = value.map(times);
    let ratio_name = our_ratio.map(|our_ratio| our_ratio_name(figure_data, our_ratio));
    JudgedClaim {
        place: format!(
            "{}, {}",
            figure_data.experiment.paper, figure_data.figure.figure
        ),
        claim: format!("{}: {}", claim.what, times(claim.value)),
        source: claim.place.clone(),
        ours: match (value_text, ratio_name) {
            (Some(value_text), Some(ratio_name)) => format!("{value_text}: {ratio_name}"),
            _ => "–".into(),
        },
        verdict,
    }
}

fn untested_reason(figure_data: &FigureData<'_>, claim: &PaperRatio) -> String {
    let Some(our_ratio) = &claim.ours else {
        return "no equivalent here".into();
    };
    let names = [&our_ratio.of, &our_ratio.over];
    let missing_name = names
        .into_iter()
        .find(|name| figure_data.series(name).is_none());
    match missing_name {
        Some(name) => match figure_data.reason(name) {
            Some(reason) => format!("{name}: {}", reason.lines().next().unwrap_or_default()),
            None => format!("{name} is not measured"),
        },
        None => "not measured at this point".into(),
    }
}

/// The claims as a table.
#[must_use]
pub fn table(judged: &[JudgedClaim]) -> Option<ReportTable> {
    let row = |claim: &JudgedClaim| {
        vec![
            claim.place.clone(),
            format!("{} ({})", claim.claim, claim.source),
            claim.ours.clone(),
            claim.verdict.text(),
        ]
    };
    let head = ["Figure", "What the paper says", "Ours", "Today"];
    (!judged.is_empty()).then(|| ReportTable {
        caption: "Ratios that the papers state, and ours".into(),
        head: head.map(str::to_owned).to_vec(),
        rows: judged.iter().map(row).collect(),
    })
}

/// The tested claims, without their sources, as a table.
#[must_use]
pub fn short_table(judged: &[JudgedClaim]) -> Option<ReportTable> {
    let is_tested = |claim: &&JudgedClaim| !matches!(claim.verdict, ReportVerdict::Untested(_));
    let row = |claim: &JudgedClaim| {
        vec![
            claim.place.clone(),
            claim.claim.clone(),
            claim.ours.clone(),
            claim.verdict.text(),
        ]
    };
    let rows: Vec<Vec<String>> = judged.iter().filter(is_tested).map(row).collect();
    let head = ["figure", "paper", "here", "claim"];
    (!rows.is_empty()).then(|| ReportTable {
        caption: format!("{} of {} claims could be tested", rows.len(), judged.len()),
        head: head.map(str::to_owned).to_vec(),
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_follows_from_paper_and_measured_ratio() {
        for (paper, ours, verdict) in [
            (3.27, 5.0, ReportVerdict::Holds),
            (3.27, 3.2, ReportVerdict::Holds),
            (3.27, 1.5, ReportVerdict::Less),
            (3.27, 1.02, ReportVerdict::Fails),
            (1.0, 1.02, ReportVerdict::Holds),
            (1.0, 1.4, ReportVerdict::Fails),
            (1.04, 0.97, ReportVerdict::Holds),
            (1.03, 1.04, ReportVerdict::Holds),
            (1.03, 1.07, ReportVerdict::Fails),
            (1.04, 0.5, ReportVerdict::Fails),
            (0.5, 0.4, ReportVerdict::Holds),
            (0.5, 0.8, ReportVerdict::Less),
        ] {
            assert_eq!(
                ReportVerdict::from_factors(paper, ours),
                verdict,
                "{paper} {ours}"
            );
        }
    }
}
