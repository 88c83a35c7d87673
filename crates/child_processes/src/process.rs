//! Starts, watches and ends a child process.
//!
//! A child is watched through a descriptor that becomes readable when the child ends, so that one thread can wait for
//! children, sockets and a deadline at the same time ([`ready`]). A pid belongs to the child until the child is reaped,
//! so signals sent here can't reach another process.

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

use crate::launcher;
use crate::message::PacketChannel;

/// The executable of the running program, even if its file was replaced in the meantime.
const PROGRAM: &str = "/proc/self/exe";
/// Timeout for the end of a helper after its channel was closed. A helper that is still busy then is left running.
const HELPER_END_TIMEOUT: Duration = Duration::from_secs(1);

/// A command that runs this program for another task.
pub fn helper_command(task: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg0("lowroad").arg(task);
    command
}

/// A command that runs this program again, with those arguments for which `keeps_argument` returns true.
pub fn same_command(keeps_argument: impl Fn(&str) -> bool) -> Command {
    let mut args = std::env::args_os();
    let mut command = Command::new(PROGRAM);
    command.arg0(args.next().unwrap_or_default());
    command.args(args.filter(|arg| arg.to_str().is_none_or(&keeps_argument)));
    command
}

/// A child process. Dropping it does not end the process.
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
    /// Starts a child. Consumes the command together with the child's ends of sockets, so that the other ends see when
    /// the child closes them.
    ///
    /// # Errors
    /// Those of fork(2) and execve(2); or if no descriptors are left.
    pub fn spawn(command: Command) -> io::Result<ChildProcess> {
        let mut child = launcher::spawn(command)?;
        match end_descriptor(Pid::from_child(&child)) {
            Ok(end) => Ok(ChildProcess {
                child,
                end: Arc::new(end),
                start: Instant::now(),
                is_reaped: false,
            }),
            Err(error) => {
                // Without a descriptor, the child could not be watched.
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

    /// The child's process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child's output pipes, if its command has any.
    pub fn take_output(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdout.take(), self.child.stderr.take())
    }

    /// The time since the child was started.
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

    /// Sends a signal to the process group that the child leads.
    pub fn signal_group(&self, signal: Signal) {
        if !self.is_reaped {
            // Fails only if all processes of the group have ended.
            let _ = kill_process_group(Pid::from_child(&self.child), signal);
        }
    }

    /// The child's status, if it has ended; does not reap it.
    ///
    /// # Errors
    /// If the child was already reaped.
    pub fn peek_status(&self) -> io::Result<Option<WaitIdStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(Pid::from_child(&self.child)), options)?)
    }

    /// Waits for the child's end.
    ///
    /// # Errors
    /// If another owner has reaped the child.
    pub fn reap(&mut self) -> io::Result<ExitStatus> {
        // Once the child is reaped, its pid may belong to another process.
        self.is_reaped = true;
        self.child.wait()
    }

    /// Kills the child, and waits for its end.
    ///
    /// # Errors
    /// If another owner has reaped the child.
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
    /// Waits for the end of a helper after its channel is closed. Otherwise a supervisor would find processes that
    /// outlive the server, kill them, and log that.
    pub fn wait_for_helper(&self) {
        let deadline = Instant::now() + HELPER_END_TIMEOUT;
        if ready([Some(readable(&*self.0))], Some(deadline)).is_ok_and(|[ended]| ended) {
            // The descriptor becomes readable before the process is reaped, so the reaping thread may be late.
            let _ = waitid(WaitId::PidFd(self.0.as_fd()), WaitIdOptions::EXITED);
        }
    }
}

/// A descriptor that becomes readable when a child ends: its pidfd, if the system supports that (Linux 5.3).
fn end_descriptor(pid: Pid) -> io::Result<OwnedFd> {
    match pidfd_open(pid, PidfdFlags::empty()) {
        // An old kernel, or a sandbox that forbids the system call.
        Err(Errno::NOSYS | Errno::PERM) => end_pipe(pid),
        opened => Ok(opened?),
    }
}

/// Fallback: a pipe, which a thread that waits for the child closes.
fn end_pipe(pid: Pid) -> io::Result<OwnedFd> {
    let (read, write) = io::pipe()?;
    let wait = move || {
        // NOWAIT leaves the child for its owner to reap.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
        drop(write);
    };
    thread::Builder::new()
        .name("child-end".into())
        .spawn(wait)?;
    Ok(read.into())
}

/// The poll set entry that waits until a descriptor is readable.
pub fn readable(descriptor: &impl AsFd) -> PollFd<'_> {
    PollFd::new(descriptor, PollFlags::IN)
}

/// Waits until one of the descriptors is ready, or until the deadline. Returns which ones are ready; none after a
/// signal.
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
    // A deadline that exceeds a timespec counts as none.
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
    fn child_end_makes_its_descriptor_readable() {
        let (mut child, mut stream) =
            ChildProcess::spawn_with_stream(shell("read line; exit $line")).expect("a shell");
        let now = Some(Instant::now());
        assert_eq!(
            ready([Some(readable(&child)), None], now).ok(),
            Some([false; 2])
        );
        stream.write_all(b"3\n").expect("it reads");
        let is_ready = ready([None, Some(readable(&child))], None);
        assert_eq!(is_ready.ok(), Some([false, true]));
        assert_eq!(child.reap().expect("a status").code(), Some(3));
        assert_eq!(stream.read(&mut [0]).ok(), Some(0), "all ends are closed");
    }

    #[test]
    fn child_end_is_detected_without_pidfd() {
        // The fallback for old kernels.
        let (mut child, stream) =
            ChildProcess::spawn_with_stream(shell("read line; exit 4")).expect("a shell");
        let end = end_pipe(Pid::from_child(&child.child)).expect("a thread");
        let is_ready = ready([Some(readable(&end))], Some(Instant::now()));
        assert_eq!(is_ready.ok(), Some([false]));
        assert!(child.peek_status().expect("a child").is_none());
        drop(stream);
        let is_ready = ready([Some(readable(&end))], None);
        assert_eq!(is_ready.ok(), Some([true]));
        let status = child.peek_status().expect("a child").expect("its end");
        assert_eq!(status.exit_status(), Some(4));
        assert_eq!(child.reap().expect("a status").code(), Some(4));
    }

    #[test]
    fn signal_group_reaches_all_processes() {
        // The signal must end the shell's child, too.
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
    fn helper_can_be_reaped_by_either_thread() {
        // The second waitid(2) fails; both sides must accept that.
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
