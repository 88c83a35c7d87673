//! Reads the files of a configuration that only root can change, and notices changes.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use lowroad_config::{ConfigFiles, SecretSource};
use lowroad_file_stamp::FileStamp;

use super::path_walk::{self, UntrustedPath};

/// The files and folders that were read, each with its stamp; `None` if it could not be read.
#[derive(Default)]
pub struct TrustedSources(RefCell<Vec<(PathBuf, Option<FileStamp>)>>);

impl TrustedSources {
    /// Whether something was read, and all of it is as it was.
    pub fn are_unchanged(&self) -> bool {
        let sources = self.0.borrow();
        let is_same = |(path, stamp): &(PathBuf, Option<FileStamp>)| {
            stamp.is_some() && FileStamp::from_path(path).ok() == *stamp
        };
        !sources.is_empty() && sources.iter().all(is_same)
    }

    /// The files and folders that could be read.
    pub fn paths(&self) -> Vec<PathBuf> {
        let sources = self.0.borrow();
        let read = sources.iter().filter(|(_, stamp)| stamp.is_some());
        read.map(|(path, _)| path.clone()).collect()
    }

    fn record(&self, path: &Path, stamp: Option<FileStamp>) {
        self.0.borrow_mut().push((path.to_owned(), stamp));
    }
}

impl ConfigFiles for TrustedSources {
    fn read(&self, path: &Path, len_max: usize) -> io::Result<Vec<u8>> {
        let file = path_walk::open_unchangeable(path).inspect_err(|_| self.record(path, None));
        let file = file.map_err(|refusal| match refusal {
            UntrustedPath::Io(error) => error,
            other => io::Error::other(other.to_string()),
        })?;
        // The stamp is that of the open file, since the path may refer to another file by now.
        self.record(path, Some(FileStamp::from_file(&file)?));
        let mut content = Vec::new();
        file.take(len_max as u64 + 1).read_to_end(&mut content)?;
        Ok(content)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        // Recorded before the entries are read: a later change is noticed.
        self.record(folder, FileStamp::from_path(folder).ok());
        let entries = fs::read_dir(folder)?;
        entries.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn secret(&self, _: &SecretSource) -> Result<Option<String>, String> {
        Ok(None)
    }
}
