//! What happened to requests for programs, in numbers. Knows nothing of how it happens.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Of one route.
#[derive(Default)]
pub struct Counts {
    /// Requests that were put to the program.
    pub calls: AtomicU64,
    /// Those that it did not answer.
    pub failed: AtomicU64,
    /// Those that wait for the head of its answer now.
    pub waiting: AtomicU64,
    /// Requests that were answered from the store instead.
    pub kept: AtomicU64,
    /// Requests that waited for the response to another, equal one.
    pub shared: AtomicU64,
}

impl Counts {
    /// All of them, for people.
    pub fn text(&self) -> String {
        let number = |count: &AtomicU64| count.load(Relaxed);
        format!(
            "{} calls, {} failed, {} waiting now, {} answered from what was kept, {} by another's call",
            number(&self.calls),
            number(&self.failed),
            number(&self.waiting),
            number(&self.kept),
            number(&self.shared)
        )
    }
}

/// Adds one.
pub fn one(count: &AtomicU64) {
    count.fetch_add(1, Relaxed);
}
