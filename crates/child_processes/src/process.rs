//! Starts, watches and ends one child.
//!
//! A child is watched by a descriptor that becomes readable when it ends, so that one thread waits for children,
//! sockets and a deadline together ([`ready`]). A pid belongs to a child until it is reaped, so signals from here
//! cannot reach a stranger.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process, kill_process_group,
    pidfd_open, waitid,
};

use crate::message::PacketChannel;

/// The file of the running program, even if it was replaced in the meantime.
const PROGRAM: &str = "/proc/self/exe";
/// How long to wait for the end of a helper after closing its channel. A helper that is still busy is left behind.
const HELPER_END_TIMEOUT: Duration = Duration::from_secs(1);

/// A command that runs this program for another task, with the program's name.
pub fn helper_command(task: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg0("lowroad").arg(task);
    command
}

/// A command that runs this program again, with the arguments for which `keeps_argument` is true.
pub fn same_command(keeps_argument: impl Fn(&str) -> bool) -> Command {
    let mut args = std::env::args_os();
    let mut command = Command::new(PROGRAM);
    command.arg0(args.next().unwrap_or_default());
    command.args(args.filter(|arg| arg.to_str().is_none_or(&keeps_argument)));
    command
}

/// A child process. Dropping this does not end it.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    end: Arc<OwnedFd>,
    start: Instant,
    is_reaped: bool,
}

impl AsFd for ChildProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

impl ChildProcess {
    /// Starts a child. The command is consumed with its ends of the child's sockets, so that the other ends see the
    /// child's end.
    ///
    /// # Errors
    /// Those of fork(2) and execve(2), or there are no descriptors left.
    pub fn spawn(mut command: Command) -> io::Result<ChildProcess> {
        let mut child = command.spawn()?;
        match end_descriptor(Pid::from_child(&child)) {
            Ok(end) => Ok(ChildProcess {
                child,
                end: Arc::new(end),
                start: Instant::now(),
                is_reaped: false,
            }),
            Err(error) => {
                // Without a descriptor the child could not be watched.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Starts a child with the other end of a channel as its standard input.
    ///
    /// # Errors
    /// As for [`ChildProcess::spawn`].
    pub fn spawn_with_channel(mut command: Command) -> io::Result<(ChildProcess, PacketChannel)> {
        let (channel, peer) = PacketChannel::pair()?;
        command.stdin(peer);
        Ok((ChildProcess::spawn(command)?, channel))
    }

    /// Starts a child with the other end of a stream as its standard input.
    ///
    /// # Errors
    /// As for [`ChildProcess::spawn`].
    pub fn spawn_with_stream(mut command: Command) -> io::Result<(ChildProcess, UnixStream)> {
        let (stream, peer) = UnixStream::pair()?;
        command.stdin(OwnedFd::from(peer));
        Ok((ChildProcess::spawn(command)?, stream))
    }

    /// Its process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its output pipes, if its command has any.
    pub fn take_output(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdout.take(), self.child.stderr.take())
    }

    /// The time since its start.
    pub fn lifetime(&self) -> Duration {
        self.start.elapsed()
    }

    /// Sends a signal to the child.
    pub fn signal(&self, signal: Signal) {
        if !self.is_reaped {
            // Fails only if the child has ended.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Sends a signal to the group that the child leads.
    pub fn signal_group(&self, signal: Signal) {
        if !self.is_reaped {
            // Fails only if the group has ended.
            let _ = kill_process_group(Pid::from_child(&self.child), signal);
        }
    }

    /// Its status if it has ended; does not reap it.
    ///
    /// # Errors
    /// It was reaped.
    pub fn peek_status(&self) -> io::Result<Option<WaitIdStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(Pid::from_child(&self.child)), options)?)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// Another owner has reaped it.
    pub fn reap(&mut self) -> io::Result<ExitStatus> {
        // Once the child is reaped, its pid may belong to another process.
        self.is_reaped = true;
        self.child.wait()
    }

    /// Kills it and waits for its end.
    ///
    /// # Errors
    /// Another owner has reaped it.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.reap()
    }

    /// A handle for threads that do not reap the child.
    pub fn handle(&self) -> ChildHandle {
        ChildHandle(self.end.clone())
    }
}

/// A handle to a child that another thread reaps.
#[derive(Debug)]
pub struct ChildHandle(Arc<OwnedFd>);

impl ChildHandle {
    /// Waits for the end of a helper with a closed channel: otherwise a supervisor would kill processes that outlive
    /// the server, and log that.
    pub fn wait_for_helper(&self) {
        let deadline = Instant::now() + HELPER_END_TIMEOUT;
        if ready([Some(readable(&*self.0))], Some(deadline)).is_ok_and(|[ended]| ended) {
            // The descriptor becomes readable before the process is reaped; the reaping thread may be late.
            let _ = waitid(WaitId::PidFd(self.0.as_fd()), WaitIdOptions::EXITED);
        }
    }
}

/// A descriptor that becomes readable when a child ends: its pidfd, if the system supports it (Linux 5.3).
fn end_descriptor(pid: Pid) -> io::Result<OwnedFd> {
    match pidfd_open(pid, PidfdFlags::empty()) {
        // An old kernel, or a sandbox that forbids the system call.
        Err(Errno::NOSYS | Errno::PERM) => end_pipe(pid),
        opened => Ok(opened?),
    }
}

/// The fallback: a pipe, closed by a thread that waits for the child.
fn end_pipe(pid: Pid) -> io::Result<OwnedFd> {
    let (read, write) = io::pipe()?;
    let wait = move || {
        // NOWAIT leaves the child to be reaped by its owner.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
        drop(write);
    };
    thread::Builder::new()
        .name("child-end".into())
        .spawn(wait)?;
    Ok(read.into())
}

/// Polls a descriptor for readability.
pub fn readable(descriptor: &impl AsFd) -> PollFd<'_> {
    PollFd::new(descriptor, PollFlags::IN)
}

/// Waits until one of the descriptors is ready, or until the deadline. Returns which are ready; none after a signal.
///
/// # Errors
/// Those of poll(2).
pub fn ready<const N: usize>(
    descriptors: [Option<PollFd<'_>>; N],
    deadline: Option<Instant>,
) -> io::Result<[bool; N]> {
    let is_present = descriptors.each_ref().map(Option::is_some);
    let mut polled: Vec<_> = descriptors.into_iter().flatten().collect();
    let remaining = deadline.map(|end| end.saturating_duration_since(Instant::now()));
    // A deadline too far for a timespec counts as none.
    let remaining = remaining.and_then(|remaining| Timespec::try_from(remaining).ok());
    match poll(&mut polled, remaining.as_ref()) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok([false; N]),
        Err(error) => return Err(error.into()),
    }
    let mut polled = polled.iter().map(|fd| !fd.revents().is_empty());
    Ok(is_present.map(|is_present| is_present && polled.next().unwrap_or(false)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::process::ExitStatusExt;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_end_of_a_child_is_seen_by_its_descriptor() {
        let (mut child, mut stream) =
            ChildProcess::spawn_with_stream(shell("read line; exit $line")).expect("a shell");
        let now = Some(Instant::now());
        assert_eq!(
            ready([Some(readable(&child)), None], now).ok(),
            Some([false; 2])
        );
        stream.write_all(b"3\n").expect("it reads");
        let seen = ready([None, Some(readable(&child))], None);
        assert_eq!(seen.ok(), Some([false, true]));
        assert_eq!(child.reap().expect("a status").code(), Some(3));
        assert_eq!(stream.read(&mut [0]).ok(), Some(0), "all ends are closed");
    }

    #[test]
    fn the_end_is_seen_without_pidfd() {
        // The fallback of old kernels.
        let (mut child, stream) =
            ChildProcess::spawn_with_stream(shell("read line; exit 4")).expect("a shell");
        let end = end_pipe(Pid::from_child(&child.child)).expect("a thread");
        let seen = ready([Some(readable(&end))], Some(Instant::now()));
        assert_eq!(seen.ok(), Some([false]));
        assert!(child.peek_status().expect("a child").is_none());
        drop(stream);
        let seen = ready([Some(readable(&end))], None);
        assert_eq!(seen.ok(), Some([true]));
        let status = child.peek_status().expect("a child").expect("its end");
        assert_eq!(status.exit_status(), Some(4));
        assert_eq!(child.reap().expect("a status").code(), Some(4));
    }

    #[test]
    fn a_signal_reaches_the_group() {
        // The shell's child must end, too.
        let mut command = shell("sleep 1000 & echo; wait");
        command
            .process_group(0)
            .stdout(std::process::Stdio::piped());
        let mut child = ChildProcess::spawn(command).expect("a shell");
        let mut output = child.take_output().0.expect("a pipe");
        output.read_exact(&mut [0]).expect("it has started both");
        child.signal_group(Signal::TERM);
        // The pipe closes only when both have ended.
        assert_eq!(output.read(&mut [0]).ok(), Some(0));
        let status = child.reap().expect("a status");
        assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
    }

    #[test]
    fn a_helper_is_reaped_once_by_whichever_thread_comes_first() {
        // A second waitid(2) fails; both sides have to accept that.
        let (mut child, channel) =
            ChildProcess::spawn_with_channel(shell("read line")).expect("a shell");
        let handle = child.handle();
        channel.close();
        handle.wait_for_helper();
        assert!(child.reap().is_err(), "it was reaped");
        let (mut child, channel) =
            ChildProcess::spawn_with_channel(shell("read line")).expect("a shell");
        let handle = child.handle();
        drop(channel);
        assert!(child.reap().is_ok());
        handle.wait_for_helper();
        let mut child = ChildProcess::spawn(shell("exec sleep 1000")).expect("a shell");
        assert_eq!(child.kill().expect("a status").signal(), Some(9));
    }
}
