//! Writes changes of operators with `persist` to the file that survives restarts.

use lowroad_http::status::StatusCode;

use super::problem::AdminProblem;
use super::service::{AdminOutcome, AdminReply};
use crate::running_server::RunningServer;
use crate::saved_changes::{ChangesFile, SavedChanges};

/// The decision of a request about the file.
pub struct ChangePersistence(Option<ChangesFile>);

/// Whether a change that is in force was saved, if that was requested.
#[must_use]
pub struct SaveOutcome(Result<(), String>);

impl ChangePersistence {
    /// Reads the file, if the change is to survive restarts: before the change, which a missing file refuses.
    ///
    /// # Errors
    /// There is no such file, it is damaged, or another server uses it. Nothing was changed.
    pub fn begin(
        running: &RunningServer,
        is_requested: bool,
    ) -> Result<ChangePersistence, AdminProblem> {
        if !is_requested {
            return Ok(ChangePersistence(None));
        }
        let unchanged = |fault: String| conflict(format!("{fault}; nothing was changed"));
        // The setting of the start: a reload does not apply `[admin]`.
        let lock = running.changes_lock.as_ref().ok_or_else(|| {
            conflict(
                "persist needs a file: set changes in [admin] and upgrade the server; nothing was changed"
                    .to_owned(),
            )
        })?;
        lock.acquire().map_err(unchanged)?;
        let file = ChangesFile::read_for_change(lock.changes_path()).map_err(unchanged)?;
        Ok(ChangePersistence(Some(file)))
    }

    /// Edits the content to be written, before the change is made.
    ///
    /// # Errors
    /// `edit` refuses the content. Nothing was changed.
    pub fn edit(
        &mut self,
        edit: impl FnOnce(&mut SavedChanges) -> Result<(), String>,
    ) -> Result<(), AdminProblem> {
        let edited = self.0.as_mut().map(|file| edit(&mut file.changes));
        edited
            .unwrap_or(Ok(()))
            .map_err(|fault| conflict(format!("{fault}; nothing was changed")))
    }

    /// Writes the file, after a last edit that needs the changed state. The change is in force.
    pub fn finish(self, edit: impl FnOnce(&mut SavedChanges)) -> SaveOutcome {
        SaveOutcome(self.0.map_or(Ok(()), |mut file| {
            // The server's lock is held since the file was read, so no other change is lost.
            edit(&mut file.changes);
            file.write()
        }))
    }
}

impl SaveOutcome {
    /// The reply to the change.
    ///
    /// # Errors
    /// The file could not be written: the change ends with the process. The problem has the change, for the audit.
    pub fn reply(self, reply: AdminReply) -> AdminOutcome {
        match self.0 {
            Ok(()) => Ok(reply),
            Err(fault) => Err(AdminProblem {
                unsaved: reply.change.map(Box::new),
                ..AdminProblem::new(
                    StatusCode::INTERNAL_ERROR,
                    format!("the change is in force, but ends with a restart: {fault}"),
                )
            }),
        }
    }
}

fn conflict(detail: String) -> AdminProblem {
    AdminProblem::new(StatusCode::CONFLICT, detail)
}
