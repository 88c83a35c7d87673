//! Looks up paths below a folder that they cannot leave, and caches recent results.
//!
//! The kernel enforces the containment, as for the site's files: openat2(2) with RESOLVE_BENEATH. A look-up takes
//! microseconds on a local disk.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use lowroad_config::SymlinkPolicy;
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{PathMeaning, ScriptFolder, ScriptKind};

/// The kind of the decoded path `path` below `folder`.
pub fn kind(folder: &Path, path: &[u8], symlinks: SymlinkPolicy) -> ScriptKind {
    kind_of(folder, path, symlinks).unwrap_or(ScriptKind::Nothing)
}

/// The kind of a path of the URL space.
pub fn kind_below(folder: ScriptFolder<'_>, path: &[u8], symlinks: SymlinkPolicy) -> ScriptKind {
    match path.get(folder.prefix_len..) {
        // Folders of the URL space above `folder` need not exist on disk.
        None | Some([]) => ScriptKind::Folder,
        Some(path) => kind(folder.folder, path, symlinks),
    }
}

/// Whether this process may execute a file.
pub fn is_executable(file: &Path) -> bool {
    // EACCESS: checks the effective user, since the server may have dropped its privileges.
    rustix::fs::accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

fn kind_of(folder: &Path, path: &[u8], symlinks: SymlinkPolicy) -> rustix::io::Result<ScriptKind> {
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    let relative = if relative.is_empty() { b"." } else { relative };
    // O_PATH: only metadata is needed, and opening a device or FIFO would have side effects.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = match symlinks {
        SymlinkPolicy::Beneath => ResolveFlags::BENEATH,
        SymlinkPolicy::None => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        SymlinkPolicy::Follow => ResolveFlags::empty(),
    };
    let folder_fd = rustix::fs::openat(CWD, folder, flags | OFlags::DIRECTORY, Mode::empty())?;
    let relative = OsStr::from_bytes(relative);
    let fd = match rustix::fs::openat2(&folder_fd, relative, flags, Mode::empty(), resolve) {
        // ENOSYS: a kernel older than 5.6, or a seccomp filter.
        Err(Errno::NOSYS) => open_without_openat2(folder, relative, symlinks)?,
        result => result?,
    };
    let mode = rustix::fs::fstat(&fd)?.st_mode;
    Ok(match FileType::from_raw_mode(mode) {
        FileType::RegularFile => ScriptKind::File,
        FileType::Directory => ScriptKind::Folder,
        _ => ScriptKind::Nothing,
    })
}

/// Fallback without openat2(2): resolves the path first, then opens the result without following a symbolic link at its
/// end.
fn open_without_openat2(
    folder: &Path,
    relative: &OsStr,
    symlinks: SymlinkPolicy,
) -> rustix::io::Result<OwnedFd> {
    let path = folder.join(relative);
    let to_errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let real = path.canonicalize().map_err(to_errno)?;
    let base = folder.canonicalize().map_err(to_errno)?;
    let allowed = match symlinks {
        SymlinkPolicy::Beneath => real.starts_with(&base),
        // The canonical base contains no symbolic links, so any difference is due to a link below it.
        SymlinkPolicy::None => real == base.join(relative).components().collect::<PathBuf>(),
        SymlinkPolicy::Follow => true,
    };
    if !allowed {
        // The same error as that of openat2(2) with RESOLVE_BENEATH.
        return Err(Errno::XDEV);
    }
    // O_NOFOLLOW: the path is resolved, so a link at its end was created afterwards.
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(CWD, &real, flags, Mode::empty())
}

/// A cache of recent look-ups, so that a frequently used script costs no system calls. Results are valid for half a
/// second, like those for the site's files without change notification. Only found scripts are cached. Times are in
/// monotonic ms of any worker.
#[derive(Default)]
pub struct ScriptCache {
    entries: Mutex<HashMap<Arc<Path>, ScriptMatch>>,
}

type ScriptMatch = HashMap<Box<[u8]>, (u64, PathMeaning)>;

/// The lifetime of a cached result.
const RESULT_LIFETIME_MS: u64 = 500;
/// The maximum number of cached paths; when it is reached, the cache is cleared.
const PATHS_MAX: usize = 1024;
/// The maximum length of a cached path.
const PATH_LEN_MAX: usize = 512;

impl ScriptCache {
    /// The cached result for `path`; does not access the file system.
    pub fn get(&self, root: &Arc<Path>, path: &[u8], now_ms: u64) -> Option<PathMeaning> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (stored_at_ms, meaning) = entries.get(root)?.get(path)?;
        (now_ms.saturating_sub(*stored_at_ms) < RESULT_LIFETIME_MS).then(|| meaning.clone())
    }

    /// Stores the result of a look-up that began at `now_ms`.
    pub fn insert(&self, root: &Arc<Path>, path: &[u8], now_ms: u64, meaning: &PathMeaning) {
        // Clients could otherwise fill the cache with paths that do not exist.
        if !matches!(meaning, PathMeaning::Script(_)) || path.len() > PATH_LEN_MAX {
            return;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        // The cache is cleared completely: entries live for only half a second anyway.
        if entries.values().map(HashMap::len).sum::<usize>() >= PATHS_MAX {
            entries.clear();
        }
        let paths = entries.entry(root.clone()).or_default();
        paths.insert(path.into(), (now_ms, meaning.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_the_folder_are_not_found() {
        let folder = lowroad_testkit::TempFolder::new();
        folder.file("in/a.php", "x");
        folder.file("out.php", "x");
        let root = folder.path().join("in");
        std::os::unix::fs::symlink("a.php", root.join("beside.php")).expect("a link");
        std::os::unix::fs::symlink("../out.php", root.join("out.php")).expect("a link");
        for (path, symlinks, want) in [
            ("/a.php", SymlinkPolicy::Beneath, ScriptKind::File),
            ("/", SymlinkPolicy::Beneath, ScriptKind::Folder),
            ("/none", SymlinkPolicy::Beneath, ScriptKind::Nothing),
            ("/a.php/x", SymlinkPolicy::Beneath, ScriptKind::Nothing),
            ("/beside.php", SymlinkPolicy::Beneath, ScriptKind::File),
            ("/beside.php", SymlinkPolicy::None, ScriptKind::Nothing),
            ("/out.php", SymlinkPolicy::Beneath, ScriptKind::Nothing),
            ("/out.php", SymlinkPolicy::None, ScriptKind::Nothing),
            ("/out.php", SymlinkPolicy::Follow, ScriptKind::File),
        ] {
            assert_eq!(kind(&root, path.as_bytes(), symlinks), want, "{path}");
            let relative = OsStr::new(path.trim_start_matches('/'));
            let opened = open_without_openat2(&root, relative, symlinks);
            assert_eq!(
                opened.is_ok(),
                want != ScriptKind::Nothing,
                "{path} by hand"
            );
        }
    }

    #[test]
    fn found_scripts_are_cached_for_half_a_second() {
        let script_cache = ScriptCache::default();
        let root: Arc<Path> = Arc::from(Path::new("/srv"));
        let script = PathMeaning::Script(super::super::front_controller(b"/", "/a.php"));
        script_cache.insert(&root, b"/a", 1000, &script);
        assert_eq!(script_cache.get(&root, b"/a", 1499), Some(script.clone()));
        assert_eq!(script_cache.get(&root, b"/a", 1500), None);
        // The clock of another worker may be slightly behind.
        assert_eq!(script_cache.get(&root, b"/a", 990), Some(script.clone()));
        assert_eq!(script_cache.get(&root, b"/b", 1000), None);
        script_cache.insert(&root, b"/b", 1000, &PathMeaning::Nothing);
        script_cache.insert(&root, &[b'x'; PATH_LEN_MAX + 1], 1000, &script);
        assert_eq!(script_cache.get(&root, b"/b", 1000), None);
        assert_eq!(
            script_cache.get(&root, &[b'x'; PATH_LEN_MAX + 1], 1000),
            None
        );
        let other: Arc<Path> = Arc::from(Path::new("/other"));
        assert_eq!(script_cache.get(&other, b"/a", 1000), None);
    }
}
