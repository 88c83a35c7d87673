//! The published responses, and their eviction. Independent of fetches.
//!
//! Eviction is CLOCK with a window: the hand examines a few entries, evicts the entry with the lowest weight, and
//! halves the weights of all examined entries, so that briefly popular entries are evicted after some rounds. The cost
//! of an eviction is therefore independent of the number of entries. A hit weighs enough for several rounds: an entry
//! with occasional hits outlives entries without hits. A crawl of the whole site, even one that requests every page
//! twice, evicts its own entries before those with hits.

use super::hit_forecast;
use super::verdict::{self, PublishableResponse};
use super::{ResponseSerial, WithdrawnResponse};
use crate::response::fetched_response::FetchedResponse;
use lowroad_wire::key::RequestKey;
use std::collections::HashMap;
use std::sync::Arc;

/// Number of entries that the hand examines for one eviction.
const WINDOW: usize = 16;
/// Weight of a hit. Each pass of the hand halves it, so it lasts for twenty rounds, in which about as many entries are
/// evicted as there are slots.
const HIT_WEIGHT: u64 = 1 << 20;

/// Newly counted hits and their projection (`hit_forecast::project`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NewHits {
    pub(super) hits: u64,
    pub(super) projected: u64,
}

/// A published response.
#[derive(Debug)]
pub(super) struct LearnedResponse {
    pub(super) serial: ResponseSerial,
    pub(super) key: RequestKey,
    pub(super) hash: u64,
    /// The response as fetched, for validation.
    pub(super) stored: Arc<FetchedResponse>,
    pub(super) expires_ns: u64,
    published_ns: u64,
    /// Time at which `stored` was fetched or validated.
    stored_ns: u64,
    /// Bytes of the encoded response.
    len: u64,
    /// Time from which the response is validated, if it had hits since `stored_ns`.
    due_ns: u64,
    /// Hits counted so far.
    hits: u64,
    /// Hits since `stored_ns`.
    hits_since_fetch: u64,
    /// Weight of the hits since the hand's last pass, plus the halved weight of earlier ones.
    weight: u64,
}

/// The current time and the end of a response's freshness (CLOCK_MONOTONIC).
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseTimes {
    pub(super) now_ns: u64,
    pub(super) expires_ns: u64,
}

impl LearnedResponse {
    pub(super) fn new(
        serial: ResponseSerial,
        key: RequestKey,
        hash: u64,
        stored: FetchedResponse,
        times: ResponseTimes,
        len: usize,
    ) -> LearnedResponse {
        LearnedResponse {
            len: len as u64,
            published_ns: times.now_ns,
            stored_ns: times.now_ns,
            serial,
            key,
            hash,
            stored: Arc::new(stored),
            expires_ns: times.expires_ns,
            due_ns: due_ns(times.now_ns, times.expires_ns),
            hits: 0,
            hits_since_fetch: 0,
            weight: 0,
        }
    }

    /// Whether the new response would be sent as the same bytes.
    pub(super) fn encodes_to_same_bytes(
        &self,
        accepted: &PublishableResponse,
        with_age: bool,
    ) -> bool {
        let class = self.key.parts().class;
        // Without a length limit: the new response has already met the limit, and equal bytes have the same length.
        verdict::encode_response(&self.stored, class, with_age, usize::MAX)
            .is_ok_and(|encoded| encoded.is_same_as(&accepted.prepared))
    }

    /// Updates the entry after the origin has confirmed the response.
    pub(super) fn renew(&mut self, stored: FetchedResponse, now_ns: u64, expires_ns: u64) {
        self.stored = Arc::new(stored);
        self.stored_ns = now_ns;
        self.expires_ns = expires_ns;
        // Hits before this validation do not justify the next one.
        self.due_ns = due_ns(now_ns, expires_ns);
        self.hits_since_fetch = 0;
    }

    /// Postpones the next validation at least until this time.
    pub(super) fn postpone(&mut self, until_ns: u64) {
        self.due_ns = self.due_ns.max(until_ns);
    }

    /// Updates the hits from the response's counter, and returns the new ones.
    fn count(&mut self, hits: u64, now_ns: u64) -> NewHits {
        // A counter that decreased was reset.
        let new = hits.checked_sub(self.hits).unwrap_or(hits);
        let age_ns = now_ns.saturating_sub(self.published_ns);
        let lifetime_ns = self.expires_ns.saturating_sub(self.stored_ns);
        let projected = hit_forecast::project(self.hits, new, age_ns, lifetime_ns);
        self.hits = hits;
        self.hits_since_fetch = self.hits_since_fetch.saturating_add(new);
        self.weight = self.weight.saturating_add(new.saturating_mul(HIT_WEIGHT));
        NewHits {
            hits: new,
            projected,
        }
    }

    fn into_withdrawn(self) -> WithdrawnResponse {
        WithdrawnResponse {
            serial: self.serial,
            key: self.key,
            hash: self.hash,
        }
    }
}

/// Time at which 80 % of the lifetime is over.
fn due_ns(now_ns: u64, expires_ns: u64) -> u64 {
    now_ns + expires_ns.saturating_sub(now_ns) / 5 * 4
}

/// All published responses.
#[derive(Debug, Default)]
pub(super) struct LearnedResponses {
    slots: Vec<Option<LearnedResponse>>,
    /// Indices of the empty slots.
    free: Vec<usize>,
    by_hash: HashMap<u64, usize>,
    /// The slot that the hand examines next.
    clock_hand: usize,
    /// Bytes of all entries.
    bytes: u64,
}

impl LearnedResponses {
    pub(super) fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// Bytes of all published responses.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn by_hash(&self, hash: u64) -> Option<&LearnedResponse> {
        self.slots.get(*self.by_hash.get(&hash)?)?.as_ref()
    }

    pub(super) fn by_hash_mut(&mut self, hash: u64) -> Option<&mut LearnedResponse> {
        self.slots.get_mut(*self.by_hash.get(&hash)?)?.as_mut()
    }

    /// Adds an entry. No entry with its hash may exist.
    pub(super) fn insert(&mut self, entry: LearnedResponse) {
        let hash = entry.hash;
        self.bytes += entry.len;
        // Entries keep their slots, so that the hand's order is stable.
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = Some(entry);
                at
            }
            None => {
                self.slots.push(Some(entry));
                self.slots.len() - 1
            }
        };
        let replaced = self.by_hash.insert(hash, at);
        debug_assert!(replaced.is_none(), "the caller removes what was there");
    }

    /// Removes the entry with this hash, if there is one.
    pub(super) fn remove(&mut self, hash: u64) -> Vec<WithdrawnResponse> {
        let at = self.by_hash.get(&hash).copied();
        at.and_then(|at| self.remove_at(at)).into_iter().collect()
    }

    /// Removes all entries that satisfy the predicate.
    pub(super) fn remove_where(
        &mut self,
        predicate: impl Fn(&LearnedResponse) -> bool,
    ) -> Vec<WithdrawnResponse> {
        let is_match = |slot: &Option<LearnedResponse>| slot.as_ref().is_some_and(&predicate);
        // Collected first, since removal changes the slots.
        let matching: Vec<usize> = (0..self.slots.len())
            .filter(|at| is_match(&self.slots[*at]))
            .collect();
        matching
            .into_iter()
            .filter_map(|at| self.remove_at(at))
            .collect()
    }

    /// Reads the hit counters: all of them, or only those of entries that may need validation. Returns the new hits.
    pub(super) fn count_hits(
        &mut self,
        now_ns: u64,
        counts_all: bool,
        mut hits: impl FnMut(ResponseSerial, &RequestKey) -> u64,
    ) -> NewHits {
        let mut new = NewHits::default();
        let entries = self.slots.iter_mut().flatten();
        for entry in entries.filter(|e| counts_all || e.due_ns <= now_ns) {
            let counted = entry.count(hits(entry.serial, &entry.key), now_ns);
            new.hits = new.hits.saturating_add(counted.hits);
            new.projected = new.projected.saturating_add(counted.projected);
        }
        new
    }

    /// Entries to validate: entries with hits since the last fetch, and with little of their lifetime left. Each is
    /// returned as its key, its hash, and the number of these hits.
    pub(super) fn due_entries(&self, now_ns: u64) -> Vec<(RequestKey, u64, u64)> {
        let entries = self.slots.iter().flatten();
        entries
            .filter(|e| e.due_ns <= now_ns && e.hits_since_fetch > 0)
            .map(|e| (e.key.clone(), e.hash, e.hits_since_fetch))
            .collect()
    }

    /// Evicts the entry with the lowest weight in the window; `None` if there are no entries.
    pub(super) fn evict(&mut self) -> Option<WithdrawnResponse> {
        // Of entries with equal weight, the oldest is evicted; otherwise new entries would only displace each other.
        let mut lightest: Option<(u64, ResponseSerial, usize)> = None;
        let mut examined = 0;
        for _ in 0..self.slots.len() {
            // The hand keeps its position between calls, so that all entries get their turn.
            let at = self.clock_hand % self.slots.len();
            self.clock_hand = at + 1;
            let Some(entry) = &mut self.slots[at] else {
                continue;
            };
            let candidate = (entry.weight, entry.serial, at);
            lightest = Some(lightest.map_or(candidate, |current| current.min(candidate)));
            // The weight is halved at each pass, so that hits of long ago do not protect an entry.
            entry.weight /= 2;
            examined += 1;
            if examined == WINDOW {
                break;
            }
        }
        self.remove_at(lightest?.2)
    }

    fn remove_at(&mut self, at: usize) -> Option<WithdrawnResponse> {
        let entry = self.slots.get_mut(at)?.take()?;
        self.bytes -= entry.len;
        self.by_hash.remove(&entry.hash);
        self.free.push(at);
        Some(entry.into_withdrawn())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> LearnedResponse {
        let key = super::super::tests::key_of("/", None);
        let stored = FetchedResponse {
            status: 200,
            reason: Vec::new(),
            fields: Vec::new(),
            body: Vec::new(),
            at_unix_secs: 0,
        };
        let times = ResponseTimes {
            now_ns: 0,
            expires_ns: 100,
        };
        LearnedResponse::new(ResponseSerial(number), key, number, stored, times, 1000)
    }

    fn published(len: u64) -> LearnedResponses {
        let mut all = LearnedResponses::default();
        (0..len).for_each(|number| all.insert(entry(number)));
        all
    }

    #[test]
    fn entries_with_hits_survive_a_crawl() {
        let mut all = published(64);
        for number in 100..1000 {
            all.count_hits(
                0,
                true,
                |serial, _| if serial.0 < 8 { number * 100 } else { 0 },
            );
            all.evict().expect("there are entries");
            all.insert(entry(number));
        }
        assert_eq!(all.len(), 64);
        assert!((0..8).all(|hot| all.by_hash(hot).is_some()));
    }

    #[test]
    fn entries_without_further_hits_are_evicted_eventually() {
        let mut all = published(64);
        all.count_hits(0, true, |_, _| 1_000_000);
        // Enough rounds of the hand to halve all weights to 0.
        for number in 100..2000 {
            all.evict().expect("there are entries");
            all.insert(entry(number));
        }
        assert!((0..64).all(|old| all.by_hash(old).is_none()));
    }

    #[test]
    fn slots_of_removed_entries_are_reused() {
        let mut all = published(4);
        assert_eq!(all.remove(2).len(), 1);
        assert_eq!(all.remove(2).len(), 0);
        assert_eq!(all.remove_where(|e| e.hash < 2).len(), 2);
        all.insert(entry(9));
        assert_eq!((all.len(), all.slots.len()), (2, 4));
        assert_eq!(all.by_hash(9).map(|e| e.serial), Some(ResponseSerial(9)));
    }

    #[test]
    fn eviction_from_an_empty_table_returns_none() {
        assert_eq!(LearnedResponses::default().evict(), None);
    }

    #[test]
    fn hits_of_entries_due_for_validation_are_always_counted() {
        let mut all = published(2);
        // Due at 80 % of the lifetime of 100.
        assert_eq!(all.count_hits(79, false, |_, _| 3).hits, 0);
        assert_eq!(all.count_hits(80, false, |_, _| 3).hits, 6);
        assert_eq!(all.count_hits(80, true, |_, _| 4).hits, 2);
    }

    #[test]
    fn decreased_hit_counter_counts_as_reset() {
        let mut one = entry(1);
        one.count(5, 0);
        one.count(7, 0);
        one.count(3, 0);
        assert_eq!((one.hits, one.hits_since_fetch), (3, 10));
    }
}
