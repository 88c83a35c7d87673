//! Opens the file of a path without leaving the site's folder.
//!
//! The kernel enforces this: openat2(2) with RESOLVE_BENEATH. Folders, devices, pipes and sockets are distinguished
//! from regular files before they are opened for reading, because opening may have side effects. Blocks on the disk, so
//! it runs on helper threads.

mod file_activity;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use lowroad_config::SymlinkPolicy;
use lowroad_engine::file::OpenFile;
use lowroad_file_stamp::FileStamp;
use lowroad_http::status::StatusCode;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

pub use self::file_activity::{wait_until_stable, with_current_stamp};

/// Why a path can't be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFailure {
    /// The status for the client.
    pub status: StatusCode,
    /// The path has symbolic links with targets that may change without a report for the watched folder.
    pub linked: bool,
}

impl From<OpenFailure> for StatusCode {
    fn from(failure: OpenFailure) -> StatusCode {
        failure.status
    }
}

/// An open folder of a site, below which paths are resolved.
pub struct SiteFolder {
    fd: OwnedFd,
    symlinks: SymlinkPolicy,
}

/// The target of a path.
pub enum PathTarget {
    /// A regular file.
    File(OpenFile),
    /// A folder.
    Folder,
}

/// The result of resolving a path.
pub struct ResolvedPath {
    /// The target.
    pub target: PathTarget,
    /// The path has symbolic links, or the file has several hard links: it may be changed through folders that are not
    /// watched.
    pub linked: bool,
}

impl SiteFolder {
    /// Opens the folder `relative` below the trusted folder `base`.
    ///
    /// # Errors
    /// The status for the kernel's error; see [`status_of`].
    pub fn open(
        base: &Path,
        relative: &Path,
        symlinks: SymlinkPolicy,
    ) -> Result<SiteFolder, StatusCode> {
        // With O_PATH, search permission suffices, and nothing is opened for reading.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, base, flags, Mode::empty()).map_err(status_of)?;
        let base = SiteFolder { fd, symlinks };
        if relative.as_os_str().is_empty() {
            return Ok(base);
        }
        let (fd, _) = base.open_at(relative, flags)?;
        Ok(SiteFolder { fd, symlinks })
    }

    /// Resolves `path` (relative, without dot segments) and opens it if it is a file.
    ///
    /// # Errors
    /// 404 if there is no such file, 403 if it may not be read or is not a regular file, 503 if there are no free file
    /// descriptors, 500 otherwise.
    pub fn find(&self, path: &Path) -> Result<ResolvedPath, OpenFailure> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        // The file type is checked before opening, since opening a device or FIFO has side effects.
        let (path_fd, linked) = self.open_at(path, OFlags::PATH | OFlags::CLOEXEC)?;
        let failure = |status| OpenFailure { status, linked };
        let stat = rustix::fs::fstat(&path_fd).map_err(|error| failure(status_of(error)))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        match kind {
            FileType::Directory => Ok(ResolvedPath {
                target: PathTarget::Folder,
                linked,
            }),
            FileType::RegularFile => {
                let file = self.open_file(path)?;
                // A change through another hard link is reported only for the folder of that link.
                let linked = linked || file.stamp.links > 1;
                let target = PathTarget::File(file);
                Ok(ResolvedPath { target, linked })
            }
            _ => Err(failure(StatusCode::FORBIDDEN)),
        }
    }

    /// The stamp of the file at `path`, if there is a readable one, and whether it is linked (see `ResolvedPath`).
    pub fn stamp(&self, path: &Path) -> Option<(FileStamp, bool)> {
        let resolved = self.find(path).ok()?;
        match resolved.target {
            PathTarget::File(file) => Some((file.stamp, resolved.linked)),
            PathTarget::Folder => None,
        }
    }

    /// Lists the folder at `path`.
    ///
    /// # Errors
    /// As of `SiteFolder::find`.
    pub fn list(&self, path: &Path) -> Result<rustix::fs::Dir, StatusCode> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let (fd, _) = self.open_at(path, flags)?;
        rustix::fs::Dir::new(fd).map_err(status_of)
    }

    fn open_file(&self, path: &Path) -> Result<OpenFile, OpenFailure> {
        // Non-blocking, in case the file was replaced by a pipe since the check.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let (fd, linked) = self.open_at(path, flags)?;
        let file = File::from(fd);
        let failure = |status| OpenFailure { status, linked };
        let meta = file
            .metadata()
            .map_err(|_| failure(StatusCode::INTERNAL_ERROR))?;
        if !meta.is_file() {
            return Err(failure(StatusCode::FORBIDDEN));
        }
        Ok(OpenFile::new(file, FileStamp::from(&meta)))
    }

    /// Opens a path; returns whether symbolic links were followed. Tries without links first, since then the folders
    /// along the path are known and can be watched.
    fn open_at(&self, path: &Path, flags: OFlags) -> Result<(OwnedFd, bool), OpenFailure> {
        // The kernel rejects paths that leave the folder (openat2(2)).
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let strict = beneath | ResolveFlags::NO_SYMLINKS;
        let through_links = match openat2(&self.fd, path, flags, Mode::empty(), strict) {
            Ok(fd) => return Ok((fd, false)),
            // Linux before 5.6.
            Err(Errno::NOSYS) => return self.walk(path, flags),
            Err(Errno::LOOP) => match self.symlinks {
                SymlinkPolicy::Beneath => openat2(&self.fd, path, flags, Mode::empty(), beneath),
                SymlinkPolicy::Follow => openat(&self.fd, path, flags, Mode::empty()),
                SymlinkPolicy::None => Err(Errno::LOOP),
            },
            Err(error) => {
                return Err(OpenFailure {
                    status: status_of(error),
                    linked: false,
                });
            }
        };
        let failure = |error| OpenFailure {
            status: status_of(error),
            linked: true,
        };
        through_links.map(|fd| (fd, true)).map_err(failure)
    }

    /// Opens a path component by component, on systems without openat2(2). Does not follow symbolic links.
    fn walk(&self, path: &Path, flags: OFlags) -> Result<(OwnedFd, bool), OpenFailure> {
        // Links are not followed, so changes are reported for the watched folders.
        let failure = |status| OpenFailure {
            status,
            linked: false,
        };
        let failed = |error| failure(status_of(error));
        let mut parts = path.components().peekable();
        let mut current_fd: Option<OwnedFd> = None;
        while let Some(part) = parts.next() {
            let last = parts.peek().is_none();
            let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            // A final slash requires a folder, as with openat2(2).
            let folder_wanted = last && path.as_os_str().as_encoded_bytes().ends_with(b"/");
            let flags = match (last, folder_wanted) {
                (true, false) => flags,
                (true, true) => flags | OFlags::DIRECTORY,
                (false, _) => step,
            };
            let from = current_fd.as_ref().unwrap_or(&self.fd);
            let fd = openat(
                from,
                part.as_os_str(),
                flags | OFlags::NOFOLLOW,
                Mode::empty(),
            )
            .map_err(failed)?;
            let mode = rustix::fs::fstat(&fd).map_err(failed)?.st_mode;
            // O_PATH opens a symbolic link itself.
            if FileType::from_raw_mode(mode) == FileType::Symlink {
                return Err(failure(StatusCode::FORBIDDEN));
            }
            current_fd = Some(fd);
        }
        current_fd
            .map(|fd| (fd, false))
            .ok_or(failure(StatusCode::NOT_FOUND))
    }
}

/// The status code for a file that can't be opened.
pub fn status_of(error: Errno) -> StatusCode {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => StatusCode::NOT_FOUND,
        // XDEV: a path that leaves the folder. LOOP: a symbolic link that is not allowed.
        Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::XDEV => StatusCode::FORBIDDEN,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk_is_as_strict_as_openat2() {
        let root = std::env::temp_dir().join(format!("lowroad-walk-{}", std::process::id()));
        std::fs::create_dir_all(root.join("a/b")).expect("create");
        std::fs::write(root.join("a/b/file"), b"x").expect("write");
        std::os::unix::fs::symlink("b", root.join("a/link")).expect("link");
        std::os::unix::fs::symlink("/etc/passwd", root.join("a/out")).expect("link");
        let folder = SiteFolder::open(&root, Path::new(""), SymlinkPolicy::None).expect("open");
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        for (path, want) in [
            ("a/b/file", Ok(())),
            ("a/b", Ok(())),
            ("a/b/", Ok(())),
            (".", Ok(())),
            ("a/b/file/", Err(StatusCode::NOT_FOUND)),
            ("a/b/none", Err(StatusCode::NOT_FOUND)),
            ("a/link/file", Err(StatusCode::FORBIDDEN)),
            ("a/link", Err(StatusCode::FORBIDDEN)),
            ("a/out", Err(StatusCode::FORBIDDEN)),
        ] {
            let path = Path::new(path);
            let walked = folder
                .walk(path, flags)
                .map(|_| ())
                .map_err(StatusCode::from);
            let opened = folder
                .open_at(path, flags)
                .map(|_| ())
                .map_err(StatusCode::from);
            assert_eq!(opened, want, "openat2 {path:?}");
            // The walk may return another error for a link in the middle, which it does not follow.
            let walked = walked.map_err(|s| {
                if path == Path::new("a/link/file") {
                    StatusCode::FORBIDDEN
                } else {
                    s
                }
            });
            assert_eq!(walked, want, "step by step {path:?}");
        }
        std::fs::remove_dir_all(&root).expect("remove");
    }
}
