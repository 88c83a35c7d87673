//! Checks files that are reloaded while the server runs, twice a second. A file is reloaded once two consecutive checks
//! find the same new version, so a file that is still being written is not read. The folders of sites, where changes
//! must be noticed faster, are watched with inotify.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::panic_policy::contain;
use lowroad_file_stamp::FileStamp;

/// The time between two checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The version of a file that is in use, and a possibly newer one.
#[derive(Debug)]
pub struct FileVersion {
    in_use: FileStamp,
    /// Another version, found by the last check: the file may still be written.
    new: Option<FileStamp>,
}

impl FileVersion {
    /// `in_use` is the version that was loaded, or that was rejected: it is not loaded again before the file changes.
    pub fn new(in_use: FileStamp) -> FileVersion {
        FileVersion { in_use, new: None }
    }

    /// Whether this version is in use.
    pub fn is_in_use(&self, version: FileStamp) -> bool {
        self.in_use == version
    }

    /// Whether a check finds the same other version for the second time in a row. A missing file does not count: it
    /// may be about to be replaced.
    pub fn has_settled(&mut self, current: Option<FileStamp>) -> bool {
        let changed = current.filter(|version| !self.is_in_use(*version));
        let has_settled = changed.is_some() && self.new == changed;
        self.new = changed;
        has_settled
    }
}

/// Starts a thread that calls `check` twice a second, until all owners have dropped the value or `check` returns false.
/// After a panic of `check` the thread continues.
///
/// # Errors
/// The system can't start a thread.
pub fn watch<T: Send + Sync + 'static>(
    name: &str,
    value: Weak<T>,
    check: impl Fn(&Arc<T>) -> bool + Send + 'static,
) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.into());
    thread.spawn(move || {
        let mut continues = true;
        while continues {
            thread::sleep(LOOK_INTERVAL);
            let Some(value) = value.upgrade() else { return };
            contain(|| continues = check(&value));
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn stamp(len: u64) -> FileStamp {
        FileStamp {
            id: (1, 2),
            len,
            modified_ns: 3,
            changed_ns: 4,
            links: 1,
        }
    }

    #[test]
    fn file_being_written_is_not_reloaded() {
        let mut version = FileVersion::new(stamp(1));
        let found = [1, 2, 3, 3].map(|len| version.has_settled(Some(stamp(len))));
        assert_eq!(found, [false, false, false, true]);
        let mut version = FileVersion::new(stamp(3));
        assert!(!version.has_settled(Some(stamp(4))));
        assert!(!version.has_settled(None));
        assert!(!version.has_settled(Some(stamp(4))));
        assert!(version.has_settled(Some(stamp(4))));
        // The version in use again.
        assert!(!version.has_settled(Some(stamp(3))));
    }

    #[test]
    fn checks_continue_after_panic_until_check_returns_false() {
        let (sender, receiver) = channel();
        let of = Arc::new(std::sync::Mutex::new(0));
        let check = move |count: &Arc<std::sync::Mutex<u32>>| {
            let number = {
                let mut count = count.lock().expect("it is not held while it panics");
                *count += 1;
                *count
            };
            sender.send(number).expect("somebody hears");
            assert!(number != 1, "the first look panics");
            number < 3
        };
        watch("watch-tested", Arc::downgrade(&of), check).expect("a thread");
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [1, 2, 3]);
    }
}
