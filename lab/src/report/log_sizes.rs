//! The sizes of access logs as a table, and the verdict on paper `004`'s claim. No I/O.

use super::beside::ReportTable;
use super::verdict::{JudgedClaim, ReportVerdict};
use crate::log_size::{BINARY, LogSizes};

/// The largest share of the text log's size that paper `004` claims for its binary log.
const CLAIMED_SHARE: f64 = 0.5;

/// Judges the claim for each mix.
#[must_use]
pub fn judge(all: &[LogSizes]) -> Vec<JudgedClaim> {
    let judged = all.iter().filter_map(|sizes| {
        let share = sizes.share(BINARY)?;
        Some(JudgedClaim {
            place: "004, section 2".into(),
            claim: format!("binary log over text log, in size, at most: {CLAIMED_SHARE} ×"),
            source: "less than 50 percent of the case using the ASCII format".into(),
            ours: format!(
                "{share:.3} ×: binary over combined, requests of {}",
                sizes.mix
            ),
            verdict: ReportVerdict::from_factors(CLAIMED_SHARE, share),
        })
    });
    judged.collect()
}

/// The table of sizes; `None` without a run.
#[must_use]
pub fn table(all: &[LogSizes]) -> Option<ReportTable> {
    let first = all.first()?;
    let mut head = vec!["log".to_owned()];
    head.extend(all.iter().map(|sizes| sizes.mix.clone()));
    let row = |index: usize, name: &str| {
        let cells = all.iter().map(|sizes| {
            let form = sizes.forms.get(index);
            form.map_or("–".to_owned(), |form| {
                format!("{:.1}", form.len as f64 / sizes.requests as f64)
            })
        });
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    let forms = first.forms.iter().enumerate();
    Some(ReportTable {
        caption: "Access logs: bytes a request".into(),
        head,
        rows: forms.map(|(index, form)| row(index, &form.name)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_size::LogForm;

    fn sizes(binary: u64) -> LogSizes {
        let form = |name: &str, len| LogForm {
            name: name.into(),
            len,
        };
        LogSizes {
            mix: "browsers".into(),
            requests: 10,
            forms: vec![form("combined", 2000), form(BINARY, binary)],
        }
    }

    #[test]
    fn claim_holds_up_to_half_of_the_size() {
        for (binary, expected) in [
            (100, ReportVerdict::Holds),
            (1000, ReportVerdict::Holds),
            (1500, ReportVerdict::Less),
            (2500, ReportVerdict::Fails),
        ] {
            assert_eq!(judge(&[sizes(binary)])[0].verdict, expected, "{binary}");
        }
    }

    #[test]
    fn table_has_bytes_for_each_request() {
        let table = table(&[sizes(123)]).expect("a table");
        assert_eq!(table.head, ["log", "browsers"]);
        assert_eq!(table.rows[1], ["binary", "12.3"]);
    }
}
