//! The end of a level: new connections go to the kernel at once, existing ones migrate with their next request, and
//! idle ones end at the timeout.

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

/// Polling interval while connections remain.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Handshakes in progress are in no table; they get this long to complete.
const HANDSHAKE_TIME: Duration = Duration::from_secs(1);

/// Removes a level without a daemon.
///
/// # Errors
/// A message for the user.
pub fn take_off(folder: &Path, drain_s: u32) -> Result<(), String> {
    // The lock keeps other processes from attaching in the meantime.
    let held = level_lock::hold(folder)?;
    held.begin_end(drain_s);
    if let Ok(level) = SoftirqLevel::open(folder) {
        end(&level, drain_s);
    }
    remove(folder)
}

/// Removes a level's pins, and with the namespace's last level also the route to the probe address.
///
/// # Errors
/// A message for the user.
pub fn remove(folder: &Path) -> Result<(), String> {
    folder::remove(folder).map_err(|error| error.to_string())?;
    instances::remove_unused_way();
    Ok(())
}

/// Drains the connections, and switches the programs off.
pub fn end(level: &SoftirqLevel, drain_s: u32) {
    level.set_mode(layout::MODE_DRAIN);
    end_connections(level, |_| true, drain_s);
    // Only now: the programs still translate migrated connections during the drain.
    level.set_mode(layout::MODE_OFF);
}

/// Waits for the connections that need this level, up to the timeout, and ends the rest.
pub fn end_connections(level: &SoftirqLevel, is_meant: impl Fn(u16) -> bool, drain_s: u32) {
    let begin = Instant::now();
    let longest = Duration::from_secs(u64::from(drain_s));
    let is_needed = || {
        // Checked in the order in which a connection passes these states, so that none is missed between two checks.
        let is_translated = parked::is_any(level, &is_meant);
        let left = level.connections_at(&is_meant);
        is_translated || left.open + left.handed > 0
    };
    while (is_needed() || begin.elapsed() < HANDSHAKE_TIME) && begin.elapsed() < longest {
        thread::sleep(LOOK_INTERVAL);
    }
    let ended = parked::end(level, is_meant);
    if ended > 0 {
        terminal_output::note(format_args!(
            "{ended} connections that could not continue without this level were ended; raise \
             --drain to give them more time"
        ));
    }
}
