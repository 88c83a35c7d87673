//! Watches folders for changes with inotify(7), so that stored responses from files need no stat(2) at each use.
//!
//! The folder of each stored file is watched, with its ancestors up to the site's root. A change increases the folder's
//! generation; for responses with an earlier generation the files are checked before the next use. If inotify does not
//! work (network file systems, symbolic links in the path, no watches left), responses are used without a check only
//! for a short time.

mod path;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::change_feed::ChangeFeed;
pub use path::PathWatch;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// The maximum number of watched folders. Each takes about 1.5 KiB of kernel memory and 300 bytes of process memory.
const FOLDERS_MAX: usize = 16_384;

/// A watched folder.
pub struct WatchedFolder {
    generation: AtomicU64,
    /// The generation when the watch was added.
    first_generation: u64,
}

impl WatchedFolder {
    /// The generation, which changes whenever the folder or an ancestor may have changed. Generations of different
    /// folders never coincide, so that a folder's generation proves nothing about another folder.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }
}

/// The folder that a response depends on, and its generation before the response was made.
pub type WatchTrust = Option<(Arc<WatchedFolder>, u64)>;

/// The watched folders.
pub struct FolderWatcher {
    inotify: OwnedFd,
    folders: Mutex<FolderTable>,
    generation_next: AtomicU64,
    /// The change feed.
    changes: Arc<ChangeFeed>,
}

#[derive(Default)]
struct FolderTable {
    /// Sorted, so that all descendants of a folder are adjacent.
    by_path: BTreeMap<PathBuf, (i32, Arc<WatchedFolder>)>,
    by_watch: HashMap<i32, PathBuf>,
    /// How many folders have been removed so far.
    removed_count: u64,
}

impl FolderWatcher {
    /// Starts the thread that receives events. `None` if inotify is unavailable.
    pub fn start(changes: Arc<ChangeFeed>) -> Option<Arc<FolderWatcher>> {
        let inotify = inotify::init(CreateFlags::CLOEXEC).ok()?;
        let watcher = Arc::new(FolderWatcher {
            inotify,
            folders: Mutex::default(),
            generation_next: AtomicU64::new(1),
            changes,
        });
        let listener = watcher.clone();
        lowroad_engine::panic_policy::start("watch", move || listener.listen()).ok()?;
        Some(watcher)
    }

    /// Watches the folder `root`/`relative`, and returns its generation from before the caller reads the folder. `None`
    /// if the folder can't be watched.
    pub fn folder(&self, root: &Path, relative: &Path) -> WatchTrust {
        // Read before the watches are added, and compared afterwards.
        let removed_before = self.folders().removed_count;
        let mut path = root.to_path_buf();
        let mut folder = self.add(&path).ok()?;
        for part in relative.components() {
            path.push(part);
            folder = self.add(&path).ok()?;
        }
        let folders = self.folders();
        let generation = folder.generation();
        // If the folder or an ancestor was removed in the meantime, no further change would be reported.
        (folders.removed_count == removed_before).then_some((folder, generation))
    }

    fn add(&self, path: &Path) -> io::Result<Arc<WatchedFolder>> {
        // In the common case the folder is already watched: no system call.
        if let Some((_, folder)) = self.folders().by_path.get(path) {
            return Ok(folder.clone());
        }
        // Checked before locking, since a file system that hangs must not block requests for other folders.
        if !reports_changes(path)? {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut folders = self.folders();
        if let Some((_, folder)) = folders.by_path.get(path) {
            return Ok(folder.clone());
        }
        // The kernel also limits the watches of a user (fs.inotify.max_user_watches).
        if folders.by_path.len() >= FOLDERS_MAX {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let watch = inotify::add_watch(&self.inotify, path, watched_changes())?;
        // Generations are never reused, so that the generation of a removed folder can't match a new watch.
        let first_generation = self.new_generation();
        let folder = Arc::new(WatchedFolder {
            generation: AtomicU64::new(first_generation),
            first_generation,
        });
        // If a folder is reached by two paths, both have the same inotify watch: it is assigned to the later path, and
        // responses of the earlier path are checked again.
        if let Some(earlier) = folders.by_watch.insert(watch, path.to_path_buf())
            && let Some((_, folder)) = folders.by_path.remove(&earlier)
        {
            self.mark_changed(&folder);
            folders.removed_count += 1;
        }
        folders
            .by_path
            .insert(path.to_path_buf(), (watch, folder.clone()));
        Ok(folder)
    }

    fn listen(&self) {
        // Removes all folders when the thread ends, even by a panic: no more changes are reported then.
        let _end = WatchLost(self);
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            self.handle_event(
                event.wd(),
                event.events(),
                event.file_name().map(|name| name.to_bytes()),
            );
        }
    }

    fn handle_event(&self, watch: i32, flags: ReadFlags, name: Option<&[u8]>) {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            // Events were lost, so any folder may have changed (inotify(7)).
            return self.remove_all();
        }
        let mut folders = self.folders();
        let Some(path) = folders.by_watch.get(&watch).cloned() else {
            return;
        };
        if let Some((_, folder)) = folders.by_path.get(&path) {
            self.mark_changed(folder);
        }
        let removal_flags = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED;
        if flags.intersects(removal_flags) {
            self.remove_below(&mut folders, &path);
        } else if flags.contains(ReadFlags::ISDIR)
            && let Some(name) = name
        {
            // A subfolder was replaced or removed: the watches below it may be of other paths now.
            self.remove_below(&mut folders, &path.join(OsStr::from_bytes(name)));
        }
    }

    /// Removes the watches of a folder and its descendants, since their paths may lead to other folders now.
    fn remove_below(&self, folders: &mut FolderTable, path: &Path) {
        let following = folders.by_path.range(path.to_path_buf()..);
        let below: Vec<PathBuf> = following
            .map(|(watched_path, _)| watched_path)
            // Paths are ordered by component, so descendants follow their ancestor.
            .take_while(|watched_path| watched_path.starts_with(path))
            .cloned()
            .collect();
        folders.removed_count += below.len() as u64;
        for path in below {
            if let Some((watch, folder)) = folders.by_path.remove(&path) {
                self.mark_changed(&folder);
                folders.by_watch.remove(&watch);
                // The kernel may have removed the watch already.
                let _ = inotify::remove_watch(&self.inotify, watch);
            }
        }
    }

    /// Records that a folder or an ancestor may have changed.
    fn mark_changed(&self, folder: &WatchedFolder) {
        // Responses with the old generation are checked at their next use.
        folder.generation.store(self.new_generation(), Release);
        self.changes.notify();
    }

    fn new_generation(&self) -> u64 {
        self.generation_next.fetch_add(1, Relaxed)
    }

    fn remove_all(&self) {
        let mut folders = self.folders();
        self.remove_below(&mut folders, Path::new("/"));
    }

    /// The current generation, for `FolderWatcher::remove_unused`.
    pub fn mark(&self) -> u64 {
        self.generation_next.load(Relaxed)
    }

    /// Removes the watches that were added since the generation `since` and that no response depends on.
    pub fn remove_unused(&self, since: u64) {
        let mut folders = self.folders();
        let added = folders.by_path.iter().rev();
        let added = added.filter(|(_, (_, folder))| folder.first_generation >= since);
        let added: Vec<PathBuf> = added.map(|(path, _)| path.clone()).collect();
        for path in added {
            // Descendants are removed first, since the watch of a folder needs the watches of its ancestors.
            let mut following = folders.by_path.range(path.clone()..);
            let is_unused = following
                .next()
                .is_some_and(|(_, (_, folder))| Arc::strong_count(folder) == 1);
            let has_descendants = following
                .next()
                .is_some_and(|(next, _)| next.starts_with(&path));
            if !is_unused || has_descendants {
                continue;
            }
            if let Some((watch, _)) = folders.by_path.remove(&path) {
                folders.by_watch.remove(&watch);
                folders.removed_count += 1;
                // The kernel may have removed the watch already.
                let _ = inotify::remove_watch(&self.inotify, watch);
            }
        }
    }

    /// The number of watched folders.
    pub fn folder_count(&self) -> usize {
        self.folders().by_path.len()
    }

    fn folders(&self) -> MutexGuard<'_, FolderTable> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes all folders when the thread ends: without events, responses must be checked.
struct WatchLost<'w>(&'w FolderWatcher);

impl Drop for WatchLost<'_> {
    fn drop(&mut self) {
        self.0.remove_all();
    }
}

fn watched_changes() -> WatchFlags {
    WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR
        | WatchFlags::DONT_FOLLOW
}

/// Whether inotify reports all changes in a folder. It does not on file systems that other hosts can change.
fn reports_changes(path: &Path) -> io::Result<bool> {
    const NFS: u32 = 0x6969;
    const SMB: u32 = 0x517b;
    const CIFS: u32 = 0xff53_4d42;
    const SMB2: u32 = 0xfe53_4d42;
    const FUSE: u32 = 0x6573_5546;
    const V9FS: u32 = 0x0102_1997;
    const CEPH: u32 = 0x00c3_6400;
    const AFS: u32 = 0x5346_414f;
    let kind = rustix::fs::statfs(path)?.f_type as u32;
    Ok(![NFS, SMB, CIFS, SMB2, FUSE, V9FS, CEPH, AFS].contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn wait_for_change(folder: &WatchedFolder, since: u64) -> bool {
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            if folder.generation() != since {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    #[test]
    fn changes_in_a_folder_and_its_ancestors_are_reported() {
        let root = std::env::temp_dir().join(format!("lowroad-watch-{}", std::process::id()));
        std::fs::create_dir_all(root.join("a/b")).expect("create");
        std::fs::write(root.join("a/b/file"), b"1").expect("write");
        let watcher = FolderWatcher::start(Arc::default()).expect("inotify");
        let (folder, before) = watcher.folder(&root, Path::new("a/b")).expect("watched");
        assert_eq!(watcher.folder_count(), 3);
        std::fs::write(root.join("a/b/file"), b"2").expect("write");
        assert!(wait_for_change(&folder, before), "a write in the folder");

        let (folder, before) = watcher.folder(&root, Path::new("a/b")).expect("watched");
        std::fs::rename(root.join("a"), root.join("c")).expect("rename");
        assert!(wait_for_change(&folder, before), "an ancestor renamed");
        assert!(watcher.folder(&root, Path::new("a/b")).is_none(), "gone");
        std::fs::remove_dir_all(&root).expect("remove");
    }

    #[test]
    fn unused_watches_are_removed() {
        let root = std::env::temp_dir().join(format!("lowroad-unused-{}", std::process::id()));
        std::fs::create_dir_all(root.join("a/b")).expect("create");
        let watcher = FolderWatcher::start(Arc::default()).expect("inotify");
        let mark = watcher.mark();
        drop(watcher.folder(&root, Path::new("a/b")).expect("watched"));
        watcher.remove_unused(mark);
        assert_eq!(watcher.folder_count(), 0);
        let (trusted, _) = watcher.folder(&root, Path::new("a")).expect("watched");
        let mark = watcher.mark();
        drop(watcher.folder(&root, Path::new("a/b")).expect("watched"));
        watcher.remove_unused(mark);
        assert_eq!(watcher.folder_count(), 2);
        // Folders in use and their ancestors are still watched.
        watcher.remove_unused(0);
        assert_eq!(watcher.folder_count(), 2);
        drop(trusted);
        watcher.remove_unused(0);
        assert_eq!(watcher.folder_count(), 0);
        std::fs::remove_dir_all(&root).expect("remove");
    }
}
