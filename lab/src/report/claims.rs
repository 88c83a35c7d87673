//! The claims of papers that instruction counts can test, with the results of `lowroad-lab icount --paper`. Independent
//! of guests.

use std::path::Path;

use super::beside::ReportTable;
use crate::icount::paper::claim::{PaperClaim, factor_text};
use crate::icount::paper::figure::CountedFigure;
use crate::icount::paper::{self, PaperComparison, table};

/// A paper with its measured figures.
#[derive(Debug)]
pub struct CountedPaper {
    /// The paper.
    pub paper: &'static PaperComparison,
    /// Its figures; some may be missing.
    pub figures: Vec<CountedFigure>,
}

/// The name of a paper's file among the results.
pub fn file(paper: &PaperComparison) -> String {
    format!("icount-{}.json", paper.number)
}

/// All counted papers, and the files that can't be parsed.
pub fn read(results: &Path) -> (Vec<CountedPaper>, Vec<String>) {
    let (mut counted_paper, mut problems) = (Vec::new(), Vec::new());
    for &paper in paper::ALL {
        match figures(&results.join(file(paper))) {
            Ok(Some(figures)) => counted_paper.push(CountedPaper { paper, figures }),
            Ok(None) => {}
            Err(problem) => problems.push(problem),
        }
    }
    (counted_paper, problems)
}

fn figures(path: &Path) -> Result<Option<Vec<CountedFigure>>, String> {
    if !path.exists() {
        return Ok(None);
    }
    let read_error = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| read_error(&error))?;
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| read_error(&error))
}

impl CountedPaper {
    /// The heading.
    pub fn title(&self) -> String {
        format!("Paper {} by instructions", self.paper.number)
    }

    /// Summarizes the comparison, with the number of claims that hold.
    pub fn sentence(&self) -> String {
        let measured = |claim: &PaperClaim| claim.measured_factor(&self.figures);
        let judged = self
            .paper
            .claims
            .iter()
            .filter_map(|claim| Some(claim.verdict(measured(claim)?).text()));
        let judged: Vec<&str> = judged.collect();
        let count = |text: &str| judged.iter().filter(|verdict| **verdict == text).count();
        let claim_count = self.paper.claims.len();
        format!(
            "{}. Of {claim_count} claims {} were judged: {} hold, {} hold for less, {} do not.",
            self.paper.title,
            judged.len(),
            count("holds"),
            count("holds, with a smaller ratio"),
            count("does not hold")
        )
    }

    /// The tables of claims, of claims without a verdict, and of all figures.
    pub fn tables(&self) -> Vec<ReportTable> {
        let tables = [self.claims(), self.unjudged(), self.all_figures()];
        tables
            .into_iter()
            .filter(|table| !table.rows.is_empty())
            .collect()
    }

    fn claims(&self) -> ReportTable {
        let row = |claim: &PaperClaim| {
            let measured = claim.measured_factor(&self.figures);
            vec![
                claim.page.to_owned(),
                claim.statement.to_owned(),
                claim.factor.text(),
                measured.map_or("not counted".to_owned(), factor_text),
                measured
                    .map_or("-", |measured| claim.verdict(measured).text())
                    .to_owned(),
            ]
        };
        ReportTable {
            caption: "Claims: requests for the same number of instructions".to_owned(),
            head: owned(&["Where", "What the paper says", "Paper", "Ours", "Today"]),
            rows: self.paper.claims.iter().map(row).collect(),
        }
    }

    fn unjudged(&self) -> ReportTable {
        let claims = self.paper.unjudged.iter();
        ReportTable {
            caption: "Not judged".to_owned(),
            head: owned(&["Where", "Why not"]),
            rows: claims
                .map(|claim| owned(&[claim.page, claim.reason]))
                .collect(),
        }
    }

    fn all_figures(&self) -> ReportTable {
        let mut lines = table::cells(self.paper, &self.figures).into_iter();
        ReportTable {
            caption: "Instructions a request, of the whole machine, in guests of the same size; * marks repeats \
                      more than 3 % apart"
                .to_owned(),
            head: lines.next().unwrap_or_default(),
            rows: lines.collect(),
        }
    }

    /// The versions of the servers, and how the instructions were counted.
    pub fn circumstances(&self) -> Vec<String> {
        let mut lines = vec![format!("lowroad-lab icount --paper {}", self.paper.number)];
        for subject in self.paper.subjects {
            let lowroad_figures = self
                .figures
                .iter()
                .filter(|figure| figure.server == subject.name);
            // A repeat with a guest that did not boot has no version.
            let version = lowroad_figures
                .map(|figure| figure.version.as_str())
                .find(|text| !text.is_empty());
            lines.extend(version.map(|version| format!("{}: {version}", subject.title)));
        }
        lines
    }

    /// Why figures are missing.
    pub fn failures(&self) -> Vec<String> {
        let failures = table::failures(self.paper, &self.figures);
        failures
            .into_iter()
            .map(|(server, reason)| format!("{server}: {reason}"))
            .collect()
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(server: &str, load: &str, instructions: &[u64]) -> CountedFigure {
        CountedFigure {
            paper: "003".into(),
            server: server.into(),
            version: "1".into(),
            load: load.into(),
            instructions: instructions.to_vec(),
            requests: 10,
            ..CountedFigure::default()
        }
    }

    fn counted() -> CountedPaper {
        CountedPaper {
            paper: paper::find_paper("003").expect("known"),
            figures: vec![
                figure("lowroad-bare", "static-close", &[8_000, 9_000]),
                figure("apache-mod-php", "static-close", &[170_000, 170_000]),
                figure("lowroad-bare", "rows1-close", &[16_000]),
                figure("lowroad-bare", "rows635-close", &[740_000]),
            ],
        }
    }

    #[test]
    fn claims_table_has_paper_and_measured_numbers_and_verdict() {
        let tables = counted().tables();
        let row = |place: &str, what: &str| {
            let rows = &tables[0].rows;
            let found = rows
                .iter()
                .find(|row| row[0] == place && row[1].contains(what));
            found.expect("a claim")[2..].to_vec()
        };
        assert_eq!(row("section IV.A", "6,000"), ["2.0 ×", "20 ×", "holds"]);
        assert_eq!(row("section IV.B", "600"), ["1.7 ×", "not counted", "-"]);
        assert_eq!(
            row("figures 11 and 12", "large"),
            ["the same", "46 ×", "does not hold"]
        );
        assert!(
            counted()
                .sentence()
                .contains("3 were judged: 2 hold, 0 hold for less, 1 do not")
        );
    }

    #[test]
    fn claims_without_verdict_have_a_reason() {
        let tables = counted().tables();
        assert!(
            tables[1]
                .rows
                .iter()
                .any(|row| row[0].contains("13 and 14"))
        );
        assert!(tables[1].rows.iter().all(|row| !row[1].is_empty()));
    }

    #[test]
    fn server_versions_are_listed_once() {
        let lines = counted().circumstances();
        assert!(lines[0].ends_with("icount --paper 003"));
        assert_eq!(
            lines[1..],
            ["the image: 1", "Apache (prefork), PHP in it: 1"]
        );
    }

    #[test]
    fn disagreeing_repeats_are_marked_with_an_asterisk() {
        let tables = counted().tables();
        assert_eq!(tables[2].rows[0][1], "8,500 *");
    }
}
