//! Finds the intercepting servers of this network namespace by their lock files.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use lowroad_softirq::machine::probe_source;
use lowroad_softirq::programs::folder;
use rustix::process::{Signal, pidfd_send_signal};

use crate::softirq::level_lock;

/// Suffix of the lock file names of intercepting servers.
const SUFFIX: &str = "-worker";

/// A running intercepting server.
#[derive(Debug)]
pub struct WorkerInstance {
    /// The intercepted port.
    pub port: u16,
    /// The server's process.
    pub pid: u32,
}

/// The lock name of the intercepting server of a port.
///
/// # Errors
/// When the thread's namespace can't be determined: a message for the user.
pub fn lock_name(port: u16) -> Result<PathBuf, String> {
    let level = folder::port_folder(port).map_err(|error| error.to_string())?;
    let name = level.file_name().unwrap_or_default().to_string_lossy();
    Ok(PathBuf::from(format!("{name}{SUFFIX}")))
}

/// All intercepting servers of this namespace.
#[must_use]
pub fn all() -> Vec<WorkerInstance> {
    let Ok(sample) = lock_name(0) else {
        return Vec::new();
    };
    let sample = sample.to_string_lossy().into_owned();
    // Lock names differ only in the port, so the name for port 0 gives their common prefix.
    let prefix = sample.trim_end_matches(SUFFIX).trim_end_matches('0');
    let ports = level_lock::names().into_iter().filter_map(|name| {
        let port = name.strip_prefix(prefix)?.strip_suffix(SUFFIX)?;
        port.parse().ok()
    });
    let mut found: Vec<WorkerInstance> = ports
        .filter_map(|port| {
            // A file that is not locked was left by a killed server.
            let pid = level_lock::holder_pid(&lock_name(port).ok()?)?;
            Some(WorkerInstance { port, pid })
        })
        .collect();
    found.sort_by_key(|instance| instance.port);
    found
}

/// Sends SIGTERM to the intercepting server of a port. Returns its process, if there is one.
///
/// # Errors
/// A message for the user.
pub fn signal_end(port: u16) -> Result<Option<(OwnedFd, u32)>, String> {
    let Some((process, pid)) = level_lock::holder_process(&lock_name(port)?) else {
        return Ok(None);
    };
    pidfd_send_signal(&process, Signal::TERM).map_err(|error| format!("process {pid}: {error}"))?;
    Ok(Some((process, pid)))
}

/// Removes the route to the probe address, unless a level or an intercepting server of this namespace needs it.
pub fn remove_unused_route() {
    let has_levels = folder::all().is_ok_and(|levels| !levels.is_empty());
    if !has_levels && all().is_empty() {
        probe_source::remove();
    }
}

/// Removes the lock file of an ended server that lacked the permission to remove it.
pub fn tidy(port: u16) {
    if let Ok(name) = lock_name(port) {
        level_lock::remove_stale(Path::new(&name));
    }
}
