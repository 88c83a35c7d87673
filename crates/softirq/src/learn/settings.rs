//! Bounds and rules of the learner.

use lowroad_cache::exclude::Excluded;

use super::account::Rules as Trust;
use crate::layout::{PARTS_MAX, RESPONSE_MAX, RESPONSE_MAX_V6};
use lowroad_wire::key::KeyParts;

/// Bounds and rules of a [`Learner`](super::Learner).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Responses published at once, at most. Default 16384.
    pub published_max: usize,
    /// Fetches under way at once, at most. Default 8.
    pub under_way_max: usize,
    /// Keys that wait for a fetch, at most. Default 1024, half a KiB each.
    pub waiting_max: usize,
    /// Bytes of all responses published at once, at most. Default 24 MiB.
    pub published_bytes_max: u64,
    /// Segments of an answer at most. Default 10.
    pub parts_max: usize,
    /// The same where the connection stays open. Default 10.
    pub kept_parts_max: usize,
    /// The lifetime of responses that give none. Default none: such are guessed or not stored.
    pub ttl_secs: Option<u64>,
    /// No lifetime is guessed to be longer. Default 5: the server is on this machine, so that asking it
    /// again costs little, and a change that is not seen costs more.
    pub guessed_secs_max: u64,
    /// No response is published for longer at once. Default a day, since Age has five digits.
    pub lifetime_secs_max: u64,
    /// Responses get an Age: yes for a cache, no for the origin itself. Default yes.
    pub with_age: bool,
    /// For so long a key is not fetched again after a failure. Default 10.
    pub denied_secs: u64,
    /// The same after a response that was too long. Default 60.
    pub denied_long_secs: u64,
    /// A fetch that has not ended after this time has failed. Default 30.
    pub fetch_secs_max: u64,
    /// Of these paths nothing is fetched. Default none.
    pub excluded: Excluded,
    /// How much is fetched that brings no hits.
    pub trust: Trust,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            published_max: 16_384,
            under_way_max: 8,
            waiting_max: 1024,
            published_bytes_max: 24 << 20,
            parts_max: PARTS_MAX as usize,
            kept_parts_max: PARTS_MAX as usize,
            ttl_secs: None,
            guessed_secs_max: 5,
            lifetime_secs_max: 24 * 3600,
            with_age: true,
            denied_secs: 10,
            denied_long_secs: 60,
            fetch_secs_max: 30,
            excluded: Excluded::default(),
            trust: Trust::default(),
        }
    }
}

impl Settings {
    /// Bytes of an answer to requests with this key, head and body, at most.
    #[must_use]
    pub fn len_max(&self, key: &KeyParts<'_>) -> usize {
        let cut = match key.local().is_ipv6() {
            true => RESPONSE_MAX_V6,
            false => RESPONSE_MAX,
        };
        let parts = match key.class.closes() {
            true => self.parts_max,
            false => self.kept_parts_max,
        };
        parts * cut as usize
    }
}
