//! Detects whether QEMU's main loop is idle. It moves packets between the guest and its network; once it waits for
//! events, all sent packets have been delivered. Independent of the guest.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::thread::sched_yield;

/// The number of ppoll, the system call in which QEMU's main loop waits (x86-64).
const PPOLL: &[u8] = b"271 ";
/// Maximum time for which the main loop is busy; after it the guest is considered dead.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of consecutive idle observations that are needed, because others, such as the kernel's network stack, may
/// still process its output.
const QUIET: u32 = 2;
/// Number of observations between two checks of the clock.
const LOOKS: u32 = 1000;

/// The main loop of a QEMU, observed by the system call of its first thread (proc_pid_syscall(5)).
pub struct MainLoop(File);

impl MainLoop {
    /// Observes a process.
    ///
    /// # Errors
    /// There is no such process, or the kernel denies access.
    pub fn from_process(process: u32) -> io::Result<MainLoop> {
        let main_loop = MainLoop(File::open(format!("/proc/{process}/syscall"))?);
        // The kernel checks the access at the read: a denial must show here, not in a measurement.
        main_loop.is_waiting()?;
        Ok(main_loop)
    }

    /// Waits until the main loop is idle.
    ///
    /// # Errors
    /// The process has died.
    pub fn settle(&self) -> io::Result<()> {
        let mut end = None;
        loop {
            let mut quiet = 0;
            for _ in 0..LOOKS {
                // Only consecutive observations count: between two of them the loop may have run.
                quiet = if self.is_waiting()? { quiet + 1 } else { 0 };
                if quiet == QUIET {
                    return Ok(());
                }
                // The main loop may need this processor.
                sched_yield();
            }
            // The clock is read seldom, since most waits end within a few observations.
            if Instant::now() > *end.get_or_insert_with(|| Instant::now() + PATIENCE) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    fn is_waiting(&self) -> io::Result<bool> {
        let mut text = [0; PPOLL.len()];
        // procfs generates the text anew for each read at offset 0.
        let len = self.0.read_at(&mut text, 0)?;
        match &text[..len] {
            // An ended process has an empty file, or -1 as the number.
            [] | [b'-', ..] => Err(io::ErrorKind::UnexpectedEof.into()),
            text => Ok(*text == *PPOLL),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn who_has_ended_is_no_loop_that_waits() {
        let mut child = Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("cat");
        let main_loop = MainLoop::from_process(child.id()).expect("root");
        child.kill().expect("killed");
        assert!(main_loop.settle().is_err(), "before it is waited for");
        child.wait().expect("an end");
        assert!(main_loop.settle().is_err());
    }
}
