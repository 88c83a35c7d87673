//! Counts the cache's outcome for each answered request, once per request.

use lowroad_engine::counters::Counter;
use lowroad_response_cache::storing::Way;

use crate::access::Outcome;

/// Cache counters of one worker, their only writer. `hits`, `misses` and `passes` add up to the worker's requests,
/// except for those in progress.
#[derive(Debug, Default)]
pub struct CacheCounters {
    /// Requests answered from the store without a load and without the origin.
    pub hits: Counter,
    /// Hits with a stale stored response.
    pub stale: Counter,
    /// Requests that needed a load, the origin or a program, for a response that was then in the store.
    pub misses: Counter,
    /// Misses that were answered by the response to an equal, concurrent request.
    pub coalesced: Counter,
    /// Misses after which the origin validated the stored response.
    pub revalidated: Counter,
    /// Requests without the cache: redirects, refusals, and responses that were not stored.
    pub passes: Counter,
}

impl CacheCounters {
    /// Counts one answered request.
    #[inline]
    pub fn count(&self, outcome: Outcome) {
        // Almost all requests are hits: only this branch is inlined.
        match outcome {
            Outcome::Hit => self.hits.bump(),
            other => self.count_other(other),
        }
    }

    fn count_other(&self, outcome: Outcome) {
        match outcome {
            Outcome::Hit => self.hits.bump(),
            Outcome::Stale => self.count_hit_stale(),
            Outcome::Miss => self.misses.bump(),
            Outcome::Stored(way) | Outcome::ProgramStored(way) => self.count_stored(way),
            Outcome::Made | Outcome::Program | Outcome::Passed => self.passes.bump(),
        }
    }

    fn count_stored(&self, way: Way) {
        match way {
            Way::Hit => return self.hits.bump(),
            Way::OnError => return self.count_hit_stale(),
            Way::Made => {}
            Way::Shared => self.coalesced.bump(),
            Way::Validated => self.revalidated.bump(),
        }
        self.misses.bump();
    }

    fn count_hit_stale(&self) {
        self.stale.bump();
        self.hits.bump();
    }

    /// Every counter with its name in `lowroad status`.
    pub fn list(&self) -> [(&'static str, u64); 6] {
        [
            ("cache_hits", self.hits.value()),
            ("cache_stale", self.stale.value()),
            ("cache_misses", self.misses.value()),
            ("cache_coalesced", self.coalesced.value()),
            ("cache_revalidated", self.revalidated.value()),
            ("cache_passes", self.passes.value()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_counts_as_one_hit_miss_or_pass() {
        let ways = [
            Way::Hit,
            Way::Made,
            Way::Shared,
            Way::Validated,
            Way::OnError,
        ];
        let mut outcomes = vec![
            Outcome::Hit,
            Outcome::Miss,
            Outcome::Made,
            Outcome::Program,
            Outcome::Stale,
            Outcome::Passed,
        ];
        outcomes.extend(ways.map(Outcome::Stored));
        outcomes.extend(ways.map(Outcome::ProgramStored));
        for outcome in outcomes {
            let counters = CacheCounters::default();
            counters.count(outcome);
            let [hits, stale, misses, coalesced, revalidated, passes] =
                counters.list().map(|(_, value)| value);
            assert_eq!(hits + misses + passes, 1, "{outcome:?}");
            assert!(stale <= hits, "{outcome:?}");
            assert!(coalesced + revalidated <= misses, "{outcome:?}");
        }
    }
}
