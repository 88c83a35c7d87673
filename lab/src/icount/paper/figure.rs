//! The figures of a comparison, by server, load and repeat, in the form in which they are stored. Independent of
//! guests.

use serde::{Deserialize, Serialize};

use crate::experiment::agree::{TOLERANCE, median};

/// Instructions of the whole machine for one more request, or the reason why they are missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CountedFigure {
    /// The paper's number.
    pub paper: String,
    /// The server's name.
    pub server: String,
    /// The server's version; empty if it is not installed.
    pub version: String,
    /// The load's name.
    pub load: String,
    /// One count for each repeat, in order.
    pub instructions: Vec<u64>,
    /// Requests answered in each repeat, without the warm-up.
    pub requests: u64,
    /// Why a repeat has no count; the reason of the last such repeat.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<String>,
    /// Whether the server was not tried, because a program is not installed.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_left_out: bool,
}

impl CountedFigure {
    /// Adds a repeat, with the server's version if known.
    pub fn add(&mut self, version: String, result: Result<u64, String>) {
        if !version.is_empty() {
            self.version = version;
        }
        match result {
            Ok(instructions) => self.instructions.push(instructions),
            Err(error) => self.failure = Some(error),
        }
    }

    /// Records that the server can't be tried on this machine.
    pub fn leave_out(&mut self, reason: String) {
        self.failure = Some(reason);
        self.is_left_out = true;
    }

    /// The median of the repeats; `None` if one failed, since its response may have been wrong.
    pub fn median(&self) -> Option<f64> {
        if self.failure.is_some() {
            return None;
        }
        let mut sorted: Vec<f64> = self.instructions.iter().map(|it| *it as f64).collect();
        sorted.sort_by(f64::total_cmp);
        median(&sorted)
    }

    /// The range of the repeats as a share of the median.
    pub fn spread(&self) -> Option<f64> {
        let min = *self.instructions.iter().min()?;
        let max = *self.instructions.iter().max()?;
        Some((max - min) as f64 / self.median()?)
    }

    /// Whether the repeats differ too much.
    pub fn is_doubtful(&self) -> bool {
        self.spread().is_some_and(|spread| spread > TOLERANCE)
    }
}

/// Finds the figure of a server and a load.
pub fn find<'a>(
    figures: &'a [CountedFigure],
    server: &str,
    load: &str,
) -> Option<&'a CountedFigure> {
    let is_match = |figure: &&CountedFigure| figure.server == server && figure.load == load;
    figures.iter().find(is_match)
}

/// Rounds to three significant digits, since further digits are not reproducible.
pub fn rounded(number: f64) -> u64 {
    let mut step = 1.0;
    while number / step >= 1000.0 {
        step *= 10.0;
    }
    ((number / step).round() * step) as u64
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn figure(server: &str, load: &str, instructions: &[u64]) -> CountedFigure {
        CountedFigure {
            paper: "003".into(),
            server: server.into(),
            version: "1.0".into(),
            load: load.into(),
            instructions: instructions.to_vec(),
            requests: 2000,
            failure: instructions.is_empty().then(|| "it failed".into()),
            ..CountedFigure::default()
        }
    }

    #[test]
    fn differing_repeats_make_a_figure_doubtful() {
        assert_eq!(figure("a", "b", &[100, 103, 101]).median(), Some(101.0));
        assert_eq!(figure("a", "b", &[100, 103]).median(), Some(101.5));
        assert!(!figure("a", "b", &[100, 103]).is_doubtful());
        assert!(figure("a", "b", &[100, 104]).is_doubtful());
        assert!(!figure("a", "b", &[100]).is_doubtful());
        assert_eq!(figure("a", "b", &[]).median(), None);
    }

    #[test]
    fn failed_figure_has_no_median() {
        let failed = CountedFigure {
            failure: Some("wrong".into()),
            ..figure("a", "b", &[100])
        };
        assert_eq!(failed.median(), None);
        assert!(!failed.is_doubtful());
    }

    #[test]
    fn left_out_figure_is_distinct_from_failed_repeat() {
        let mut figure = CountedFigure::default();
        figure.add("1.0".into(), Ok(7));
        figure.add(String::new(), Err("wrong".into()));
        assert_eq!((figure.version.as_str(), figure.median()), ("1.0", None));
        assert!(!figure.is_left_out);
        figure.leave_out("not installed".into());
        assert!(figure.is_left_out && figure.failure.is_some());
    }

    #[test]
    fn figures_are_rounded_to_three_digits() {
        assert_eq!(rounded(999.4), 999);
        assert_eq!(rounded(8_694.0), 8_690);
        assert_eq!(rounded(1_539_499.0), 1_540_000);
    }

    #[test]
    fn figure_survives_json_round_trip() {
        let failed = figure("a", "b", &[]);
        let text = serde_json::to_string(&failed).expect("plain data");
        assert_eq!(
            serde_json::from_str::<CountedFigure>(&text).expect("ours"),
            failed
        );
        let good = serde_json::to_string(&figure("a", "b", &[1])).expect("plain data");
        assert!(!good.contains("failure"));
    }
}
