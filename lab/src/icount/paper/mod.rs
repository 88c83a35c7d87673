//! Papers and their comparisons, repeated by instruction counts: servers in guests of equal size with their page
//! programs, the traffic, and the claims of the paper.
//!
//! A [`PaperComparison`] has lists of servers ([`subject`]), traffic ([`load`]) and claims ([`claim`]). `guest_of`
//! boots guests, `run` orders the work, and `figure` stores the results. Each paper has a file with such lists, like
//! `bare_pc`.

mod bare_pc;
pub mod claim;
pub mod cli;
mod database;
mod deck;
pub mod figure;
mod guest_of;
pub mod load;
mod page;
mod run;
pub mod subject;
pub mod table;

use claim::{PaperClaim, UnjudgedClaim};
use load::PaperLoad;
use subject::ComparedServer;

/// The comparison of a paper.
#[derive(Debug)]
pub struct PaperComparison {
    /// Its number in lab/README.md and in `experiments/`.
    pub number: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The compared servers.
    pub subjects: &'static [ComparedServer],
    /// The loads that each server gets.
    pub loads: &'static [PaperLoad],
    /// The claims that instruction counts can test.
    pub claims: &'static [PaperClaim],
    /// The claims that instruction counts can't test.
    pub unjudged: &'static [UnjudgedClaim],
}

/// All papers, by number.
pub static ALL: &[&PaperComparison] = &[&bare_pc::PAPER];

/// Finds the paper with that number.
///
/// # Errors
/// The number is unknown; the text lists the known ones.
pub fn find_paper(number: &str) -> Result<&'static PaperComparison, String> {
    let matching = ALL.iter().find(|paper| paper.number == number);
    matching.copied().ok_or_else(|| {
        let numbers: Vec<&str> = ALL.iter().map(|paper| paper.number).collect();
        format!(
            "paper {number:?} can't be counted; these can: {}",
            numbers.join(", ")
        )
    })
}

impl PaperComparison {
    /// Finds the server with that name.
    ///
    /// # Errors
    /// The name is unknown; the text lists the known ones.
    pub fn subject(&self, name: &str) -> Result<&'static ComparedServer, String> {
        let matching = self.subjects.iter().find(|subject| subject.name == name);
        let names = self.subjects.iter().map(|subject| subject.name);
        matching.ok_or_else(|| unknown("server", name, names))
    }

    /// Finds the load with that name.
    ///
    /// # Errors
    /// The name is unknown; the text lists the known ones.
    pub fn load(&self, name: &str) -> Result<&'static PaperLoad, String> {
        let matching = self.loads.iter().find(|load| load.name == name);
        let names = self.loads.iter().map(|load| load.name);
        matching.ok_or_else(|| unknown("load", name, names))
    }
}

fn unknown<'a>(kind: &str, name: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    format!("unknown {kind} {name:?}; possible are {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_claims_refer_to_existing_subjects() {
        for paper in ALL {
            let mut names: Vec<&str> = paper.subjects.iter().map(|one| one.name).collect();
            names.extend(paper.loads.iter().map(|one| one.name));
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count);
            for claim in paper.claims {
                for (subject, load) in [claim.subject, claim.baseline] {
                    let subject = paper.subject(subject).expect("a subject");
                    let load = paper.load(load).expect("a load");
                    assert!(
                        subject.missing_feature(load).is_none(),
                        "{}",
                        claim.statement
                    );
                }
            }
        }
    }

    #[test]
    fn unknown_name_errors_list_known_names() {
        assert!(find_paper("7").is_err_and(|why| why.contains("003")));
        let paper = find_paper("003").expect("known");
        assert!(
            paper
                .subject("iis")
                .is_err_and(|why| why.contains("apache-mod-php"))
        );
        assert!(
            paper
                .load("x")
                .is_err_and(|why| why.contains("static-kept"))
        );
    }
}
