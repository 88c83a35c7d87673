//! The right to change a locked folder.

use std::fs::File;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};

/// The right to change a folder, which a process has until it releases the folder. All clones are one right.
#[derive(Clone, Debug)]
pub struct FolderLease(Arc<LeaseState>);

#[derive(Debug)]
struct LeaseState {
    /// The lock file. The kernel releases its lock when the process ends.
    lock: File,
    /// Locked for reading during each change.
    is_released: RwLock<bool>,
}

impl FolderLease {
    /// The right that the lock of this file gives.
    pub(crate) fn new(lock: File) -> FolderLease {
        FolderLease(Arc::new(LeaseState {
            lock,
            is_released: RwLock::new(false),
        }))
    }

    /// Makes a change, unless the folder was released: then it may belong to another process.
    ///
    /// # Errors
    /// Those of `change`, or the folder was released.
    pub fn change<T>(&self, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let is_released = self.0.is_released.read();
        match *is_released.unwrap_or_else(PoisonError::into_inner) {
            false => change(),
            true => Err(io::Error::other(
                "the folder was released for another process",
            )),
        }
    }

    /// Refuses later changes, waits for those in progress, and unlocks the folder for another process.
    ///
    /// # Errors
    /// The kernel does not unlock the file; it will when this process ends.
    pub fn release(&self) -> io::Result<()> {
        let is_released = self.0.is_released.write();
        *is_released.unwrap_or_else(PoisonError::into_inner) = true;
        self.0.lock.unlock()
    }
}
