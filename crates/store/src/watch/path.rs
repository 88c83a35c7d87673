//! Watches the folders along a path with inotify: every folder in which a component of the path is looked up, with
//! symbolic links followed.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use super::{FolderWatcher, WatchedFolder};

/// The maximum number of symbolic links in a look-up, as in the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Detects that some paths may lead to other files now, or that their files may have changed.
pub struct PathWatch {
    /// The folders along the paths, with their generations before the look-up.
    folders: Vec<(Arc<WatchedFolder>, u64)>,
}

impl PathWatch {
    /// Watches all folders along these paths, from the root of the file system. If a component does not exist, its
    /// creation counts as a change. `None` if a folder can't be watched.
    pub fn new(
        watcher: &FolderWatcher,
        paths: impl IntoIterator<Item = PathBuf>,
    ) -> Option<PathWatch> {
        let removed_before = watcher.folders().removed_count;
        let mut watch = PathWatch {
            folders: Vec::new(),
        };
        for path in paths {
            watch.add(watcher, &path).ok()?;
        }
        // A folder removed in the meantime would never report another change.
        (watcher.folders().removed_count == removed_before).then_some(watch)
    }

    /// Whether no folder has changed.
    pub fn is_unchanged(&self) -> bool {
        let mut folders = self.folders.iter();
        folders.all(|(folder, generation)| folder.generation() == *generation)
    }

    fn add(&mut self, watcher: &FolderWatcher, path: &Path) -> io::Result<()> {
        let mut folder = PathBuf::from("/");
        let mut pending = PendingParts::default();
        pending.push(&std::path::absolute(path)?);
        let mut links = 0;
        while let Some(part) = pending.take() {
            // `folder` contains no symbolic links, so its textual parent is the real one.
            if part == ".." {
                folder.pop();
                continue;
            }
            if part == "/" {
                folder = PathBuf::from("/");
                continue;
            }
            // Every folder along the path is watched: a link in any of them may be replaced.
            let watched = watcher.add(&folder)?;
            let generation = watched.generation();
            self.folders.push((watched, generation));
            let next = folder.join(&part);
            match fs::symlink_metadata(&next) {
                Ok(meta) if meta.is_symlink() => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(rustix::io::Errno::LOOP.into());
                    }
                    pending.push(&fs::read_link(&next)?);
                }
                Ok(_) => folder = next,
                // The watch of the folder reports the creation of the entry.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The components that are still to be looked up, the next one last.
#[derive(Default)]
struct PendingParts(Vec<OsString>);

impl PendingParts {
    /// Puts the components of a path before the remaining ones.
    fn push(&mut self, path: &Path) {
        let parts = path.components().rev();
        let parts = parts.filter(|part| !matches!(part, Component::CurDir));
        self.0.extend(parts.map(|part| part.as_os_str().to_owned()));
    }

    fn take(&mut self) -> Option<OsString> {
        self.0.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn wait_for_change(watch: &PathWatch) {
        while watch.is_unchanged() {
            std::thread::yield_now();
        }
    }

    /// The file names come from a configuration that was given by a relative path.
    #[test]
    fn relative_paths_are_watched() {
        let name = format!("lowroad-relative-{}", std::process::id());
        let here = std::env::current_dir().expect("a folder");
        let root = std::env::temp_dir().join(name);
        fs::create_dir_all(&root).expect("create");
        let up = here.ancestors().skip(1).map(|_| "..");
        let below = root.strip_prefix("/").expect("absolute");
        let relative = up.collect::<PathBuf>().join(below).join("key");
        let watcher = FolderWatcher::start(Arc::default()).expect("inotify");
        is_reported(&watcher, &relative, || {
            fs::write(root.join("key"), "1").expect("write");
        });
        fs::remove_dir_all(root).expect("remove");
    }

    /// Runs a change of the folder, and waits until it is reported for the path.
    fn is_reported(watcher: &FolderWatcher, path: &Path, change: impl FnOnce()) {
        let watch = PathWatch::new(watcher, [path.to_owned()]).expect("watched");
        assert!(watch.is_unchanged());
        change();
        wait_for_change(&watch);
    }

    #[test]
    fn changes_in_any_folder_along_a_path_are_reported() {
        let root = std::env::temp_dir().join(format!("lowroad-way-{}", std::process::id()));
        let root = &root;
        for folder in ["one", "two", "away"] {
            fs::create_dir_all(root.join(folder)).expect("create");
        }
        fs::write(root.join("one/key"), "1").expect("write");
        fs::write(root.join("two/key"), "2").expect("write");
        symlink("one", root.join("data")).expect("link");
        symlink("./data/../data/key", root.join("key")).expect("link");
        let watcher = FolderWatcher::start(Arc::default()).expect("inotify");
        let path = &root.join("away/../key");
        is_reported(&watcher, path, || {
            fs::write(root.join("one/key"), "3").expect("write");
        });
        // Kubernetes replaces a mounted secret by renaming a link that is not part of the path.
        symlink("two", root.join("new")).expect("link");
        is_reported(&watcher, path, || {
            fs::rename(root.join("new"), root.join("data")).expect("rename");
        });
        is_reported(&watcher, path, || {
            fs::write(root.join("two/new"), "4").expect("write");
            fs::rename(root.join("two/new"), root.join("two/key")).expect("rename");
        });
        is_reported(&watcher, path, || {
            fs::rename(root.join("two"), root.join("three")).expect("rename");
        });
        // The path no longer resolves to a file.
        is_reported(&watcher, path, || {
            fs::rename(root.join("three"), root.join("two")).expect("rename");
        });
        symlink("loop", root.join("loop")).expect("link");
        assert!(PathWatch::new(&watcher, [root.join("loop")]).is_none());
        fs::remove_dir_all(root).expect("remove");
    }
}
