//! A condition on the existence of a file, such as the switch of a maintenance mode.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A file that may exist. Workers read the last known state, since they never access files.
#[derive(Debug)]
pub struct FileSwitch {
    path: PathBuf,
    exists: AtomicBool,
}

impl FileSwitch {
    /// The switch for a path with its initial state.
    pub fn new(path: PathBuf, exists: bool) -> FileSwitch {
        FileSwitch {
            path,
            exists: AtomicBool::new(exists),
        }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file existed when it was last checked.
    pub fn exists(&self) -> bool {
        self.exists.load(Relaxed)
    }

    /// Sets the state. Returns whether it has changed.
    pub fn set(&self, exists: bool) -> bool {
        self.exists.swap(exists, Relaxed) != exists
    }
}
