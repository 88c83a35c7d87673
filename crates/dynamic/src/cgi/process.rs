//! One CGI program, running: its pipes and its group. It knows nothing of requests' bodies and
//! heads.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use lowroad_engine::concurrency::Permit;
use lowroad_http::status::Status;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep};

use super::environment::Environment;
use super::group::Group;
use super::limits::{Limits, limit};
use super::stderr::Complaints;
use crate::Failure;
use crate::notice::Notice;
use crate::script::talk::{Fed, Part, Program};

/// Where programs look for others if the configuration does not say.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// How much is read at a time: as much as a pipe holds.
const READ_LEN: usize = 64 << 10;

/// How often, and after what pause, a file that is being written is tried again.
const BUSY_TRIES_MAX: usize = 10;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// How long the end of a program's output waits for its own, which shows whether that was all. A
/// program that closes its output and goes on is thought to have meant it.
const LAST_WAIT: Duration = Duration::from_millis(100);
/// How long the output of a program that has ended may be silent before that is taken for its end.
const LEFTOVER_SILENCE: Duration = Duration::from_millis(100);

/// What a process needs besides its request.
pub struct Keep {
    /// Given back when the process is no more.
    pub permit: Permit,
    /// How long it may go on when its output is over.
    pub patience: Duration,
    /// Who is told what it complains of, and how it ended.
    pub notice: Notice,
}

/// A running program. Dropped, its group is ended.
pub struct Process {
    file: Arc<Path>,
    stdin: Option<pipe::Sender>,
    stdout: pipe::Receiver,
    stderr: Option<pipe::Receiver>,
    complaints: Complaints,
    buffer: Box<[u8]>,
    /// Its output is over; until when its own end is waited for.
    over: Option<Pin<Box<Sleep>>>,
    /// Once the program itself has ended: until when more of its output is waited for.
    leftover: Option<Pin<Box<Sleep>>>,
    ending: Option<Ending>,
}

/// What is needed to end a process.
struct Ending {
    group: Group,
    keep: Keep,
    runtime: Handle,
}

impl Process {
    /// Starts a program. Blocks until it runs. In the context of a runtime.
    ///
    /// # Errors
    /// 500 if it can't be run, 503 if the system has no room for it.
    pub fn start(
        file: &Path,
        environment: &Environment<'_>,
        limits: Limits,
        keep: Keep,
    ) -> Result<Process, Failure> {
        let mut command = Command::new(file);
        command.current_dir(file.parent().unwrap_or(Path::new("/")));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).process_group(0);
        command.env_clear().env("PATH", PATH);
        environment.each(|name, value| {
            command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
        });
        limit(&mut command, limits);
        let failed = |error: std::io::Error| failure(file, &error);
        let mut child = spawn(&mut command).map_err(failed)?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let group = Group::of(child).map_err(failed)?;
        let fd = |fd: Option<OwnedFd>| fd.expect("it was asked for");
        let stdin = pipe::Sender::from_owned_fd(fd(stdin.map(OwnedFd::from))).map_err(failed)?;
        let stdout = pipe::Receiver::from_owned_fd(fd(stdout.map(OwnedFd::from)));
        let stderr = pipe::Receiver::from_owned_fd(fd(stderr.map(OwnedFd::from)));
        let file: Arc<Path> = Arc::from(file);
        Ok(Process {
            complaints: Complaints::new(file.clone(), keep.notice.clone()),
            file,
            stdin: Some(stdin),
            stdout: stdout.map_err(failed)?,
            stderr: Some(stderr.map_err(failed)?),
            buffer: vec![0; READ_LEN].into(),
            over: None,
            leftover: None,
            ending: Some(Ending {
                group,
                keep,
                runtime: Handle::current(),
            }),
        })
    }

    /// Its file.
    pub fn file(&self) -> &Arc<Path> {
        &self.file
    }

    /// Reads what it complains of; it must never have to wait for that.
    fn poll_stderr(&mut self, context: &mut Context<'_>) -> bool {
        let mut read = false;
        while let Some(stderr) = &mut self.stderr {
            let mut buffer = ReadBuf::new(&mut self.buffer);
            match Pin::new(stderr).poll_read(context, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.complaints.take(buffer.filled());
                    read = true;
                }
                Poll::Ready(_) => self.stderr = None,
            }
        }
        read
    }

    /// When the program itself has ended, what is left of its group is ended too. A child that
    /// left the group stays, and may keep the output open for as long as it likes; what it does not
    /// say at once is no part of the answer.
    fn poll_leader(&mut self, context: &mut Context<'_>) {
        if let Some(ending) = self.ending.as_ref().filter(|_| self.leftover.is_none())
            && ending.group.poll_ended(context).is_ready()
        {
            ending.group.kill();
            self.leftover = Some(Box::pin(sleep(LEFTOVER_SILENCE)));
        }
    }

    /// Its output is over. Ready once it is known whether that was its own will.
    fn poll_last(&mut self, context: &mut Context<'_>) -> Poll<Result<Part, Failure>> {
        let over = self.over.get_or_insert_with(|| Box::pin(sleep(LAST_WAIT)));
        if self.leftover.is_none() {
            ready!(over.as_mut().poll(context));
            return Poll::Ready(Ok(Part::End));
        }
        let signal = self
            .ending
            .as_ref()
            .and_then(|ending| ending.group.signal());
        Poll::Ready(match signal {
            Some(signal) => {
                let detail = format!("{} ended with signal {signal}", self.file.display());
                Err(Failure::new(Status::BAD_GATEWAY, detail))
            }
            None => Ok(Part::End),
        })
    }

    /// Whether the program has ended, and its output is silent since.
    fn poll_leftover(&mut self, context: &mut Context<'_>) -> bool {
        let leftover = self.leftover.as_mut();
        leftover.is_some_and(|leftover| leftover.as_mut().poll(context).is_ready())
    }

    /// `alone` = it is given time to end by itself.
    fn end(&mut self, alone: bool) {
        let Some(ending) = self.ending.take() else {
            return;
        };
        let Ending {
            group,
            keep,
            runtime,
        } = ending;
        let file = self.file.clone();
        // A runtime that is shutting down drops this at once, which kills the group.
        runtime.spawn(async move {
            let ended = alone && group.wait(keep.patience).await;
            let status = group.end().await;
            if ended
                && let Ok(status) = status
                && !status.success()
            {
                (keep.notice)(&format!("{} ended with {}", file.display(), words(status)));
            }
            drop(keep.permit);
        });
    }
}

impl Program for Process {
    fn poll_feed(&mut self, context: &mut Context<'_>, bytes: &mut Bytes) -> Poll<Fed> {
        let Some(stdin) = &mut self.stdin else {
            return Poll::Ready(Fed::Closed);
        };
        match ready!(Pin::new(stdin).poll_write(context, bytes)) {
            Ok(len @ 1..) => {
                bytes.advance(len);
                Poll::Ready(Fed::Some)
            }
            // It has closed its stdin, which it may.
            _ => {
                self.stdin = None;
                Poll::Ready(Fed::Closed)
            }
        }
    }

    fn poll_feed_end(&mut self, _: &mut Context<'_>) -> Poll<()> {
        self.stdin = None;
        Poll::Ready(())
    }

    fn poll_part(
        &mut self,
        context: &mut Context<'_>,
        output: &mut Vec<u8>,
    ) -> Poll<Result<Part, Failure>> {
        let complained = self.poll_stderr(context);
        self.poll_leader(context);
        if self.over.is_some() {
            return self.poll_last(context);
        }
        let mut buffer = ReadBuf::new(&mut self.buffer);
        match Pin::new(&mut self.stdout).poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                output.extend_from_slice(buffer.filled());
                if let Some(leftover) = &mut self.leftover {
                    leftover.as_mut().reset(Instant::now() + LEFTOVER_SILENCE);
                }
                Poll::Ready(Ok(Part::Output))
            }
            Poll::Pending if complained => Poll::Ready(Ok(Part::Other)),
            Poll::Pending if !self.poll_leftover(context) => Poll::Pending,
            Poll::Ready(_) | Poll::Pending => {
                self.complaints.end_line();
                self.poll_last(context)
            }
        }
    }

    fn is_over(&self) -> bool {
        self.over.is_some()
    }

    fn finish(mut self, _: bool) {
        self.end(true);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end(false);
    }
}

/// Starts it; waits a moment where its file is still open for writing, by whoever put it there or by
/// a process that was forked just then.
fn spawn(command: &mut Command) -> std::io::Result<Child> {
    for _ in 0..BUSY_TRIES_MAX {
        match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(BUSY_PAUSE);
            }
            spawned => return spawned,
        }
    }
    command.spawn()
}

fn words(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(signal) => format!("signal {signal}"),
        None => format!("status {}", status.code().unwrap_or_default()),
    }
}

fn failure(file: &Path, error: &std::io::Error) -> Failure {
    let status = match error
        .raw_os_error()
        .map(rustix::io::Errno::from_raw_os_error)
    {
        Some(
            rustix::io::Errno::AGAIN
            | rustix::io::Errno::MFILE
            | rustix::io::Errno::NFILE
            | rustix::io::Errno::NOMEM,
        ) => Status::SERVICE_UNAVAILABLE,
        _ => Status::INTERNAL_ERROR,
    };
    let hint = match error.kind() {
        std::io::ErrorKind::NotFound => "; is the interpreter in its first line there?",
        _ => "",
    };
    Failure::new(
        status,
        format!("can't run {}: {error}{hint}", file.display()),
    )
}
