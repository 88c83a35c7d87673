//! The scopes by which requests are counted: a site, and a route of it. Their number is bounded, so that a
//! configuration with thousands of sites does not make a scrape unreadable.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Scopes beyond this number are counted together.
pub const SCOPE_COUNT_MAX: usize = 512;
/// The label of a site or route beyond the bound.
const OTHER: &str = "other";

/// The number of a scope; the index into each worker's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetricScope(u16);

impl MetricScope {
    /// Requests of no site: malformed ones, and those for unknown hosts.
    pub const NO_SITE: MetricScope = MetricScope(0);
    /// Requests of sites and routes beyond the bound.
    pub const OTHER: MetricScope = MetricScope(1);

    /// The scope with this number.
    #[inline]
    pub fn from_number(number: u16) -> MetricScope {
        MetricScope(number)
    }

    /// Its number.
    pub fn number(self) -> u16 {
        self.0
    }

    /// Its index into counters, below [`SCOPE_COUNT_MAX`].
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0) % SCOPE_COUNT_MAX
    }
}

/// The labels of a scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScopeLabels {
    /// The site; empty for requests of no site.
    pub site: String,
    /// The route; empty for requests that no route answers.
    pub route: String,
}

/// All scopes since the start. A scope keeps its number over reloads, so that its counters go on.
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
    /// The scope of a route, or of a site if `route` is empty; [`MetricScope::OTHER`] beyond the bound.
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
        // A push is complete or has not happened, so a poisoned list is valid.
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_keeps_its_number() {
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
    fn scopes_beyond_the_bound_are_counted_together() {
        let registry = ScopeRegistry::default();
        for number in 0..2 * SCOPE_COUNT_MAX {
            registry.scope(&format!("site-{number}"), "");
        }
        assert_eq!(registry.labels().len(), SCOPE_COUNT_MAX);
        assert_eq!(registry.scope("another", ""), MetricScope::OTHER);
        assert_eq!(registry.labels()[MetricScope::OTHER.index()].site, "other");
        // Those that were there before are still found.
        assert_ne!(registry.scope("site-1", ""), MetricScope::OTHER);
    }
}
