//! The maintenance thread of the disk cache: removes purged objects, evicts while the maximum size is exceeded, writes
//! checkpoints, removes recalled objects from memory, and logs disk errors.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_disk::{DiskCounters, DiskOptions, WalkCursor};
use lowroad_engine::panic_policy;
use lowroad_log::ErrorLogger;

use super::key;
use super::leaving::{EvictionQueue, segment_of};
use super::meta::{ClockReading, ObjectMeta};
use super::reader::ban;
use super::tier::{DiskCache, PurgeWaiters};
use crate::lock::lock;
use crate::object::DiskSegment;
use crate::purge_rules::BanVerdict;
use crate::shared_store::SharedStore;

/// The interval of maintenance.
const INTERVAL: Duration = Duration::from_secs(1);
/// Disk errors are logged at most once in this time.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// The number of objects that a scan examines in one step.
const SCAN_STEP_LEN: u32 = 1024;
/// The pause between two scans, as a multiple of the duration of the last scan. Purges are effective without a scan.
const SCAN_PAUSE_FACTOR: u32 = 9;

impl EvictionQueue {
    fn remove_expired(&self, store: &SharedStore) {
        while let Some(recent) = self.next() {
            let (hash, key) = (recent.hash, &*recent.key);
            // The object may have been replaced or evicted in the meantime.
            let (Some(segment), Some(entry)) = (recent.segment.upgrade(), store.peek(hash, key))
            else {
                continue;
            };
            let has_segment =
                |variant_segment: &Arc<DiskSegment>| Arc::ptr_eq(variant_segment, &segment);
            let found = entry
                .variants()
                .find(|it| segment_of(it).is_some_and(has_segment));
            if let Some(object) = found {
                store.remove(hash, key, object);
            }
        }
    }

    /// Marks the objects on disk that have their heads in memory as used, so that they are not evicted from the disk.
    fn touch(&self, tier: &DiskCache) {
        let used_segments: Vec<Arc<DiskSegment>> = {
            let recent = lock(&self.0);
            recent
                .iter()
                .filter_map(|it| it.segment.upgrade())
                .collect()
        };
        for segment in used_segments {
            tier.store.touch(&segment.renewable.key);
        }
    }
}

/// When the next scan and report are due, and the counters at the last report.
struct ScanState {
    next_scan: Instant,
    logged: DiskCounters,
    next_report: Instant,
}

impl DiskCache {
    /// Starts the maintenance thread and the thread that writes purges.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn start_maintenance(
        self: &Arc<Self>,
        waiters: PurgeWaiters,
        store: Arc<SharedStore>,
        logger: ErrorLogger,
    ) -> std::io::Result<()> {
        self.start_purge_writer(waiters)?;
        let (tier, now) = (self.clone(), Instant::now());
        let state = Mutex::new(ScanState {
            next_scan: now,
            logged: DiskCounters::default(),
            next_report: now,
        });
        panic_policy::start("disk-cache", move || {
            let mut state = lock(&state);
            loop {
                tier.remove_purged(&store, &mut state.next_scan);
                // Do the deletions for which the helpers' queue had no room.
                tier.remove_overdue();
                tier.eviction_queue.remove_expired(&store);
                // The used objects are marked before `shrink` evicts others, since hits in memory must count on disk,
                // too.
                tier.eviction_queue.touch(&tier);
                tier.shrink();
                if tier.store.wants_checkpoint() {
                    let _ = tier.store.checkpoint(); // counted there
                }
                tier.log_faults(&mut state, &logger);
                thread::sleep(INTERVAL);
            }
        })
    }

    /// Changes the maximum size on disk. Does not block: segments are evicted later, one at a time.
    pub fn resize(&self, len_max: u64) {
        self.store.resize(DiskOptions::with_capacity(len_max));
    }

    /// Evicts a segment if the maximum size is exceeded. Blocks on the disk.
    fn shrink(&self) {
        if self.store.shrink().is_err() {
            self.count_error();
        }
    }

    /// Scans the disk and removes the objects of unfinished purges, unless the next scan is not due yet.
    fn remove_purged(&self, store: &SharedStore, next_scan: &mut Instant) {
        // Read before the scan, since later purges need another scan.
        let generation = store.store_purges().generation();
        let started = Instant::now();
        if started < *next_scan || self.purges.rules().is_empty() {
            return;
        }
        // Objects that were checked against earlier purges must be visible to the scan. Later checks include these
        // purges.
        self.wait_for_commits();
        self.scan(store);
        // The purges may be dropped from the log only when the removals are durable.
        let finished = self
            .store
            .sync()
            .and_then(|()| self.purges.drop_finished(generation));
        if finished.is_err() {
            self.count_error();
        }
        let elapsed = started.elapsed();
        // Scans take at most a tenth of the time, regardless of the rate of purges.
        *next_scan = Instant::now() + elapsed * SCAN_PAUSE_FACTOR;
    }

    fn scan(&self, store: &SharedStore) {
        let (now, scanned) = (ClockReading::read(), self.purges.scanned());
        let mut base_keys = Vec::new();
        let mut is_purged = |key: &[u8], meta: &[u8]| {
            let is_purged = ObjectMeta::decode(meta, now).is_none_or(|meta| {
                let since = meta.generation().max(scanned);
                // Soft-purged objects are removed, too, since they can't be marked as stale on disk.
                ban(store.store_purges(), since, key, meta.lifetime()) != BanVerdict::None
            });
            base_keys.extend(key::base_key(key).filter(|_| is_purged));
            is_purged
        };
        let mut cursor = WalkCursor::default();
        while self.store.purge(&mut cursor, SCAN_STEP_LEN, &mut is_purged) {}
        // If an update was purged, its response is removed, too.
        for key in base_keys {
            let _ = self.store.remove(&key); // counted there
        }
    }

    /// Logs the disk errors since the last report.
    fn log_faults(&self, state: &mut ScanState, logger: &ErrorLogger) {
        let now = Instant::now();
        let (counters, logged) = (self.store.counters(), state.logged);
        if now < state.next_report {
            return;
        }
        let new_faults = [
            (
                counters.disk_full - logged.disk_full,
                "writes failed because the disk is full: responses are cached without it",
            ),
            (counters.write_errors - logged.write_errors, "writes failed"),
            (
                counters.read_errors - logged.read_errors,
                "reads failed; the responses are fetched again",
            ),
            (
                counters.corrupt - logged.corrupt,
                "stored responses were damaged and have been deleted",
            ),
            (
                counters.journal_errors - logged.journal_errors,
                "changes could not be written to the journal",
            ),
        ];
        // One line per report; the more specific errors come first.
        let Some((count, what)) = new_faults.iter().find(|(count, _)| *count > 0) else {
            return;
        };
        logger.error(format_args!("disk cache: {count} {what}"));
        state.logged = counters;
        state.next_report = now + REPORT_INTERVAL;
    }
}
