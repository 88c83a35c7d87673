//! The lock of a level: the process that has locked the level's file runs its daemon. A record lock of fcntl(2): the
//! kernel reports its holder and releases it at the holder's end, also after a crash.

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

/// Writable by root only: otherwise a user could replace a file here and start a second daemon.
const LOCKS: &str = "/run/lowroad-softirq";

/// Time, beyond that of its connections, in which a process must end.
const END_GRACE: Duration = Duration::from_secs(5);
/// Time in which a process must publish its end after the request to end.
const NOTICE_TIME: Duration = Duration::from_secs(2);
/// Polling interval while the process that keeps a level is unknown.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The lock. Dropping it removes the file.
#[derive(Debug)]
pub struct LevelLock {
    path: PathBuf,
    /// Closed after the path was removed: a process that opened it before then finds out that it is no longer current.
    /// Empty until the end begins; then it holds the number of seconds for which connections continue.
    file: fs::File,
}

impl LevelLock {
    /// Publishes that this process ends and lets its connections continue for this many seconds: other processes may
    /// wait for that.
    pub fn announce_end(&self, drain_s: u32) {
        // If it fails, other processes report the level as locked, which is true as well.
        let _ = self.file.write_all_at(format!("{drain_s}\n").as_bytes(), 0);
    }
}

impl Drop for LevelLock {
    fn drop(&mut self) {
        // A file that can't be removed stays empty, and the next process uses it.
        let _ = fs::remove_file(&self.path);
        // Fails unless the folder is empty.
        let _ = fs::remove_dir(LOCKS);
    }
}

/// Locks the level of a folder for this process, until the value is dropped. fcntl(2) releases the lock when the
/// process closes any descriptor of the file, so no other code may open it.
///
/// # Errors
/// A message for the user: the holder, or a file that can't be written.
pub fn acquire(folder: &Path) -> Result<LevelLock, String> {
    match try_acquire(folder)? {
        Ok(lock) => Ok(lock),
        Err(holder) => Err(holder.text()),
    }
}

/// Like [`acquire`], but waits for a holder that has begun to end, and prints that.
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
            if started_at.elapsed() > NOTICE_TIME {
                return Err(holder.text());
            }
            thread::sleep(POLL_INTERVAL);
            continue;
        };
        // Reported once; later rounds keep the first deadline.
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

/// Waits for the end of a level's daemon, if it runs.
fn wait_for_holder(folder: &Path, timeout: Duration) -> Result<(), String> {
    let Some((process, _)) = holder_process(folder) else {
        // The process has just ended, or no descriptor for it is available.
        thread::sleep(POLL_INTERVAL);
        return Ok(());
    };
    // The descriptor becomes readable when the process has ended.
    let result = ready([Some(readable(&process))], Some(Instant::now() + timeout));
    result
        .map(drop)
        .map_err(|error| format!("waiting for the end of a process: {error}"))
}

/// Another process has the lock.
struct LockHolder {
    pid: Option<u32>,
    /// Time for which its connections continue, if it has begun to end.
    drain: Option<Duration>,
}

impl LockHolder {
    fn from_file(file: &fs::File) -> LockHolder {
        let mut text = [0; 16];
        let len = file.read_at(&mut text, 0).unwrap_or_default();
        let text = str::from_utf8(&text[..len]).ok();
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
        // Again in each round: the last holder removes the folder, too.
        make_private(Path::new(LOCKS))?;
        let opened = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            // The contents belong to the lock's holder.
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let file = match opened {
            // Another process has just removed the folder with the last lock.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(failed)?,
        };
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_file_at(&file, &path) => {
                // Contents left by the last holder do not apply to this one.
                file.set_len(0).map_err(failed)?;
                return Ok(Ok(LevelLock { path, file }));
            }
            // The previous holder removed the file between open and lock: this lock is on a deleted file.
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => return Ok(Err(LockHolder::from_file(&file))),
            Err(error) => return Err(failed(error.into())),
        }
    }
}

/// Whether the path still leads to the file.
fn is_file_at(file: &fs::File, path: &Path) -> bool {
    let (opened, current) = (file.metadata(), fs::metadata(path));
    matches!((opened, current), (Ok(opened), Ok(current)) if opened.ino() == current.ino() && opened.dev() == current.dev())
}

/// The names of all lock files, including those of processes that could not remove them.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir(LOCKS).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter_map(|name| name.strip_suffix(".lock").map(str::to_owned))
        .collect()
}

/// Removes the file of an ended process that lacked the permission to remove it.
pub fn remove_stale(folder: &Path) {
    // Another holder's file stays: then `acquire` fails.
    drop(acquire(folder));
}

/// The process that holds a level's lock, if there is one. Not for the holder itself: fcntl(2) reports other processes
/// only.
pub fn holder_pid(folder: &Path) -> Option<u32> {
    let file = fs::File::open(lock_path(folder)).ok()?;
    u32::try_from(holder(&file)?.as_raw_nonzero().get()).ok()
}

/// The same, as a process descriptor and the process number.
pub fn holder_process(folder: &Path) -> Option<(OwnedFd, u32)> {
    let file = fs::File::open(lock_path(folder)).ok()?;
    let pid = holder(&file)?;
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // The process held the lock before and after `pidfd_open`, so its number was not reused in between.
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
    let meta = fs::symlink_metadata(folder).map_err(failed)?;
    // A user who owns the folder, or may write to it, could replace lock files.
    let is_private = meta.is_dir() && meta.uid() == 0 && meta.mode() & 0o022 == 0;
    is_private.then_some(()).ok_or(format!(
        "{}: not a folder that only root may write; remove it",
        folder.display()
    ))
}
