//! The account of all spools: resources in use and counters. It is preserved when the configuration is reloaded.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use lowroad_engine::helper_pool::{HelperPool, QUEUE_LEN_MAX};
use lowroad_limits::ConcurrencyLimit;

/// The number of threads for access to spool files. They are separate, so that a slow disk does not block the threads
/// for static files and applications.
const DISK_THREADS: usize = 4;
/// The maximum number of queued jobs of these threads; further jobs wait for a permit.
const DISK_JOBS_MAX: usize = 1024;
const _: () = assert!(DISK_JOBS_MAX <= QUEUE_LEN_MAX);

/// Resources in use and counters of all spools.
pub struct SpoolAccount {
    /// The current number of bytes in files.
    bytes: AtomicU64,
    /// The limit on files, which counts the current ones.
    pub(super) files: Arc<ConcurrencyLimit>,
    /// Request bodies that were spooled to a file.
    pub(super) requests: AtomicU64,
    /// Responses that were buffered for a slow client.
    pub(super) responses: AtomicU64,
    /// Requests that were rejected because of the limits on files or bytes.
    pub(super) refused: AtomicU64,
    /// How often an application had to wait for a slow client because a spool was full.
    pub(super) program_waits: AtomicU64,
    /// Failures of the file system.
    pub(super) failed: AtomicU64,
    /// The permits for jobs of the threads.
    pub(super) job_permits: Arc<ConcurrencyLimit>,
    /// The threads, started when the first file is needed.
    threads: Mutex<Option<HelperPool>>,
}

impl SpoolAccount {
    /// An empty account with a maximum number of files.
    pub fn new(files_max: u64) -> SpoolAccount {
        SpoolAccount {
            bytes: AtomicU64::new(0),
            files: ConcurrencyLimit::new(usize::try_from(files_max).unwrap_or(usize::MAX)),
            requests: AtomicU64::new(0),
            responses: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            program_waits: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            job_permits: ConcurrencyLimit::with_unbounded_queue(DISK_JOBS_MAX),
            threads: Mutex::default(),
        }
    }

    /// All counters with their names.
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        let value = |number: &AtomicU64| number.load(Relaxed);
        vec![
            ("spool_bytes", value(&self.bytes)),
            ("spool_files", self.files.in_use() as u64),
            ("spool_requests", value(&self.requests)),
            ("spool_responses", value(&self.responses)),
            ("spool_refused", value(&self.refused)),
            ("spool_held_back", value(&self.program_waits)),
            ("spool_failed", value(&self.failed)),
        ]
    }

    /// The threads for file access.
    pub(super) fn threads(&self) -> io::Result<HelperPool> {
        // The threads are started under the lock, so that concurrent spools start them only once.
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(threads) = &*threads {
            return Ok(threads.clone());
        }
        let started = HelperPool::start_as("spool", DISK_THREADS)?;
        Ok(threads.insert(started).clone())
    }

    /// Reserves bytes, if they fit into the limit.
    pub(super) fn reserve_bytes(&self, len: u64, len_max: u64) -> bool {
        // An atomic update, so that two spools can't reserve the same remaining bytes.
        let add_within_limit = |used: u64| used.checked_add(len).filter(|sum| *sum <= len_max);
        self.bytes
            .fetch_update(Relaxed, Relaxed, add_within_limit)
            .is_ok()
    }

    /// Frees reserved bytes.
    pub(super) fn release_bytes(&self, len: u64) {
        self.bytes.fetch_sub(len, Relaxed);
    }
}

/// Increments a counter.
pub(super) fn increment(count: &AtomicU64) {
    count.fetch_add(1, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_bytes_and_files_are_limited() {
        let account = SpoolAccount::new(1);
        let file = account.files.try_acquire();
        assert!(file.is_some() && account.files.try_acquire().is_none());
        assert!(account.reserve_bytes(60, 100) && !account.reserve_bytes(41, 100));
        assert!(account.reserve_bytes(40, 100) && !account.reserve_bytes(1, 90));
        assert!(!account.reserve_bytes(u64::MAX, u64::MAX));
        account.release_bytes(100);
        drop(file);
        let list = account.list();
        assert!(list.contains(&("spool_bytes", 0)) && list.contains(&("spool_files", 0)));
        assert!(account.files.try_acquire().is_some());
    }
}
