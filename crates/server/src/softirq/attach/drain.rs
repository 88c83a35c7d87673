//! How a level ends: new connections go to the kernel at once, live ones with their next request, and
//! what is idle then is let go.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::say;
use crate::softirq::hold;
use crate::softirq::worker::found;
use lowroad_softirq::layout;
use lowroad_softirq::level::Level;
use lowroad_softirq::level::kept;
use lowroad_softirq::programs::folder;

/// How often it is looked whether connections are left.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Handshakes under way are in no table; they get this long to complete.
const HANDSHAKE_TIME: Duration = Duration::from_secs(1);

/// Takes off what a dead daemon has left.
///
/// # Errors
/// A text for the user.
pub fn take_off(folder: &Path, drain_s: u32) -> Result<(), String> {
    // Nobody attaches there meanwhile.
    let held = hold::hold(folder)?;
    held.begin_end(drain_s);
    if let Ok(level) = Level::open(folder) {
        end(&level, drain_s);
    }
    remove(folder)
}

/// Removes what a level has left, and with the last of this namespace the way to who asked for them.
///
/// # Errors
/// A text for the user.
pub fn remove(folder: &Path) -> Result<(), String> {
    folder::remove(folder).map_err(|error| error.to_string())?;
    found::remove_unused_way();
    Ok(())
}

/// Lets connections go up, and switches the programs off.
pub fn end(level: &Level, drain_s: u32) {
    level.set_mode(layout::MODE_DRAIN);
    end_connections(level, |_| true, drain_s);
    level.set_mode(layout::MODE_OFF);
}

/// Waits for the connections that need this level, and ends what is left of them.
pub fn end_connections(level: &Level, is_meant: impl Fn(u16) -> bool, drain_s: u32) {
    let begin = Instant::now();
    let longest = Duration::from_secs(u64::from(drain_s));
    let is_needed = || {
        // In the order in which a connection goes through these states.
        let is_translated = kept::is_any(level, &is_meant);
        let left = level.connections_at(&is_meant);
        is_translated || left.open + left.handed > 0
    };
    while (is_needed() || begin.elapsed() < HANDSHAKE_TIME) && begin.elapsed() < longest {
        thread::sleep(LOOK_INTERVAL);
    }
    let ended = kept::end(level, is_meant);
    if ended > 0 {
        say::note(format_args!(
            "{ended} connections that could not go on without this level were ended; --drain gives them more time"
        ));
    }
}
