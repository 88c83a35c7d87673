//! Leftover processes of an application: processes that have left its process group, as daemons do. They are recognized
//! by a mark in their environment, which descendants inherit.
//!
//! Processes with another user's rights, or with a cleared environment, are not found.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use crate::process::{readable, ready};

/// The environment variable of the mark.
pub const VARIABLE: &str = "LOWROAD_APPLICATION_ID";
/// Number of searches, since a process that is not yet killed may start others.
const ROUNDS_MAX: usize = 16;
/// Maximum time to wait for the end of a killed process.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The mark of an application; unique.
pub struct ProcessMark(String);

impl ProcessMark {
    /// A new mark.
    pub fn new() -> ProcessMark {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let ns = since_epoch.map_or(0, |elapsed| elapsed.as_nanos());
        let (process, number) = (getpid().as_raw_pid(), NEXT.fetch_add(1, Relaxed));
        ProcessMark(format!("{ns:x}-{process}-{number}"))
    }

    /// The value of the environment variable.
    pub fn value(&self) -> &str {
        &self.0
    }

    /// Kills all processes with the mark, and returns their number.
    pub fn kill_all(&self) -> usize {
        let mut killed = 0;
        for _ in 0..ROUNDS_MAX {
            let found = self.kill_found();
            if found == 0 {
                break;
            }
            killed += found;
        }
        killed
    }

    fn kill_found(&self) -> usize {
        let Ok(entries) = fs::read_dir("/proc") else {
            return 0;
        };
        let pids = entries.flatten().filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            Pid::from_raw(pid)
        });
        pids.filter(|pid| self.kill(*pid)).count()
    }

    /// Kills a process if it has the mark, and waits for its end, since until then it would be found again.
    fn kill(&self, pid: Pid) -> bool {
        if !self.has_mark(pid) {
            return false;
        }
        // The pid may have been reused, so the mark is checked again while the pidfd is open, which pins the process.
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
            return false;
        };
        let is_signaled = self.has_mark(pid) && pidfd_send_signal(&pidfd, Signal::KILL).is_ok();
        if is_signaled {
            // A process in an uninterruptible wait, such as for a disk, ends later.
            let _ = ready([Some(readable(&pidfd))], Some(Instant::now() + END_TIMEOUT));
        }
        is_signaled
    }

    /// Whether a process has the mark. A zombie has no environment.
    fn has_mark(&self, pid: Pid) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_pid()));
        let mark = format!("{VARIABLE}={}", self.0);
        environment.is_ok_and(|all| all.split(|byte| *byte == 0).any(|it| it == mark.as_bytes()))
    }
}
