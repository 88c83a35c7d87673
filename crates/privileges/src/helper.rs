//! Opens files that only root may open, for a server that has given up root: keys, password files, logs, and the
//! configuration.
//!
//! Privilege separation: a helper process keeps the necessary rights. The server sends a path over a Unix socket and
//! receives a descriptor (`SCM_RIGHTS`). The helper reads the configuration itself, and opens only files that the
//! configuration names, on paths that only root can change (`path_walk`). docs/operation.md describes the trust model.

mod messages;
mod named_files;
mod path_walk;
mod process;
mod trusted_sources;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use lowroad_child_processes::message::PacketChannel;
use lowroad_child_processes::process::{ChildHandle, ChildProcess, helper_command};
use lowroad_file_stamp::FileStamp;
use rustix::fs::OFlags;

use messages::OpenPurpose;
pub use path_walk::{UntrustedPath, is_roots, open_log, open_secret, open_unchangeable};
pub use process::serve;

use crate::account::UserIds;

/// Maximum length of a file in bytes that [`read`] accepts: more than the certificates of all public authorities.
const READ_LEN_MAX: u64 = 16 << 20;

/// The error text once the helper has ended.
const GONE: &str = "the helper process with root's rights has ended; restart the server";

/// Timeout of a response, which takes only a few file operations. The helper is abandoned after it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The helper, if one was started.
static HELPER: OnceLock<HelperProcess> = OnceLock::new();

struct HelperProcess {
    /// `None` once the helper has ended or was abandoned.
    channel: Mutex<Option<PacketChannel>>,
    process: ChildHandle,
}

/// Starts the helper. To be called while this process is root; the helper ends when this process does. New logs will
/// belong to `owner`.
///
/// # Errors
/// If no process or descriptor is available for the helper, or it does not respond.
pub fn start(config: &Path, owner: UserIds) -> io::Result<()> {
    let config = std::path::absolute(config)?;
    let mut command = helper_command("rights-helper");
    command
        .arg(&config)
        .args([owner.uid.to_string(), owner.gid.to_string()])
        // The server's environment must not influence a process with root's rights.
        .env_clear()
        .current_dir("/")
        // Signals from the terminal are meant for the server.
        .process_group(0)
        .stdout(Stdio::null());
    let (mut child, channel) = ChildProcess::spawn_with_channel(command)?;
    channel.set_receive_timeout(ANSWER_TIMEOUT)?;
    let process = child.handle();
    thread::Builder::new()
        .name("rights".into())
        // This thread reaps the helper when it ends; requests then find the channel closed.
        .spawn(move || child.reap())?;
    // At this request the helper reads the configuration; if a later version is invalid, the files of this one stay
    // permitted. It does not matter here whether the helper opens the file itself.
    let _ = messages::request(&channel, OpenPurpose::Read, &config)?;
    // A process starts only one server, so this is the first helper.
    let _ = HELPER.set(HelperProcess {
        channel: Mutex::new(Some(channel)),
        process,
    });
    Ok(())
}

/// Ends the helper, and waits for its exit.
pub fn end() {
    let Some(helper) = HELPER.get() else { return };
    // Does not wait for the lock, since a pending request may take long.
    let Ok(mut channel) = helper.channel.try_lock() else {
        return;
    };
    *channel = None;
    helper.process.wait_for_helper();
}

/// Opens a file for reading; by the helper if this process may not.
///
/// # Errors
/// Those of open(2); if the helper does not open the file, its reason is in the text.
pub fn open(path: &Path) -> io::Result<File> {
    // Without NONBLOCK, opening a FIFO would wait for a writer.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    match opened {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            request_file(OpenPurpose::Read, path, error)
        }
        opened => opened,
    }
}

/// The stamp of the file at a path; by the helper if this process may not examine the file. `None`: there is no such
/// file.
pub fn file_stamp(path: &Path) -> Option<FileStamp> {
    let stamp = match FileStamp::from_path(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            open(path).and_then(|file| FileStamp::from_file(&file))
        }
        stamp => stamp,
    };
    stamp.ok()
}

/// Reads a regular file, opened as by [`open`].
///
/// # Errors
/// Those of [`open`] and of read(2); the file is of another kind, or longer than [`READ_LEN_MAX`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut content = Vec::new();
    // A device may never end.
    if file.metadata()?.is_file() {
        file.take(READ_LEN_MAX + 1).read_to_end(&mut content)?;
        if content.len() as u64 <= READ_LEN_MAX {
            return Ok(content);
        }
    }
    Err(io::Error::other("not a regular file, or too long"))
}

/// Opens a log by the helper, after this process has failed with `error`.
///
/// # Errors
/// `error`, with the helper's reason if there is one.
pub fn reopen_log(path: &Path, error: io::Error) -> io::Result<File> {
    match error.kind() {
        ErrorKind::PermissionDenied => request_file(OpenPurpose::Append, path, error),
        _ => Err(error),
    }
}

/// Whether only the helper may examine a file.
pub fn is_hidden(path: &Path) -> bool {
    let denied = |error: io::Error| error.kind() == ErrorKind::PermissionDenied;
    HELPER.get().is_some() && std::fs::metadata(path).is_err_and(denied)
}

fn request_file(purpose: OpenPurpose, path: &Path, error: io::Error) -> io::Result<File> {
    let Some(helper) = HELPER.get() else {
        return Err(error);
    };
    let mut helper = helper
        .channel
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let with_reason = |reason: &str| io::Error::new(error.kind(), format!("{error}; {reason}"));
    let Some(channel) = helper.as_ref() else {
        return Err(with_reason(GONE));
    };
    let answer =
        std::path::absolute(path).and_then(|path| Ok(messages::request(channel, purpose, &path)?));
    match answer {
        Ok(Ok(file)) => Ok(file),
        Ok(Err(reason)) => Err(with_reason(&reason)),
        Err(_) => {
            // A late response would be taken for that to the next request.
            *helper = None;
            Err(with_reason(GONE))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_not_read() {
        assert!(read(Path::new("/dev/zero")).is_err());
        assert!(read(Path::new("/proc/self/status")).is_ok());
    }
}
