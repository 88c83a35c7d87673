//! Servers that intercept in this network namespace: found by the files that they have locked.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use lowroad_softirq::machine::outsider;
use lowroad_softirq::programs::folder;
use rustix::process::{Signal, pidfd_send_signal};

use crate::softirq::hold;

/// What the names of their files end with.
const SUFFIX: &str = "-worker";

/// One that runs.
#[derive(Debug)]
pub struct Found {
    /// Whose connections it takes.
    pub port: u16,
    /// Its process.
    pub pid: u32,
}

/// What a server holds that intercepts this port.
///
/// # Errors
/// When the thread's namespace can't be found out: a text for the user.
pub fn place_of(port: u16) -> Result<PathBuf, String> {
    let level = folder::of_port(port).map_err(|error| error.to_string())?;
    let name = level.file_name().unwrap_or_default().to_string_lossy();
    Ok(PathBuf::from(format!("{name}{SUFFIX}")))
}

/// All that run here.
#[must_use]
pub fn all() -> Vec<Found> {
    let Ok(any) = place_of(0) else {
        return Vec::new();
    };
    let any = any.to_string_lossy().into_owned();
    let begin = any.trim_end_matches(SUFFIX).trim_end_matches('0');
    let ports = hold::names().into_iter().filter_map(|name| {
        let port = name.strip_prefix(begin)?.strip_suffix(SUFFIX)?;
        port.parse().ok()
    });
    let mut found: Vec<Found> = ports
        .filter_map(|port| {
            let pid = hold::keeper(&place_of(port).ok()?)?;
            Some(Found { port, pid })
        })
        .collect();
    found.sort_by_key(|one| one.port);
    found
}

/// Tells the one that intercepts this port to end, if there is one.
///
/// # Errors
/// A text for the user.
pub fn tell_to_end(port: u16) -> Result<Option<(OwnedFd, u32)>, String> {
    let Some((process, pid)) = hold::keeper_itself(&place_of(port)?) else {
        return Ok(None);
    };
    pidfd_send_signal(&process, Signal::TERM).map_err(|error| format!("process {pid}: {error}"))?;
    Ok(Some((process, pid)))
}

/// Takes the way away on which a server's answers come to who asks it as a stranger, unless somebody here needs it.
pub fn remove_unused_way() {
    let has_levels = folder::all().is_ok_and(|levels| !levels.is_empty());
    if !has_levels && all().is_empty() {
        outsider::remove();
    }
}

/// Removes what a server has left that had no right to.
pub fn tidy(port: u16) {
    if let Ok(place) = place_of(port) {
        hold::remove_unheld(Path::new(&place));
    }
}
