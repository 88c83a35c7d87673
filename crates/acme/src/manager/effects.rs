//! Applies outcomes to entries, and saves, publishes and logs their effects.

use std::sync::Arc;

use super::ManagerContext;
use super::entry::CertificateEntry;
use super::outcomes::{FollowUp, NoteContext};
use crate::folder::CertificateRecord;
use crate::severity::Severity;

impl ManagerContext {
    /// Applies an outcome to an entry. Blocks on the disk.
    pub(super) fn apply(
        self: &Arc<Self>,
        key: &str,
        note: impl FnOnce(&mut CertificateEntry, &NoteContext<'_>) -> FollowUp,
    ) {
        let Some(saved) = self.note(key, note) else {
            return;
        };
        let saved = match saved {
            Some(saved) => self.folder.save(key, &saved),
            None => self.folder.forget(key),
        };
        // A state that cannot be saved only matters after a restart.
        if let Err(trouble) = saved {
            let now_s = self.settings.clock.unix_s();
            let severity = {
                let inner = self.inner();
                let entry = inner.entries.get(key);
                entry.map_or(Severity::Warning, |entry| entry.failure_severity(now_s))
            };
            self.log(severity, &trouble.text);
        }
    }

    /// Returns the state to save, or `Some(None)` to delete it. `None`: neither.
    fn note(
        self: &Arc<Self>,
        key: &str,
        note: impl FnOnce(&mut CertificateEntry, &NoteContext<'_>) -> FollowUp,
    ) -> Option<Option<CertificateRecord>> {
        let context = NoteContext {
            settings: &self.settings,
            history: &self.history,
            now_s: self.settings.clock.unix_s(),
        };
        let mut inner = self.inner();
        // The certificate may be no longer wanted.
        let entry = inner.entries.get_mut(key)?;
        let noted = note(entry, &context);
        if noted.is_unchanged {
            return None;
        }
        let mut saved = Some(entry.saved());
        if let Some((why, until_s)) = noted.gone {
            inner.entries.remove(key);
            inner.deny(key, why, context.now_s, until_s);
            saved = None;
        }
        // The callback and the log run without the lock.
        drop(inner);
        if noted.changed {
            self.changed();
        }
        if let Some((severity, line)) = noted.line {
            self.log(severity, &line);
        }
        Some(saved)
    }
}
