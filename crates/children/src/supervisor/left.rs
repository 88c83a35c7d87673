//! What an application leaves behind when it ends: processes that have left its group, as daemons do. They are known by a
//! mark in the environment that they have from it. Knows nothing of when it ends.
//!
//! Who has another user's rights by now, or an environment without the mark, is not found.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use crate::process::{readable, ready};

/// The variable that has the mark.
pub const VARIABLE: &str = "LOWROAD_APPLICATION_ID";
/// How often is looked for more: whoever is not killed yet may start others.
const ROUNDS_MAX: usize = 16;
/// How long is waited for the end of one that was killed.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// A mark that no other application has.
pub struct Mark(String);

impl Mark {
    /// A new one.
    pub fn new() -> Mark {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let ns = since.map_or(0, |since| since.as_nanos());
        let (process, number) = (getpid().as_raw_pid(), NEXT.fetch_add(1, Relaxed));
        Mark(format!("{ns:x}-{process}-{number}"))
    }

    /// The variable's value.
    pub fn value(&self) -> &str {
        &self.0
    }

    /// Kills all that have it. Gives how many.
    pub fn kill_all(&self) -> usize {
        let mut killed = 0;
        for _ in 0..ROUNDS_MAX {
            let found = self.kill_those_there();
            if found == 0 {
                break;
            }
            killed += found;
        }
        killed
    }

    fn kill_those_there(&self) -> usize {
        let Ok(all) = fs::read_dir("/proc") else {
            return 0;
        };
        let pids = all.flatten().filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            Pid::from_raw(pid)
        });
        pids.filter(|pid| self.kill(*pid)).count()
    }

    /// Kills a process if it has the mark, and waits until it has ended: until then it would be found again.
    fn kill(&self, pid: Pid) -> bool {
        if !self.is_of(pid) {
            return false;
        }
        // Whoever has the number by now may be another: what is held is looked at once more.
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else {
            return false;
        };
        let is_told = self.is_of(pid) && pidfd_send_signal(&held, Signal::KILL).is_ok();
        if is_told {
            // What the kernel holds longer, for a disk that does not answer, ends later.
            let _ = ready([Some(readable(&held))], Some(Instant::now() + END_TIMEOUT));
        }
        is_told
    }

    /// Whether a process has the mark; one that has ended has no environment.
    fn is_of(&self, pid: Pid) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_pid()));
        let mark = format!("{VARIABLE}={}", self.0);
        environment.is_ok_and(|all| all.split(|byte| *byte == 0).any(|it| it == mark.as_bytes()))
    }
}
