//! The store of answers that all workers and helpers share: cut into shards so that they seldom
//! wait for each other, bounded in bytes, bodies in one arena.

use std::hash::BuildHasher;
use std::io;
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

    /// Forgets everything.
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut dropped = Vec::new();
            lock(shard).clear(&mut dropped);
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
