//! [`DiskStore`]: look-ups, removals and the reservation of space. Objects are written by `writer`.
//!
//! Lock order: journal, then state. The journal's lock is held while an entry is appended and applied to the index, so
//! that both have the same order. The state's lock is held for a few operations in memory and never during file
//! operations.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::counters::{DiskCounters, DiskTallies, count};
use crate::files::{DiskFolder, SegmentFiles};
use crate::index::IndexEntry;
use crate::journal::{IndexJournal, segment_name};
use crate::log::JournalEntry;
use crate::record::{RecordHead, RecordSeed};
use crate::segments::{DiskState, RecordLocation};

const READ_LEN: u64 = 256 * 1024;
/// A body may be as long as the capacity divided by this.
const LARGEST_SHARE: u64 = 4;
/// A body at least as long as the segment length divided by this gets its own segment.
const SOLE_SHARE: u64 = 4;

/// The size of a store.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// The maximum length of all segments in bytes. Journal and checkpoint are not included: they take 40 bytes per
    /// object, and twice that while a checkpoint is written.
    pub capacity_bytes: u64,
    /// The length of a segment in bytes. Each segment is an open file; with large objects, which have their own
    /// segments, there may be four times as many.
    pub segment_bytes: u64,
}

impl DiskOptions {
    /// The options for a capacity: 64 segments of 64 MiB to 1 GiB each, but smaller segments if there would be fewer
    /// than eight.
    pub fn with_capacity(capacity_bytes: u64) -> DiskOptions {
        let segment_bytes = (capacity_bytes / 64).clamp(64 << 20, 1 << 30);
        DiskOptions {
            capacity_bytes,
            segment_bytes: segment_bytes.min(capacity_bytes / 8),
        }
    }

    /// The maximum length of a body, in bytes.
    pub fn body_len_max(&self) -> u64 {
        self.capacity_bytes / LARGEST_SHARE
    }
}

/// The current options, which `DiskStore::resize` changes.
pub(crate) struct DiskSizes {
    capacity_bytes: AtomicU64,
    segment_bytes: AtomicU64,
}

impl From<DiskOptions> for DiskSizes {
    fn from(options: DiskOptions) -> DiskSizes {
        DiskSizes {
            capacity_bytes: options.capacity_bytes.into(),
            segment_bytes: options.segment_bytes.into(),
        }
    }
}

/// A store of objects on disk. All clones share one store.
pub struct DiskStore<F: SegmentFiles = DiskFolder>(pub(crate) Arc<DiskContext<F>>);

impl<F: SegmentFiles> Clone for DiskStore<F> {
    fn clone(&self) -> DiskStore<F> {
        DiskStore(Arc::clone(&self.0))
    }
}

/// The state shared by all clones.
pub(crate) struct DiskContext<F: SegmentFiles> {
    pub files: F,
    pub sizes: DiskSizes,
    /// The random number of the store.
    pub seed: u64,
    pub tallies: DiskTallies,
    pub journal: Mutex<IndexJournal<F>>,
    pub state: Mutex<DiskState<F::File>>,
    /// Locked during an eviction, the creation of a segment, or a checkpoint.
    pub maintenance: Mutex<MaintenanceState>,
}

/// The state that the maintenance lock protects.
pub(crate) struct MaintenanceState {
    /// The oldest generation of which there are files.
    pub first_generation: u64,
}

/// The location of a body, for sendfile(2). The body is readable as long as this value exists.
pub struct StoredBody<T> {
    /// The segment's file. It is still readable after its name is removed, and these bytes never change.
    pub file: Arc<T>,
    /// The offset of the body.
    pub offset: u64,
    /// The length of the body in bytes.
    pub len: u64,
}

/// A stored object.
pub struct DiskObject<T> {
    /// The metadata.
    pub meta: Box<[u8]>,
    /// The time after which the object is unusable, ms since 1970.
    pub expires_ms: u64,
    /// The stored body.
    pub body: StoredBody<T>,
}

/// Locks a mutex, and ignores poisoning, because code under the lock can panic only before it changes the state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<F: SegmentFiles> DiskStore<F> {
    /// Whether an object may be stored under a key. Uses memory only and does not block, so workers may call it. A
    /// false positive is rare: it needs another key with the same hash.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        let hash = self.0.hash(key);
        lock(&self.0.state).index.find(hash).is_some()
    }

    /// The object of a key, if it has not expired at `now_ms`. Blocks on the disk; the first look-up after a restart
    /// reads the whole body, to verify it. A damaged object is removed.
    pub fn find(&self, key: &[u8], now_ms: u64) -> Option<DiskObject<F::File>> {
        let object = self.0.find(key, now_ms);
        let tallies = &self.0.tallies;
        count(if object.is_some() {
            &tallies.hits
        } else {
            &tallies.misses
        });
        object
    }

    /// Removes the object of a key. Returns whether there was one. Blocks on the disk.
    ///
    /// # Errors
    /// The removal could not be written. The object can't be found any more, but reappears after a restart, unless the
    /// removal is written successfully with a later entry.
    pub fn remove(&self, key: &[u8]) -> io::Result<bool> {
        let hash = self.0.hash(key);
        // If another key has the same hash, its object is removed instead, which is rare and costs only a fetch.
        let Some((_, entry)) = lock(&self.0.state).index.find(hash) else {
            return Ok(false);
        };
        let removed = self.0.remove(&entry, true);
        count(&self.0.tallies.removed);
        removed.map(|()| true)
    }

    /// The counters. Does not block.
    pub fn counters(&self) -> DiskCounters {
        let state = lock(&self.0.state);
        DiskCounters {
            objects: state.index.objects() as u64,
            segment_bytes: state.used_bytes(),
            segments: state.segments() as u64,
            index_bytes: state.index.memory_bytes() as u64,
            ..self.0.tallies.read()
        }
    }

    /// The current options.
    pub fn options(&self) -> DiskOptions {
        self.0.options()
    }

    /// Changes the options. Does not block: if the store exceeds the new capacity, `DiskStore::shrink` or the next
    /// write evicts segments.
    pub fn resize(&self, options: DiskOptions) {
        let sizes = &self.0.sizes;
        sizes.capacity_bytes.store(options.capacity_bytes, Relaxed);
        sizes.segment_bytes.store(options.segment_bytes, Relaxed);
        lock(&self.0.state).close_full(options.segment_bytes);
    }

    /// Evicts the oldest segment if the store exceeds its capacity. The segment's used objects are rewritten before; if
    /// it is the last segment, as many of its objects as fit. Returns whether the capacity may still be exceeded.
    /// Blocks on the disk.
    ///
    /// # Errors
    /// An object can't be rewritten.
    pub fn shrink(&self) -> io::Result<bool> {
        self.0.shrink()
    }

    /// Counts a hit of an object that the caller found earlier and still uses. Does not block.
    pub fn touch(&self, key: &[u8]) {
        let hash = self.0.hash(key);
        let mut state = lock(&self.0.state);
        if let Some((slot, _)) = state.index.find(hash) {
            state.index.hit(slot);
        }
    }
}

impl<F: SegmentFiles> DiskContext<F> {
    /// The current options.
    pub fn options(&self) -> DiskOptions {
        DiskOptions {
            capacity_bytes: self.sizes.capacity_bytes.load(Relaxed),
            segment_bytes: self.sizes.segment_bytes.load(Relaxed),
        }
    }

    pub fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed)
    }

    pub fn origin(&self, segment: u32, offset: u64) -> RecordSeed {
        RecordSeed {
            store: self.seed,
            segment,
            offset,
        }
    }

    fn find(&self, key: &[u8], now_ms: u64) -> Option<DiskObject<F::File>> {
        let hash = self.hash(key);
        // The file is cloned under the lock, so that reads succeed even if the segment is dropped in the meantime.
        let (slot, entry, file) = {
            let mut state = lock(&self.state);
            let (slot, entry) = state.index.find(hash)?;
            state.index.hit(slot);
            let file = Arc::clone(&state.segment(entry.segment)?.file);
            (slot, entry, file)
        };
        let mut bytes = Vec::new();
        let head = self.read_head(&entry, &file, &mut bytes)?;
        // The object may belong to another key with the same hash.
        if head.key != key {
            return None;
        }
        if head.expires_ms <= now_ms {
            let _ = self.remove(&entry, false); // a failed one is tried again
            return None;
        }
        if !entry.is_verified() {
            self.verify(slot, &entry, &file, head.body_check)?;
        }
        Some(DiskObject {
            meta: head.meta.into(),
            expires_ms: head.expires_ms,
            body: StoredBody {
                file,
                offset: entry.body_offset(),
                len: entry.body_len,
            },
        })
    }

    /// Reads the head of an object; a damaged object is removed.
    pub fn read_head<'a>(
        &self,
        entry: &IndexEntry,
        file: &F::File,
        bytes: &'a mut Vec<u8>,
    ) -> Option<RecordHead<'a>> {
        bytes.clear();
        bytes.resize(entry.head_len() as usize, 0);
        if self.files.read_all(file, bytes, entry.offset()).is_err() {
            count(&self.tallies.read_errors);
            let _ = self.remove(entry, false);
            return None;
        }
        let head = RecordHead::decode(bytes, self.origin(entry.segment, entry.offset())).ok();
        let seed = self.seed;
        let right = |head: &RecordHead<'_>| {
            head.body_len == entry.body_len && xxh3_64_with_seed(head.key, seed) == entry.hash
        };
        let head = head.filter(right);
        if head.is_none() {
            self.remove_damaged(entry);
        }
        head
    }

    /// Verifies a body that an earlier process wrote; a damaged object is removed.
    pub fn verify(&self, slot: u32, entry: &IndexEntry, file: &F::File, check: u64) -> Option<()> {
        let mut sum = Xxh3::new();
        let read = self.each_block(entry, file, |_, bytes| {
            sum.update(bytes);
            Ok(())
        });
        if read.is_err() {
            count(&self.tallies.read_errors);
            let _ = self.remove(entry, false);
            return None;
        }
        if sum.digest() != check {
            self.remove_damaged(entry);
            return None;
        }
        lock(&self.state).index.set_verified(slot, entry);
        Some(())
    }

    /// Reads a body from start to end, in blocks.
    pub fn each_block(
        &self,
        entry: &IndexEntry,
        file: &F::File,
        mut visit: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut block = vec![0; usize::try_from(entry.body_len.min(READ_LEN)).unwrap_or(0)];
        let mut read_len = 0;
        while read_len < entry.body_len {
            let len = usize::try_from((entry.body_len - read_len).min(READ_LEN)).unwrap_or(0);
            self.files
                .read_all(file, &mut block[..len], entry.body_offset() + read_len)?;
            visit(read_len, &block[..len])?;
            read_len += len as u64;
        }
        Ok(())
    }

    pub fn remove_damaged(&self, entry: &IndexEntry) {
        let current = lock(&self.state).index.find(entry.hash);
        // During the read, the segment may have been dropped, or the object replaced.
        if current.is_some_and(|(_, current)| current.has_same_record(entry)) {
            count(&self.tallies.corrupt);
            let _ = self.remove(entry, false);
        }
    }

    /// Removes an object if it is still in the index; with `even_newer`, also a newer one with the same hash.
    pub fn remove(&self, entry: &IndexEntry, even_newer: bool) -> io::Result<()> {
        // The journal is locked before the state, and during both changes, so that both have the same order.
        let mut journal = lock(&self.journal);
        let current = lock(&self.state).index.find(entry.hash);
        if !current.is_some_and(|(_, current)| even_newer || current.has_same_record(entry)) {
            return Ok(());
        }
        let written = self.append(&mut journal, JournalEntry::Remove(entry.hash));
        // Removed from the index even if the journal can't be written: an invalidated object must not be served.
        let idle = lock(&self.state).remove(entry.hash);
        drop(journal);
        self.discard_idle(idle);
        written
    }

    /// Makes a written object visible. If `expected` is given, the object must replace this entry; returns false if
    /// `expected` is no longer in the index.
    pub fn commit_entry(
        &self,
        entry: IndexEntry,
        expected: Option<&IndexEntry>,
    ) -> io::Result<bool> {
        let mut journal = lock(&self.journal);
        if let Some(expected) = expected {
            let current = lock(&self.state).index.find(entry.hash);
            if !current.is_some_and(|(_, current)| current.has_same_record(expected)) {
                return Ok(false);
            }
        }
        // The journal is written before the index, so that only objects that survive a crash become visible.
        self.append(&mut journal, JournalEntry::Put(entry))?;
        let idle = lock(&self.state).insert(entry.verified());
        drop(journal);
        self.discard_idle(idle);
        Ok(true)
    }

    fn append(&self, journal: &mut IndexJournal<F>, entry: JournalEntry) -> io::Result<()> {
        let written = journal.append(&self.files, entry);
        if let Err(error) = &written {
            count(&self.tallies.journal_errors);
            self.count_disk_full(error);
        }
        written
    }

    /// Reserves space for a record, with evictions if needed.
    pub fn reserve(&self, head_len: u64, body_len: u64) -> io::Result<RecordLocation<F::File>> {
        // Long bodies get their own segment, so that evicting them needs no rewrites of other objects.
        let is_sole = self.is_sole(body_len);
        let segment_bytes = self.options().segment_bytes;
        let try_reserve = || {
            let mut state = lock(&self.state);
            let room = self.has_room(&state, body_len + head_len);
            (room && !is_sole).then(|| state.reserve(head_len, body_len, segment_bytes))?
        };
        if let Some(location) = try_reserve() {
            return Ok(location);
        }
        // Only one thread makes room at a time; the others then use the segment that it added.
        let _maintenance_guard = lock(&self.maintenance);
        self.make_room(head_len + body_len)?;
        if let Some(location) = try_reserve() {
            return Ok(location); // another thread has made room in the meantime
        }
        self.reserve_new_segment(head_len, body_len, is_sole)
    }

    /// Reserves a separate segment for a record.
    pub fn reserve_sole(
        &self,
        head_len: u64,
        body_len: u64,
    ) -> io::Result<RecordLocation<F::File>> {
        let _maintenance_guard = lock(&self.maintenance);
        self.make_room(head_len + body_len)?;
        self.reserve_new_segment(head_len, body_len, true)
    }

    /// Whether a body gets its own segment.
    pub fn is_sole(&self, body_len: u64) -> bool {
        body_len >= self.options().segment_bytes / SOLE_SHARE
    }

    pub fn reserve_new_segment(
        &self,
        head_len: u64,
        body_len: u64,
        is_sole: bool,
    ) -> io::Result<RecordLocation<F::File>> {
        let id = lock(&self.state).new_id();
        // Created while the state is not locked, since look-ups need that lock.
        let created = self.files.create(&segment_name(id, is_sole));
        let file = created.inspect_err(|error| self.count_write_error(error))?;
        let (idle, location) = {
            let mut state = lock(&self.state);
            state.add(id, file, is_sole);
            // Reserved under the same lock, since a segment without writers could be dropped as idle.
            let location = state.extend(id, head_len, body_len);
            // A sole segment gets no further records.
            let idle = if is_sole { None } else { state.activate(id) };
            (idle, location)
        };
        self.discard_idle(idle);
        location.ok_or_else(|| io::ErrorKind::StorageFull.into())
    }

    /// Ends a writer's use of a reserved location.
    pub fn release(&self, location: &RecordLocation<F::File>, is_committed: bool) {
        let idle = lock(&self.state).release(location, is_committed);
        self.discard_idle(idle.then_some(location.segment));
    }

    /// Writes to a reserved location; after a failure, the segment gets no more records.
    pub fn write(
        &self,
        location: &RecordLocation<F::File>,
        bytes: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        let written = self.files.write_all(&location.file, bytes, offset);
        written.inspect_err(|error| {
            self.count_write_error(error);
            lock(&self.state).close_segment(location.segment);
        })
    }

    pub fn drop_segment(&self, id: u32) {
        let (dropped, is_sole) = {
            let mut state = lock(&self.state);
            let is_sole = state.segment(id).is_some_and(|segment| segment.is_sole);
            (state.drop_segment(id), is_sole)
        };
        // Another thread has already dropped the segment.
        let Some(dropped) = dropped else { return };
        self.tallies.evicted.fetch_add(u64::from(dropped), Relaxed);
        // A file that can't be removed now is removed at the next start.
        if self.files.remove(&segment_name(id, is_sole)).is_err() {
            count(&self.tallies.write_errors);
        }
    }

    /// Drops a segment if it has neither objects nor writers.
    fn discard_idle(&self, id: Option<u32>) {
        let Some(id) = id else { return };
        // Checked again, since a writer may have reserved space in the meantime.
        let is_idle = lock(&self.state).idle().contains(&id);
        if is_idle {
            self.drop_segment(id);
        }
    }

    fn count_write_error(&self, error: &io::Error) {
        count(&self.tallies.write_errors);
        self.count_disk_full(error);
    }

    fn count_disk_full(&self, error: &io::Error) {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        if full.contains(&error.kind()) {
            count(&self.tallies.disk_full);
        }
    }
}

/// Sets the location of an entry's record.
pub(crate) fn set_entry_location<T>(
    entry: &mut IndexEntry,
    location: &RecordLocation<T>,
) -> io::Result<()> {
    entry.segment = location.segment;
    let units = location.offset / crate::record::UNIT;
    entry.offset_units = u32::try_from(units).map_err(|_| io::ErrorKind::FileTooLarge)?;
    Ok(())
}
