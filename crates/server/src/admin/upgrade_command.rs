//! `lowroad upgrade`: a thin client of `/v1/upgrade`.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::commands::{draining_processes, send_command_to};
use super::server_search::only_socket;
use crate::cli::servers::UpgradeArgs;
use crate::terminal_output;

/// The interval of checks for the end of the old process.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// The outcome of `lowroad upgrade`.
pub enum UpgradeOutcome {
    /// The new process has taken over. With `--wait`, the processes before it have ended.
    Done,
    /// The new process has taken over, but earlier ones still had requests when the time of `--wait` was over.
    StillDraining,
}

/// `lowroad upgrade`: waits until a new process has taken over, and with `--wait` until the processes before it have ended.
///
/// # Errors
/// When the new process can't start and the running one continues, or if there is not exactly one server.
pub fn run(args: &UpgradeArgs) -> Result<UpgradeOutcome, String> {
    let path = only_socket(args.server.admin.as_deref())?;
    terminal_output::out(send_command_to(&path, "/v1/upgrade")?.into_text()?)?;
    match args.wait {
        Some(timeout) => wait_for_end(&path, timeout),
        None => Ok(UpgradeOutcome::Done),
    }
}

fn wait_for_end(path: &Path, timeout: Duration) -> Result<UpgradeOutcome, String> {
    let started = Instant::now();
    loop {
        let draining = draining_processes(path)?;
        if draining == 0 {
            return Ok(UpgradeOutcome::Done);
        }
        // The upgrade itself has succeeded, so this is no failure.
        if started.elapsed() >= timeout {
            terminal_output::note(format_args!(
                "{} still drain after {} s",
                process_count(draining),
                timeout.as_secs_f64()
            ));
            return Ok(UpgradeOutcome::StillDraining);
        }
        thread::sleep(WAIT_INTERVAL);
    }
}

/// The number of earlier processes as a text.
pub fn process_count(count: u64) -> String {
    match count {
        1 => "1 process from before an upgrade".to_owned(),
        _ => format!("{count} processes from before upgrades"),
    }
}
