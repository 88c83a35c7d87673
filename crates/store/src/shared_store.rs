//! The store of responses in memory, divided into shards, in front of the disk cache.

use std::hash::BuildHasher;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use lowroad_cache::{CacheStore, StoreCounters};
use lowroad_engine::arena::{BlockDraft, ResponseArena};

use crate::disk_cache::DiskCache;
use crate::entry::VariantSet;
use crate::forgotten_keys::ForgottenKeys;
use crate::lock::lock;
use crate::object::{ObjectArc, StoredObject};
use crate::purge_epoch::PurgeEpoch;
use crate::purge_rules::{PurgeCounters, PurgeMode, PurgeRequest, StorePurges};
use crate::unstored_reasons::UnstoredReasons;

/// The maximum number of objects that a purge command compares immediately, to report whether any matched. With more
/// objects, it does not report this.
const COMPARED_MAX: u64 = 1 << 16;
/// The minimum length of a shard, which suffices for a few large objects.
const SHARD_LEN_MIN: u64 = 16 << 20;
const SHARDS_MAX: u64 = 16;
/// The variants under one key may take a shard's length divided by this. (The shard refuses entries of more than a
/// quarter.)
const ENTRY_SHARE: u64 = 5;
/// The default maximum number of variants under one key.
const VARIANTS_MAX: usize = 64;
/// The bytes reserved for an object in addition to its body: its head, and partly filled pages.
const OBJECT_OVERHEAD: u64 = 128 << 10;
/// Arriving bodies may take the store's length divided by this, in addition to the stored bytes.
const ARRIVING_SHARE: u64 = 4;
/// One arriving body may take the store's length divided by this, but at least [`BODY_LEN_MIN`].
const BODY_SHARE: u64 = 16;
const BODY_LEN_MIN: u64 = 1 << 20;
/// An allocation fails after this many consecutive evictions that did not free a larger block.
const FUTILE_EVICTIONS_MAX: usize = 16;

/// Stored objects by key.
pub struct SharedStore {
    shards: Box<[Mutex<CacheStore<VariantSet>>]>,
    arena: Option<Arc<ResponseArena>>,
    hasher: foldhash::fast::RandomState,
    store_purges: StorePurges,
    deleted_keys: ForgottenKeys,
    /// Bytes of arriving bodies, outside the arena.
    arriving_bytes: AtomicU64,
    arriving_bytes_max: u64,
    /// The reasons why responses were not stored.
    pub unstored_reasons: UnstoredReasons,
    /// The maximum size of all variants under one key, in bytes.
    entry_len_max: u64,
    /// The maximum number of variants under one key.
    variants_max: usize,
    /// Variants evicted because there were too many under their key.
    variants_evicted: AtomicU64,
    /// Responses that were not stored because they were purged during the fetch, or their key was deleted.
    outdated: AtomicU64,
    /// Objects for which the arena had no room.
    unplaced: AtomicU64,
    /// The disk cache, if there is one.
    tier: OnceLock<Arc<DiskCache>>,
    /// Whether the disk cache belongs to another process now.
    is_tier_released: AtomicBool,
    interleaving: Option<fn()>,
}

impl SharedStore {
    /// Creates a store of `len_max` bytes; 0 stores nothing.
    ///
    /// # Errors
    /// The memory can't be reserved.
    pub fn new(len_max: u64) -> io::Result<SharedStore> {
        // Small stores have few shards, since one object may take only a fraction of its shard.
        let count = (len_max / SHARD_LEN_MIN).clamp(1, SHARDS_MAX);
        let shards = (0..count)
            .map(|_| Mutex::new(CacheStore::new(len_max / count)))
            .collect();
        let arena = match usize::try_from(len_max) {
            Ok(0) => None,
            Ok(len) => Some(ResponseArena::new(len)?),
            Err(_) => return Err(io::ErrorKind::OutOfMemory.into()),
        };
        Ok(SharedStore {
            shards,
            arena,
            hasher: foldhash::fast::RandomState::default(),
            store_purges: StorePurges::default(),
            deleted_keys: ForgottenKeys::new(),
            arriving_bytes: AtomicU64::new(0),
            arriving_bytes_max: len_max / ARRIVING_SHARE,
            unstored_reasons: UnstoredReasons::default(),
            entry_len_max: len_max / count / ENTRY_SHARE,
            variants_max: VARIANTS_MAX,
            variants_evicted: AtomicU64::new(0),
            outdated: AtomicU64::new(0),
            unplaced: AtomicU64::new(0),
            tier: OnceLock::new(),
            is_tier_released: AtomicBool::new(false),
            interleaving: None,
        })
    }

    /// Sets a function that the simulator uses to interleave workers; it is called where the order of workers matters.
    pub fn with_interleaving(self, interleaving: fn()) -> SharedStore {
        SharedStore {
            interleaving: Some(interleaving),
            ..self
        }
    }

    #[inline]
    fn interleave(&self) {
        if let Some(interleaving) = self.interleaving {
            interleaving();
        }
    }

    /// Adds a disk cache, unless there is one. Its unfinished purges apply to this store, too. To be called before the
    /// first request.
    pub fn add_disk_cache(&self, tier: Arc<DiskCache>) {
        // The purges are replayed before the first look-up, since objects on disk may be older than these purges.
        tier.replay_purges(&self.store_purges);
        // Only a start adds a disk cache.
        let _ = self.tier.set(tier);
    }

    /// Whether a disk cache was released: purges no longer reach it.
    pub fn has_released_disk_cache(&self) -> bool {
        self.is_tier_released.load(Relaxed)
    }

    /// Releases the disk cache, if one is open, so that another process can open it. Blocks on the disk.
    pub fn release_disk_cache(&self) {
        if let Some(tier) = self.tier.get()
            && !self.is_tier_released.swap(true, Relaxed)
        {
            tier.release();
        }
    }

    /// Sets the maximum number of variants of a response.
    pub fn with_variants_max(self, variants_max: usize) -> SharedStore {
        SharedStore {
            variants_max,
            ..self
        }
    }

    /// Variants evicted because there were too many under their key.
    pub fn variants_evicted(&self) -> u64 {
        self.variants_evicted.load(Relaxed)
    }

    /// Responses that were not stored because they were purged, or their key deleted, during the fetch.
    pub fn outdated(&self) -> u64 {
        self.outdated.load(Relaxed)
    }

    /// Objects not stored because the arena had no room.
    pub fn unplaced(&self) -> u64 {
        self.unplaced.load(Relaxed)
    }

    /// The disk cache, if there is one.
    #[inline]
    pub fn tier(&self) -> Option<&Arc<DiskCache>> {
        match self.is_tier_released.load(Relaxed) {
            false => self.tier.get(),
            true => None,
        }
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// The entry of a key; counts as a use.
    #[inline]
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<VariantSet> {
        self.shard(hash).find(hash, key).cloned()
    }

    /// The entry of a key without purged variants; counts as a use.
    #[inline]
    pub fn find_valid(&self, hash: u64, key: &[u8]) -> Option<VariantSet> {
        let entry = self.find(hash, key)?;
        match entry.all(|object| self.is_up_to_date(object)) {
            true => Some(entry),
            false => self.without_purged(hash, key, &entry),
        }
    }

    /// The entry of a key without purged variants; does not count as a use and deletes nothing.
    pub fn peek_valid(&self, hash: u64, key: &[u8]) -> Option<VariantSet> {
        let entry = self.peek(hash, key)?;
        let mut purged = entry
            .variants()
            .filter(|object| self.is_purged(key, object));
        purged.try_fold(entry.clone(), |remaining, object| remaining.without(object))
    }

    #[inline]
    fn is_up_to_date(&self, object: &StoredObject) -> bool {
        let lifetime = object.validity.lifetime();
        lifetime.is_none_or(|lifetime| self.store_purges.is_up_to_date(lifetime))
    }

    /// Deletes the purged variants of an entry; returns the entry without them.
    #[cold]
    fn without_purged(&self, hash: u64, key: &[u8], entry: &VariantSet) -> Option<VariantSet> {
        let mut remaining = Some(entry.clone());
        for object in entry
            .variants()
            .filter(|object| self.is_purged(key, object))
        {
            self.remove(hash, key, object);
            remaining = remaining.and_then(|remaining| remaining.without(object));
        }
        remaining
    }

    /// Whether an object under a key was purged.
    fn is_purged(&self, key: &[u8], object: &StoredObject) -> bool {
        let lifetime = object.validity.lifetime();
        lifetime.is_some_and(|lifetime| {
            !self.store_purges.is_up_to_date(lifetime) && self.store_purges.is_purged(key, lifetime)
        })
    }

    /// The entry of a key; does not count as a use.
    pub fn peek(&self, hash: u64, key: &[u8]) -> Option<VariantSet> {
        self.shard(hash).peek(hash, key).cloned()
    }

    /// Replaces the entry of a key with one object, if there is room.
    pub fn insert(&self, hash: u64, key: &[u8], object: ObjectArc) {
        self.change(hash, key, |_| Some(VariantSet::new(object)));
    }

    /// Adds a content coding of an object, if its base is still stored.
    pub fn insert_encoded(&self, hash: u64, key: &[u8], base: &ObjectArc, object: ObjectArc) {
        self.change(hash, key, |entry| {
            let entry = entry.filter(|entry| ObjectArc::ptr_eq(&entry.base, base))?;
            Some(entry.with_encoded(object))
        });
    }

    /// The current purge epoch for keys with this hash. Must be read before a fetch begins.
    pub fn purge_epoch(&self, hash: u64) -> PurgeEpoch {
        self.interleave();
        PurgeEpoch {
            // Read before the fetch: its response may still have the old content, and later purges must apply to it.
            generation: self.store_purges.generation(),
            deletion_count: self.deleted_keys.count(hash),
        }
    }

    /// Whether an object that was found earlier had neither been deleted nor purged at the epoch `since`, so that a
    /// response may be derived from it.
    pub fn is_still_valid(
        &self,
        hash: u64,
        key: &[u8],
        object: &ObjectArc,
        since: PurgeEpoch,
    ) -> bool {
        let Some(lifetime) = object.validity.lifetime() else {
            return true;
        };
        // Other keys share the count, so a different count does not prove a deletion.
        let is_count_equal = lifetime.deletion_count == since.deletion_count;
        if is_count_equal && self.is_up_to_date(object) {
            return true;
        }
        let entry = self.peek_valid(hash, key);
        entry.is_some_and(|entry| {
            entry
                .variants()
                .any(|variant| ObjectArc::ptr_eq(variant, object))
        })
    }

    /// Whether a key with this hash may have been deleted since the deletion count was `since`.
    pub fn may_be_deleted(&self, hash: u64, since: u32) -> bool {
        self.deleted_keys.may_contain(hash, since)
    }

    /// Adds an object with a freshness lifetime as a variant. It is not stored if it was purged or its key was deleted
    /// since its fetch began, because it may be outdated. Returns whether it was stored.
    pub fn insert_selected(&self, hash: u64, key: &[u8], object: ObjectArc) -> bool {
        self.interleave();
        self.change(hash, key, |entry| {
            // No race: `delete` increments the count before it locks the shard, and a later purge is detected when the
            // object is found.
            let lifetime = object.validity.lifetime()?;
            let is_forgotten = self.may_be_deleted(hash, lifetime.deletion_count);
            if is_forgotten || self.is_purged(key, &object) {
                self.outdated.fetch_add(1, Relaxed);
                return None;
            }
            Some(match entry {
                Some(entry) => self.bounded(entry.with_selected(object)),
                None => VariantSet::new(object),
            })
        })
    }

    /// Replaces a streaming object with the complete one, if the former is still stored and was not purged. Returns
    /// whether it was replaced.
    pub fn complete(
        &self,
        hash: u64,
        key: &[u8],
        streaming: &ObjectArc,
        object: ObjectArc,
    ) -> bool {
        self.interleave();
        self.change(hash, key, |entry| {
            let contains = |entry: &&VariantSet| {
                entry
                    .variants()
                    .any(|variant| ObjectArc::ptr_eq(variant, streaming))
            };
            let entry = entry
                .filter(contains)
                .filter(|_| !self.is_purged(key, &object))?;
            Some(self.bounded(entry.with_selected(object)))
        })
    }

    /// The entry after eviction of the variants that exceed the limits.
    fn bounded(&self, entry: VariantSet) -> VariantSet {
        let (entry, evicted) = entry.evict_to_limits(self.variants_max, self.entry_len_max);
        self.variants_evicted.fetch_add(evicted as u64, Relaxed);
        entry
    }

    /// Deletes one variant.
    pub fn remove(&self, hash: u64, key: &[u8], object: &ObjectArc) {
        // Compared by identity, so that a newer object under the same key is not deleted.
        let contains = |entry: &VariantSet| {
            entry
                .variants()
                .any(|variant| ObjectArc::ptr_eq(variant, object))
        };
        let removed = {
            let mut shard = self.shard(hash);
            match shard.peek(hash, key) {
                Some(entry) if contains(entry) => {}
                _ => return,
            }
            let entry = shard.remove(hash, key);
            let remaining = entry.as_ref().and_then(|entry| entry.without(object));
            let mut dropped = Vec::new();
            if let Some(remaining) = remaining {
                let size = remaining.size();
                let refused = shard.insert(hash, remaining, size, &mut dropped);
                dropped.extend(refused.err());
            }
            (entry, dropped)
        };
        drop(removed);
    }

    /// Replaces the entry of a key with the result of `change`, unless that is `None`. Returns whether the new entry
    /// was stored.
    fn change(
        &self,
        hash: u64,
        key: &[u8],
        change: impl FnOnce(Option<&VariantSet>) -> Option<VariantSet>,
    ) -> bool {
        let mut dropped = Vec::new();
        let refused = {
            let mut shard = self.shard(hash);
            let Some(entry) = change(shard.peek(hash, key)) else {
                return false;
            };
            debug_assert_eq!(entry.base.key(), key, "it was made for this key");
            let size = entry.size();
            shard.insert(hash, entry, size, &mut dropped)
        };
        // Dropped outside the lock, because freeing takes time.
        let is_stored = refused.is_ok();
        drop((refused, dropped));
        is_stored
    }

    /// Deletes the entry of a key. Fetches for this key that began before will not be stored.
    pub fn delete(&self, hash: u64, key: &[u8]) {
        // Counted before the removal, so that fetches that began earlier detect the deletion.
        self.deleted_keys.add(hash);
        self.interleave();
        let removed = self.shard(hash).remove(hash, key);
        drop(removed);
    }

    /// Purges matching objects with a freshness lifetime and matching fetches in flight, in constant time. Purged
    /// objects are removed at their next look-up or by eviction. The purge also applies to objects on disk immediately,
    /// and after a restart once the rule is durable (`DiskCache::on_purges_durable`).
    pub fn purge(&self, purge: &PurgeRequest<'_>, kind: PurgeMode) {
        let generation = self.store_purges.add(purge, kind);
        if let Some(tier) = self.tier() {
            // The rule was first added in memory, so that it applies to requests from now on, even before it is
            // durable.
            tier.note_purge(generation, purge, kind);
        }
    }

    /// Compares all objects with the purges now, instead of at their next look-up: removes those that are purged, and
    /// returns how many were purged or became stale. `None` if this would take long, or if there is a disk cache, which may have more matches.
    pub fn apply_purges_now(&self) -> Option<u64> {
        let objects = |shard: &Mutex<CacheStore<VariantSet>>| lock(shard).counters().objects;
        let count: u64 = self.shards.iter().map(objects).sum();
        // Objects on disk can't be compared here, and comparing too many objects would block the shards.
        if self.tier().is_some() || count > COMPARED_MAX {
            return None;
        }
        let purged = |counters: PurgeCounters| counters.deleted + counters.stale;
        let count_before = purged(self.purge_counters());
        for shard in &self.shards {
            let mut outdated = Vec::new();
            let collect = |entry: &VariantSet| {
                if !entry.all(|object| self.is_up_to_date(object)) {
                    outdated.push(entry.clone());
                }
                true
            };
            lock(shard).retain(collect, &mut Vec::new());
            // Removed, not only compared: a purged object that stays would count again at the next purge.
            for entry in outdated {
                let key = entry.base.key();
                self.without_purged(self.hash(key), key, &entry);
            }
        }
        Some(purged(self.purge_counters()) - count_before)
    }

    /// The purge rules.
    pub fn store_purges(&self) -> &StorePurges {
        &self.store_purges
    }

    /// The counters of purges.
    pub fn purge_counters(&self) -> PurgeCounters {
        self.store_purges.counters()
    }

    /// Reserves memory for received bytes of a body. The reservation ends when the last reader drops the bytes.
    ///
    /// # Errors
    /// Returns the bytes if the limit is reached.
    pub fn reserve_arriving(
        self: &Arc<Self>,
        bytes: bytes::Bytes,
    ) -> Result<bytes::Bytes, bytes::Bytes> {
        let len = bytes.len() as u64;
        // Bodies in flight are outside the arena, so they have their own bound.
        let add_within_limit = |reserved: u64| {
            Some(reserved + len).filter(|reserved| *reserved <= self.arriving_bytes_max)
        };
        match self
            .arriving_bytes
            .fetch_update(Relaxed, Relaxed, add_within_limit)
        {
            Ok(_) => Ok(bytes::Bytes::from_owner(MemoryReservation {
                store: self.clone(),
                bytes,
            })),
            Err(_) => Err(bytes),
        }
    }

    /// The maximum length of an arriving body that is kept for other readers. A longer one is only forwarded.
    pub fn body_len_max(&self) -> u64 {
        (self.arriving_bytes_max * ARRIVING_SHARE / BODY_SHARE).max(BODY_LEN_MIN)
    }

    /// The maximum length of a body that is stored in memory. A longer one is kept for other readers only while it
    /// arrives.
    pub fn object_len_max(&self) -> u64 {
        self.entry_len_max.saturating_sub(OBJECT_OVERHEAD)
    }

    /// Whether a thread has panicked while it changed the table of objects or the arena, which may be inconsistent then.
    pub fn is_poisoned(&self) -> bool {
        let is_arena_poisoned = self.arena.as_ref().is_some_and(|arena| arena.is_poisoned());
        is_arena_poisoned || self.shards.iter().any(Mutex::is_poisoned)
    }

    /// Whether the store can hold anything.
    pub fn has_arena(&self) -> bool {
        self.arena.is_some()
    }

    /// Allocates space in the arena, with evictions if needed. `None` if there is no space now.
    pub fn allocate(&self, hash: u64, len: usize) -> Option<BlockDraft> {
        let arena = self.arena.as_ref()?;
        let draft = self.allocate_in(arena, hash, len);
        if draft.is_none() {
            self.unplaced.fetch_add(1, Relaxed);
        }
        draft
    }

    fn allocate_in(&self, arena: &Arc<ResponseArena>, hash: u64, len: usize) -> Option<BlockDraft> {
        let mut largest_free = arena.largest_free();
        let mut futile_evictions = 0;
        loop {
            if let Some(draft) = arena.allocate(len) {
                return Some(draft);
            }
            // While slow clients receive evicted bytes, these stay allocated, so more evictions would free no space.
            if futile_evictions == FUTILE_EVICTIONS_MAX {
                return None;
            }
            drop(self.shard(hash).evict_one()?);
            let free_after = arena.largest_free();
            futile_evictions = if free_after > largest_free {
                0
            } else {
                futile_evictions + 1
            };
            largest_free = free_after;
        }
    }

    /// Deletes all objects with keys for which `keep` is false. Unlike a purge, this does not affect fetches in flight.
    pub fn retain(&self, keep: impl Fn(&[u8]) -> bool) {
        for shard in &self.shards {
            let mut dropped = Vec::new();
            lock(shard).retain(|entry| keep(entry.base.key()), &mut dropped);
        }
    }

    /// The counters of each shard, and the arena's bytes in use.
    pub fn counters(&self) -> (Vec<StoreCounters>, u64) {
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
    fn shard(&self, hash: u64) -> MutexGuard<'_, CacheStore<VariantSet>> {
        // The high bits of the hash select the shard, since the shard's table uses the low ones.
        let at = (hash >> 48) % self.shards.len() as u64;
        lock(&self.shards[at as usize])
    }
}

/// Bytes together with their memory reservation.
struct MemoryReservation {
    store: Arc<SharedStore>,
    bytes: bytes::Bytes,
}

impl AsRef<[u8]> for MemoryReservation {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        let len = self.bytes.len() as u64;
        self.store.arriving_bytes.fetch_sub(len, Relaxed);
    }
}

#[cfg(test)]
mod tests;
