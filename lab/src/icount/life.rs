//! Detects the end of a guest during a run. The guest's network device ends with the guest; without this check, packets
//! to its address would leave through the host's default route. Independent of requests.

use std::io::{self, PipeReader, pipe};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Maximum delay until a stop request takes effect.
const STOP_SEEN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// A pidfd of QEMU, through which the guest's end is detected.
#[derive(Clone)]
pub struct GuestLifeline(Arc<OwnedFd>);

impl GuestLifeline {
    /// Opens the lifeline of a QEMU process.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn from_child(qemu: &Child) -> io::Result<GuestLifeline> {
        let pid = Pid::from_child(qemu);
        Ok(GuestLifeline(Arc::new(pidfd_open(
            pid,
            PidfdFlags::empty(),
        )?)))
    }

    /// A descriptor that becomes readable when the guest has ended.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Calls `run` with a flag that is set when `stop` is set or the guest has ended.
    pub fn watch<T>(&self, stop: &AtomicBool, run: impl FnOnce(&AtomicBool) -> T) -> T {
        let halt = AtomicBool::new(false);
        // Without descriptors the run continues unwatched; its own timeouts still end it.
        let Ok((is_done, done)) = pipe() else {
            return run(stop);
        };
        thread::scope(|scope| {
            let halt = &halt;
            scope.spawn(move || self.wait(&is_done, stop, halt));
            let result = run(halt);
            // Closing the pipe wakes the watching thread, which the scope joins.
            drop(done);
            result
        })
    }

    fn wait(&self, is_done: &PipeReader, stop: &AtomicBool, halt: &AtomicBool) {
        loop {
            let mut fds = [
                PollFd::new(is_done, PollFlags::IN),
                PollFd::new(&self.0, PollFlags::IN),
            ];
            // An error such as EINTR leaves all results empty, like a timeout.
            let _ = poll(&mut fds, Some(&STOP_SEEN));
            let [is_done, has_ended] = fds.map(|fd| !fd.revents().is_empty());
            // `is_done` is checked first, since a run that is complete need not be halted.
            if is_done {
                return;
            }
            if has_ended || stop.load(Relaxed) {
                halt.store(true, Relaxed);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn work_is_halted_when_the_watched_process_ends() {
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).spawn().expect("cat");
        let life = GuestLifeline::from_child(&child).expect("a descriptor");
        let stop = AtomicBool::new(false);
        let lives = life.watch(&stop, |halt| halt.load(Relaxed));
        assert!(!lives);
        life.watch(&stop, |halt| {
            drop(child.stdin.take());
            while !halt.load(Relaxed) {
                thread::yield_now();
            }
        });
        child.wait().expect("an end");
        stop.store(true, Relaxed);
        life.watch(&stop, |halt| while !halt.load(Relaxed) {});
    }
}
