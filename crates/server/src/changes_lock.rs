//! The lock of the file of saved changes. A server replaces the file, so that a second one would lose its changes.
//!
//! The lock is that of a file beside it, since a lock of the file itself would end with its replacement. A server has it until
//! it ends or its successor takes over.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;

use crate::saved_changes::resolve_link;

/// The lock of a file of saved changes.
pub struct ChangesLock {
    changes: PathBuf,
    /// The open file while this process has the lock.
    held: Mutex<Option<File>>,
}

impl ChangesLock {
    /// The lock of this file, which the process does not have yet.
    pub fn new(changes: &Path) -> ChangesLock {
        ChangesLock {
            changes: changes.to_owned(),
            held: Mutex::default(),
        }
    }

    /// The file of saved changes.
    pub fn changes_path(&self) -> &Path {
        &self.changes
    }

    /// Takes the lock, unless this process has it.
    ///
    /// # Errors
    /// Another server has it, or its file can't be opened: a message for the operator.
    pub fn acquire(&self) -> Result<(), String> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() {
            *held = Some(lock(&self.changes)?);
        }
        Ok(())
    }

    /// Leaves the file to another process.
    pub fn release(&self) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn lock(changes: &Path) -> Result<File, String> {
    // Two servers may name the file by different links.
    let mut path = resolve_link(changes)?.into_os_string();
    path.push(".lock");
    let path = PathBuf::from(path);
    let failure = |error| format!("{}: {error}", path.display());
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    // A FIFO would block the start.
    let options = options
        .mode(0o600)
        .custom_flags(OFlags::NONBLOCK.bits() as i32);
    let file = options.open(&path).map_err(failure)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(format!(
            "another server uses {}, so this one can't save changes in it",
            changes.display()
        )),
        Err(TryLockError::Error(error)) => Err(failure(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_server_has_the_lock() {
        let folder = lowroad_testkit::TempFolder::new();
        folder.file("real.json", "{}");
        let link = folder.path().join("link.json");
        std::os::unix::fs::symlink("real.json", &link).expect("a link");
        let first = ChangesLock::new(&folder.path().join("real.json"));
        let second = ChangesLock::new(&link);
        assert_eq!((first.acquire(), first.acquire()), (Ok(()), Ok(())));
        let refused = second.acquire().expect_err("it is taken");
        assert!(refused.contains("another server uses"), "{refused}");
        first.release();
        assert_eq!(second.acquire(), Ok(()));
        assert!(first.acquire().is_err());
        let missing = ChangesLock::new(&folder.path().join("none/changes.json"));
        assert!(missing.acquire().is_err());
    }
}
