//! Access to the files of a configuration, as an argument: the reader itself opens no file.

use crate::secret::SecretSource;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;

/// Reads the files that a configuration consists of, and its secrets.
pub trait ConfigFiles {
    /// Reads a file, at most `len_max` bytes and one more, which shows that it is longer.
    ///
    /// # Errors
    /// Those of open(2) and read(2); a file of another kind than a regular one.
    fn read(&self, file: &Path, len_max: usize) -> io::Result<Vec<u8>>;

    /// The names of the entries of a folder, in any order.
    ///
    /// # Errors
    /// Those of open(2) and getdents(2).
    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>>;

    /// Whether there are files but the main one.
    fn has_files(&self) -> bool {
        true
    }

    /// Reads a secret; `None` if this reader has no access to secrets.
    ///
    /// # Errors
    /// A message: why there is no secret.
    fn secret(&self, source: &SecretSource) -> Result<Option<String>, String>;
}

/// Reads files with the rights of this process, and no secrets.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFiles;

impl ConfigFiles for DiskFiles {
    fn read(&self, file: &Path, len_max: usize) -> io::Result<Vec<u8>> {
        // Opening a FIFO would wait for a writer.
        if !file.metadata()?.is_file() {
            return Err(not_regular());
        }
        let mut content = Vec::new();
        // One more byte shows the caller that the file is too long.
        std::fs::File::open(file)?
            .take(len_max as u64 + 1)
            .read_to_end(&mut content)?;
        Ok(content)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let entries = std::fs::read_dir(folder)?;
        entries.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn secret(&self, _: &SecretSource) -> Result<Option<String>, String> {
        Ok(None)
    }
}

/// The error of a folder, FIFO or device in place of a file.
pub(crate) fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

/// No file but the main one.
pub(crate) struct NoFiles;

impl ConfigFiles for NoFiles {
    fn has_files(&self) -> bool {
        false
    }

    fn read(&self, _: &Path, _: usize) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn names(&self, _: &Path) -> io::Result<Vec<OsString>> {
        Ok(Vec::new())
    }

    fn secret(&self, _: &SecretSource) -> Result<Option<String>, String> {
        Ok(None)
    }
}
