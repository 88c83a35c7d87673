//! The scopes for which requests are counted: a site, and one of its routes. The number of scopes is limited, so that a
//! configuration with thousands of sites does not produce too many time series (cardinality).

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The maximum number of scopes; further ones are counted together.
pub const SCOPE_COUNT_MAX: usize = 512;
/// The label of sites and routes beyond the limit.
const OTHER: &str = "other";

/// A scope, identified by its number, which is the index into each worker's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetricScope(u16);

impl MetricScope {
    /// Requests without a site: malformed ones, and those for unknown hosts.
    pub const NO_SITE: MetricScope = MetricScope(0);
    /// Requests of sites and routes beyond the limit.
    pub const OTHER: MetricScope = MetricScope(1);

    /// The scope with this number.
    #[inline]
    pub fn from_number(number: u16) -> MetricScope {
        MetricScope(number)
    }

    /// The number of the scope.
    pub fn number(self) -> u16 {
        self.0
    }

    /// The index into counters, below [`SCOPE_COUNT_MAX`].
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0) % SCOPE_COUNT_MAX
    }
}

/// The labels of a scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScopeLabels {
    /// The site; empty for requests without a site.
    pub site: String,
    /// The route; empty for requests without a route.
    pub route: String,
}

/// All scopes since the start of the server. A scope has the same number after a reload, so that its counters continue.
#[derive(Debug)]
pub struct ScopeRegistry {
    scopes: Mutex<Vec<ScopeLabels>>,
}

impl Default for ScopeRegistry {
    fn default() -> ScopeRegistry {
        let labels = |name: &str| ScopeLabels {
            site: name.to_owned(),
            route: name.to_owned(),
        };
        ScopeRegistry {
            scopes: Mutex::new(vec![labels(""), labels(OTHER)]),
        }
    }
}

impl ScopeRegistry {
    /// The scope of a route, or of a site if `route` is empty; [`MetricScope::OTHER`] beyond the limit.
    pub fn scope(&self, site: &str, route: &str) -> MetricScope {
        let mut scopes = self.lock();
        let found = scopes
            .iter()
            .position(|scope| scope.site == site && scope.route == route);
        match found {
            Some(index) => MetricScope(index as u16),
            None if scopes.len() == SCOPE_COUNT_MAX => MetricScope::OTHER,
            None => {
                scopes.push(ScopeLabels {
                    site: site.to_owned(),
                    route: route.to_owned(),
                });
                MetricScope((scopes.len() - 1) as u16)
            }
        }
    }

    /// The labels of all scopes, by index.
    pub fn labels(&self) -> Vec<ScopeLabels> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ScopeLabels>> {
        // Poisoning is ignored: a push is complete or has not happened, so the list is valid.
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_numbers_are_stable() {
        let registry = ScopeRegistry::default();
        let first = registry.scope("example.com", "");
        let second = registry.scope("example.com", "proxy app");
        assert_ne!(first, second);
        assert_eq!(registry.scope("example.com", ""), first);
        let labels = registry.labels();
        assert_eq!(labels[second.index()].route, "proxy app");
        assert_eq!(labels[MetricScope::NO_SITE.index()].site, "");
    }

    #[test]
    fn scopes_beyond_the_limit_are_counted_together() {
        let registry = ScopeRegistry::default();
        for number in 0..2 * SCOPE_COUNT_MAX {
            registry.scope(&format!("site-{number}"), "");
        }
        assert_eq!(registry.labels().len(), SCOPE_COUNT_MAX);
        assert_eq!(registry.scope("another", ""), MetricScope::OTHER);
        assert_eq!(registry.labels()[MetricScope::OTHER.index()].site, "other");
        // Existing scopes are still found.
        assert_ne!(registry.scope("site-1", ""), MetricScope::OTHER);
    }
}
