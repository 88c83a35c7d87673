//! The maintenance thread of the disk cache: removes purged objects and the excess over the maximum size, writes
//! checkpoints, releases recalled objects, so that the disk learns which are used, and logs faults.

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
/// Faults are logged at most once in this time.
const SAID_INTERVAL: Duration = Duration::from_secs(60);
/// The number of objects that one scan step examines.
const SCANNED: u32 = 1024;
/// The pause between two scans, as a multiple of the last one's duration: purges are effective without a scan.
const SCAN_PAUSES: u32 = 9;

impl EvictionQueue {
    fn let_go(&self, store: &SharedStore) {
        while let Some(recent) = self.next() {
            let (hash, key) = (recent.hash, &*recent.key);
            // The object may have been replaced or evicted meanwhile.
            let (Some(segment), Some(entry)) = (recent.segment.upgrade(), store.peek(hash, key))
            else {
                continue;
            };
            let is_own = |own: &Arc<DiskSegment>| Arc::ptr_eq(own, &segment);
            let own = entry
                .variants()
                .find(|it| segment_of(it).is_some_and(is_own));
            if let Some(object) = own {
                store.remove(hash, key, object);
            }
        }
    }

    /// Marks the objects on disk that memory uses, so that they are not evicted there.
    fn touch(&self, tier: &DiskCache) {
        let used: Vec<Arc<DiskSegment>> = {
            let recent = lock(&self.0);
            recent
                .iter()
                .filter_map(|it| it.segment.upgrade())
                .collect()
        };
        for segment in used {
            tier.store.touch(&segment.renewable.key);
        }
    }
}

/// The time of the next scan, and the faults logged so far.
struct ScanState {
    scan_from: Instant,
    said: DiskCounters,
    say_from: Instant,
}

impl DiskCache {
    /// Starts the threads.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn keep_up(
        self: &Arc<Self>,
        unsaved: PurgeWaiters,
        store: Arc<SharedStore>,
        logger: ErrorLogger,
    ) -> std::io::Result<()> {
        self.start_saving(unsaved)?;
        let (tier, now) = (self.clone(), Instant::now());
        let state = Mutex::new(ScanState {
            scan_from: now,
            said: DiskCounters::default(),
            say_from: now,
        });
        panic_policy::start("disk-cache", move || {
            let mut state = lock(&state);
            loop {
                tier.remove_purged(&store, &mut state.scan_from);
                // Deletions for which the helpers' queue had no room.
                tier.remove_overdue();
                tier.leaving.let_go(&store);
                // Before evictions: hits in memory must count on disk, too.
                tier.leaving.touch(&tier);
                tier.shrink();
                if tier.store.wants_checkpoint() {
                    let _ = tier.store.checkpoint(); // counted there
                }
                tier.say(&mut state, &logger);
                thread::sleep(INTERVAL);
            }
        })
    }

    /// Changes the maximum size on disk. Does not block: the excess is removed later, one segment at a time.
    pub fn resize(&self, len_max: u64) {
        self.store.resize(DiskOptions::with_capacity(len_max));
    }

    /// Drops a segment if the disk exceeds its maximum size. Blocks on the disk.
    fn shrink(&self) {
        if self.store.shrink().is_err() {
            self.failed();
        }
    }

    /// Removes the objects of unfinished purges.
    fn remove_purged(&self, store: &SharedStore, from: &mut Instant) {
        // Before the scan: later purges need another one.
        let generation = store.purging().generation();
        let begun = Instant::now();
        if begun < *from || self.purges.rules().is_empty() {
            return;
        }
        // An object checked before is visible now, and later checks see these purges.
        self.wait_for_commits();
        self.scan(store);
        // A rule may be dropped only when its removals are durable.
        let over = self.store.sync().and_then(|()| self.purges.end(generation));
        if over.is_err() {
            self.failed();
        }
        let took = begun.elapsed();
        // Scans take at most a tenth of the time, however many purges come.
        *from = Instant::now() + took * SCAN_PAUSES;
    }

    fn scan(&self, store: &SharedStore) {
        let (now, scanned) = (ClockReading::read(), self.purges.scanned());
        let mut renewed = Vec::new();
        let mut is_meant = |key: &[u8], meta: &[u8]| {
            let is_meant = ObjectMeta::decode(meta, now).is_none_or(|meta| {
                let since = meta.generation().max(scanned);
                // Soft-purged objects are removed, too: there is no place on disk for a mark.
                ban(store.purging(), since, key, meta.lifetime()) != BanVerdict::None
            });
            renewed.extend(key::renewed(key).filter(|_| is_meant));
            is_meant
        };
        let mut cursor = WalkCursor::default();
        while self.store.purge(&mut cursor, SCANNED, &mut is_meant) {}
        // The base response of a purged update.
        for key in renewed {
            let _ = self.store.remove(&key); // counted there
        }
    }

    /// Logs the disk's faults since the last report.
    fn say(&self, state: &mut ScanState, logger: &ErrorLogger) {
        let now = Instant::now();
        let (counters, said) = (self.store.counters(), state.said);
        if now < state.say_from {
            return;
        }
        let news = [
            (
                counters.disk_full - said.disk_full,
                "writes failed because the disk is full: responses are cached without it",
            ),
            (counters.write_errors - said.write_errors, "writes failed"),
            (
                counters.read_errors - said.read_errors,
                "reads failed; the responses are fetched again",
            ),
            (
                counters.corrupt - said.corrupt,
                "stored responses were damaged and have been deleted",
            ),
            (
                counters.journal_errors - said.journal_errors,
                "changes could not be written to the journal",
            ),
        ];
        // One line at a time; the more specific faults come first.
        let Some((count, what)) = news.iter().find(|(count, _)| *count > 0) else {
            return;
        };
        logger.error(format_args!("disk cache: {count} {what}"));
        state.said = counters;
        state.say_from = now + SAID_INTERVAL;
    }
}
