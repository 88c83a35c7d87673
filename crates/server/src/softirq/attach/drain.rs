//! The drain of a level. New connections go to the kernel immediately; existing connections migrate with their next
//! request; idle ones are closed after the drain timeout.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::softirq::level_lock;
use crate::softirq::worker::instances;
use crate::terminal_output;
use lowroad_softirq::layout;
use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::level::parked;
use lowroad_softirq::programs::folder;

/// Polling interval while connections remain in the level.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Time for handshakes in progress, which are in no table.
const HANDSHAKE_TIME: Duration = Duration::from_secs(1);

/// Drains and removes a level that has no daemon.
///
/// # Errors
/// A message for the user.
pub fn detach(folder: &Path, drain_s: u32) -> Result<(), String> {
    // The lock prevents other processes from attaching in the meantime.
    let lock = level_lock::acquire(folder)?;
    lock.announce_end(drain_s);
    if let Ok(level) = SoftirqLevel::open(folder) {
        end(&level, drain_s);
    }
    remove(folder)
}

/// Removes a level's pins. Also removes the route to the probe address if this was the namespace's last level.
///
/// # Errors
/// A message for the user.
pub fn remove(folder: &Path) -> Result<(), String> {
    folder::remove(folder).map_err(|error| error.to_string())?;
    instances::remove_unused_route();
    Ok(())
}

/// Drains the connections, then switches the programs off.
pub fn end(level: &SoftirqLevel, drain_s: u32) {
    level.set_mode(layout::MODE_DRAIN);
    end_connections(level, |_| true, drain_s);
    // The programs are switched off only now, because they still translate the segments of migrated connections during
    // the drain.
    level.set_mode(layout::MODE_OFF);
}

/// Waits until no selected connection needs the level. After the timeout, closes the remaining ones.
pub fn end_connections(level: &SoftirqLevel, is_selected: impl Fn(u16) -> bool, drain_s: u32) {
    let started_at = Instant::now();
    let timeout = Duration::from_secs(u64::from(drain_s));
    let is_needed = || {
        // A connection passes these states in the order in which they are checked here, so none is missed between two
        // checks.
        let is_translated = parked::has_parked(level, &is_selected);
        let remaining = level.connections_at(&is_selected);
        is_translated || remaining.open + remaining.migrating > 0
    };
    while (is_needed() || started_at.elapsed() < HANDSHAKE_TIME) && started_at.elapsed() < timeout {
        thread::sleep(POLL_INTERVAL);
    }
    let ended = parked::end(level, is_selected);
    if ended > 0 {
        terminal_output::note(format_args!(
            "{ended} connections that could not continue without this level were ended; raise \
             --drain to give them more time"
        ));
    }
}
