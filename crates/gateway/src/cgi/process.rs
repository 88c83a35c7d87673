//! One CGI program, running: its pipes, and what becomes of it. It knows nothing of requests' bodies and
//! heads.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use lowroad_children::limits::Limits;
use lowroad_handler::Failure;
use lowroad_handler::notice::Notice;
use lowroad_http::status::Status;
use lowroad_limits::Permit;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};

use super::environment::Environment;
use super::spawner::{Order, Outcome, Running, Spawner, Variable};
use super::stderr::Complaints;
use crate::script::talk::{Fed, Part, Program};

/// Where programs look for others if the configuration does not say.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// How much is read at a time: as much as a pipe holds.
const READ_LEN: usize = 64 << 10;

/// How long the end of a program's output waits for its own, which shows whether that was all. A
/// program that closes its output and goes on is thought to have meant it.
const LAST_WAIT: Duration = Duration::from_millis(100);

/// What a process needs besides its request.
pub struct Keep {
    /// Given back when the process is no more.
    pub permit: Permit,
    /// How long it may go on when its output is over.
    pub patience: Duration,
    /// Who is told what it complains of, and how it ended.
    pub notice: Notice,
}

/// A running program. Its output ends when nobody has it open any more: where the program itself has ended before,
/// its children go on with it. Dropped, its group is ended.
pub struct Process {
    file: Arc<Path>,
    stdin: Option<pipe::Sender>,
    stdout: pipe::Receiver,
    stderr: Option<pipe::Receiver>,
    complaints: Complaints,
    buffer: Box<[u8]>,
    /// Its output is over; until when its own end is waited for.
    over: Option<Pin<Box<Sleep>>>,
    ending: Option<Ending>,
}

/// What is needed to end a process.
struct Ending {
    running: Running,
    keep: Keep,
    runtime: Handle,
}

impl Process {
    /// Has a program started. May block a little. In the context of a runtime.
    ///
    /// # Errors
    /// 500 if it can't be run, 503 if the system has no room for it. What is found out later is told with its output.
    pub fn start(
        file: &Path,
        environment: &Environment<'_>,
        limits: Limits,
        spawner: &Spawner,
        keep: Keep,
    ) -> Result<Process, Failure> {
        let failed = |error: std::io::Error| failure(file, &error);
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|errno| failed(errno.into()));
        let ((input, stdin), (stdout, output), (stderr, errors)) = (pipe()?, pipe()?, pipe()?);
        let receiver = |end: OwnedFd| pipe::Receiver::from_owned_fd(end).map_err(failed);
        let (stdout, stderr) = (receiver(stdout)?, receiver(stderr)?);
        let stdin = pipe::Sender::from_owned_fd(stdin).map_err(failed)?;
        let order = Order {
            file: file.into(),
            folder: file.parent().unwrap_or(Path::new("/")).into(),
            environment: variables(environment),
            limits,
        };
        let ends = [input, output, errors];
        let running = spawner.start(order, &ends).map_err(failed)?;
        let file: Arc<Path> = Arc::from(file);
        let request = environment.request;
        Ok(Process {
            complaints: Complaints::new(
                file.clone(),
                (request.method, request.raw_path()),
                keep.notice.clone(),
            ),
            file,
            stdin: Some(stdin),
            stdout,
            stderr: Some(stderr),
            buffer: vec![0; READ_LEN].into(),
            over: None,
            ending: Some(Ending {
                running,
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

    /// Its output is over. Ready once it is known whether that was its own will.
    fn poll_last(&mut self, context: &mut Context<'_>) -> Poll<Result<Part, Failure>> {
        let over = self.over.get_or_insert_with(|| Box::pin(sleep(LAST_WAIT)));
        let running = self.ending.as_mut().map(|ending| &mut ending.running);
        let outcome = match running.map(|running| running.poll_outcome(context)) {
            Some(Poll::Pending) => {
                ready!(over.as_mut().poll(context));
                return Poll::Ready(Ok(Part::End));
            }
            Some(Poll::Ready(outcome)) => outcome,
            None => return Poll::Ready(Ok(Part::End)),
        };
        let file = self.file.display();
        Poll::Ready(match outcome {
            Outcome::Exited(_) => Ok(Part::End),
            Outcome::NotStarted(errno) => Err(failure(
                &self.file,
                &std::io::Error::from_raw_os_error(errno),
            )),
            Outcome::Signaled(signal) => Err(Failure::new(
                Status::BAD_GATEWAY,
                format!("{file} ended with signal {signal}"),
            )),
            Outcome::Lost => Err(Failure::new(
                Status::BAD_GATEWAY,
                format!("{file} ended with the process that had started it"),
            )),
        })
    }

    /// `alone` = it is given time to end by itself.
    fn end(&mut self, alone: bool) {
        let Some(Ending {
            running,
            keep,
            runtime,
        }) = self.ending.take()
        else {
            return;
        };
        let file = self.file.clone();
        // A runtime that is shutting down drops this at once, which kills the group.
        runtime.spawn(async move {
            if alone {
                let words = match running.finish(keep.patience).await {
                    Some(Outcome::Exited(status @ 1..)) => format!("status {status}"),
                    Some(Outcome::Signaled(signal)) => format!("signal {signal}"),
                    _ => String::new(),
                };
                if !words.is_empty() {
                    (keep.notice)(&format!("{} ended with {words}", file.display()));
                }
            } else {
                running.end().await;
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
        if self.over.is_some() {
            return self.poll_last(context);
        }
        let mut buffer = ReadBuf::new(&mut self.buffer);
        match Pin::new(&mut self.stdout).poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                output.extend_from_slice(buffer.filled());
                Poll::Ready(Ok(Part::Output))
            }
            Poll::Pending if complained => Poll::Ready(Ok(Part::Other)),
            Poll::Pending => Poll::Pending,
            Poll::Ready(_) => {
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

/// All that the program gets, and nothing of the server's.
fn variables(environment: &Environment<'_>) -> Vec<Variable> {
    let mut variables = Vec::new();
    let mut put =
        |name: &[u8], value: &[u8]| variables.push((name.to_vec().into(), value.to_vec().into()));
    // What comes later counts.
    put(b"PATH", PATH.as_bytes());
    environment.each(put);
    variables
}

fn failure(file: &Path, error: &std::io::Error) -> Failure {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let status = match errno {
        Some(Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
            Status::SERVICE_UNAVAILABLE
        }
        _ => Status::INTERNAL_ERROR,
    };
    let hint = match errno {
        Some(Errno::NOENT) => "; is the interpreter in its first line there?",
        Some(Errno::MSGSIZE | Errno::NOBUFS) => "; its environment is too long",
        _ => "",
    };
    Failure::new(
        status,
        format!("can't run {}: {error}{hint}", file.display()),
    )
}
