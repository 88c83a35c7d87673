//! Limits and rules of the learner.

use lowroad_cache::excluded_paths::ExcludedPaths;

use super::account::FetchBudgetRules as Trust;
use crate::layout::{PARTS_MAX, RESPONSE_MAX, RESPONSE_MAX_V6};
use lowroad_wire::key::KeyParts;

/// Limits and rules of a `ResponseLearner`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnSettings {
    /// Maximum number of published responses. Default 16384.
    pub published_max: usize,
    /// Maximum number of concurrent fetches. Default 8.
    pub in_progress_max: usize,
    /// Maximum number of keys waiting for a fetch. Default 1024, half a KiB each.
    pub waiting_max: usize,
    /// Maximum bytes of all published responses. Default 24 MiB.
    pub published_bytes_max: u64,
    /// Maximum number of segments of a response. Default 10.
    pub parts_max: usize,
    /// `parts_max` for connections that stay open. Default 10.
    pub keep_alive_parts_max: usize,
    /// Freshness lifetime for responses without an explicit one. Default none: the lifetime is estimated, or the
    /// response is not stored.
    pub ttl_secs: Option<u64>,
    /// Maximum heuristic lifetime (RFC 9111 §4.2.2). Default 5: the server is on this machine, so another fetch costs
    /// little, and missing a change costs more.
    pub guessed_secs_max: u64,
    /// Maximum time for which a response is published. Default a day, since Age has five digits.
    pub lifetime_secs_max: u64,
    /// Whether responses get an Age field: yes for a cache, no for an origin server. Default yes.
    pub with_age: bool,
    /// Time for which a key is not fetched again after a failure. Default 10.
    pub denied_secs: u64,
    /// `denied_secs` for responses that are too long. Default 60.
    pub denied_long_secs: u64,
    /// Timeout of a fetch. Default 30.
    pub fetch_secs_max: u64,
    /// Paths that are not fetched. Default none.
    pub excluded: ExcludedPaths,
    /// Limits of fetches without hits.
    pub budget_rules: Trust,
}

impl Default for LearnSettings {
    fn default() -> LearnSettings {
        LearnSettings {
            published_max: 16_384,
            in_progress_max: 8,
            waiting_max: 1024,
            published_bytes_max: 24 << 20,
            parts_max: PARTS_MAX as usize,
            keep_alive_parts_max: PARTS_MAX as usize,
            ttl_secs: None,
            guessed_secs_max: 5,
            lifetime_secs_max: 24 * 3600,
            with_age: true,
            denied_secs: 10,
            denied_long_secs: 60,
            fetch_secs_max: 30,
            excluded: ExcludedPaths::default(),
            budget_rules: Trust::default(),
        }
    }
}

impl LearnSettings {
    /// Maximum length of a response for this key, head and body.
    #[must_use]
    pub fn len_max(&self, key: &KeyParts<'_>) -> usize {
        // On IPv6, segments are sized for the minimum MTU.
        let part_len = match key.local().is_ipv6() {
            true => RESPONSE_MAX_V6,
            false => RESPONSE_MAX,
        };
        let parts = match key.class.closes() {
            true => self.parts_max,
            false => self.keep_alive_parts_max,
        };
        parts * part_len as usize
    }
}
