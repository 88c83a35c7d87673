//! Remembers why the last response for a key was not stored, for `lowroad explain`.

use std::sync::{Mutex, PoisonError};

use lowroad_cache::storage_policy::StorageRefusal;

/// The number of slots, which the hash selects.
const PLACES: usize = 1024;

/// The reasons, by slot.
pub struct UnstoredReasons(Box<[Mutex<Option<UnstoredReason>>]>);

struct UnstoredReason {
    hash: u64,
    why: StorageRefusal,
}

impl Default for UnstoredReasons {
    fn default() -> UnstoredReasons {
        UnstoredReasons((0..PLACES).map(|_| Mutex::new(None)).collect())
    }
}

impl UnstoredReasons {
    /// Records why the response for a key with this hash was not stored.
    pub fn record(&self, hash: u64, why: StorageRefusal) {
        // Skipped while another thread holds the slot: a lost reason is better than a wait.
        let Ok(mut place) = self.place(hash).try_lock() else {
            return;
        };
        let is_known = |known: &UnstoredReason| known.hash == hash && known.why == why;
        // A write only on a change, since workers share the slots.
        if !place.as_ref().is_some_and(is_known) {
            *place = Some(UnstoredReason { hash, why });
        }
    }

    /// The last reason for a key with this hash, if known.
    pub fn find(&self, hash: u64) -> Option<StorageRefusal> {
        let place = self.place(hash).lock();
        let place = place.unwrap_or_else(PoisonError::into_inner);
        let refusal = place.as_ref().filter(|known| known.hash == hash);
        refusal.map(|known| known.why.clone())
    }

    fn place(&self, hash: u64) -> &Mutex<Option<UnstoredReason>> {
        &self.0[(hash >> 32) as usize % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reason_is_remembered_for_its_key() {
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
