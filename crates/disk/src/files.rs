//! The file operations that the store needs, and those of a real folder. Tests put others in their place, which fail.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, OFlags, accessat};
use rustix::io::Errno;

const LOCK_NAME: &str = "lock";
/// A name that leads elsewhere is none of ours: the folder may be another user's than who opens it, who may be root.
const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits() as i32;

/// A folder of files that are written and read by position. All of it may block; errors are the system's.
#[allow(clippy::missing_errors_doc, reason = "told once, above")]
pub trait Files: Send + Sync + 'static {
    /// An open file, which stays readable when it is removed.
    type File: Send + Sync + 'static;

    /// The names of all files that are the store's.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Makes an empty file, in place of one that may be there.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Opens a file that is there.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Gives a file another's name, at once and for good.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Length of a file.
    fn len(&self, file: &Self::File) -> io::Result<u64>;
    /// Cuts a file.
    fn truncate(&self, file: &Self::File, len: u64) -> io::Result<()>;
    /// Reads some bytes; 0 at the file's end.
    fn read_at(&self, file: &Self::File, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes some of the bytes.
    fn write_at(&self, file: &Self::File, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Waits until what was written is on the disk.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Reads all the bytes.
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

    /// Writes all the bytes.
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

/// A real folder, which only one process has at a time.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The folder itself, to be synced after a change of names.
    folder: File,
    /// Held as long as the folder is; the system lets it go with the process.
    _lock: File,
}

/// Why a folder cannot be had.
#[derive(Debug)]
pub enum FolderError {
    /// Another process has it.
    Taken(PathBuf),
    /// The system says no.
    System(PathBuf, io::Error),
}

impl std::fmt::Display for FolderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FolderError::Taken(path) => write!(
                f,
                "the store in {} is in use by another process; each needs a folder of its own",
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

impl Folder {
    /// Takes a folder, which is made if there is none. Blocks on the disk.
    ///
    /// # Errors
    /// When another process has it, or the system refuses.
    pub fn take(path: &Path) -> Result<Folder, FolderError> {
        let system = |error| FolderError::System(path.to_owned(), error);
        std::fs::create_dir_all(path).map_err(system)?;
        let lock = options().create(true).open(path.join(LOCK_NAME));
        let lock = lock.map_err(system)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FolderError::Taken(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(system(error)),
        }
        Ok(Folder {
            folder: File::open(path).map_err(system)?,
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Whether the system would let a folder be taken. Makes nothing, and does not look whether another process has it.
    ///
    /// # Errors
    /// The system would refuse.
    pub fn check(path: &Path) -> Result<(), FolderError> {
        check_access(path).map_err(|error| FolderError::System(path.to_owned(), error))
    }
}

fn check_access(path: &Path) -> io::Result<()> {
    let access = |path: &Path, how| Ok(accessat(CWD, path, how, AtFlags::EACCESS)?);
    for existing in path.ancestors() {
        let existing = match existing.as_os_str().is_empty() {
            true => Path::new("."),
            false => existing,
        };
        match existing.metadata() {
            // It would be made.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
            Ok(found) if !found.is_dir() => return Err(Errno::NOTDIR.into()),
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

/// Others have no business with what clients were told.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.mode(0o600).custom_flags(NOFOLLOW);
    options
}

impl Files for Folder {
    type File = File;

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            // A name that is no text is none of ours.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        options()
            .create(true)
            .truncate(true)
            .open(self.path.join(name))
    }

    fn open(&self, name: &str) -> io::Result<File> {
        options().open(self.path.join(name))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))?;
        self.folder.sync_all()
    }

    fn len(&self, file: &File) -> io::Result<u64> {
        file.metadata().map(|metadata| metadata.len())
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    fn read_at(&self, file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(file, bytes, offset)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }
}
