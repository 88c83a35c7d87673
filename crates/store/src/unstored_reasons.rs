//! Remembers why the last response for a key was not stored, for `lowroad explain`.

use std::sync::{Mutex, PoisonError};

use lowroad_cache::storage_policy::StorageRefusal;

/// The number of slots. The hash of a key selects its slot.
const SLOTS: usize = 1024;

/// The latest reason in each slot.
pub struct UnstoredReasons(Box<[Mutex<Option<UnstoredReason>>]>);

struct UnstoredReason {
    hash: u64,
    reason: StorageRefusal,
}

impl Default for UnstoredReasons {
    fn default() -> UnstoredReasons {
        UnstoredReasons((0..SLOTS).map(|_| Mutex::new(None)).collect())
    }
}

impl UnstoredReasons {
    /// Records why the response for a key with this hash was not stored.
    pub fn record(&self, hash: u64, reason: StorageRefusal) {
        // Skipped while another thread has locked the slot: a lost reason is better than a wait.
        let Ok(mut slot) = self.slot(hash).try_lock() else {
            return;
        };
        let is_recorded =
            |recorded: &UnstoredReason| recorded.hash == hash && recorded.reason == reason;
        // Written only if it differs, since workers share the cache line.
        if !slot.as_ref().is_some_and(is_recorded) {
            *slot = Some(UnstoredReason { hash, reason });
        }
    }

    /// The last reason for a key with this hash, if known.
    pub fn find(&self, hash: u64) -> Option<StorageRefusal> {
        let slot = self.slot(hash).lock();
        let slot = slot.unwrap_or_else(PoisonError::into_inner);
        let refusal = slot.as_ref().filter(|recorded| recorded.hash == hash);
        refusal.map(|recorded| recorded.reason.clone())
    }

    fn slot(&self, hash: u64) -> &Mutex<Option<UnstoredReason>> {
        &self.0[(hash >> 32) as usize % SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_returns_the_last_reason_for_a_key() {
        let refusals = UnstoredReasons::default();
        let (one, same_place) = (7 << 32 | 1, 7 << 32 | 2);
        refusals.record(one, StorageRefusal::Private);
        refusals.record(one, StorageRefusal::NoStore);
        assert_eq!(refusals.find(one), Some(StorageRefusal::NoStore));
        assert_eq!(refusals.find(same_place), None);
        refusals.record(same_place, StorageRefusal::Stale);
        assert_eq!(refusals.find(one), None);
    }
}
