//! Deletes objects on disk: look-ups stop finding them immediately, and a helper then removes them from the disk.

use std::sync::{Arc, PoisonError, RwLockReadGuard};

use super::key::PrimaryKey;
use super::tier::{DeletionQueue, DiskCache};
use crate::lock::lock;

impl DiskCache {
    /// Deletes the objects of a key and cancels the writes for that key; `delete_in_memory` deletes them from memory.
    /// Does not block on the disk.
    pub fn delete(self: &Arc<Self>, primary: &PrimaryKey, delete_in_memory: impl FnOnce()) {
        // The order matters: from this line on, recalls do not find the objects; after `delete_in_memory`, no earlier
        // recall is stored in memory; and after the writes are cancelled, no earlier fetch is written.
        lock(&self.deletions).push(DeletionQueue {
            primary: primary.clone(),
            is_overdue: false,
        });
        delete_in_memory();
        let is_being_written = self.active_writes.cancel(primary);
        // The common case: the key has nothing on disk, and nothing is being written.
        if !is_being_written && !self.may_contain(primary) {
            return self.finish_deletion(primary, false);
        }
        let (tier, key) = (self.clone(), primary.clone());
        let submitted = self.helpers.submit(move || tier.remove(&key));
        // If the queue is full, look-ups still ignore the key, and the maintenance thread removes it later.
        if submitted.is_err() {
            let mut deletions = lock(&self.deletions);
            let queued = deletions
                .iter_mut()
                .find(|deletion| deletion.is_for(primary, false));
            queued
                .into_iter()
                .for_each(|deletion| deletion.is_overdue = true);
        }
    }

    /// Deletes the objects of a key on disk, if there are any, because memory has a newer object that is not written to
    /// disk.
    pub fn delete_older_copy(self: &Arc<Self>, primary: &PrimaryKey) {
        if self.may_contain(primary) || self.active_writes.contains(primary) {
            self.delete(primary, || {});
        }
    }

    /// Whether a key is deleted while its objects may still be on disk.
    pub(super) fn is_being_deleted(&self, primary: &[u8]) -> bool {
        lock(&self.deletions)
            .iter()
            .any(|deletion| *deletion.primary == *primary)
    }

    /// Locks against deletions and scans, between the check of an object against purges and its commit.
    pub(super) fn lock_commits(&self) -> RwLockReadGuard<'_, ()> {
        let guard = self.commit_lock.read();
        guard.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all objects that were checked before this call are visible.
    pub(super) fn wait_for_commits(&self) {
        let guard = self.commit_lock.write();
        drop(guard.unwrap_or_else(PoisonError::into_inner));
    }

    fn remove(&self, primary: &PrimaryKey) {
        self.wait_for_commits();
        self.remove_from_disk(primary);
        self.finish_deletion(primary, false);
    }

    /// Removes the objects of a key from the disk. If the removal can't be written, everything counts as purged after
    /// the next start, which would otherwise find the objects again.
    fn remove_from_disk(&self, primary: &PrimaryKey) {
        // Without a durable removal, the next start would find the objects again, so it must discard everything.
        if self.store.remove(primary).is_err() && self.purges.record_lost_deletion().is_err() {
            self.count_error();
        }
    }

    /// Finishes all deletions and purges at the end of the process, when no more requests arrive. Blocks on the disk.
    pub fn finish_pending(&self) {
        // The next process would not know these deletions, which are in progress or postponed.
        let pending: Vec<PrimaryKey> = {
            let deletions = lock(&self.deletions);
            deletions
                .iter()
                .map(|deletion| deletion.primary.clone())
                .collect()
        };
        self.wait_for_commits();
        for primary in pending {
            self.remove_from_disk(&primary);
        }
        if !self.wait_for_durable_purges() {
            self.count_error();
        }
    }

    /// Removes the keys that the helpers' queue had no room for. Blocks on the disk.
    pub(super) fn remove_overdue(&self) {
        loop {
            // Looked up again in each iteration, since the list may change while it is not locked.
            let overdue = lock(&self.deletions)
                .iter()
                .find(|deletion| deletion.is_overdue)
                .map(|deletion| deletion.primary.clone());
            let Some(primary) = overdue else { return };
            self.wait_for_commits();
            self.remove_from_disk(&primary);
            self.finish_deletion(&primary, true);
        }
    }

    fn finish_deletion(&self, primary: &PrimaryKey, is_overdue: bool) {
        let mut deletions = lock(&self.deletions);
        let is_match = |deletion: &DeletionQueue| deletion.is_for(primary, is_overdue);
        if let Some(at) = deletions.iter().position(is_match) {
            // Each deletion has its own entry, so a second deletion of the same key is still listed.
            deletions.swap_remove(at);
        }
    }
}
