//! The file operations that the store needs, and their implementation for a real folder. Tests use an implementation
//! that injects faults.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, OFlags, accessat};
use rustix::io::Errno;

use crate::lease::FolderLease;

const LOCK_NAME: &str = "lock";
/// Symbolic links are not followed: the caller may be root, and another user may own the folder.
const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits() as i32;

/// A folder of files that are read and written by position. All operations may block; their errors are the system's.
#[allow(clippy::missing_errors_doc, reason = "told once, above")]
pub trait SegmentFiles: Send + Sync + 'static {
    /// An open file, which is still readable after its name is removed.
    type File: Send + Sync + 'static;

    /// The names of all files of the store.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Creates an empty file; an existing one is truncated.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Opens an existing file.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Renames a file, atomically and durably.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// The length of a file.
    fn len(&self, file: &Self::File) -> io::Result<u64>;
    /// Truncates a file.
    fn truncate(&self, file: &Self::File, len: u64) -> io::Result<()>;
    /// Reads some bytes, and returns their number; 0 at the end of the file.
    fn read_at(&self, file: &Self::File, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes some of the bytes, and returns their number.
    fn write_at(&self, file: &Self::File, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Waits until all writes are durable.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Fills the whole buffer, or fails.
    fn read_all(&self, file: &Self::File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.read_at(file, bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    bytes = &mut bytes[len..];
                    offset += len as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all the bytes, or fails.
    fn write_all(&self, file: &Self::File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(file, bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => {
                    bytes = &bytes[len..];
                    offset += len as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A real folder, locked against use by other processes.
#[derive(Debug)]
pub struct DiskFolder {
    path: PathBuf,
    /// The open folder, for fsync after names have changed.
    folder: File,
    lease: FolderLease,
}

/// The reason why a folder can't be used.
#[derive(Debug)]
pub enum FolderError {
    /// Another process uses the folder.
    InUse(PathBuf),
    /// The system returned an error.
    System(PathBuf, io::Error),
}

impl std::fmt::Display for FolderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FolderError::InUse(path) => write!(
                f,
                "the store in {} is in use by another process; give each server its own folder",
                path.display()
            ),
            FolderError::System(path, error) => {
                write!(
                    f,
                    "the store in {} can't be opened: {error}",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for FolderError {}

impl DiskFolder {
    /// Opens and locks a folder, which is created if it does not exist. Blocks on the disk.
    ///
    /// # Errors
    /// Another process uses the folder, or the system returned an error.
    pub fn take(path: &Path) -> Result<DiskFolder, FolderError> {
        let system = |error| FolderError::System(path.to_owned(), error);
        std::fs::create_dir_all(path).map_err(system)?;
        let lock = options().create(true).open(path.join(LOCK_NAME));
        let lock = lock.map_err(system)?;
        // Does not wait for the lock, since the other process may run for a long time.
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FolderError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(system(error)),
        }
        Ok(DiskFolder {
            folder: File::open(path).map_err(system)?,
            path: path.to_owned(),
            lease: FolderLease::new(lock),
        })
    }

    /// The right to change the folder.
    pub fn lease(&self) -> FolderLease {
        self.lease.clone()
    }

    /// Checks that the permissions allow the use of a folder. Creates nothing, and ignores the locks of other
    /// processes.
    ///
    /// # Errors
    /// The permissions do not allow it, or the system returned another error.
    pub fn check(path: &Path) -> Result<(), FolderError> {
        check_access(path).map_err(|error| FolderError::System(path.to_owned(), error))
    }
}

fn check_access(path: &Path) -> io::Result<()> {
    let access = |path: &Path, access_mode| Ok(accessat(CWD, path, access_mode, AtFlags::EACCESS)?);
    // The nearest existing ancestor is checked, since missing folders would be created in it.
    for existing in path.ancestors() {
        let existing = match existing.as_os_str().is_empty() {
            true => Path::new("."),
            false => existing,
        };
        match existing.metadata() {
            // The folder would be created: check its parent.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
            Ok(metadata) if !metadata.is_dir() => return Err(Errno::NOTDIR.into()),
            Ok(_) => access(existing, Access::WRITE_OK | Access::EXEC_OK)?,
        }
        let lock = path.join(LOCK_NAME);
        return match existing == path && lock.symlink_metadata().is_ok() {
            true => access(&lock, Access::READ_OK | Access::WRITE_OK),
            false => Ok(()),
        };
    }
    Ok(())
}

/// The options for opening files: other users must not read the stored responses.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.mode(0o600).custom_flags(NOFOLLOW);
    options
}

impl SegmentFiles for DiskFolder {
    type File = File;

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            // Names that are not UTF-8 don't belong to the store.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let mut options = options();
        options.create(true).truncate(true);
        self.lease.change(|| options.open(self.path.join(name)))
    }

    fn open(&self, name: &str) -> io::Result<File> {
        options().open(self.path.join(name))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.lease
            .change(|| std::fs::remove_file(self.path.join(name)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.lease.change(|| {
            std::fs::rename(self.path.join(from), self.path.join(to))?;
            // A rename is durable only after an fsync of the folder (fsync(2)).
            self.folder.sync_all()
        })
    }

    fn len(&self, file: &File) -> io::Result<u64> {
        file.metadata().map(|metadata| metadata.len())
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        self.lease.change(|| file.set_len(len))
    }

    fn read_at(&self, file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(file, bytes, offset)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.lease.change(|| FileExt::write_at(file, bytes, offset))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        // fdatasync(2) includes the length of the file, but not its timestamps.
        file.sync_data()
    }
}
