//! Who keeps a level: the process that has locked its file. The kernel says which one that is, and gives
//! the lock back when it ends, however it ends.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, Pid, PidfdFlags, fcntl_getlk, pidfd_open};

/// Of root alone: whoever could replace a file there could make a second keeper.
const LOCKS: &str = "/run/lowroad-softirq";

/// The lock. Its file goes with it.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    /// Closed after the path was removed: whoever had opened it before finds out that it is no longer
    /// the one.
    _file: fs::File,
}

impl Drop for Held {
    fn drop(&mut self) {
        // What stays is empty, and is used by the next.
        let _ = fs::remove_file(&self.path);
        // Only if it is empty.
        let _ = fs::remove_dir(LOCKS);
    }
}

/// Holds the level of a folder for this process, until the value is dropped: nobody else can meanwhile.
/// Any other file of this process for the same level would give it back when it is closed.
///
/// # Errors
/// A text for the user: who has it, or what can't be written.
pub fn hold(folder: &Path) -> Result<Held, String> {
    let path = path_of(folder);
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    loop {
        make_private(Path::new(LOCKS))?;
        let opened = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let file = match opened {
            // Its folder has just been removed with the last lock.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(failed)?,
        };
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, &path) => return Ok(Held { path, _file: file }),
            // The last holder has removed it meanwhile.
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => {
                return Err(match holder(&file) {
                    Some(pid) => {
                        let pid = pid.as_raw_nonzero();
                        format!("process {pid} is attached there already")
                    }
                    None => "another process is attached there already".to_owned(),
                });
            }
            Err(error) => return Err(failed(error.into())),
        }
    }
}

/// Whether the path still leads to the file.
fn is_at(file: &fs::File, path: &Path) -> bool {
    let (own, there) = (file.metadata(), fs::metadata(path));
    matches!((own, there), (Ok(own), Ok(there)) if own.ino() == there.ino() && own.dev() == there.dev())
}

/// The names of all that is held, or was by a process that could not remove its file.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir(LOCKS).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter_map(|name| name.strip_suffix(".lock").map(str::to_owned))
        .collect()
}

/// Removes the file of a process that had no right to, when it ended.
pub fn remove_unheld(folder: &Path) {
    // Who can't have it leaves it: somebody has it again.
    drop(hold(folder));
}

/// The process that keeps the level of a folder, if one does. Not for the one that does.
pub fn keeper(folder: &Path) -> Option<u32> {
    let file = fs::File::open(path_of(folder)).ok()?;
    u32::try_from(holder(&file)?.as_raw_nonzero().get()).ok()
}

/// The same, as a descriptor that stays its own when its number is another's, with the number.
pub fn keeper_itself(folder: &Path) -> Option<(OwnedFd, u32)> {
    let file = fs::File::open(path_of(folder)).ok()?;
    let pid = holder(&file)?;
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // It held the lock before and does after, so the number was its own between.
    let is_it = holder(&file) == Some(pid);
    let number = u32::try_from(pid.as_raw_nonzero().get()).ok()?;
    is_it.then_some((process, number))
}

fn holder(file: &fs::File) -> Option<Pid> {
    let lock = fcntl_getlk(file, &Flock::from(FlockType::WriteLock)).ok()?;
    lock?.pid
}

fn path_of(folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    Path::new(LOCKS).join(format!("{name}.lock"))
}

fn make_private(folder: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(folder).map_err(failed)?;
    let is_private = found.is_dir() && found.uid() == 0 && found.mode() & 0o022 == 0;
    is_private.then_some(()).ok_or(format!(
        "{}: not a folder that only root may write; remove it",
        folder.display()
    ))
}
