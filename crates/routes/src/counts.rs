//! Counters of requests for handlers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of one route.
#[derive(Default)]
pub struct RouteCounters {
    /// Calls of the handler.
    pub calls: AtomicU64,
    /// Failed calls.
    pub failed: AtomicU64,
    /// Requests that wait for a response head now.
    pub waiting: AtomicU64,
    /// Requests answered from the store.
    pub kept: AtomicU64,
    /// Requests that joined an equal one's call.
    pub shared: AtomicU64,
}

impl RouteCounters {
    /// The counters as text.
    pub fn text(&self) -> String {
        let number = |count: &AtomicU64| count.load(Relaxed);
        format!(
            "{} calls, {} failed, {} waiting now, {} answered from stored responses, {} by another request's call",
            number(&self.calls),
            number(&self.failed),
            number(&self.waiting),
            number(&self.kept),
            number(&self.shared)
        )
    }
}

/// Adds one.
pub fn increment(count: &AtomicU64) {
    count.fetch_add(1, Relaxed);
}
