//! A running CGI program: reads and writes its pipes, and ends it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use lowroad_child_processes::limits::ProcessLimits;
use lowroad_handler::HandlerFailure;
use lowroad_handler::operator_notice::OperatorNotice;
use lowroad_http::status::StatusCode;
use lowroad_limits::Permit;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};

use super::environment::CgiEnvironment;
use super::spawner::{CgiChild, CgiSpawner, EnvVariable, ExitOutcome, SpawnOrder};
use super::stderr::StderrLines;
use crate::script::exchange::{FeedOutcome, ProgramLink, ProgramOutput};

/// The PATH of a program if the route's `env` sets none.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Bytes of one read: the capacity of a pipe.
const READ_LEN: usize = 64 << 10;

/// After the end of its output, a program has this time to exit, so that its exit status shows whether the output was
/// complete. A program that closes its output and continues to run is assumed to have finished its response.
const LAST_WAIT: Duration = Duration::from_millis(100);

/// The parameters of a process that do not come from its request.
pub struct ProcessContext {
    /// Freed when the process has ended.
    pub permit: Permit,
    /// How long it may run after the end of its output.
    pub exit_timeout: Duration,
    /// Receives lines of its stderr, and abnormal exits.
    pub notice: OperatorNotice,
}

/// A running program. Its output ends when the last process closes it: if the program itself has exited before, its
/// children continue the output. Dropping it kills its process group.
pub struct CgiProcess {
    file: Arc<Path>,
    stdin: Option<pipe::Sender>,
    stdout: pipe::Receiver,
    stderr: Option<pipe::Receiver>,
    stderr_lines: StderrLines,
    buffer: Box<[u8]>,
    /// The time limit for the exit, set when the output ends.
    exit_deadline: Option<Pin<Box<Sleep>>>,
    reaper: Option<ProcessReaper>,
}

/// Ends a process in a task of the runtime.
struct ProcessReaper {
    child: CgiChild,
    process_context: ProcessContext,
    runtime: Handle,
}

impl CgiProcess {
    /// Starts a program. May block briefly. Needs the context of a runtime.
    ///
    /// # Errors
    /// 500 if it cannot be run, 503 if the system lacks resources. Later errors are reported with its output.
    pub fn start(
        file: &Path,
        environment: &CgiEnvironment<'_>,
        limits: ProcessLimits,
        spawner: &CgiSpawner,
        process_context: ProcessContext,
    ) -> Result<CgiProcess, HandlerFailure> {
        let to_failure = |error: std::io::Error| failure(file, &error);
        // O_CLOEXEC: a program must not inherit the pipes of another one.
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|errno| to_failure(errno.into()));
        let ((input, stdin), (stdout, output), (stderr, errors)) = (pipe()?, pipe()?, pipe()?);
        let receiver = |end: OwnedFd| pipe::Receiver::from_owned_fd(end).map_err(to_failure);
        let (stdout, stderr) = (receiver(stdout)?, receiver(stderr)?);
        let stdin = pipe::Sender::from_owned_fd(stdin).map_err(to_failure)?;
        let order = SpawnOrder {
            file: file.into(),
            // RFC 3875 §7.2: the current directory is that of the script.
            folder: file.parent().unwrap_or(Path::new("/")).into(),
            environment: variables(environment),
            limits,
        };
        let ends = [input, output, errors];
        let child = spawner.start(order, &ends).map_err(to_failure)?;
        let file: Arc<Path> = Arc::from(file);
        let request = environment.request;
        Ok(CgiProcess {
            stderr_lines: StderrLines::new(
                file.clone(),
                request.method,
                request.raw_path(),
                process_context.notice.clone(),
            ),
            file,
            stdin: Some(stdin),
            stdout,
            stderr: Some(stderr),
            buffer: vec![0; READ_LEN].into(),
            exit_deadline: None,
            reaper: Some(ProcessReaper {
                child,
                process_context,
                runtime: Handle::current(),
            }),
        })
    }

    /// The program's file.
    pub fn file(&self) -> &Arc<Path> {
        &self.file
    }

    /// Reads stderr. It is drained first and always, since a program that blocks on a full stderr pipe would deadlock.
    fn poll_stderr(&mut self, context: &mut Context<'_>) -> bool {
        let mut has_read = false;
        // All of it, before any output: a full stderr pipe would block the program.
        while let Some(stderr) = &mut self.stderr {
            let mut buffer = ReadBuf::new(&mut self.buffer);
            match Pin::new(stderr).poll_read(context, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.stderr_lines.push(buffer.filled());
                    has_read = true;
                }
                Poll::Ready(_) => self.stderr = None,
            }
        }
        has_read
    }

    /// The output has ended. Ready once it is known whether the program exited normally.
    fn poll_exit(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<ProgramOutput, HandlerFailure>> {
        let exit_deadline = self
            .exit_deadline
            .get_or_insert_with(|| Box::pin(sleep(LAST_WAIT)));
        let child = self.reaper.as_mut().map(|reaper| &mut reaper.child);
        let outcome = match child.map(|child| child.poll_outcome(context)) {
            Some(Poll::Pending) => {
                // The program closed its output but continues to run, so it considers its response complete.
                ready!(exit_deadline.as_mut().poll(context));
                return Poll::Ready(Ok(ProgramOutput::End));
            }
            Some(Poll::Ready(outcome)) => outcome,
            None => return Poll::Ready(Ok(ProgramOutput::End)),
        };
        let file = self.file.display();
        Poll::Ready(match outcome {
            // The exit status is ignored: CGI scripts often return a meaningless one.
            ExitOutcome::Exited(_) => Ok(ProgramOutput::End),
            ExitOutcome::NotStarted(errno) => Err(failure(
                &self.file,
                &std::io::Error::from_raw_os_error(errno),
            )),
            ExitOutcome::Signaled(signal) => Err(HandlerFailure::new(
                // Killed, perhaps by a resource limit, so the output may be incomplete.
                StatusCode::BAD_GATEWAY,
                format!("{file} ended with signal {signal}"),
            )),
            ExitOutcome::Lost => Err(HandlerFailure::new(
                StatusCode::BAD_GATEWAY,
                format!("{file} was killed because the process that had started it ended"),
            )),
        })
    }

    /// Ends the process. With `is_graceful` it first gets time to exit by itself.
    fn end(&mut self, is_graceful: bool) {
        let Some(ProcessReaper {
            child,
            process_context,
            runtime,
        }) = self.reaper.take()
        else {
            return;
        };
        let file = self.file.clone();
        // If the runtime is shutting down, the task is dropped immediately, which kills the group.
        runtime.spawn(async move {
            if is_graceful {
                let exit_text = match child.finish(process_context.exit_timeout).await {
                    Some(ExitOutcome::Exited(status @ 1..)) => format!("status {status}"),
                    Some(ExitOutcome::Signaled(signal)) => format!("signal {signal}"),
                    _ => String::new(),
                };
                if !exit_text.is_empty() {
                    (process_context.notice)(&format!("{} ended with {exit_text}", file.display()));
                }
            } else {
                child.end().await;
            }
            // The permit is returned only now, because the route limits processes, not responses.
            drop(process_context.permit);
        });
    }
}

impl ProgramLink for CgiProcess {
    fn poll_feed(&mut self, context: &mut Context<'_>, bytes: &mut Bytes) -> Poll<FeedOutcome> {
        let Some(stdin) = &mut self.stdin else {
            return Poll::Ready(FeedOutcome::Closed);
        };
        match ready!(Pin::new(stdin).poll_write(context, bytes)) {
            Ok(len @ 1..) => {
                bytes.advance(len);
                Poll::Ready(FeedOutcome::Some)
            }
            // A program may close its stdin without reading the body: no failure.
            _ => {
                self.stdin = None;
                Poll::Ready(FeedOutcome::Closed)
            }
        }
    }

    fn poll_feed_end(&mut self, _: &mut Context<'_>) -> Poll<()> {
        // Closing the pipe is the end of input for the program.
        self.stdin = None;
        Poll::Ready(())
    }

    fn poll_part(
        &mut self,
        context: &mut Context<'_>,
        output: &mut Vec<u8>,
    ) -> Poll<Result<ProgramOutput, HandlerFailure>> {
        let had_stderr = self.poll_stderr(context);
        // The output has ended; only the exit status is missing.
        if self.exit_deadline.is_some() {
            return self.poll_exit(context);
        }
        let mut buffer = ReadBuf::new(&mut self.buffer);
        match Pin::new(&mut self.stdout).poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                output.extend_from_slice(buffer.filled());
                Poll::Ready(Ok(ProgramOutput::Output))
            }
            Poll::Pending if had_stderr => Poll::Ready(Ok(ProgramOutput::Other)),
            Poll::Pending => Poll::Pending,
            Poll::Ready(_) => {
                // An unfinished line of stderr would be lost otherwise.
                self.stderr_lines.end_line();
                self.poll_exit(context)
            }
        }
    }

    fn has_output_ended(&self) -> bool {
        self.exit_deadline.is_some()
    }

    fn finish(mut self, _: bool) {
        self.end(true);
    }
}

impl Drop for CgiProcess {
    fn drop(&mut self) {
        self.end(false);
    }
}

/// The complete environment of the program; it inherits nothing.
fn variables(environment: &CgiEnvironment<'_>) -> Vec<EnvVariable> {
    let mut variables = Vec::new();
    let mut push_variable =
        |name: &[u8], value: &[u8]| variables.push((name.to_vec().into(), value.to_vec().into()));
    // PATH first: later variables of the same name override it.
    push_variable(b"PATH", PATH.as_bytes());
    environment.for_each_variable(push_variable);
    variables
}

fn failure(file: &Path, error: &std::io::Error) -> HandlerFailure {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let status = match errno {
        Some(Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
            // Lack of resources is temporary, so the client may retry.
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_ERROR,
    };
    let hint = match errno {
        // ENOENT for an existing file means that the interpreter of its `#!` line is missing.
        Some(Errno::NOENT) => "; check that the interpreter in its first line exists",
        Some(Errno::MSGSIZE | Errno::NOBUFS) => "; its environment is too long",
        _ => "",
    };
    HandlerFailure::new(
        status,
        format!("can't run {}: {error}{hint}", file.display()),
    )
}
