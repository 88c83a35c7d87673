//! The claims on the limit of a pool: several users share a pool, and each has its own limit in the configuration.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_limits::ConcurrencyLimit;

/// The claims of a pool's users. The limit is the largest claim, and keeps its value without claims.
pub(crate) struct LimitClaims {
    bound: Arc<ConcurrencyLimit>,
    claims: Mutex<Vec<usize>>,
}

/// A claim of one user; dropping it may lower the limit.
pub struct LimitClaim {
    all: Arc<LimitClaims>,
    connections_max: usize,
}

impl LimitClaims {
    /// Claims on `bound`.
    pub fn new(bound: Arc<ConcurrencyLimit>) -> Arc<LimitClaims> {
        Arc::new(LimitClaims {
            bound,
            claims: Mutex::default(),
        })
    }

    /// Adds a claim of `connections_max` connections.
    pub fn add(self: &Arc<Self>, connections_max: usize) -> LimitClaim {
        let mut claims = self.lock();
        claims.push(connections_max);
        self.apply(&claims);
        LimitClaim {
            all: self.clone(),
            connections_max,
        }
    }

    /// Sets the limit, while the claims are locked.
    fn apply(&self, claims: &[usize]) {
        if let Some(largest) = claims.iter().max() {
            self.bound.set_max(*largest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<usize>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LimitClaim {
    fn drop(&mut self) {
        let mut claims = self.all.lock();
        let position = claims.iter().position(|max| *max == self.connections_max);
        if let Some(position) = position {
            claims.swap_remove(position);
        }
        self.all.apply(&claims);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_the_largest_claim() {
        let bound = ConcurrencyLimit::queued(7, 1, usize::MAX);
        let claims = LimitClaims::new(bound.clone());
        let small = claims.add(2);
        assert_eq!(bound.max(), 2);
        let (equal, large) = (claims.add(2), claims.add(5));
        assert_eq!(bound.max(), 5);
        drop((small, large));
        assert_eq!(bound.max(), 2);
        drop(equal);
        assert_eq!(bound.max(), 2);
    }
}
