//! Detects writes to a file since the start of its transfer, after a changed modification time that may also be due to
//! a `touch`: inotify(7) reports writes and changes of metadata as different events.
//!
//! A write is reported when it is complete; until then only the modification time shows it. Hence a new modification
//! time counts as a `touch` only if
//!
//! - a change of metadata was reported since the last check, which shared mappings and `io_submit` never cause,
//! - no write was reported, at this check and at one [`SETTLE_TIME`] later,
//! - no write is in progress. File systems hold the inode's lock during a write and while they set times; the checks
//!   wait for that lock ([`wait_for_writers`]).
//!
//! A call that sets the modification time alone (`touch -m`) is reported as a write, and counts as one.
//!
//! Events are read from the kernel only after the stamp of a file has changed. From then on each check reads events, as
//! a write may have the same time as the touch before it.

mod inodes;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lowroad_file_stamp::FileStamp;
use rustix::fs::SeekFrom;

pub use self::inodes::{FileWatchCounters, counters};
use self::inodes::{InotifyCounts, watched_inodes};

/// The time between the two checks after a touch. A write is reported shortly after it has released the lock.
const SETTLE_TIME: Duration = Duration::from_millis(20);
/// The maximum number of checks in a row, for a file that is touched again and again.
const CHECKS_MAX: usize = 3;

/// The inotify watch on the inode of an open file; removed when this value is dropped.
#[derive(Debug)]
pub(super) struct WriteWatch {
    id: i32,
    progress: Mutex<WatchProgress>,
}

impl WriteWatch {
    /// Starts to watch a file. `stamp` was taken when the file was opened. `None` if the file can't be watched or has
    /// changed since.
    pub(super) fn begin(file: &File, stamp: FileStamp) -> Option<WriteWatch> {
        if !stamp.is_settled() || !reports_writes(file) {
            return None;
        }
        let inodes = watched_inodes()?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let (id, events) = inodes.add(&path)?;
        let watch = WriteWatch {
            id,
            progress: Mutex::new(WatchProgress::new(stamp, events)),
        };
        // The stamp shows changes before the watch started.
        let is_same = FileStamp::from_file(file).is_ok_and(|now| now.has_content_of(&stamp));
        is_same.then_some(watch)
    }

    /// Whether the file's bytes are unchanged since the start of the watch. Blocks while the file is written.
    pub(super) fn is_unwritten(&self, file: &File) -> bool {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        for number in 0..CHECKS_MAX {
            let Ok(before) = FileStamp::from_file(file) else {
                return false;
            };
            if number == 0 && progress.needs_no_events(&before) {
                return true;
            }
            wait_for_writers(file);
            let events = watched_inodes().and_then(|inodes| inodes.events(self.id));
            let (Some(events), Ok(after)) = (events, FileStamp::from_file(file)) else {
                return false;
            };
            match progress.advance(&FileCheck {
                before,
                events,
                after,
            }) {
                WatchVerdict::Unwritten => return true,
                WatchVerdict::Touched => std::thread::sleep(SETTLE_TIME),
                WatchVerdict::Written => return false,
            }
        }
        true
    }
}

impl Drop for WriteWatch {
    fn drop(&mut self) {
        if let Some(inodes) = watched_inodes() {
            inodes.remove(self.id);
        }
    }
}

/// A check of a watched file: its stamp, then the reported events, then its stamp again.
struct FileCheck {
    before: FileStamp,
    events: InotifyCounts,
    after: FileStamp,
}

#[derive(Debug, PartialEq, Eq)]
enum WatchVerdict {
    Unwritten,
    /// At most the file's times changed; the event of a write may still follow.
    Touched,
    /// The file was written, or a write can't be excluded.
    Written,
}

/// The state at the last check that found a watched file unchanged.
#[derive(Debug)]
struct WatchProgress {
    stamp: FileStamp,
    events: InotifyCounts,
    /// Times changed during the last check, which may have counted the event of that change already.
    has_early_event: bool,
    is_in_doubt: bool,
    is_written: bool,
}

impl WatchProgress {
    fn new(stamp: FileStamp, events: InotifyCounts) -> WatchProgress {
        WatchProgress {
            stamp,
            events,
            has_early_event: false,
            is_in_doubt: false,
            is_written: false,
        }
    }

    fn needs_no_events(&self, now: &FileStamp) -> bool {
        !self.is_in_doubt && *now == self.stamp
    }

    fn advance(&mut self, check: &FileCheck) -> WatchVerdict {
        self.is_in_doubt = true;
        let has_same_size = |now: &FileStamp| (now.id, now.len) == (self.stamp.id, self.stamp.len);
        let is_touched = check.before.modified_ns != self.stamp.modified_ns;
        let is_explained =
            check.events.attributes != self.events.attributes || self.has_early_event;
        self.is_written |= check.events.writes != self.events.writes
            || !has_same_size(&check.before)
            || !has_same_size(&check.after)
            || is_touched && !is_explained;
        if self.is_written {
            return WatchVerdict::Written;
        }
        self.has_early_event = check.after.modified_ns != check.before.modified_ns;
        self.stamp = check.before;
        self.events = check.events;
        match is_touched || self.has_early_event {
            true => WatchVerdict::Touched,
            false => WatchVerdict::Unwritten,
        }
    }
}

/// Returns when the writes in progress are complete. `SEEK_DATA` takes the inode's lock shared on ext4, Btrfs and
/// tmpfs; a read does so on XFS. Neither needs more than an open file.
fn wait_for_writers(file: &File) {
    // The results are ignored: only the wait matters. The file's own offset is unused, as files are read at explicit
    // offsets.
    let _ = rustix::fs::seek(file, SeekFrom::Data(0));
    let _ = file.read_at(&mut [0], 0);
}

/// Whether the file system reports each write, and takes a lock during writes on which readers can wait.
fn reports_writes(file: &File) -> bool {
    const EXT4: u32 = 0xef53;
    const XFS: u32 = 0x5846_5342;
    const BTRFS: u32 = 0x9123_683e;
    const TMPFS: u32 = 0x0102_1994;
    let kind = rustix::fs::fstatfs(file).map(|stat| stat.f_type as u32);
    kind.is_ok_and(|kind| [EXT4, XFS, BTRFS, TMPFS].contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: FileStamp = FileStamp {
        id: (1, 2),
        len: 3,
        modified_ns: 4,
        changed_ns: 5,
        links: 1,
    };

    fn touched_at(modified_ns: i64) -> FileStamp {
        FileStamp {
            modified_ns,
            changed_ns: modified_ns,
            ..STAMP
        }
    }

    fn look(before: FileStamp, (attributes, writes): (u64, u64), after: FileStamp) -> FileCheck {
        let events = InotifyCounts { attributes, writes };
        FileCheck {
            before,
            events,
            after,
        }
    }

    #[test]
    fn new_mtime_without_attrib_event_counts_as_write() {
        let mut progress = WatchProgress::new(STAMP, InotifyCounts::default());
        assert!(progress.needs_no_events(&STAMP));
        let (one, two) = (touched_at(10), touched_at(20));
        assert_eq!(
            progress.advance(&look(one, (1, 0), one)),
            WatchVerdict::Touched
        );
        assert_eq!(
            progress.advance(&look(one, (1, 0), one)),
            WatchVerdict::Unwritten
        );
        assert!(
            !progress.needs_no_events(&one),
            "a write may have the same time"
        );
        // Another time without another event: a write to a shared mapping, or a write in progress.
        assert_eq!(
            progress.advance(&look(two, (1, 0), two)),
            WatchVerdict::Written
        );
        // The verdict `Written` is final.
        assert_eq!(
            progress.advance(&look(one, (9, 0), one)),
            WatchVerdict::Written
        );
    }

    #[test]
    fn touch_during_a_check_may_be_counted_by_that_check() {
        let mut progress = WatchProgress::new(STAMP, InotifyCounts::default());
        let (one, two) = (touched_at(10), touched_at(20));
        assert_eq!(
            progress.advance(&look(one, (2, 0), two)),
            WatchVerdict::Touched
        );
        assert_eq!(
            progress.advance(&look(two, (2, 0), two)),
            WatchVerdict::Touched
        );
        assert_eq!(
            progress.advance(&look(two, (2, 0), two)),
            WatchVerdict::Unwritten
        );
    }

    #[test]
    fn modify_event_or_other_length_is_final() {
        let longer = FileStamp { len: 4, ..STAMP };
        let other = FileStamp {
            id: (1, 3),
            ..STAMP
        };
        for written in [
            look(STAMP, (0, 1), STAMP),
            look(touched_at(9), (1, 1), touched_at(9)),
            look(longer, (1, 0), longer),
            look(STAMP, (1, 0), longer),
            look(other, (1, 0), other),
        ] {
            let mut progress = WatchProgress::new(STAMP, InotifyCounts::default());
            assert_eq!(progress.advance(&written), WatchVerdict::Written);
        }
    }

    #[test]
    fn other_metadata_change_takes_one_check() {
        let mut progress = WatchProgress::new(STAMP, InotifyCounts::default());
        let linked = FileStamp {
            links: 2,
            changed_ns: 9,
            ..STAMP
        };
        assert_eq!(
            progress.advance(&look(linked, (0, 0), linked)),
            WatchVerdict::Unwritten
        );
    }
}
