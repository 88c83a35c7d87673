//! Counts the cache outcome (hit, miss or pass) of each answered request.

use lowroad_engine::counters::WorkerCounter;
use lowroad_response_cache::storage::HitKind;

use crate::access::RequestOutcome;

/// The cache counters of one worker; no other thread writes them. `hits`, `misses` and `passes` add up to the worker's
/// requests, except for those in progress.
#[derive(Debug, Default)]
pub struct CacheCounters {
    /// Requests answered from memory, without loading a file and without the origin.
    pub hits: WorkerCounter,
    /// Hits whose stored response was stale.
    pub stale: WorkerCounter,
    /// Requests that needed a file, the origin or a program, and whose response was then stored.
    pub misses: WorkerCounter,
    /// Misses that were answered by the response to an equal, concurrent request.
    pub coalesced: WorkerCounter,
    /// Misses in which the origin validated the stored response.
    pub revalidated: WorkerCounter,
    /// Requests that did not use the cache: redirects, refusals, and responses that were not stored.
    pub passes: WorkerCounter,
}

impl CacheCounters {
    /// Counts one answered request.
    #[inline]
    pub fn count(&self, outcome: RequestOutcome) {
        // Most requests are hits, so only this branch is inlined.
        match outcome {
            RequestOutcome::Hit => self.hits.bump(),
            other => self.count_other(other),
        }
    }

    fn count_other(&self, outcome: RequestOutcome) {
        match outcome {
            RequestOutcome::Hit => self.hits.bump(),
            RequestOutcome::Stale => self.count_hit_stale(),
            RequestOutcome::Miss => self.misses.bump(),
            RequestOutcome::Stored(hit_kind) | RequestOutcome::ProgramStored(hit_kind) => {
                self.count_stored(hit_kind)
            }
            RequestOutcome::Generated | RequestOutcome::Program | RequestOutcome::Passed => {
                self.passes.bump()
            }
        }
    }

    fn count_stored(&self, hit_kind: HitKind) {
        match hit_kind {
            HitKind::Hit => return self.hits.bump(),
            HitKind::StaleIfError => return self.count_hit_stale(),
            HitKind::Fetched => {}
            HitKind::Coalesced => self.coalesced.bump(),
            HitKind::Validated => self.revalidated.bump(),
        }
        self.misses.bump();
    }

    fn count_hit_stale(&self) {
        self.stale.bump();
        self.hits.bump();
    }

    /// All counters, with their names in `lowroad status`.
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
    fn each_outcome_counts_once_as_hit_miss_or_pass() {
        let ways = [
            HitKind::Hit,
            HitKind::Fetched,
            HitKind::Coalesced,
            HitKind::Validated,
            HitKind::StaleIfError,
        ];
        let mut outcomes = vec![
            RequestOutcome::Hit,
            RequestOutcome::Miss,
            RequestOutcome::Generated,
            RequestOutcome::Program,
            RequestOutcome::Stale,
            RequestOutcome::Passed,
        ];
        outcomes.extend(ways.map(RequestOutcome::Stored));
        outcomes.extend(ways.map(RequestOutcome::ProgramStored));
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
