//! Counters for the requests of a route.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of one route.
#[derive(Default)]
pub struct RouteCounters {
    /// Calls of the handler.
    pub calls: AtomicU64,
    /// Failed calls.
    pub failed: AtomicU64,
    /// Requests that currently wait for the head of a response.
    pub waiting: AtomicU64,
    /// Requests answered with a stored response.
    pub store_hits: AtomicU64,
    /// Requests that joined the call of an equal request.
    pub shared: AtomicU64,
}

impl RouteCounters {
    /// The counters as text.
    pub fn text(&self) -> String {
        let load = |count: &AtomicU64| count.load(Relaxed);
        format!(
            "{} calls, {} failed, {} waiting now, {} answered from stored responses, {} by another request's call",
            load(&self.calls),
            load(&self.failed),
            load(&self.waiting),
            load(&self.store_hits),
            load(&self.shared)
        )
    }
}

/// Increments a counter.
pub fn increment(count: &AtomicU64) {
    count.fetch_add(1, Relaxed);
}
