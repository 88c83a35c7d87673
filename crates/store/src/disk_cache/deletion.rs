//! Deletes objects on disk: at once for all look-ups, and from the disk by a helper.

use std::sync::{Arc, PoisonError, RwLockReadGuard};

use super::key::PrimaryKey;
use super::tier::{DeletionQueue, DiskCache};
use crate::lock::lock;

impl DiskCache {
    /// Deletes the objects of a key and the writes for it; `in_memory` deletes them from memory. Does not block on the
    /// disk.
    pub fn forget(self: &Arc<Self>, primary: &PrimaryKey, in_memory: impl FnOnce()) {
        // The order matters: first no recall finds the objects, then no earlier recall is stored in memory, and then
        // no earlier fetch is written.
        lock(&self.forgetting).push(DeletionQueue {
            primary: primary.clone(),
            is_overdue: false,
        });
        in_memory();
        let is_coming = self.writings.cancel(primary);
        // The common case: nothing is on disk or on its way there.
        if !is_coming && !self.may_have(primary) {
            return self.is_removed(primary, false);
        }
        let (tier, own) = (self.clone(), primary.clone());
        let submitted = self.helpers.submit(move || tier.remove(&own));
        // With a full queue, the key stays hidden in this process; the maintenance thread removes it.
        if submitted.is_err() {
            let mut forgetting = lock(&self.forgetting);
            let own = forgetting.iter_mut().find(|own| own.is(primary, false));
            own.into_iter().for_each(|own| own.is_overdue = true);
        }
    }

    /// Deletes the objects of a key, if there are any, because memory has a newer one that is not written to disk.
    pub fn forget_older(self: &Arc<Self>, primary: &PrimaryKey) {
        if self.may_have(primary) || self.writings.have(primary) {
            self.forget(primary, || {});
        }
    }

    /// Whether a key is deleted, though its objects may still be on disk.
    pub(super) fn is_forgotten(&self, primary: &[u8]) -> bool {
        lock(&self.forgetting)
            .iter()
            .any(|own| *own.primary == *primary)
    }

    /// A guard to hold while a checked object becomes visible.
    pub(super) fn commits(&self) -> RwLockReadGuard<'_, ()> {
        let committing = self.committing.read();
        committing.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all objects that passed their check before this call are visible.
    pub(super) fn wait_for_commits(&self) {
        let committing = self.committing.write();
        drop(committing.unwrap_or_else(PoisonError::into_inner));
    }

    fn remove(&self, primary: &PrimaryKey) {
        self.wait_for_commits();
        self.remove_from_disk(primary);
        self.is_removed(primary, false);
    }

    /// If the deletion can't be written, the object would return after the next start: then everything counts as
    /// purged.
    fn remove_from_disk(&self, primary: &PrimaryKey) {
        // If the removal can't be written, the next start must discard everything: it would find the object again.
        if self.store.remove(primary).is_err() && self.purges.lose().is_err() {
            self.failed();
        }
    }

    /// Finishes all deletions and purges at the end of the process, when no more requests arrive. Blocks on the disk.
    pub fn end(&self) {
        // Deletions in progress or postponed: the next process does not know them.
        let forgotten: Vec<PrimaryKey> = {
            let forgetting = lock(&self.forgetting);
            forgetting.iter().map(|own| own.primary.clone()).collect()
        };
        self.wait_for_commits();
        for primary in forgotten {
            self.remove_from_disk(&primary);
        }
        if !self.keep_purges() {
            self.failed();
        }
    }

    /// Removes the keys that the helpers' queue had no room for. Blocks on the disk.
    pub(super) fn remove_overdue(&self) {
        loop {
            // Looked up again each time: the list changes while the lock is free.
            let overdue = lock(&self.forgetting)
                .iter()
                .find(|own| own.is_overdue)
                .map(|own| own.primary.clone());
            let Some(primary) = overdue else { return };
            self.wait_for_commits();
            self.remove_from_disk(&primary);
            self.is_removed(&primary, true);
        }
    }

    fn is_removed(&self, primary: &PrimaryKey, is_overdue: bool) {
        let mut forgetting = lock(&self.forgetting);
        let is_own = |own: &DeletionQueue| own.is(primary, is_overdue);
        if let Some(at) = forgetting.iter().position(is_own) {
            // The list has one entry for each deletion, so a second one of the key stays.
            forgetting.swap_remove(at);
        }
    }
}
