//! Opens a file only if root alone controls its path, that is, if other users can change no folder along it, including
//! folders reached through symbolic links. Each component is opened relative to its parent's descriptor, so that
//! nothing can change between check and use (TOCTOU).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;

/// Maximum number of symbolic links along a path, as in the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;
/// The mode of a new log. Logs contain client addresses, so other users may not read them.
const LOG_MODE: Mode = Mode::from_raw_mode(0o640);
const PRIVATE_FILE_MODE: Mode = Mode::from_raw_mode(0o600);

/// The reason why a file is not opened.
#[derive(Debug)]
pub enum UntrustedPath {
    /// Users other than root may change this folder, or the file itself.
    By(PathBuf),
    /// The path does not refer to a regular file.
    Kind,
    /// A system call failed.
    Io(io::Error),
}

impl std::fmt::Display for UntrustedPath {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            UntrustedPath::By(path) => write!(
                to,
                "root does not open it, because other users can change {}",
                path.display()
            ),
            UntrustedPath::Kind => {
                to.write_str("root does not open it, because it is not a regular file")
            }
            UntrustedPath::Io(error) => write!(to, "root can't open it either: {error}"),
        }
    }
}

impl From<Errno> for UntrustedPath {
    fn from(error: Errno) -> UntrustedPath {
        UntrustedPath::Io(error.into())
    }
}

/// Opens a file for reading.
///
/// # Errors
/// If others can change the path, or the file can't be opened.
pub fn open_read(path: &Path) -> Result<File, UntrustedPath> {
    open(path, OFlags::RDONLY, Mode::empty())
}

/// Opens a log for appending; creates it if it is missing.
///
/// # Errors
/// If others can change the path, or the file can't be opened.
pub fn open_log(path: &Path) -> Result<File, UntrustedPath> {
    open(
        path,
        OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE,
        LOG_MODE,
    )
}

/// Opens a file for reading and writing; creates it, accessible to root only, if it is missing.
///
/// # Errors
/// If others can change the path, or the file can't be opened.
pub fn open_secret(path: &Path) -> Result<File, UntrustedPath> {
    open(path, OFlags::RDWR | OFlags::CREATE, PRIVATE_FILE_MODE)
}

/// Whether root alone controls the path, as far as it exists.
pub fn is_roots(path: &Path) -> bool {
    !matches!(
        open(path, OFlags::PATH, Mode::empty()),
        Err(UntrustedPath::By(_))
    )
}

/// Opens a file for reading that only root can change: the file itself, too, must be writable by root only.
///
/// # Errors
/// If others can change the file or its path, or the file can't be opened.
pub fn open_unchangeable(path: &Path) -> Result<File, UntrustedPath> {
    let file = open_read(path)?;
    let stat = fstat(&file)?;
    match stat.st_uid == 0 && stat.st_mode & 0o022 == 0 {
        true => Ok(file),
        false => Err(UntrustedPath::By(path.to_owned())),
    }
}

/// The users that may create and replace the entries of a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TrustedOwners {
    /// Only root.
    Roots,
    /// All users may create entries, but may replace only their own (`/tmp`). Only an entry that is a folder of root's
    /// is certainly not another user's link.
    Sticky,
}

fn open(path: &Path, flags: OFlags, mode: Mode) -> Result<File, UntrustedPath> {
    let mut trail = FolderTrail::new()?;
    let mut rest = Vec::new();
    push(&mut rest, path);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        // An absolute path, or the absolute target of a link, begins at the root.
        if part == "/" {
            trail = FolderTrail::new()?;
            continue;
        }
        // The parent is the folder that was checked on the way, since the current folder may have been moved in the
        // meantime.
        if part == ".." {
            trail.go_to_parent();
            continue;
        }
        match trail.open_entry(&part) {
            Ok((folder, stat)) if kind(&stat) == FileType::Directory => {
                trail.enter(folder, &stat, part)?;
            }
            Ok((link, stat)) if kind(&stat) == FileType::Symlink => {
                // In a folder where others may create entries, a link may be theirs and lead anywhere.
                trail.check_entries()?;
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                let target = readlinkat(&link, "", Vec::new())?.into_bytes();
                push(&mut rest, Path::new(&OsString::from_vec(target)));
            }
            Ok(_) if rest.is_empty() => return trail.open(&part, flags, mode),
            // The file itself may be missing, since logs and secrets are created.
            Err(Errno::NOENT) if rest.is_empty() => return trail.open(&part, flags, mode),
            Ok(_) => return Err(Errno::NOTDIR.into()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(UntrustedPath::Kind)
}

/// The folders along the path, from the root on.
struct FolderTrail(Vec<(OwnedFd, TrustedOwners, PathBuf)>);

impl FolderTrail {
    fn new() -> Result<FolderTrail, UntrustedPath> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open("/", flags, Mode::empty())?;
        let stat = fstat(&root)?;
        let mut trail = FolderTrail(Vec::new());
        trail
            .0
            .push((root, entries(&stat, Path::new("/"))?, "/".into()));
        Ok(trail)
    }

    fn last(&self) -> &(OwnedFd, TrustedOwners, PathBuf) {
        self.0.last().expect("the root is never left")
    }

    fn go_to_parent(&mut self) {
        if self.0.len() > 1 {
            self.0.pop();
        }
    }

    fn open_entry(&self, part: &OsStr) -> rustix::io::Result<(OwnedFd, Stat)> {
        // Opens a descriptor of the entry itself, so that the check and the next step concern the same file.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entry = openat(&self.last().0, part, flags, Mode::empty())?;
        let stat = fstat(&entry)?;
        Ok((entry, stat))
    }

    fn enter(&mut self, folder: OwnedFd, stat: &Stat, part: OsString) -> Result<(), UntrustedPath> {
        let path = self.last().2.join(part);
        let entries = entries(stat, &path)?;
        self.0.push((folder, entries, path));
        Ok(())
    }

    /// Checks that only root may have created the entries that are not folders.
    fn check_entries(&self) -> Result<(), UntrustedPath> {
        let (_, entries, path) = self.last();
        match entries {
            TrustedOwners::Roots => Ok(()),
            TrustedOwners::Sticky => Err(UntrustedPath::By(path.clone())),
        }
    }

    fn open(&self, name: &OsStr, flags: OFlags, mode: Mode) -> Result<File, UntrustedPath> {
        self.check_entries()?;
        // The entry may have become a symbolic link since it was examined.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        // Opening a FIFO would block the helper until another process opens its other end.
        let flags = flags | OFlags::NONBLOCK;
        let file = openat(&self.last().0, name, flags, mode)?;
        match kind(&fstat(&file)?) {
            FileType::RegularFile => Ok(file.into()),
            _ => Err(UntrustedPath::Kind),
        }
    }
}

fn entries(stat: &Stat, path: &Path) -> Result<TrustedOwners, UntrustedPath> {
    let mode = stat.st_mode;
    match stat.st_uid {
        0 if mode & 0o022 == 0 => Ok(TrustedOwners::Roots),
        // The sticky bit: others may add entries, but replace only their own.
        0 if mode & 0o1000 != 0 => Ok(TrustedOwners::Sticky),
        _ => Err(UntrustedPath::By(path.to_owned())),
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Pushes the components of a path onto the stack, the next one last.
fn push(rest: &mut Vec<OsString>, path: &Path) {
    let parts = path.components().rev();
    let parts = parts.filter(|part| !matches!(part, Component::CurDir));
    rest.extend(parts.map(|part| part.as_os_str().to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use lowroad_testkit::{TempFolder, skip};

    const NOBODY: u32 = 65534;

    #[test]
    fn path_that_others_can_change_is_rejected() {
        if !rustix::process::geteuid().is_root() {
            return skip("path_that_others_can_change_is_rejected", "not root");
        }
        let folder = TempFolder::new();
        let at = |name: &str| folder.path().join(name);
        let mode = |name: &str, mode| {
            fs::set_permissions(at(name), Permissions::from_mode(mode)).expect("a mode");
        };
        for name in ["own", "service", "group", "all", "sticky"] {
            folder.file(format!("{name}/key"), "secret");
            symlink(at("own/key"), at(name).join("link")).expect("a link");
            symlink(at("own"), at(name).join("way")).expect("a link");
            fs::create_dir(at(name).join("folder")).expect("a folder");
            folder.file(format!("{name}/folder/key"), "secret");
        }
        chown(at("service"), Some(NOBODY), None).expect("an owner");
        mode("group", 0o775);
        mode("all", 0o777);
        mode("sticky", 0o1777);
        symlink("../service/key", at("own/out")).expect("a link");
        symlink("loop", at("own/loop")).expect("a link");
        rustix::fs::mkfifoat(rustix::fs::CWD, at("own/fifo"), Mode::RUSR).expect("a FIFO");
        let is_read = |name: &str| open_read(&at(name)).is_ok();
        for name in ["key", "link", "way/key", "folder/key", "../own/./key"] {
            assert!(is_read(&format!("own/{name}")), "own/{name}");
            for other in ["service", "group", "all"] {
                assert!(!is_read(&format!("{other}/{name}")), "{other}/{name}");
            }
        }
        for (name, want) in [
            ("folder/key", true),
            ("key", false),
            ("link", false),
            ("way/key", false),
        ] {
            assert_eq!(is_read(&format!("sticky/{name}")), want, "sticky/{name}");
        }
        for name in ["out", "loop", "fifo", "folder", "missing", "key/key"] {
            assert!(!is_read(&format!("own/{name}")), "own/{name}");
        }
        // The file itself may belong to another user, unless it is the configuration.
        assert!(open_unchangeable(&at("own/key")).is_ok());
        chown(at("own/key"), Some(NOBODY), None).expect("an owner");
        assert!(is_read("own/key"));
        assert!(open_unchangeable(&at("own/key")).is_err());
        assert!(open_log(&at("own/new.log")).is_ok() && at("own/new.log").is_file());
        assert!(open_log(&at("own/fifo")).is_err() && open_secret(&at("own/fifo")).is_err());
        assert!(open_secret(&at("own/secret")).is_ok());
        let secret = at("own/secret").metadata().expect("a file");
        assert_eq!(secret.permissions().mode() & 0o777, 0o600);
        assert!(open_secret(&at("service/secret")).is_err() && !at("service/secret").exists());
        assert!(open_log(&at("service/new.log")).is_err() && !at("service/new.log").exists());
    }
}
