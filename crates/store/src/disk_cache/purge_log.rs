//! The thread that writes purges to the purge log. Callers do not wait, and get a callback when their purges are
//! durable. One write covers all pending purges (group commit).

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
        let _ = self.purge_sender.send(None); // if there is no thread, the purge is only in memory
    }

    /// Calls `callback` with true once all purges so far are durable, so that they survive a crash. Does not block.
    pub fn on_purges_durable(&self, callback: Box<dyn FnOnce(bool) + Send>) {
        // If the thread has ended, the purge can't become durable.
        if let Err(unsent) = self.purge_sender.send(Some(callback))
            && let Some(callback) = unsent.0
        {
            callback(false);
        }
    }

    /// Waits until all purges so far are durable. Must be called only on threads that may block.
    pub fn wait_for_durable_purges(&self) -> bool {
        let (sender, receiver) = channel();
        self.on_purges_durable(Box::new(move |is_durable| {
            let _ = sender.send(is_durable); // it waits below
        }));
        receiver.recv().unwrap_or(false)
    }

    /// Applies the purges of earlier processes.
    pub fn replay_purges(&self, store_purges: &StorePurges) {
        let now = ClockReading::read();
        for rule in self.purges.rules() {
            store_purges.replay(rule.generation, &rule.purge(), rule.kind(now));
        }
        // Later generations must be greater than the generations of objects that earlier processes stored.
        store_purges.resume_after(self.purges.first_generation());
    }

    /// Starts the thread that writes purges.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(super) fn start_purge_writer(
        self: &Arc<Self>,
        waiters: PurgeWaiters,
    ) -> std::io::Result<()> {
        let (tier, waiters) = (self.clone(), Mutex::new(waiters));
        panic_policy::start("disk-purges", move || {
            let waiters = lock(&waiters);
            while let Ok(first) = waiters.0.recv() {
                let waiting: Vec<SaveCallback> =
                    // Group commit: one sync confirms all waiting purges.
                    std::iter::once(first).chain(waiters.0.try_iter()).collect();
                let is_durable = tier.purges.save().is_ok();
                if !is_durable {
                    tier.count_error();
                }
                for callback in waiting.into_iter().flatten() {
                    callback(is_durable);
                }
            }
        })
    }
}
