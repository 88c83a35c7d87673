//! The store of answers that all workers and helpers share: cut into shards so that they seldom
//! wait for each other, bounded in bytes, bodies in one arena.

use std::hash::BuildHasher;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_cache::{Counters, Store};
use lowroad_engine::arena::{Arena, Draft};

use crate::stored::Stored;

/// A shard below this length could not hold a few large objects.
const SHARD_LEN_MIN: u64 = 16 << 20;
const SHARDS_MAX: u64 = 16;
/// Evictions one after the other that made no larger space, before a new object is given up.
const EVICTIONS_IN_VAIN_MAX: usize = 16;

/// Stored answers by key.
pub struct SharedStore {
    shards: Box<[Mutex<Store<Arc<Stored>>>]>,
    arena: Option<Arc<Arena>>,
    hasher: foldhash::fast::RandomState,
    /// How often something was purged.
    purges: AtomicU64,
}

impl SharedStore {
    /// A store of `len_max` bytes; 0 stores nothing.
    ///
    /// # Errors
    /// When the machine gives no memory for it.
    pub fn new(len_max: u64) -> io::Result<SharedStore> {
        let count = (len_max / SHARD_LEN_MIN).clamp(1, SHARDS_MAX);
        let shards = (0..count)
            .map(|_| Mutex::new(Store::new(len_max / count)))
            .collect();
        let arena = match usize::try_from(len_max) {
            Ok(0) => None,
            Ok(len) => Some(Arena::new(len)?),
            Err(_) => return Err(io::ErrorKind::OutOfMemory.into()),
        };
        Ok(SharedStore {
            shards,
            arena,
            hasher: foldhash::fast::RandomState::default(),
            purges: AtomicU64::new(0),
        })
    }

    /// The hash under which a key is looked up.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// The answer stored under a key; counts as a use of it.
    #[inline]
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<Arc<Stored>> {
        self.shard(hash).find(hash, key).cloned()
    }

    /// The answer stored under a key; counts as nothing.
    pub fn peek(&self, hash: u64, key: &[u8]) -> Option<Arc<Stored>> {
        self.shard(hash).peek(hash, key).cloned()
    }

    /// Stores an answer, if it can be at all.
    pub fn insert(&self, hash: u64, key: &[u8], stored: Arc<Stored>) {
        let mut dropped = Vec::new();
        let size = stored.size;
        // What is refused or evicted is dropped outside the lock: freeing takes time.
        let refused = self
            .shard(hash)
            .insert(hash, key.into(), stored, size, &mut dropped);
        drop((refused, dropped));
    }

    /// How often something was purged: what is made after this was asked is made after so many.
    pub fn purges(&self) -> u64 {
        self.purges.load(SeqCst)
    }

    /// Stores an answer unless there were more than so many purges: it may be older than one of
    /// them, which could not find it. Says whether there were not.
    pub fn insert_after(&self, purges: u64, hash: u64, key: &[u8], stored: Arc<Stored>) -> bool {
        let mut dropped = Vec::new();
        let size = stored.size;
        let refused = {
            let mut shard = self.shard(hash);
            // A purge counts itself before it looks into a shard, so none falls between.
            if self.purges() != purges {
                return false;
            }
            shard.insert(hash, key.into(), stored, size, &mut dropped)
        };
        drop((refused, dropped));
        true
    }

    /// Forgets the answer under a key, and lets nothing be stored that was asked for before.
    pub fn forget(&self, hash: u64, key: &[u8]) {
        self.purges.fetch_add(1, SeqCst);
        let gone = self.shard(hash).remove(hash, key);
        drop(gone);
    }

    /// Forgets all answers for which `keep` is false, and says how many there were. Each shard is
    /// locked while it is looked through.
    pub fn purge(&self, mut keep: impl FnMut(&[u8], &Stored) -> bool) -> u64 {
        self.purges.fetch_add(1, SeqCst);
        let mut gone = 0;
        for shard in &self.shards {
            let mut dropped = Vec::new();
            lock(shard).retain(|key, stored| keep(key, stored), &mut dropped);
            gone += dropped.len() as u64;
        }
        gone
    }

    /// Whether anything is stored at all.
    pub fn has_arena(&self) -> bool {
        self.arena.is_some()
    }

    /// Space in the arena, if need be by evicting. `None`: not to be had now.
    pub fn allocate(&self, hash: u64, len: usize) -> Option<Draft> {
        let arena = self.arena.as_ref()?;
        let mut largest_free = arena.largest_free();
        let mut in_vain = 0;
        loop {
            if let Some(draft) = arena.allocate(len) {
                return Some(draft);
            }
            // Bytes on their way to slow clients stay in the arena when they are evicted: then
            // emptying the store would help nobody.
            if in_vain == EVICTIONS_IN_VAIN_MAX {
                return None;
            }
            drop(self.shard(hash).evict_one()?);
            let now_free = arena.largest_free();
            in_vain = if now_free > largest_free {
                0
            } else {
                in_vain + 1
            };
            largest_free = now_free;
        }
    }

    /// Forgets all answers under keys for which `keep` is false, without being a purge: nobody asks for
    /// them.
    pub fn retain(&self, keep: impl Fn(&[u8]) -> bool) {
        for shard in &self.shards {
            let mut dropped = Vec::new();
            lock(shard).retain(|key, _| keep(key), &mut dropped);
        }
    }

    /// The counters of all shards together, and the arena's bytes in use.
    pub fn counters(&self) -> (Vec<Counters>, u64) {
        let counters = self
            .shards
            .iter()
            .map(|shard| lock(shard).counters())
            .collect();
        (
            counters,
            self.arena.as_ref().map_or(0, |arena| arena.used()),
        )
    }

    #[inline]
    fn shard(&self, hash: u64) -> MutexGuard<'_, Store<Arc<Stored>>> {
        // The store's own table uses the hash's other end.
        let at = (hash >> 48) % self.shards.len() as u64;
        lock(&self.shards[at as usize])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::Kind;

    fn store_one(store: &SharedStore, purges: u64, key: &[u8]) -> bool {
        let stored = Stored::new(Kind::Folder, 10, None, 0);
        store.insert_after(purges, store.hash(key), key, Arc::new(stored))
    }

    #[test]
    fn a_purge_takes_what_it_means_and_what_is_being_made() {
        // As many shards as there can be.
        let store = SharedStore::new(SHARDS_MAX * SHARD_LEN_MIN).expect("memory");
        let before = store.purges();
        for number in 0..100u8 {
            assert!(store_one(&store, before, &[number]));
        }
        assert_eq!(store.purge(|key, _| key[0] >= 30), 30);
        let there = |key: &[u8]| store.find(store.hash(key), key).is_some();
        let left: Vec<u8> = (0..100).filter(|number| there(&[*number])).collect();
        assert_eq!(left, (30..100).collect::<Vec<u8>>());
        assert!(!store_one(&store, before, &[1]) && !there(&[1]));
        assert!(store_one(&store, store.purges(), &[1]) && there(&[1]));
    }
}
