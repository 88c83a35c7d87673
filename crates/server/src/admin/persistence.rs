//! Writes changes of operators with `persist` to the file that survives restarts.

use lowroad_http::status::StatusCode;

use super::problem::AdminProblem;
use crate::running_server::RunningServer;
use crate::saved_changes::{ChangesFile, SavedChanges};

/// The decision of a request about the file.
pub struct ChangePersistence(Option<ChangesFile>);

impl ChangePersistence {
    /// Reads the file, if the change is to survive restarts: before the change, which a missing file refuses.
    ///
    /// # Errors
    /// There is no such file, or it is damaged. Nothing was changed.
    pub fn begin(
        running: &RunningServer,
        is_requested: bool,
    ) -> Result<ChangePersistence, AdminProblem> {
        if !is_requested {
            return Ok(ChangePersistence(None));
        }
        let conflict = |detail| AdminProblem::new(StatusCode::CONFLICT, detail);
        // The setting of the start: a reload does not apply `[admin]`.
        let path = running.start_settings.changes_file().ok_or_else(|| {
            conflict(
                "persist needs a file: set changes in [admin] and upgrade the server; nothing was changed"
                    .to_owned(),
            )
        })?;
        let file = ChangesFile::read_for_change(path)
            .map_err(|fault| conflict(format!("{fault}; nothing was changed")))?;
        Ok(ChangePersistence(Some(file)))
    }

    /// Writes the file with a change that is in force.
    ///
    /// # Errors
    /// The file can't be written: the change ends with the process.
    pub fn finish(self, edit: impl FnOnce(&mut SavedChanges)) -> Result<(), AdminProblem> {
        let Some(mut file) = self.0 else {
            return Ok(());
        };
        // The server's lock is held since the file was read, so no other change is lost.
        edit(&mut file.changes);
        file.write().map_err(|fault| {
            AdminProblem::new(
                StatusCode::INTERNAL_ERROR,
                format!("the change is in force, but ends with a restart: {fault}"),
            )
        })
    }
}
