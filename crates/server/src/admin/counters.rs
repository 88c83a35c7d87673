//! Counts the problems that the admin service reports, and the changes that it makes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowroad_http::status::StatusCode;
use lowroad_metrics::{MetricKind, MetricSnapshot};

use super::operations::{AdminPermission, OPERATIONS, OperationEntry};

/// The reasons of problems with their status codes; the last is for all others.
const REASONS: [(&str, &[u16]); 10] = [
    ("malformed", &[400]),
    ("token", &[401, 429]),
    ("permission", &[403]),
    ("not_found", &[404]),
    ("method", &[405]),
    ("conflict", &[409]),
    ("stale", &[412]),
    ("body", &[408, 413, 415]),
    ("busy", &[503]),
    ("other", &[]),
];

/// The counters of the service.
pub struct AdminCounters {
    problems: [AtomicU64; REASONS.len()],
    /// The changes that were made and those that were refused, in the order of [`OPERATIONS`].
    changes: Vec<[AtomicU64; 2]>,
}

impl Default for AdminCounters {
    fn default() -> AdminCounters {
        AdminCounters {
            problems: Default::default(),
            changes: OPERATIONS.iter().map(|_| Default::default()).collect(),
        }
    }
}

impl AdminCounters {
    /// Counts a problem by its status.
    pub fn count_problem(&self, status: StatusCode) {
        let code = status.code();
        let index = REASONS.iter().position(|(_, codes)| codes.contains(&code));
        self.problems[index.unwrap_or(REASONS.len() - 1)].fetch_add(1, Relaxed);
    }

    /// Counts a change. `is_done`: it was made, and not refused.
    pub fn count_change(&self, entry: &OperationEntry, is_done: bool) {
        let index = OPERATIONS
            .iter()
            .position(|it| it.operation == entry.operation);
        if let Some(counts) = index.and_then(|index| self.changes.get(index)) {
            counts[usize::from(!is_done)].fetch_add(1, Relaxed);
        }
    }

    /// Adds the metrics.
    pub fn add(&self, out: &mut MetricSnapshot) {
        let family = out.family(
            MetricKind::Counter,
            "lowroad_admin_problems",
            "Requests to the admin service that were answered with a problem, by reason.",
        );
        // Also those that are 0: a rate needs a first value.
        for ((reason, _), count) in REASONS.iter().zip(&self.problems) {
            family.whole(&[("reason", reason)], count.load(Relaxed));
        }
        let family = out.family(
            MetricKind::Counter,
            "lowroad_admin_changes",
            "Changes by operators, by operation and result; the error log has a line for each.",
        );
        // Reading operations change nothing, so they have no series.
        let all = OPERATIONS.iter().zip(&self.changes);
        for (entry, counts) in all.filter(|(it, _)| it.permission == AdminPermission::Full) {
            let operation = entry.name();
            for (result, count) in ["done", "refused"].iter().zip(counts) {
                let labels = [("operation", &*operation), ("result", result)];
                family.whole(&labels, count.load(Relaxed));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_reason() {
        let counters = AdminCounters::default();
        for status in [
            StatusCode::NOT_FOUND,
            StatusCode::NOT_FOUND,
            StatusCode::INTERNAL_ERROR,
        ] {
            counters.count_problem(status);
        }
        let count = |reason: &str| {
            let index = REASONS.iter().position(|(known, _)| *known == reason);
            counters.problems[index.expect("a reason")].load(Relaxed)
        };
        assert_eq!(
            (count("not_found"), count("other"), count("token")),
            (2, 1, 0)
        );
    }
}
