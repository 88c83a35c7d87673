//! What an origin's failures become in the log: a line for the first of its kind, and after a while one that says how many
//! more there were. Knows neither the log nor why it failed.

use std::sync::{Mutex, PoisonError};

/// How long a line stands for the failures that follow.
const INTERVAL_MS: u64 = 10_000;

/// The failures of one route.
#[derive(Default)]
pub struct Faults(Mutex<Vec<Kind>>);

/// Those with one status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// What clients are told.
    pub status: u16,
    /// The number of the one that has a line.
    pub number: String,
    /// How many followed that have none.
    pub more: u64,
    until_ms: u64,
}

/// What is to be said of a failure.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// A line with this number.
    Line(String),
    /// Nothing: the line with this number stands for it.
    Another(String),
}

impl Faults {
    /// Counts a failure; `number` gives it one if it needs it.
    pub fn count(&self, status: u16, now_ms: u64, number: impl FnOnce() -> String) -> Fault {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kind) = kinds.iter_mut().find(|kind| kind.status == status) {
            kind.more += 1;
            return Fault::Another(kind.number.clone());
        }
        let number = number();
        kinds.push(Kind {
            status,
            number: number.clone(),
            more: 0,
            until_ms: now_ms + INTERVAL_MS,
        });
        Fault::Line(number)
    }

    /// Those whose line stands for no more; each once.
    pub fn take_over(&self, now_ms: u64) -> Vec<Kind> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kinds
            .extract_if(.., |kind| kind.until_ms <= now_ms)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stands_for_the_failures_that_follow() {
        let faults = Faults::default();
        let count = |status, now_ms, number: &str| faults.count(status, now_ms, || number.into());
        assert_eq!(count(502, 0, "a"), Fault::Line("a".into()));
        assert_eq!(count(502, 1, "b"), Fault::Another("a".into()));
        assert_eq!(count(504, 2, "c"), Fault::Line("c".into()));
        assert_eq!(count(502, 9_999, "d"), Fault::Another("a".into()));
        assert_eq!(faults.take_over(9_999), []);
        let over = faults.take_over(10_000);
        let over: Vec<_> = over
            .iter()
            .map(|kind| (kind.status, &*kind.number, kind.more))
            .collect();
        assert_eq!(over, [(502, "a", 2)]);
        assert_eq!(count(502, 10_001, "e"), Fault::Line("e".into()));
        assert_eq!(faults.take_over(10_002)[0].more, 0);
    }
}
