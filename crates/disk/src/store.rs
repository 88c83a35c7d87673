//! The store: finds, removes, and makes room. What is written comes from `writer`.
//!
//! Two locks. The journal's is held while a step is appended and the index follows it, so that both have the same order.
//! The state's is held for a few steps in memory and never while a file is touched. Who has the journal may take the state,
//! never the other way round.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::counters::{Counters, Counting, count};
use crate::files::{Files, Folder};
use crate::index::Entry;
use crate::journal::{Journal, segment_name};
use crate::log::Step;
use crate::record::{Head, Origin};
use crate::segments::{Place, State};

const READ_LEN: u64 = 256 * 1024;
/// A body may take this share of the capacity.
const LARGEST_SHARE: u64 = 4;
/// A body that would take this share of a segment gets a segment of its own.
const SOLE_SHARE: u64 = 4;

/// How large a store is.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes that segments may take. Journal and checkpoint come on top: 40 bytes an object, twice that while a
    /// checkpoint is written.
    pub capacity_bytes: u64,
    /// Length of a segment in bytes. One file is open for each, and up to four times as many for large objects.
    pub segment_bytes: u64,
}

impl Options {
    /// Those for a capacity: 64 segments, of 64 MiB to 1 GiB each; smaller ones, if there would be fewer than eight.
    pub fn of_capacity(capacity_bytes: u64) -> Options {
        let segment_bytes = (capacity_bytes / 64).clamp(64 << 20, 1 << 30);
        Options {
            capacity_bytes,
            segment_bytes: segment_bytes.min(capacity_bytes / 8),
        }
    }

    /// The longest body, in bytes.
    pub fn body_len_max(&self) -> u64 {
        self.capacity_bytes / LARGEST_SHARE
    }
}

/// The options now: [`Store::resize`] changes them.
pub(crate) struct Sizes {
    capacity_bytes: AtomicU64,
    segment_bytes: AtomicU64,
}

impl From<Options> for Sizes {
    fn from(options: Options) -> Sizes {
        Sizes {
            capacity_bytes: options.capacity_bytes.into(),
            segment_bytes: options.segment_bytes.into(),
        }
    }
}

/// A store; clones are the same one.
pub struct Store<F: Files = Folder>(pub(crate) Arc<Shared<F>>);

impl<F: Files> Clone for Store<F> {
    fn clone(&self) -> Store<F> {
        Store(Arc::clone(&self.0))
    }
}

/// What all clones share.
pub(crate) struct Shared<F: Files> {
    pub files: F,
    pub sizes: Sizes,
    /// The store's own random number.
    pub seed: u64,
    pub counting: Counting,
    pub journal: Mutex<Journal<F>>,
    pub state: Mutex<State<F::File>>,
    /// Who makes room, a new segment or a checkpoint.
    pub upkeep: Mutex<Upkeep>,
}

/// What only who holds it may do.
pub(crate) struct Upkeep {
    /// The oldest generation of which there are files.
    pub first_generation: u64,
}

/// Where a body lies: it can be sent from there by sendfile, as long as it is held.
pub struct Body<T> {
    /// The segment. It may be removed meanwhile and stays readable; what lies here never changes.
    pub file: Arc<T>,
    /// Where the body begins.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// An object.
pub struct Found<T> {
    /// What was kept beside the body.
    pub meta: Box<[u8]>,
    /// When it is of no use any more, ms since 1970.
    pub expires_ms: u64,
    /// The body.
    pub body: Body<T>,
}

/// Locks; who panicked while it had a lock did so before it changed anything.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<F: Files> Store<F> {
    /// Whether there may be something under a key. Looks into memory only and does not block: for workers, before they
    /// ask a helper. Rarely it is another key's.
    pub fn may_have(&self, key: &[u8]) -> bool {
        let hash = self.0.hash(key);
        lock(&self.0.state).index.find(hash).is_some()
    }

    /// The object under a key that is of use at `now_ms`. Blocks on the disk; after a restart, on all of the body once.
    /// What is found damaged goes.
    pub fn find(&self, key: &[u8], now_ms: u64) -> Option<Found<F::File>> {
        let found = self.0.find(key, now_ms);
        let counting = &self.0.counting;
        count(if found.is_some() {
            &counting.hits
        } else {
            &counting.misses
        });
        found
    }

    /// Removes what is under a key. Whether there was something. Blocks on the disk.
    ///
    /// # Errors
    /// When it could not be written down: it is gone now, but comes back after a restart unless the disk
    /// recovers before.
    pub fn remove(&self, key: &[u8]) -> io::Result<bool> {
        let hash = self.0.hash(key);
        // Other key's objects under this hash go along: that is rare, and they were only stored.
        let Some((_, entry)) = lock(&self.0.state).index.find(hash) else {
            return Ok(false);
        };
        let removed = self.0.remove(&entry, true);
        count(&self.0.counting.removed);
        removed.map(|()| true)
    }

    /// What it did, and what it has. Does not block.
    pub fn counters(&self) -> Counters {
        let state = lock(&self.0.state);
        Counters {
            objects: state.index.objects() as u64,
            segment_bytes: state.used_bytes(),
            segments: state.segments() as u64,
            index_bytes: state.index.memory_bytes() as u64,
            ..self.0.counting.read()
        }
    }

    /// How large it is.
    pub fn options(&self) -> Options {
        self.0.options()
    }

    /// Changes the maximum size. Does not block: [`Store::shrink`], or the next object that needs room, removes the excess.
    pub fn resize(&self, options: Options) {
        let sizes = &self.0.sizes;
        sizes.capacity_bytes.store(options.capacity_bytes, Relaxed);
        sizes.segment_bytes.store(options.segment_bytes, Relaxed);
        lock(&self.0.state).seal_full(options.segment_bytes);
    }

    /// Drops the oldest segment if the store is larger than it may be; what was used in it stays, and of the last one what
    /// there is room for. Whether there may be more to drop. Blocks on the disk.
    ///
    /// # Errors
    /// When what stays can't be moved.
    pub fn shrink(&self) -> io::Result<bool> {
        self.0.shrink()
    }

    /// Counts a use of the object under a key that was found before and read elsewhere since. Does not block.
    pub fn touch(&self, key: &[u8]) {
        let hash = self.0.hash(key);
        let mut state = lock(&self.0.state);
        if let Some((slot, _)) = state.index.find(hash) {
            state.index.hit(slot);
        }
    }
}

impl<F: Files> Shared<F> {
    /// How large it is now.
    pub fn options(&self) -> Options {
        Options {
            capacity_bytes: self.sizes.capacity_bytes.load(Relaxed),
            segment_bytes: self.sizes.segment_bytes.load(Relaxed),
        }
    }

    pub fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed)
    }

    pub fn origin(&self, segment: u32, offset: u64) -> Origin {
        Origin {
            store: self.seed,
            segment,
            offset,
        }
    }

    fn find(&self, key: &[u8], now_ms: u64) -> Option<Found<F::File>> {
        let hash = self.hash(key);
        let (slot, entry, file) = {
            let mut state = lock(&self.state);
            let (slot, entry) = state.index.find(hash)?;
            state.index.hit(slot);
            let file = Arc::clone(&state.segment(entry.segment)?.file);
            (slot, entry, file)
        };
        let mut bytes = Vec::new();
        let head = self.read_head(&entry, &file, &mut bytes)?;
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
        Some(Found {
            meta: head.meta.into(),
            expires_ms: head.expires_ms,
            body: Body {
                file,
                offset: entry.body_at(),
                len: entry.body_len,
            },
        })
    }

    /// Reads the head of an object; one that is damaged goes.
    pub fn read_head<'a>(
        &self,
        entry: &Entry,
        file: &F::File,
        bytes: &'a mut Vec<u8>,
    ) -> Option<Head<'a>> {
        bytes.clear();
        bytes.resize(entry.head_len() as usize, 0);
        if self.files.read_all(file, bytes, entry.offset()).is_err() {
            count(&self.counting.read_errors);
            let _ = self.remove(entry, false);
            return None;
        }
        let head = Head::decode(bytes, self.origin(entry.segment, entry.offset())).ok();
        let seed = self.seed;
        let right = |head: &Head<'_>| {
            head.body_len == entry.body_len && xxh3_64_with_seed(head.key, seed) == entry.hash
        };
        let head = head.filter(right);
        if head.is_none() {
            self.damaged(entry);
        }
        head
    }

    /// Reads a body that was written by an earlier process; one that is damaged goes.
    pub fn verify(&self, slot: u32, entry: &Entry, file: &F::File, check: u64) -> Option<()> {
        let mut sum = Xxh3::new();
        let read = self.each_block(entry, file, |_, bytes| {
            sum.update(bytes);
            Ok(())
        });
        if read.is_err() {
            count(&self.counting.read_errors);
            let _ = self.remove(entry, false);
            return None;
        }
        if sum.digest() != check {
            self.damaged(entry);
            return None;
        }
        lock(&self.state).index.set_verified(slot, entry);
        Some(())
    }

    /// Reads a body from its start to its end.
    pub fn each_block(
        &self,
        entry: &Entry,
        file: &F::File,
        mut act: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut block = vec![0; usize::try_from(entry.body_len.min(READ_LEN)).unwrap_or(0)];
        let mut done = 0;
        while done < entry.body_len {
            let len = usize::try_from((entry.body_len - done).min(READ_LEN)).unwrap_or(0);
            self.files
                .read_all(file, &mut block[..len], entry.body_at() + done)?;
            act(done, &block[..len])?;
            done += len as u64;
        }
        Ok(())
    }

    pub fn damaged(&self, entry: &Entry) {
        let now = lock(&self.state).index.find(entry.hash);
        // Its segment may have gone, or a newer object have come, while it was read.
        if now.is_some_and(|(_, now)| now.is_at(entry)) {
            count(&self.counting.corrupt);
            let _ = self.remove(entry, false);
        }
    }

    /// Removes an object if it still is this one, or else any under its hash if `even_newer`.
    pub fn remove(&self, entry: &Entry, even_newer: bool) -> io::Result<()> {
        let mut journal = lock(&self.journal);
        let now = lock(&self.state).index.find(entry.hash);
        if !now.is_some_and(|(_, now)| even_newer || now.is_at(entry)) {
            return Ok(());
        }
        let written = self.append(&mut journal, Step::Remove(entry.hash));
        let idle = lock(&self.state).remove(entry.hash);
        drop(journal);
        self.discard_idle(idle);
        written
    }

    /// Makes an object visible that was written. `before` is what it takes the place of, if that matters; false if it
    /// is gone.
    pub fn put(&self, entry: Entry, before: Option<&Entry>) -> io::Result<bool> {
        let mut journal = lock(&self.journal);
        if let Some(before) = before {
            let now = lock(&self.state).index.find(entry.hash);
            if !now.is_some_and(|(_, now)| now.is_at(before)) {
                return Ok(false);
            }
        }
        self.append(&mut journal, Step::Put(entry))?;
        let idle = lock(&self.state).put(entry.verified());
        drop(journal);
        self.discard_idle(idle);
        Ok(true)
    }

    fn append(&self, journal: &mut Journal<F>, step: Step) -> io::Result<()> {
        let written = journal.append(&self.files, step);
        if let Err(error) = &written {
            count(&self.counting.journal_errors);
            self.note_full(error);
        }
        written
    }

    /// A place for a record, when there is room for it.
    pub fn reserve(&self, head_len: u64, body_len: u64) -> io::Result<Place<F::File>> {
        let is_sole = self.is_sole(body_len);
        let segment_bytes = self.options().segment_bytes;
        let take = || {
            let mut state = lock(&self.state);
            let room = self.has_room(&state, body_len + head_len);
            (room && !is_sole).then(|| state.take(head_len, body_len, segment_bytes))?
        };
        if let Some(place) = take() {
            return Ok(place);
        }
        let _upkeep = lock(&self.upkeep);
        self.make_room(head_len + body_len)?;
        if let Some(place) = take() {
            return Ok(place); // another made it meanwhile
        }
        self.new_place(head_len, body_len, is_sole)
    }

    /// A segment of its own for a record.
    pub fn reserve_sole(&self, head_len: u64, body_len: u64) -> io::Result<Place<F::File>> {
        let _upkeep = lock(&self.upkeep);
        self.make_room(head_len + body_len)?;
        self.new_place(head_len, body_len, true)
    }

    /// Whether a body gets a segment of its own.
    pub fn is_sole(&self, body_len: u64) -> bool {
        body_len >= self.options().segment_bytes / SOLE_SHARE
    }

    pub fn new_place(
        &self,
        head_len: u64,
        body_len: u64,
        is_sole: bool,
    ) -> io::Result<Place<F::File>> {
        let id = lock(&self.state).new_id();
        let created = self.files.create(&segment_name(id, is_sole));
        let file = created.inspect_err(|error| self.note_write_error(error))?;
        let (idle, place) = {
            let mut state = lock(&self.state);
            state.add(id, file, is_sole);
            // The writer's place comes first: a segment without one could be dropped as idle.
            let place = state.extend(id, head_len, body_len);
            let idle = if is_sole { None } else { state.activate(id) };
            (idle, place)
        };
        self.discard_idle(idle);
        place.ok_or_else(|| io::ErrorKind::StorageFull.into())
    }

    /// A writer needs its place no more.
    pub fn release(&self, place: &Place<F::File>, is_committed: bool) {
        let idle = lock(&self.state).release(place, is_committed);
        self.discard_idle(idle.then_some(place.segment));
    }

    /// Writes to a place; a segment to which that fails gets no more.
    pub fn write(&self, place: &Place<F::File>, bytes: &[u8], offset: u64) -> io::Result<()> {
        let written = self.files.write_all(&place.file, bytes, offset);
        written.inspect_err(|error| {
            self.note_write_error(error);
            lock(&self.state).seal(place.segment);
        })
    }

    pub fn drop_segment(&self, id: u32) {
        let (gone, is_sole) = {
            let mut state = lock(&self.state);
            let is_sole = state.segment(id).is_some_and(|segment| segment.is_sole);
            (state.drop_segment(id), is_sole)
        };
        // Another dropped it meanwhile.
        let Some(gone) = gone else { return };
        self.counting.evicted.fetch_add(u64::from(gone), Relaxed);
        // One that stays is removed at the next start.
        if self.files.remove(&segment_name(id, is_sole)).is_err() {
            count(&self.counting.write_errors);
        }
    }

    /// Drops a segment in which nothing is any more.
    fn discard_idle(&self, id: Option<u32>) {
        let Some(id) = id else { return };
        let is_idle = lock(&self.state).idle().contains(&id);
        if is_idle {
            self.drop_segment(id);
        }
    }

    fn note_write_error(&self, error: &io::Error) {
        count(&self.counting.write_errors);
        self.note_full(error);
    }

    fn note_full(&self, error: &io::Error) {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        if full.contains(&error.kind()) {
            count(&self.counting.disk_full);
        }
    }
}

/// Says in an entry where its record is.
pub(crate) fn place_entry<T>(entry: &mut Entry, place: &Place<T>) -> io::Result<()> {
    entry.segment = place.segment;
    let units = place.offset / crate::record::UNIT;
    entry.offset_units = u32::try_from(units).map_err(|_| io::ErrorKind::FileTooLarge)?;
    Ok(())
}
