//! The inodes that the process watches with one inotify(7) instance, and the number of events of each.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// Maximum number of watched inodes: about 1 KiB of kernel memory each. The watches count against
/// `fs.inotify.max_user_watches`, like those of the sites' folders.
const INODES_MAX: usize = 4096;

/// The inotify instance of the process, created for the first long file; `None` if the kernel refuses.
static INODES: OnceLock<Option<WatchedInodes>> = OnceLock::new();

/// The watched inodes of the process.
pub(super) fn watched_inodes() -> Option<&'static WatchedInodes> {
    let start = || {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        Some(WatchedInodes {
            inotify,
            table: Mutex::default(),
        })
    };
    INODES.get_or_init(start).as_ref()
}

/// Transfers of long files that could not be watched.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// The watches of files that are being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileWatchCounters {
    /// Inodes watched now.
    pub watched: u64,
    /// Transfers of long files that could not be watched.
    pub refused: u64,
}

/// The counters of the process.
pub fn counters() -> FileWatchCounters {
    // Before the first transfer of a long file there is no instance.
    let inodes = INODES.get().and_then(Option::as_ref);
    let watched = inodes.map_or(0, |inodes| inodes.table().0.len());
    FileWatchCounters {
        watched: watched as u64,
        refused: REFUSED.load(Relaxed),
    }
}

/// Events reported for an inode since it is watched. The kernel may merge consecutive equal events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InotifyCounts {
    /// Writes and truncations; also losses of events, as the lost ones may have been writes.
    pub writes: u64,
    /// Changes of metadata.
    pub attributes: u64,
}

/// See [`watched_inodes`].
pub(super) struct WatchedInodes {
    inotify: OwnedFd,
    table: Mutex<InodeTable>,
}

impl WatchedInodes {
    /// Watches the inode at a path for another transfer, and returns the events reported so far.
    pub(super) fn add(&self, path: &str) -> Option<(i32, InotifyCounts)> {
        // The lock is held until the watch is in the table: two transfers of one inode share one watch.
        let mut table = self.table();
        let flags = WatchFlags::MODIFY | WatchFlags::ATTRIB;
        let watch = match table.0.len() < INODES_MAX {
            true => inotify::add_watch(&self.inotify, path, flags).ok(),
            false => None,
        };
        let Some(watch) = watch else {
            REFUSED.fetch_add(1, Relaxed);
            return None;
        };
        table.0.entry(watch).or_default().users += 1;
        // Earlier events are read first, so that they are not counted for this transfer.
        self.drain(&mut table);
        Some((watch, table.0.get(&watch)?.events))
    }

    /// The events reported for an inode so far.
    pub(super) fn events(&self, watch: i32) -> Option<InotifyCounts> {
        let mut table = self.table();
        self.drain(&mut table);
        Some(table.0.get(&watch)?.events)
    }

    /// Ends a transfer; the last transfer of an inode ends its watch.
    pub(super) fn remove(&self, watch: i32) {
        let mut table = self.table();
        let Some(inode) = table.0.get_mut(&watch) else {
            return;
        };
        inode.users -= 1;
        if inode.users == 0 {
            table.0.remove(&watch);
            // The kernel may have ended the watch already.
            let _ = inotify::remove_watch(&self.inotify, watch);
        }
    }

    fn drain(&self, table: &mut InodeTable) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => table.record(event.wd(), event.events()),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                // After another error, events may be lost.
                Err(_) => return table.record(-1, ReadFlags::QUEUE_OVERFLOW),
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, InodeTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Inodes by their watch descriptors, which the kernel does not soon reuse.
#[derive(Default)]
struct InodeTable(HashMap<i32, WatchedInode>);

#[derive(Default)]
struct WatchedInode {
    /// Open files that share the watch.
    users: usize,
    events: InotifyCounts,
}

impl InodeTable {
    fn record(&mut self, watch: i32, flags: ReadFlags) {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.0
                .values_mut()
                .for_each(|inode| inode.events.writes += 1);
            return;
        }
        // Events of a watch may arrive after its end.
        let Some(inode) = self.0.get_mut(&watch) else {
            return;
        };
        let is_over = ReadFlags::IGNORED | ReadFlags::UNMOUNT;
        inode.events.writes += u64::from(flags.intersects(ReadFlags::MODIFY | is_over));
        inode.events.attributes += u64::from(flags.contains(ReadFlags::ATTRIB));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_overflow_counts_as_write_to_every_inode() {
        let mut table = InodeTable::default();
        table.0.insert(1, WatchedInode::default());
        table.0.insert(2, WatchedInode::default());
        table.record(1, ReadFlags::ATTRIB);
        table.record(2, ReadFlags::IGNORED);
        table.record(3, ReadFlags::MODIFY);
        table.record(-1, ReadFlags::QUEUE_OVERFLOW);
        let counts = |watch| {
            let events = table.0[&watch].events;
            (events.attributes, events.writes)
        };
        assert_eq!((counts(1), counts(2)), ((1, 1), (0, 2)));
    }

    #[test]
    fn transfers_of_one_inode_share_a_watch() {
        let path = std::env::temp_dir().join(format!("lowroad-inode-{}", std::process::id()));
        std::fs::write(&path, "1").expect("written");
        let name = path.to_str().expect("text");
        let inodes = watched_inodes().expect("inotify");
        let (first, none) = inodes.add(name).expect("watched");
        assert_eq!(none, InotifyCounts::default());
        std::fs::write(&path, "2").expect("written");
        let (second, events) = inodes.add(name).expect("watched");
        assert_eq!(first, second);
        assert!(events.writes > 0);
        inodes.remove(first);
        assert_eq!(inodes.events(second), Some(events));
        inodes.remove(second);
        assert_eq!(inodes.events(second), None);
        std::fs::remove_file(path).expect("removed");
    }
}
