//! Applies outcomes to entries, then performs their effects: stores the state, publishes changes, and logs.

use std::sync::Arc;

use super::ManagerContext;
use super::entry::CertificateEntry;
use super::outcomes::{FollowUp, OutcomeContext};
use crate::folder::CertificateRecord;
use crate::severity::Severity;

impl ManagerContext {
    /// Applies an outcome to the entry with this key, and performs its effects. Blocks on the disk.
    pub(super) fn apply(
        self: &Arc<Self>,
        key: &str,
        apply_outcome: impl FnOnce(&mut CertificateEntry, &OutcomeContext<'_>) -> FollowUp,
    ) {
        let Some(saved) = self.update_entry(key, apply_outcome) else {
            return;
        };
        let saved = match saved {
            Some(saved) => self.folder.save_record(key, &saved),
            None => self.folder.forget(key),
        };
        // The failure is only logged: the stored state is used only after a restart.
        if let Err(failure) = saved {
            let now_s = self.settings.clock.unix_s();
            let severity = {
                let inner = self.inner();
                let entry = inner.entries.get(key);
                entry.map_or(Severity::Warning, |entry| entry.failure_severity(now_s))
            };
            self.log(severity, &failure.text);
        }
    }

    /// Returns the state to store, or `Some(None)` to delete the stored state. `None`: the stored state is left
    /// unchanged.
    fn update_entry(
        self: &Arc<Self>,
        key: &str,
        apply_outcome: impl FnOnce(&mut CertificateEntry, &OutcomeContext<'_>) -> FollowUp,
    ) -> Option<Option<CertificateRecord>> {
        let context = OutcomeContext {
            settings: &self.settings,
            history: &self.history,
            now_s: self.settings.clock.unix_s(),
        };
        let mut inner = self.inner();
        // The certificate may no longer be wanted.
        let entry = inner.entries.get_mut(key)?;
        let follow_up = apply_outcome(entry, &context);
        if follow_up.is_unchanged {
            return None;
        }
        let mut saved = Some(entry.saved());
        if let Some((refusal, until_s)) = follow_up.removed {
            inner.entries.remove(key);
            inner.deny(key, refusal, context.now_s, until_s);
            saved = None;
        }
        // The callback and the log run without the lock.
        drop(inner);
        if follow_up.changed {
            self.changed();
        }
        if let Some((severity, line)) = follow_up.line {
            self.log(severity, &line);
        }
        Some(saved)
    }
}
