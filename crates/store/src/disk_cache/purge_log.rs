//! Writes purges on their own thread: callers continue and get a callback when the purges are durable. One write
//! covers all purges that are pending.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use lowroad_engine::panic_policy;

use super::meta::ClockReading;
use super::tier::{DiskCache, PurgeWaiters, SaveCallback};
use crate::lock::lock;
use crate::purge_rules::{PurgeMode, PurgeRequest, StorePurges};

impl DiskCache {
    /// Adds a purge to the log. Does not block on the disk.
    pub fn note_purge(&self, generation: u64, purge: &PurgeRequest<'_>, kind: PurgeMode) {
        self.purges.record_purge(generation, purge, kind);
        let _ = self.saver.send(None); // without a thread it holds in this process all the same
    }

    /// Calls back once all purges so far are durable, even if the process is killed. Does not block.
    pub fn when_purges_are_kept(&self, told: Box<dyn FnOnce(bool) + Send>) {
        // The thread has ended: the purge can't become durable.
        if let Err(unsent) = self.saver.send(Some(told))
            && let Some(told) = unsent.0
        {
            told(false);
        }
    }

    /// Waits until all purges so far are durable; for threads that may block.
    pub fn keep_purges(&self) -> bool {
        let (tell, told) = channel();
        self.when_purges_are_kept(Box::new(move |are_kept| {
            let _ = tell.send(are_kept); // it waits below
        }));
        told.recv().unwrap_or(false)
    }

    /// Applies the purges of earlier processes.
    pub fn replay_purges(&self, purging: &StorePurges) {
        let now = ClockReading::read();
        for rule in self.purges.rules() {
            purging.replay(rule.generation, &rule.purge(), rule.kind(now));
        }
        // Later generations must be greater than those in the objects of earlier processes.
        purging.begin_at(self.purges.first_generation());
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(super) fn start_saving(self: &Arc<Self>, unsaved: PurgeWaiters) -> std::io::Result<()> {
        let (tier, unsaved) = (self.clone(), Mutex::new(unsaved));
        panic_policy::start("disk-purges", move || {
            let unsaved = lock(&unsaved);
            while let Ok(first) = unsaved.0.recv() {
                let waiting: Vec<SaveCallback> =
                    // Group commit: one sync confirms all purges that wait.
                    std::iter::once(first).chain(unsaved.0.try_iter()).collect();
                let are_kept = tier.purges.save().is_ok();
                if !are_kept {
                    tier.failed();
                }
                for told in waiting.into_iter().flatten() {
                    told(are_kept);
                }
            }
        })
    }
}
