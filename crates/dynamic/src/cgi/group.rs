//! A process group that surely ends. It knows nothing of CGI.
//!
//! The leader is reaped last, and only here: as long as it is not reaped, its number can't become
//! another group's, so that a signal can't hit a stranger. A pidfd tells when it has ended.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

/// How long a group is given after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// A group. Dropped, it is killed at once.
pub struct Group {
    leader: Child,
    pid: Pid,
    ended: AsyncFd<OwnedFd>,
    reaped: bool,
}

impl Group {
    /// The group that `leader`, a child of this process, leads. In the context of a runtime.
    ///
    /// # Errors
    /// As of pidfd_open(2). The group is killed then.
    pub fn of(mut leader: Child) -> io::Result<Group> {
        let pid = Pid::from_child(&leader);
        let ended = pidfd_open(pid, PidfdFlags::empty())
            .map_err(io::Error::from)
            .and_then(watch);
        match ended {
            Ok(ended) => Ok(Group {
                leader,
                pid,
                ended,
                reaped: false,
            }),
            Err(error) => {
                signal(pid, Signal::KILL);
                let _ = leader.wait();
                Err(error)
            }
        }
    }

    /// Waits until the leader has ended; it is not reaped by that.
    pub fn poll_ended(&self, context: &mut Context<'_>) -> Poll<()> {
        // The readiness is not cleared: what has ended stays so.
        let _ = ready!(self.ended.poll_read_ready(context));
        Poll::Ready(())
    }

    /// The signal that ended the leader, if one did; it is not reaped by that.
    pub fn signal(&self) -> Option<i32> {
        let leader = WaitId::PidFd(self.ended.get_ref().as_fd());
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(leader, how).ok().flatten()?.terminating_signal()
    }

    /// Kills all that is left of the group.
    pub fn kill(&self) {
        signal(self.pid, Signal::KILL);
    }

    /// Waits so long for the leader to end by itself.
    pub async fn wait(&self, patience: Duration) -> bool {
        let ended = std::future::poll_fn(|context| self.poll_ended(context));
        timeout(patience, ended).await.is_ok()
    }

    /// Ends the group: politely, then surely; and reaps its leader.
    pub async fn end(mut self) -> io::Result<ExitStatus> {
        if !self.wait(Duration::ZERO).await {
            signal(self.pid, Signal::TERM);
            self.wait(GRACE).await;
        }
        self.kill();
        // What was killed ends soon, unless it hangs in the kernel; then others must not.
        while !self.wait(GRACE).await {}
        self.reaped = true;
        self.leader.wait()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            let _ = self.leader.try_wait();
        }
    }
}

#[allow(unsafe_code)]
fn watch(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` stays open and keeps its number for as long as it lives, and the
    // `AsyncFd` owns it until it has been taken off the poll.
    unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }.map_err(io::Error::from)
}

/// A group that is no more needs no signal.
fn signal(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}
