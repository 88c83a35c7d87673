//! How much of one kind may be under way at a time: what is beyond that is refused at once, nobody waits.
//! It knows neither who asks nor for what.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A bound, and how near it is.
#[derive(Debug)]
pub struct Concurrency {
    /// 0 <= under_way <= max
    under_way: AtomicUsize,
    max: usize,
}

/// Leave for one; given back when it is dropped.
#[derive(Debug)]
pub struct Permit(Arc<Concurrency>);

impl Concurrency {
    /// As many as `max` at a time.
    pub fn new(max: usize) -> Arc<Concurrency> {
        Arc::new(Concurrency {
            under_way: AtomicUsize::new(0),
            max,
        })
    }

    /// Leave for one more, unless there are as many as there may be.
    pub fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        let more = |count: usize| (count < self.max).then_some(count + 1);
        let acquired = self.under_way.fetch_update(Relaxed, Relaxed, more);
        acquired.is_ok().then(|| Permit(self.clone()))
    }

    /// How many there may be.
    pub fn max(&self) -> usize {
        self.max
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_than_may_be() {
        let bound = Concurrency::new(2);
        let (first, second) = (bound.try_acquire(), bound.try_acquire());
        assert!(first.is_some() && second.is_some());
        // Refusals count for nothing.
        assert!(bound.try_acquire().is_none() && bound.try_acquire().is_none());
        drop(first);
        let third = bound.try_acquire();
        assert!(third.is_some() && bound.try_acquire().is_none());
        assert!(Concurrency::new(0).try_acquire().is_none());
    }
}
