//! The file of the ticket keys. It survives restarts and can be shared by several processes.
//!
//! The file holds the secret of the period in which it was last written. It is rewritten in every period, so that a
//! stolen file can't decrypt older tickets. The file stays open, so that the server can write it after dropping root
//! privileges.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use crate::ticket_keys::TicketKeys;

/// Maximum wait for the lock of a file, which other processes have while they read or write it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The file of the ticket keys, open for the life of the process.
#[derive(Debug)]
pub struct TicketFile {
    file: File,
    /// The last period for which this process tried to write the file.
    period: AtomicU64,
}

impl TicketFile {
    /// Opens a file for [`TicketFile::read`]; creates it with mode 0600 if it is missing. Does not block, not even for a FIFO,
    /// since the file is opened for reading and writing (fifo(7)).
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open(path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        options.open(path)
    }

    /// Checks that only its owner can access a file with secrets, and that reading it ends.
    ///
    /// # Errors
    /// The reason and a remedy.
    pub fn check_access(file: &File) -> Result<(), String> {
        let metadata = file.metadata().map_err(|error| error.to_string())?;
        if !metadata.is_file() {
            return Err("not a regular file".into());
        }
        match metadata.permissions().mode() & 0o077 {
            0 => Ok(()),
            _ => Err("other users can read or change it: chmod 600".into()),
        }
    }

    /// Locks a file with secrets until it is closed or unlocked, for the time of a few reads or writes.
    ///
    /// # Errors
    /// Another process has the lock for longer, so that waiting for it could delay the start without end.
    pub fn lock(file: &File) -> io::Result<()> {
        lock_until(file, Instant::now() + LOCK_TIMEOUT)
    }

    /// Reads the keys from a file that is open for reading and writing. If the file is empty, creates keys with periods
    /// of `period_s` and writes them. Waits for the lock for some seconds at most.
    ///
    /// # Errors
    /// Other users may access the file, its content is not ticket keys, or reading, locking or writing fails.
    pub fn read(
        file: File,
        period_s: u32,
        unix_s: u64,
    ) -> Result<(TicketFile, TicketKeys), String> {
        // The lock covers reading and creating: two processes that start at the same time must agree on one secret.
        TicketFile::check_access(&file)?;
        TicketFile::lock(&file).map_err(|error| error.to_string())?;
        let keys = TicketFile::read_or_create(&file, period_s, unix_s);
        let _ = file.unlock();
        let keys = keys?;
        let period = AtomicU64::new(keys.period());
        Ok((TicketFile { file, period }, keys))
    }

    /// Checks whether [`TicketFile::read`] would accept an existing file, without changing it. May block.
    ///
    /// # Errors
    /// Those of [`TicketFile::read`] and open(2).
    pub fn check(path: &Path) -> Result<(), String> {
        // Before it is opened: that of a FIFO would wait for a writer.
        if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            return Err("not a regular file".into());
        }
        let file = File::open(path).map_err(|error| error.to_string())?;
        TicketFile::check_access(&file)?;
        read_keys(&file).map(drop)
    }

    fn read_or_create(file: &File, period_s: u32, unix_s: u64) -> Result<TicketKeys, String> {
        if let Some(keys) = read_keys(file)? {
            return Ok(keys);
        }
        let keys = TicketKeys::new(period_s, unix_s).map_err(|error| error.to_string())?;
        write(file, &keys).map_err(|error| error.to_string())?;
        Ok(keys)
    }

    /// Writes the keys if their period is later than that in the file. May block.
    ///
    /// # Errors
    /// Locking or writing failed. The next period retries; until then the old file remains valid.
    pub fn store(&self, keys: &TicketKeys) -> io::Result<()> {
        // Only one thread of this process writes in each period.
        if keys.period() <= self.period.fetch_max(keys.period(), Ordering::Relaxed) {
            return Ok(());
        }
        TicketFile::lock(&self.file)?;
        let stored = self.store_locked(keys);
        let _ = self.file.unlock();
        stored
    }

    /// Writes while holding the lock, unless the file has a later period.
    fn store_locked(&self, keys: &TicketKeys) -> io::Result<()> {
        let stored = TicketKeys::from_bytes(&read(&self.file)?);
        // Another process may have written a later period already.
        if stored.is_none_or(|stored| stored.period() < keys.period()) {
            write(&self.file, keys)?;
        }
        Ok(())
    }
}

fn lock_until(file: &File, end: Instant) -> io::Result<()> {
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("another process has locked it"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// The keys of a file; `None` if it is empty.
fn read_keys(file: &File) -> Result<Option<TicketKeys>, String> {
    let bytes = read(file).map_err(|error| error.to_string())?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let keys = TicketKeys::from_bytes(&bytes);
    keys.map(Some).ok_or_else(|| {
        "it contains no ticket keys: remove it, and the server creates new ones".into()
    })
}

fn read(file: &File) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(256));
    let mut file = file;
    file.rewind()?;
    // A longer file cannot hold keys; the limit protects memory if the path is wrong.
    file.take(256).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes in place, since the folder may not be writable: less than a sector, in a single write.
fn write(file: &File, keys: &TicketKeys) -> io::Result<()> {
    file.write_all_at(&Zeroizing::new(keys.to_bytes()), 0)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    const HOUR_S: u32 = 3600;

    /// A temporary folder, removed on drop.
    struct TestFolder(PathBuf);

    impl TestFolder {
        fn new(name: &str) -> TestFolder {
            let name = format!("lowroad-ticket-file-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(&folder).unwrap();
            TestFolder(folder)
        }

        fn file(&self) -> PathBuf {
            self.0.join("tickets")
        }

        fn open(&self, unix_s: u64) -> Result<(TicketFile, TicketKeys), String> {
            TicketFile::read(TicketFile::open(&self.file()).unwrap(), HOUR_S, unix_s)
        }
    }

    impl Drop for TestFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn file_is_created_with_mode_0600_and_reread() {
        let test_folder = TestFolder::new("made");
        let (_file, first_keys) = test_folder.open(7200).unwrap();
        let (_again, second_keys) = test_folder.open(9000).unwrap();
        assert_eq!(first_keys.to_bytes(), second_keys.to_bytes());
        let mode = fs::metadata(test_folder.file())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn store_writes_later_periods_only() {
        let test_folder = TestFolder::new("periods");
        let (fast, mut later) = test_folder.open(7200).unwrap();
        let (slow, mut now) = test_folder.open(7200).unwrap();
        let created = fs::read(test_folder.file()).unwrap();
        fast.store(&later).unwrap();
        assert_eq!(fs::read(test_folder.file()).unwrap(), created);
        later.advance(4 * 3600).unwrap();
        fast.store(&later).unwrap();
        now.advance(3 * 3600).unwrap();
        slow.store(&now).unwrap();
        assert_eq!(fs::read(test_folder.file()).unwrap(), later.to_bytes());
        let (_after, mut found) = test_folder.open(0).unwrap();
        found.advance(4 * 3600).unwrap();
        assert_eq!(found.to_bytes(), later.to_bytes());
    }

    #[test]
    fn wrong_mode_or_content_is_refused() {
        let test_folder = TestFolder::new("refused");
        fs::write(test_folder.file(), "hello").unwrap();
        fs::set_permissions(test_folder.file(), fs::Permissions::from_mode(0o640)).unwrap();
        assert!(test_folder.open(0).unwrap_err().contains("chmod 600"));
        fs::set_permissions(test_folder.file(), fs::Permissions::from_mode(0o600)).unwrap();
        assert!(test_folder.open(0).unwrap_err().contains("no ticket keys"));
        assert_eq!(fs::read(test_folder.file()).unwrap(), b"hello");
        assert!(TicketFile::open(&test_folder.0).is_err());
    }

    #[test]
    fn files_that_could_block_are_refused() {
        let test_folder = TestFolder::new("blocking");
        let opened = TicketFile::open(&test_folder.file()).unwrap();
        opened.lock().unwrap();
        let again = TicketFile::open(&test_folder.file()).unwrap();
        assert!(lock_until(&again, Instant::now()).is_err());
        drop(opened);
        assert!(lock_until(&again, Instant::now()).is_ok());
        // A device never ends, and a FIFO waits for a writer.
        let device = TicketFile::open(Path::new("/dev/zero")).unwrap();
        let refused = TicketFile::read(device, HOUR_S, 0).unwrap_err();
        assert_eq!(refused, "not a regular file");
        let refused = TicketFile::check(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(refused, "not a regular file");
    }
}
