//! The store on the disk, with its threads and its counters.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, RwLock};

use lowroad_disk::{Counters, Folder, Options, Store};
use lowroad_engine::helpers::Helpers;

use super::key::Primary;
use super::leaving::Leaving;
use super::meta::Now;
use super::purges::PurgeLog;
use super::unfinished::LateReaders;
use super::writings::Writings;

/// Threads that write.
const WRITERS: usize = 2;

/// The store on the disk, and what makes it one with that in memory.
pub struct Tier {
    pub(super) store: Store,
    /// Who removes.
    pub(super) helpers: Helpers,
    /// Who writes bodies, and nothing else: a slow disk holds up nobody who reads.
    pub(super) writers: Helpers,
    /// Who reads what is being written.
    pub(super) late: Arc<LateReaders>,
    pub(super) purges: PurgeLog,
    /// Wakes who writes down purges.
    pub(super) saver: Sender<Told>,
    /// What is being written.
    pub(super) writings: Writings,
    /// Held by who makes something visible, from the last look whether it may. Never locked by workers.
    pub(super) committing: RwLock<()>,
    /// What is forgotten, until it is removed from the disk.
    pub(super) forgetting: Mutex<Vec<Forgotten>>,
    /// What leaves memory soon.
    pub(super) leaving: Leaving,
    /// The next number for a resource that varies, or a body. They begin where no earlier run came to.
    pub(super) numbers: AtomicU64,
    pub(super) errors: AtomicU64,
    /// Responses not written: too long, just being written, or too many at a time.
    pub(super) refused: AtomicU64,
    /// Responses in memory not copied, since they are not of use for long enough.
    pub(super) skipped: AtomicU64,
}

/// Who hears whether purges outlive the process; nobody, if it is empty.
pub type Told = Option<Box<dyn FnOnce(bool) + Send>>;

/// Who waits until purges are kept.
pub struct Unsaved(pub(super) Receiver<Told>);

impl Tier {
    /// Opens the store in a folder that was taken. Blocks on the disk.
    ///
    /// # Errors
    /// When the folder can't be read or written.
    pub fn open(
        (folder, path): (Folder, &Path),
        len_max: u64,
        helpers: Helpers,
    ) -> io::Result<(Arc<Tier>, Unsaved)> {
        let (saver, unsaved) = channel();
        let tier = Tier {
            store: Store::open(folder, Options::of_capacity(len_max))?,
            helpers,
            writers: Helpers::start_as("disk-cache", WRITERS)?,
            late: LateReaders::start()?,
            purges: PurgeLog::open(path, Now::read())?,
            saver,
            writings: Writings::default(),
            committing: RwLock::default(),
            forgetting: Mutex::default(),
            leaving: Leaving::default(),
            numbers: AtomicU64::new(crate::clock::unix_ns() as u64),
            errors: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
        };
        Ok((Arc::new(tier), Unsaved(unsaved)))
    }

    /// Whether there may be something under a key. Does not block: for workers.
    pub fn may_have(&self, primary: &[u8]) -> bool {
        self.store.may_have(primary)
    }

    /// A longer body is not stored.
    pub fn body_len_max(&self) -> u64 {
        self.store.options().body_len_max()
    }

    /// What the disk did and has, and what this has failed at.
    pub fn counters(&self) -> (Counters, u64) {
        (self.store.counters(), self.errors.load(Relaxed))
    }

    /// How many responses were not written: those that were refused, and those in memory that were not worth a copy.
    pub fn unwritten(&self) -> (u64, u64) {
        (self.refused.load(Relaxed), self.skipped.load(Relaxed))
    }

    /// A response is not of use for long enough to be copied.
    pub fn skip(&self) {
        self.skipped.fetch_add(1, Relaxed);
    }

    /// Who has read a body while it was written, and who was one too many for that.
    pub fn late_readers(&self) -> (u64, u64) {
        let late = &self.late;
        (late.begun.load(Relaxed), late.refused.load(Relaxed))
    }

    /// A number that was never given out.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    pub(super) fn failed(&self) {
        self.errors.fetch_add(1, Relaxed);
    }
}

/// What is forgotten, until it is removed.
pub struct Forgotten {
    pub(super) primary: Primary,
    /// No helper had time for it.
    pub(super) is_overdue: bool,
}

impl Forgotten {
    pub(super) fn is(&self, primary: &Primary, is_overdue: bool) -> bool {
        self.primary == *primary && self.is_overdue == is_overdue
    }
}
