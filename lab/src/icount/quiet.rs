//! Detects whether QEMU's main loop is idle. The loop moves packets between the guest and its network; if it waits for
//! events, all packets that were sent have been delivered. Independent of the guest.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::thread::sched_yield;

/// The number of ppoll, the system call in which QEMU's main loop waits (x86-64).
const PPOLL: &[u8] = b"271 ";
/// Maximum time for which the main loop may be busy; after that, the guest is considered dead.
const BUSY_MAX: Duration = Duration::from_secs(30);
/// Number of consecutive observations that must find the loop idle, because other parties, such as the kernel's network
/// stack, may still be processing its output.
const QUIET: u32 = 2;
/// Number of observations between two checks of the clock.
const CLOCK_CHECK_EVERY: u32 = 1000;

/// The main loop of a QEMU process, observed by the system call of its first thread (proc_pid_syscall(5)).
pub struct MainLoop(File);

impl MainLoop {
    /// Observes a process.
    ///
    /// # Errors
    /// There is no such process, or the kernel denies access.
    pub fn from_process(process: u32) -> io::Result<MainLoop> {
        let main_loop = MainLoop(File::open(format!("/proc/{process}/syscall"))?);
        // The kernel checks the permission when the file is read. A denial must be reported here, not during a
        // measurement.
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
            for _ in 0..CLOCK_CHECK_EVERY {
                // Only consecutive observations count, since the loop may have run in between.
                quiet = if self.is_waiting()? { quiet + 1 } else { 0 };
                if quiet == QUIET {
                    return Ok(());
                }
                // The main loop may need this processor.
                sched_yield();
            }
            // The clock is read rarely, since most waits end within a few observations.
            if Instant::now() > *end.get_or_insert_with(|| Instant::now() + BUSY_MAX) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    fn is_waiting(&self) -> io::Result<bool> {
        let mut text = [0; PPOLL.len()];
        // procfs generates the text again for each read at offset 0.
        let len = self.0.read_at(&mut text, 0)?;
        match &text[..len] {
            // The file of an ended process is empty, or has -1 as the number.
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
    fn settling_an_ended_process_fails() {
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
