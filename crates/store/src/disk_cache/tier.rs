//! [`DiskCache`]: the disk cache with its threads and counters.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, RwLock};

use lowroad_disk::{DiskCounters, DiskFolder, DiskOptions, DiskStore, FolderLease};
use lowroad_engine::helper_pool::HelperPool;

use super::key::PrimaryKey;
use super::leaving::EvictionQueue;
use super::meta::ClockReading;
use super::purges::PurgeLog;
use super::unfinished_body::LateReaders;
use super::writings::WriteTable;

/// The number of writer threads.
const WRITERS: usize = 2;

/// The disk cache, searched after the store in memory.
pub struct DiskCache {
    /// The right to change the folder.
    lease: FolderLease,
    pub(super) store: DiskStore,
    /// The threads that remove objects and write updates.
    pub(super) helpers: HelperPool,
    /// The threads that write bodies, and nothing else, so that a slow disk does not delay readers.
    pub(super) writers: HelperPool,
    /// Readers of bodies that are being written.
    pub(super) late: Arc<LateReaders>,
    pub(super) purges: PurgeLog,
    /// Wakes the thread that writes purges.
    pub(super) purge_sender: Sender<SaveCallback>,
    /// Bodies being written.
    pub(super) active_writes: WriteTable,
    /// Read-locked between the check of an object against purges and its commit. Workers never lock it.
    pub(super) commit_lock: RwLock<()>,
    /// The deleted keys with objects that are not removed from disk yet.
    pub(super) deletions: Mutex<Vec<DeletionQueue>>,
    /// Recalled objects that will be removed from memory.
    pub(super) eviction_queue: EvictionQueue,
    /// The next number for a resource with variants or for a body. Starts above the numbers of earlier runs.
    pub(super) numbers: AtomicU64,
    pub(super) errors: AtomicU64,
    /// Responses that were not written: too long, already being written, or too many at a time.
    pub(super) refused: AtomicU64,
    /// Responses in memory that were not copied because they expire too soon.
    pub(super) skipped: AtomicU64,
}

/// A callback that receives whether purges are durable; `None` requests a save without a callback.
pub type SaveCallback = Option<Box<dyn FnOnce(bool) + Send>>;

/// The queue of callbacks that wait until purges are durable.
pub struct PurgeWaiters(pub(super) Receiver<SaveCallback>);

impl DiskCache {
    /// Opens the disk cache in a folder that the caller has locked. Blocks on the disk.
    ///
    /// # Errors
    /// The folder can't be read or written.
    pub fn open(
        folder: DiskFolder,
        path: &Path,
        len_max: u64,
        helpers: HelperPool,
    ) -> io::Result<(Arc<DiskCache>, PurgeWaiters)> {
        let (purge_sender, waiters) = channel();
        let lease = folder.lease();
        let tier = DiskCache {
            lease: lease.clone(),
            store: DiskStore::open(folder, DiskOptions::with_capacity(len_max))?,
            helpers,
            writers: HelperPool::start_as("disk-cache", WRITERS)?,
            late: LateReaders::start()?,
            purges: PurgeLog::open(path, lease, ClockReading::read())?,
            purge_sender,
            active_writes: WriteTable::default(),
            commit_lock: RwLock::default(),
            deletions: Mutex::default(),
            eviction_queue: EvictionQueue::default(),
            numbers: AtomicU64::new(crate::clock::unix_ns() as u64),
            errors: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
        };
        Ok((Arc::new(tier), PurgeWaiters(waiters)))
    }

    /// Finishes pending writes, and releases the folder to another process. Later writes fail; bodies in transmission stay
    /// readable. Blocks on the disk.
    pub fn release(&self) {
        self.finish_pending();
        if self
            .store
            .sync()
            .and_then(|()| self.lease.release())
            .is_err()
        {
            self.count_error();
        }
    }

    /// Whether the disk may have an object under a key. Does not block, so workers may call it.
    pub fn may_contain(&self, primary: &[u8]) -> bool {
        self.store.may_contain(primary)
    }

    /// The maximum length of a body that is stored.
    pub fn body_len_max(&self) -> u64 {
        self.store.options().body_len_max()
    }

    /// The counters of the disk store, and the number of errors of this disk cache.
    pub fn counters(&self) -> (DiskCounters, u64) {
        (self.store.counters(), self.errors.load(Relaxed))
    }

    /// The numbers of responses that were not written: refused ones, and those in memory that expire too soon.
    pub fn unwritten(&self) -> (u64, u64) {
        (self.refused.load(Relaxed), self.skipped.load(Relaxed))
    }

    /// Counts a response that expires too soon to be copied.
    pub fn count_skipped(&self) {
        self.skipped.fetch_add(1, Relaxed);
    }

    /// The numbers of readers of unfinished bodies: admitted and refused.
    pub fn late_readers(&self) -> (u64, u64) {
        let late = &self.late;
        (late.admitted.load(Relaxed), late.refused.load(Relaxed))
    }

    /// A number that was never returned before, not by earlier processes either.
    pub fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    pub(super) fn count_error(&self) {
        self.errors.fetch_add(1, Relaxed);
    }
}

/// A deleted key with objects that are not removed from disk yet.
pub struct DeletionQueue {
    pub(super) primary: PrimaryKey,
    /// The helpers' queue was full, so the maintenance thread must remove the objects.
    pub(super) is_overdue: bool,
}

impl DeletionQueue {
    pub(super) fn is_for(&self, primary: &PrimaryKey, is_overdue: bool) -> bool {
        self.primary == *primary && self.is_overdue == is_overdue
    }
}
