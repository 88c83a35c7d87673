//! Forgets what is on the disk: at once for all who ask, and from the disk by a helper.

use std::sync::{Arc, PoisonError, RwLockReadGuard};

use super::key::Primary;
use super::tier::{Forgotten, Tier};
use crate::lock::lock;

impl Tier {
    /// Forgets what is under a key, and what is on its way there; `in_memory` forgets it there. Does not block on the disk.
    pub fn forget(self: &Arc<Self>, primary: &Primary, in_memory: impl FnOnce()) {
        // In this order: from now on nothing is recalled, then nothing that was recalled before is stored, and then nothing
        // of this is written that was asked for before.
        lock(&self.forgetting).push(Forgotten {
            primary: primary.clone(),
            is_overdue: false,
        });
        in_memory();
        let is_coming = self.writings.cancel(primary);
        if !is_coming && !self.may_have(primary) {
            return self.is_removed(primary, false);
        }
        let (tier, own) = (self.clone(), primary.clone());
        let submitted = self.helpers.submit(move || tier.remove(&own));
        // With too much to do it stays forgotten in this process; the upkeep removes it.
        if submitted.is_err() {
            let mut forgetting = lock(&self.forgetting);
            let own = forgetting.iter_mut().find(|own| own.is(primary, false));
            own.into_iter().for_each(|own| own.is_overdue = true);
        }
    }

    /// Forgets what is under a key, if there is anything: memory has something newer that does not go there.
    pub fn forget_older(self: &Arc<Self>, primary: &Primary) {
        if self.may_have(primary) || self.writings.have(primary) {
            self.forget(primary, || {});
        }
    }

    /// Whether something is forgotten that may still be there.
    pub(super) fn is_forgotten(&self, primary: &[u8]) -> bool {
        lock(&self.forgetting)
            .iter()
            .any(|own| *own.primary == *primary)
    }

    /// Held while something becomes visible that was found to be still wanted.
    pub(super) fn commits(&self) -> RwLockReadGuard<'_, ()> {
        let committing = self.committing.read();
        committing.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all is visible that was found to be wanted before this.
    pub(super) fn wait_for_commits(&self) {
        let committing = self.committing.write();
        drop(committing.unwrap_or_else(PoisonError::into_inner));
    }

    fn remove(&self, primary: &Primary) {
        self.wait_for_commits();
        self.remove_from_disk(primary);
        self.is_removed(primary, false);
    }

    /// What can't be written down would be there again after the next start: then nothing is.
    fn remove_from_disk(&self, primary: &Primary) {
        if self.store.remove(primary).is_err() && self.purges.lose().is_err() {
            self.failed();
        }
    }

    /// What was forgotten and purged stays so: nothing is asked any more, and the process ends. Blocks on the disk.
    pub fn end(&self) {
        let forgotten: Vec<Primary> = {
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

    /// Removes what helpers had no time for. Blocks on the disk.
    pub(super) fn remove_overdue(&self) {
        loop {
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

    fn is_removed(&self, primary: &Primary, is_overdue: bool) {
        let mut forgetting = lock(&self.forgetting);
        let is_own = |own: &Forgotten| own.is(primary, is_overdue);
        if let Some(at) = forgetting.iter().position(is_own) {
            forgetting.swap_remove(at);
        }
    }
}
