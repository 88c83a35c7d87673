//! The lock of a level, held by the process that runs the level's daemon: a record lock of fcntl(2) on the level's lock
//! file. The kernel tells other processes which process holds the lock, and releases it when the holder ends, even
//! after a crash.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_child_processes::process::{readable, ready};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, Pid, PidfdFlags, fcntl_getlk, pidfd_open};

use crate::terminal_output;

/// The folder of lock files, writable by root only: otherwise a user could replace a file and start a second daemon.
const LOCKS: &str = "/run/lowroad-softirq";

/// Time in which a process must end after its drain timeout.
const END_GRACE: Duration = Duration::from_secs(5);
/// Time in which a process must announce its end after a request to end.
const NOTICE_TIME: Duration = Duration::from_secs(2);
/// Polling interval while the lock's holder is unknown.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A held lock. Dropping it removes the lock file.
#[derive(Debug)]
pub struct LevelLock {
    path: PathBuf,
    /// The locked file. It is closed only after its path was removed: then a process that opened the file earlier
    /// notices that the file is no longer current. The file is empty until this process begins to end; from then on it
    /// contains the drain timeout in seconds.
    file: fs::File,
}

impl LevelLock {
    /// Announces that this process is ending and drains its connections for up to this many seconds, so that other
    /// processes can wait for it.
    pub fn announce_end(&self, drain_s: u32) {
        // If the write fails, other processes report that the level is locked, which is also true.
        let _ = self.file.write_all_at(format!("{drain_s}\n").as_bytes(), 0);
    }
}

impl Drop for LevelLock {
    fn drop(&mut self) {
        // If the file can't be removed, it stays, and the next process uses it.
        let _ = fs::remove_file(&self.path);
        // The call fails if the folder contains other files.
        let _ = fs::remove_dir(LOCKS);
    }
}

/// Locks the level of a folder until the returned value is dropped. fcntl(2) releases the lock when this process closes
/// any descriptor of the file, so no other code may open the file.
///
/// # Errors
/// A message for the user: another process holds the lock, or the file can't be written.
pub fn acquire(folder: &Path) -> Result<LevelLock, String> {
    match try_acquire(folder)? {
        Ok(lock) => Ok(lock),
        Err(holder) => Err(holder.text()),
    }
}

/// Like [`acquire`], but if the holder has begun to end, prints that and waits for it.
///
/// # Errors
/// As for [`acquire`].
pub fn acquire_after_end(folder: &Path) -> Result<LevelLock, String> {
    let (started_at, mut deadline) = (Instant::now(), None);
    loop {
        let holder = match try_acquire(folder)? {
            Ok(lock) => return Ok(lock),
            Err(holder) => holder,
        };
        let Some((drain, pid)) = holder.drain.zip(holder.pid) else {
            // The holder may have received its signal, but not have announced its end yet.
            if started_at.elapsed() > NOTICE_TIME {
                return Err(holder.text());
            }
            thread::sleep(POLL_INTERVAL);
            continue;
        };
        // The first round prints the message and sets the deadline; later rounds keep it.
        let deadline = *deadline.get_or_insert_with(|| {
            let timeout = drain + END_GRACE;
            terminal_output::note(format_args!(
                "process {pid} is detaching there; waiting for its end, {} s at most",
                timeout.as_secs()
            ));
            Instant::now() + timeout
        });
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(format!("{}, and has not ended in time", holder.text()));
        }
        wait_for_holder(folder, remaining)?;
    }
}

/// Waits for the end of the process that holds a level's lock, if there is one.
fn wait_for_holder(folder: &Path, timeout: Duration) -> Result<(), String> {
    let Some((process, _)) = holder_process(folder) else {
        // The process has just ended, or no process descriptor is available.
        thread::sleep(POLL_INTERVAL);
        return Ok(());
    };
    // The process descriptor becomes readable when the process has ended.
    let result = ready([Some(readable(&process))], Some(Instant::now() + timeout));
    result
        .map(drop)
        .map_err(|error| format!("waiting for the end of a process: {error}"))
}

/// The process that holds the lock.
struct LockHolder {
    pid: Option<u32>,
    /// The holder's drain timeout, if it has begun to end.
    drain: Option<Duration>,
}

impl LockHolder {
    fn from_file(file: &fs::File) -> LockHolder {
        let mut text = [0; 16];
        let len = file.read_at(&mut text, 0).unwrap_or_default();
        let text = str::from_utf8(&text[..len]).ok();
        // The line end shows that the number was written completely.
        let drain_s = text.and_then(|text| text.strip_suffix('\n')?.parse().ok());
        LockHolder {
            pid: holder(file).and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok()),
            drain: drain_s.map(Duration::from_secs),
        }
    }

    fn text(&self) -> String {
        let state_text = match self.drain {
            Some(_) => "is detaching there",
            None => "is attached there already",
        };
        match self.pid {
            Some(pid) => format!("process {pid} {state_text}"),
            None => format!("another process {state_text}"),
        }
    }
}

fn try_acquire(folder: &Path) -> Result<Result<LevelLock, LockHolder>, String> {
    let path = lock_path(folder);
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    loop {
        // The folder is created again in each round, because the last holder also removes it.
        make_private(Path::new(LOCKS))?;
        let opened = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            // The file is not truncated: the contents belong to the lock's holder.
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let file = match opened {
            // Another process has just removed its lock file and the empty folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(failed)?,
        };
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_file_at(&file, &path) => {
                // Removes the drain timeout of the last holder.
                file.set_len(0).map_err(failed)?;
                return Ok(Ok(LevelLock { path, file }));
            }
            // The previous holder removed the file after it was opened here: the lock is on a deleted file, so try
            // again.
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => return Ok(Err(LockHolder::from_file(&file))),
            Err(error) => return Err(failed(error.into())),
        }
    }
}

/// Whether the path still refers to the open file.
fn is_file_at(file: &fs::File, path: &Path) -> bool {
    let (opened, current) = (file.metadata(), fs::metadata(path));
    matches!((opened, current), (Ok(opened), Ok(current)) if opened.ino() == current.ino() && opened.dev() == current.dev())
}

/// The names of all lock files, including files that ended processes could not remove.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir(LOCKS).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter_map(|name| name.strip_suffix(".lock").map(str::to_owned))
        .collect()
}

/// Removes the lock file of an ended process that lacked the permission to remove it.
pub fn remove_stale(folder: &Path) {
    // `acquire` fails if another process holds the lock, so that its file stays.
    drop(acquire(folder));
}

/// The process number of the lock's holder, if another process holds it: fcntl(2) does not report the calling process.
pub fn holder_pid(folder: &Path) -> Option<u32> {
    let file = fs::File::open(lock_path(folder)).ok()?;
    u32::try_from(holder(&file)?.as_raw_nonzero().get()).ok()
}

/// As [`holder_pid`], but also returns a process descriptor.
pub fn holder_process(folder: &Path) -> Option<(OwnedFd, u32)> {
    let file = fs::File::open(lock_path(folder)).ok()?;
    let pid = holder(&file)?;
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // The holder is checked again: if the process held the lock before and after `pidfd_open`, its number was not
    // reused in between.
    let is_same = holder(&file) == Some(pid);
    let number = u32::try_from(pid.as_raw_nonzero().get()).ok()?;
    is_same.then_some((process, number))
}

fn holder(file: &fs::File) -> Option<Pid> {
    let lock = fcntl_getlk(file, &Flock::from(FlockType::WriteLock)).ok()?;
    lock?.pid
}

fn lock_path(folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    Path::new(LOCKS).join(format!("{name}.lock"))
}

fn make_private(folder: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    // A symbolic link is not followed, as it could lead to any folder.
    let meta = fs::symlink_metadata(folder).map_err(failed)?;
    // The owner of the folder, or a user with write access to it, could replace lock files.
    let is_private = meta.is_dir() && meta.uid() == 0 && meta.mode() & 0o022 == 0;
    is_private.then_some(()).ok_or(format!(
        "{}: not a folder that only root may write; remove it",
        folder.display()
    ))
}
