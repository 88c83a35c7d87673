//! The last step of an import: the result must be a configuration.

use std::path::Path;

use lowroad_config::{ConfigProblem, ENDLESS_LOOP};

use crate::ConfigImport;
use crate::document::ConfigDocument;
use crate::report::ImportReport;

/// The largest number of tables that may be refused before the import gives up.
const REFUSALS_MAX: usize = 1000;

/// Comments out the lines that the configuration parser refuses, and redirects in endless loops.
pub fn checked(
    mut document: ConfigDocument,
    mut report: ImportReport,
    site_count: usize,
) -> ConfigImport {
    let mut problems = Vec::new();
    // One problem at a time: a comment moves the lines of the others, and may resolve them.
    for _ in 0..REFUSALS_MAX {
        problems = match lowroad_config::parse(&document.to_text(), Path::new("lowroad.toml")) {
            Ok(config) => endless_loop(config.document.warnings),
            Err(problems) => problems,
        };
        let Some(problem) = problems.first() else {
            break;
        };
        // The last part of the key is the one that the reader finds in the line.
        let key = problem.key.rsplit('.').next().unwrap_or_default();
        let reason = format!("{key}: {}", problem.message);
        let Some(entries) = document.disable_line(problem.line, &reason) else {
            // A warning is no mistake of the configuration.
            problems.retain(|it| !it.message.starts_with(ENDLESS_LOOP));
            break;
        };
        for entry in entries {
            report.refuse(entry, &reason);
        }
    }
    ConfigImport {
        text: document.to_text(),
        report,
        problems,
        site_count,
    }
}

/// The warning of an endless loop, which browsers end with an error.
fn endless_loop(warnings: Vec<ConfigProblem>) -> Vec<ConfigProblem> {
    let mut loops = warnings.into_iter();
    let first = loops.find(|it| it.message.starts_with(ENDLESS_LOOP));
    first.into_iter().collect()
}
