//! The supervisor of an interception. It starts the intercepting server and the level below it, and restarts the server
//! after a crash. It serves no requests, so it is unlikely to fail; if it is killed, the server and the level end.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use lowroad_child_processes::backoff::RestartBackoff;
use lowroad_child_processes::process::{ChildProcess, readable, ready, same_command};
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};

use super::instances;
use crate::cli::softirq::{AttachArgs, TierArg, WorkerRole};
use crate::softirq::namespace;
use crate::{signals, terminal_output};

/// Minimum and maximum pause before a restart.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A server that ran for this long did not fail at its start, so the pause is reset to the minimum.
const LONG_LIFE: Duration = Duration::from_secs(60);

/// Starts the intercepting server and the level. Restarts the server until either process ends normally, or a signal
/// arrives.
///
/// # Errors
/// A process can't be started or fails; the process has printed the reason.
pub fn supervise(args: &AttachArgs) -> Result<(), String> {
    if args.ports.len() > 1 {
        return Err("--worker takes one port; run attach for each port".into());
    }
    if let Some(namespace) = &args.netns {
        namespace::enter_namespace(namespace)?;
    }
    // SIGUSR1 reopens the logs of other processes, but may be sent to the whole process group.
    signals::discard(&[SIGUSR1])?;
    let mut processes = SupervisedProcesses {
        has_level: args.tier != TierArg::None,
        // The receiver is created before the children start, so that no signal is lost.
        stop: signals::receive(&[SIGTERM, SIGINT, SIGQUIT, SIGHUP])?,
        worker: None,
        level: None,
        backoff: RestartBackoff::new(PAUSE_MIN, PAUSE_MAX, LONG_LIFE),
    };
    let result = processes.run();
    instances::tidy(args.ports[0]);
    instances::remove_unused_route();
    result
}

struct SupervisedProcesses {
    has_level: bool,
    /// Receives a byte for each signal to end.
    stop: UnixStream,
    worker: Option<WorkerProcess>,
    level: Option<ChildProcess>,
    backoff: RestartBackoff,
}

/// The intercepting server, and a socket: when the supervisor ends, the socket closes, and the server ends.
type WorkerProcess = (ChildProcess, UnixStream);

/// The events during one wait.
struct SupervisorEvents {
    is_signalled: bool,
    worker: Option<ChildProcess>,
    level: Option<ChildProcess>,
}

impl SupervisedProcesses {
    fn run(&mut self) -> Result<(), String> {
        let worker = self.start_worker()?;
        // The server has printed the reason to standard error.
        let describe_end = |_| "the worker could not start; its message is above";
        self.worker = Some(worker.map_err(describe_end)?);
        let started = match self.has_level {
            true => start(command(WorkerRole::Level), ChildProcess::spawn).map(Some),
            false => Ok(None),
        };
        let result = started.and_then(|level| {
            self.level = level;
            self.run_until_end()
        });
        // Also after an error: a process left behind would go on intercepting connections.
        let end_result = self.end();
        result.and(end_result)
    }

    /// Handles events until either process ends normally, or a signal arrives.
    fn run_until_end(&mut self) -> Result<(), String> {
        let mut restart_at: Option<Instant> = None;
        loop {
            let events = self.wait(restart_at)?;
            if events.is_signalled {
                return Ok(());
            }
            if let Some(mut level) = events.level {
                let status = reap(&mut level)?;
                return match status.success() {
                    true => Ok(()),
                    false => Err(no_level(status)),
                };
            }
            if let Some(mut worker) = events.worker {
                let lifetime = worker.lifetime();
                let status = reap(&mut worker)?;
                if !status.success() {
                    restart_at = Some(self.schedule_restart(status, lifetime));
                } else if !self.has_level {
                    // `detach` has ended the server and also signals the level. If there is no level, this was the last
                    // process.
                    return Ok(());
                }
            }
            if restart_at.is_some_and(|time| time <= Instant::now()) {
                restart_at = None;
                match self.start_worker() {
                    Ok(Ok(worker)) => self.worker = Some(worker),
                    // The server ended before it was ready, so its lifetime is 0, and the next pause is longer.
                    Ok(Err(status)) => {
                        restart_at = Some(self.schedule_restart(status, Duration::ZERO))
                    }
                    // The process could not be started, so it has no exit status.
                    Err(_) => restart_at = Some(Instant::now() + self.backoff.record_failure()),
                }
            }
        }
    }

    /// Waits for a signal, the end of either process, or the deadline.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<SupervisorEvents, String> {
        let descriptors = [
            Some(readable(&self.stop)),
            self.worker.as_ref().map(|(worker, _)| readable(worker)),
            self.level.as_ref().map(readable),
        ];
        let [is_signalled, worker_ended, level_ended] =
            ready(descriptors, deadline).map_err(|error| format!("waiting: {error}"))?;
        if is_signalled {
            // Reads the bytes of all signals received so far, which have the same effect as one.
            let _ = self.stop.read(&mut [0; 64]);
        }
        let worker = self.worker.take_if(|_| worker_ended);
        Ok(SupervisorEvents {
            is_signalled,
            worker: worker.map(|(worker, _)| worker),
            level: self.level.take_if(|_| level_ended),
        })
    }

    /// Determines and prints the time of the next restart.
    fn schedule_restart(&mut self, status: ExitStatus, lifetime: Duration) -> Instant {
        let pause = self.backoff.record_end(lifetime);
        terminal_output::note(format_args!(
            "the worker {}; the server on the port gets its connections until the restart in {} s",
            describe(status),
            pause.as_secs()
        ));
        Instant::now() + pause
    }

    /// Starts the server. Waits until the server is ready or has ended.
    fn start_worker(&self) -> Result<Result<WorkerProcess, ExitStatus>, String> {
        let mut command = command(WorkerRole::Worker);
        if self.has_level {
            // Only the level reports readiness to the service manager, after the server is ready.
            command.env_remove("NOTIFY_SOCKET");
        }
        let (mut worker, mut socket) = start(command, ChildProcess::spawn_with_stream)?;
        // The server sends a byte when it is ready; if it ends before, the stream ends.
        match socket.read_exact(&mut [0]) {
            Ok(()) => Ok(Ok((worker, socket))),
            Err(_) => reap(&mut worker).map(Err),
        }
    }

    /// Ends both processes and waits for them. Passes further signals on, because a second signal makes the server skip
    /// its drain.
    fn end(&mut self) -> Result<(), String> {
        // The first round signals the processes without waiting for another signal.
        let mut is_signalled = true;
        while self.worker.is_some() || self.level.is_some() {
            if is_signalled {
                let worker = self.worker.iter().map(|(worker, _)| worker);
                worker
                    .chain(&self.level)
                    .for_each(|child| child.signal(Signal::TERM));
            }
            let events = self.wait(None)?;
            is_signalled = events.is_signalled;
            for mut child in [events.worker, events.level].into_iter().flatten() {
                reap(&mut child)?;
            }
        }
        Ok(())
    }
}

fn no_level(status: ExitStatus) -> String {
    format!(
        "the level below the socket {}; to attach the workers alone, use --tier none",
        describe(status)
    )
}

fn command(role: WorkerRole) -> Command {
    let mut command = same_command(|_| true);
    command.args(["--part", role.name()]);
    command
}

fn start<T>(command: Command, spawn: fn(Command) -> std::io::Result<T>) -> Result<T, String> {
    spawn(command).map_err(|error| format!("starting a process: {error}"))
}

fn reap(child: &mut ChildProcess) -> Result<ExitStatus, String> {
    child
        .reap()
        .map_err(|error| format!("waiting for a process: {error}"))
}

fn describe(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("was killed by signal {signal}"),
        None => format!("ended ({status})"),
    }
}
