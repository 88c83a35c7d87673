//! Atomic file replacement: readers see either the old file or the complete new one.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A new file under a temporary name. Dropping it without [`OutputFile::finish`] removes the file.
pub struct OutputFile {
    target: PathBuf,
    temporary: PathBuf,
    is_secret: bool,
}

impl OutputFile {
    /// Prepares a temporary file next to `target`. Only its owner can read the file if `is_secret`.
    pub fn new(target: &Path, is_secret: bool) -> OutputFile {
        let mut name = target.as_os_str().to_owned();
        // The temporary file is in the target's folder, because rename(2) works only within a file system.
        name.push(format!(".{}", std::process::id()));
        OutputFile {
            target: target.to_path_buf(),
            temporary: name.into(),
            is_secret,
        }
    }

    /// The temporary path. The file exists after [`OutputFile::write`].
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// Writes the temporary file.
    ///
    /// # Errors
    /// A message for the operator.
    pub fn write(&self, bytes: &[u8]) -> Result<(), String> {
        // The mode is set when the file is created: before a later chmod, other users could open the file.
        let mode = if self.is_secret { 0o600 } else { 0o644 };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(&self.temporary);
        let written = file.and_then(|mut file| file.write_all(bytes));
        written.map_err(|error| self.failure_text(&error))
    }

    /// Renames the temporary file to its final name. Returns its length.
    ///
    /// # Errors
    /// A message for the operator.
    pub fn finish(self) -> Result<u64, String> {
        let len = fs::metadata(&self.temporary).map(|meta| meta.len());
        // rename(2) replaces an existing file atomically.
        let renamed = len.and_then(|len| fs::rename(&self.temporary, &self.target).map(|()| len));
        renamed.map_err(|error| self.failure_text(&error))
    }

    fn failure_text(&self, error: &io::Error) -> String {
        format!("{}: {error}", self.target.display())
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.temporary);
    }
}
