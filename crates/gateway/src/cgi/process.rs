//! A running CGI program: transfers data over its pipes, and ends it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use lowroad_child_processes::limits::ProcessLimits;
use lowroad_handler::HandlerFailure;
use lowroad_handler::operator_notice::RequestNotice;
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

/// PATH of a program, unless the route's `env` sets it.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The read size: the capacity of a pipe.
const READ_LEN: usize = 64 << 10;

/// The time to wait for the exit of a program after the end of its output: the exit status shows whether the output was
/// complete. A program that closes its output and keeps running is assumed to have completed its response.
const EXIT_WAIT: Duration = Duration::from_millis(100);

/// Parameters of a process.
pub struct ProcessContext {
    /// Released when the process has ended.
    pub permit: Permit,
    /// The time that the program may run after the end of its output.
    pub exit_timeout: Duration,
    /// Receives the lines of stderr, and abnormal exits.
    pub notice: RequestNotice,
}

/// A running program. Its output ends when the last process with the pipe closes it: child processes may continue the
/// output after the program's exit. Dropping a `CgiProcess` kills the process group.
pub struct CgiProcess {
    file: Arc<Path>,
    stdin: Option<pipe::Sender>,
    stdout: pipe::Receiver,
    stderr: Option<pipe::Receiver>,
    stderr_lines: StderrLines,
    buffer: Box<[u8]>,
    /// The deadline for the program's exit; set when its output ends.
    exit_deadline: Option<Pin<Box<Sleep>>>,
    reaper: Option<ProcessReaper>,
}

/// Waits for a process to exit, or kills it, in a task of the runtime.
struct ProcessReaper {
    child: CgiChild,
    process_context: ProcessContext,
    runtime: Handle,
}

impl CgiProcess {
    /// Starts a program. May block briefly; must be called in the context of a runtime.
    ///
    /// # Errors
    /// 500 if the program cannot be run, 503 if the system lacks resources. Later errors are reported with the output.
    pub fn start(
        file: &Path,
        environment: &CgiEnvironment<'_>,
        limits: ProcessLimits,
        spawner: &CgiSpawner,
        process_context: ProcessContext,
    ) -> Result<CgiProcess, HandlerFailure> {
        let to_failure = |error: std::io::Error| failure(file, &error);
        // CLOEXEC: other programs must not inherit these pipes.
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|errno| to_failure(errno.into()));
        let ((input, stdin), (stdout, output), (stderr, errors)) = (pipe()?, pipe()?, pipe()?);
        let receiver = |end: OwnedFd| pipe::Receiver::from_owned_fd(end).map_err(to_failure);
        let (stdout, stderr) = (receiver(stdout)?, receiver(stderr)?);
        let stdin = pipe::Sender::from_owned_fd(stdin).map_err(to_failure)?;
        let order = SpawnOrder {
            file: file.into(),
            // The working directory is that of the script (RFC 3875 §7.2).
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

    /// The path of the program.
    pub fn file(&self) -> &Arc<Path> {
        &self.file
    }

    /// Reads stderr until it is empty; returns whether anything was read.
    fn poll_stderr(&mut self, context: &mut Context<'_>) -> bool {
        let mut has_read = false;
        // Stderr is read before any output: a program that blocks on a full stderr pipe would deadlock.
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

    /// Called after the end of the output; ready when it is known whether the program exited normally.
    fn poll_exit(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<ProgramOutput, HandlerFailure>> {
        let exit_deadline = self
            .exit_deadline
            .get_or_insert_with(|| Box::pin(sleep(EXIT_WAIT)));
        let child = self.reaper.as_mut().map(|reaper| &mut reaper.child);
        let outcome = match child.map(|child| child.poll_outcome(context)) {
            Some(Poll::Pending) => {
                // The program keeps running after closing its output: its response is complete.
                ready!(exit_deadline.as_mut().poll(context));
                return Poll::Ready(Ok(ProgramOutput::End));
            }
            Some(Poll::Ready(outcome)) => outcome,
            None => return Poll::Ready(Ok(ProgramOutput::End)),
        };
        let file = self.file.display();
        Poll::Ready(match outcome {
            // The exit status is ignored, because many CGI scripts return a meaningless one.
            ExitOutcome::Exited(_) => Ok(ProgramOutput::End),
            ExitOutcome::NotStarted(errno) => Err(failure(
                &self.file,
                &std::io::Error::from_raw_os_error(errno),
            )),
            ExitOutcome::Signaled(signal) => Err(HandlerFailure::new(
                // The program was killed, possibly by a resource limit: the output may be incomplete.
                StatusCode::BAD_GATEWAY,
                format!("{file} ended with signal {signal}"),
            )),
            ExitOutcome::Lost => Err(HandlerFailure::new(
                StatusCode::BAD_GATEWAY,
                format!("{file} was killed because the process that had started it ended"),
            )),
        })
    }

    /// Ends the process. With `is_graceful`, the process first gets time to exit.
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
        // If the runtime is shutting down, the task is dropped immediately, which kills the process group.
        runtime.spawn(async move {
            if is_graceful {
                let exit_text = match child.finish(process_context.exit_timeout).await {
                    Some(ExitOutcome::Exited(status @ 1..)) => format!("status {status}"),
                    Some(ExitOutcome::Signaled(signal)) => format!("signal {signal}"),
                    _ => String::new(),
                };
                if !exit_text.is_empty() {
                    let text = format!("{} ended with {exit_text}", file.display());
                    process_context.notice.send(&text);
                }
            } else {
                child.end().await;
            }
            // The permit is held until here: the route limits processes, not responses.
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
            // A program may close its stdin without reading the body; this is not a failure.
            _ => {
                self.stdin = None;
                Poll::Ready(FeedOutcome::Closed)
            }
        }
    }

    fn poll_feed_end(&mut self, _: &mut Context<'_>) -> Poll<()> {
        // Closing the pipe signals the end of input.
        self.stdin = None;
        Poll::Ready(())
    }

    fn poll_part(
        &mut self,
        context: &mut Context<'_>,
        output: &mut Vec<u8>,
    ) -> Poll<Result<ProgramOutput, HandlerFailure>> {
        let had_stderr = self.poll_stderr(context);
        // After the end of the output, only the exit status is missing.
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
                // Logs the last line of stderr even if it is unfinished.
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

/// The complete environment of the program; nothing is inherited.
fn variables(environment: &CgiEnvironment<'_>) -> Vec<EnvVariable> {
    let mut variables = Vec::new();
    let mut push_variable =
        |name: &[u8], value: &[u8]| variables.push((name.to_vec().into(), value.to_vec().into()));
    // PATH comes first, so that a later variable of the same name overrides it.
    push_variable(b"PATH", PATH.as_bytes());
    environment.for_each_variable(push_variable);
    variables
}

fn failure(file: &Path, error: &std::io::Error) -> HandlerFailure {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let status = match errno {
        Some(Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
            // A lack of resources is temporary: the client may retry.
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_ERROR,
    };
    let hint = match errno {
        // ENOENT for an existing file: the interpreter in its `#!` line is missing.
        Some(Errno::NOENT) => "; check that the interpreter in its first line exists",
        Some(Errno::MSGSIZE | Errno::NOBUFS) => "; its environment is too long",
        _ => "",
    };
    HandlerFailure::new(
        status,
        format!("can't run {}: {error}{hint}", file.display()),
    )
}
