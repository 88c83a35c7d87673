//! Supervises applications: starts the local origin servers, restarts them when they end, and stops them.
//!
//! Each application has a supervising thread. An application that ends is restarted after a delay, which grows as long
//! as its lifetimes are short (`life_cycle`). It leads a process group, which is killed when the application ends, and
//! when the server ends, for any reason.

mod leftover_processes;
mod life_cycle;
mod output;
mod program;

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Signal;

use self::leftover_processes::ProcessMark;
use self::life_cycle::{ApplicationLife, SupervisorAction};
use self::output::LineStream;
use crate::limits::{ProcessLimits, limit};
use crate::process::{ChildProcess, readable, ready};
use crate::{ChildNotice, descriptors};

/// Number of reads of the remaining output after an application has ended: enough for more than a pipe holds. Bounded,
/// since a leftover process may write forever.
const FINAL_READS_MAX: usize = 64;

/// The application to start.
#[derive(Clone, Debug)]
pub struct ApplicationSpec {
    /// The program and its arguments; never empty.
    pub command: Vec<String>,
    /// Its working directory; `None`: the server's.
    pub folder: Option<PathBuf>,
    /// Environment variables in addition to the server's.
    pub env: Vec<(String, String)>,
    /// Time that it may take to end after SIGTERM.
    pub stop_timeout: Duration,
}

/// Checks, without starting it, whether an application could be started with the rights of this process.
///
/// # Errors
/// The message that a failed start would log.
pub fn check(application: &ApplicationSpec) -> Result<(), String> {
    program::find(application).map_err(|error| start_failure(&application.command[0], &error))
}

fn start_failure(program: &str, error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => "; is the server's user allowed to execute it?",
        _ => "",
    };
    format!("{program} can't be started: {error}{hint}")
}

/// A supervised application. Dropping it stops the application gracefully.
pub struct ApplicationSupervisor {
    stop: PipeWriter,
    thread: Option<JoinHandle<()>>,
    start_decision: StartDecision,
}

/// Whether an application can start at all.
#[derive(Clone, Default)]
pub struct StartDecision(Arc<AtomicBool>);

impl StartDecision {
    /// Whether the last attempt found that the program does not exist or may not be executed, so that waiting is
    /// useless.
    pub fn is_impossible(&self) -> bool {
        self.0.load(Relaxed)
    }
}

impl ApplicationSupervisor {
    /// Starts an application, and restarts it whenever it ends. Its output, and messages about its ends, are passed to
    /// `notice` line by line.
    ///
    /// # Errors
    /// If the system provides no thread or no pipe.
    pub fn start(
        application: ApplicationSpec,
        notice: ChildNotice,
    ) -> io::Result<ApplicationSupervisor> {
        // The stop is signalled by a pipe, since the thread polls for the stop and for the child at the same time.
        let (stop_reader, stop) = io::pipe()?;
        let start_decision = StartDecision::default();
        let supervisor = SupervisorLoop {
            life: ApplicationLife::new(application.stop_timeout),
            application,
            notice,
            stop_reader: Some(stop_reader),
            start_decision: start_decision.clone(),
            started_at: Instant::now(),
            child: None,
            output: [None, None],
            mark: ProcessMark::new(),
        };
        let thread = thread::Builder::new()
            .name("supervise".into())
            .spawn(move || supervisor.run())?;
        Ok(ApplicationSupervisor {
            stop,
            thread: Some(thread),
            start_decision,
        })
    }

    /// Whether the application can start at all.
    pub fn start_decision(&self) -> StartDecision {
        self.start_decision.clone()
    }

    /// Begins to stop the application; dropping the supervisor waits for its end.
    pub fn end(&self) {
        // Fails only if the thread has already ended.
        let _ = (&self.stop).write(&[0]);
    }
}

impl Drop for ApplicationSupervisor {
    fn drop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct SupervisorLoop {
    application: ApplicationSpec,
    notice: ChildNotice,
    /// Readable when the application is to be stopped; `None` from then on.
    stop_reader: Option<PipeReader>,
    start_decision: StartDecision,
    started_at: Instant,
    life: ApplicationLife,
    /// The running process.
    child: Option<ChildProcess>,
    /// The child's standard output and standard error, as long as they are open.
    output: [Option<LineStream>; 2],
    /// Identifies the child's descendants.
    mark: ProcessMark,
}

impl SupervisorLoop {
    fn run(mut self) {
        loop {
            match self.life.step(self.started_at.elapsed()) {
                SupervisorAction::Start => self.start(),
                SupervisorAction::Signal(signal) => self.signal(signal),
                SupervisorAction::Wait(until) => {
                    self.wait(until.map(|until| self.started_at + until))
                }
                SupervisorAction::Over => return,
            }
        }
    }

    /// Waits for the next event, until the deadline.
    fn wait(&mut self, deadline: Option<Instant>) {
        let [is_stopped, has_ended, has_output, has_errors] = self.ready(deadline);
        self.read([has_output, has_errors]);
        if is_stopped {
            self.stop_reader = None;
            self.life.stop(self.started_at.elapsed());
        }
        if has_ended {
            self.handle_exit();
        }
    }

    fn ready(&self, deadline: Option<Instant>) -> [bool; 4] {
        let [output, errors] = self.output.each_ref().map(|it| it.as_ref().map(readable));
        let (stop_reader, child) = (&self.stop_reader, &self.child);
        let poll_set = [
            stop_reader.as_ref().map(readable),
            child.as_ref().map(readable),
            output,
            errors,
        ];
        // poll(2) can fail if the kernel is short of memory; the loop then tries again.
        ready(poll_set, deadline).unwrap_or_default()
    }

    /// Passes on the output that is available.
    fn read(&mut self, have_some: [bool; 2]) {
        for (stream, has_some) in self.output.iter_mut().zip(have_some) {
            if let Some(lines) = stream.as_mut().filter(|_| has_some)
                && !lines.read(&self.notice)
            {
                lines.end(&self.notice);
                *stream = None;
            }
        }
    }

    fn start(&mut self) {
        let now = self.started_at.elapsed();
        match self.spawn() {
            Ok(()) => {
                self.start_decision.0.store(false, Relaxed);
                self.life.record_start(now);
            }
            Err(error) => {
                let name = &self.application.command[0];
                let pause = self.life.record_failure(now);
                self.start_decision.0.store(is_permanent(&error), Relaxed);
                let failure = start_failure(name, &error);
                (self.notice)(&format!(
                    "{failure}; next attempt in {} ms",
                    pause.as_millis()
                ));
            }
        }
    }

    fn spawn(&mut self) -> io::Result<()> {
        let application = &self.application;
        let mut command = Command::new(&application.command[0]);
        command
            .args(&application.command[1..])
            .envs(application.env.iter().map(|(name, value)| (name, value)))
            .env(leftover_processes::VARIABLE, self.mark.value())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // The application leads a process group, so that signals to the group reach its children, too.
            .process_group(0);
        if let Some(folder) = &application.folder {
            command.current_dir(folder);
        }
        let limits = ProcessLimits {
            descriptors: descriptors::program_limits(),
            // The application ends even if the server is killed.
            ends_with_parent: true,
            ..ProcessLimits::default()
        };
        limit(&mut command, limits);
        let mut child = ChildProcess::spawn(command)?;
        let (output, errors) = child.take_output();
        self.output = [output.map(LineStream::new), errors.map(LineStream::new)];
        self.child = Some(child);
        Ok(())
    }

    fn handle_exit(&mut self) {
        // The rest of the group is killed before its leader is reaped: until then, the group's number can't be reused.
        self.signal(Signal::KILL);
        let Some(mut child) = self.child.take() else {
            return;
        };
        let exit = child.reap();
        self.kill_leftovers();
        self.read_remaining();
        let now = self.started_at.elapsed();
        let Some(pause) = self.life.record_end(now) else {
            return;
        };
        let name = &self.application.command[0];
        let exit_text = exit.map_or_else(|error| error.to_string(), |status| status.to_string());
        (self.notice)(&format!(
            "{name} ended ({exit_text}); restart in {} ms",
            pause.as_millis()
        ));
    }

    /// Passes on the output that was written before the application ended.
    fn read_remaining(&mut self) {
        for _ in 0..FINAL_READS_MAX {
            let [_, _, has_output, has_errors] = self.ready(Some(Instant::now()));
            if !has_output && !has_errors {
                break;
            }
            self.read([has_output, has_errors]);
        }
        for lines in self.output.iter_mut().flatten() {
            lines.end(&self.notice);
        }
        self.output = [None, None];
    }

    fn kill_leftovers(&self) {
        let count = self.mark.kill_all();
        if count > 0 {
            let name = &self.application.command[0];
            (self.notice)(&format!(
                "{name} left {count} processes in other process groups, which were killed"
            ));
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            child.signal_group(signal);
        }
    }
}

/// Whether a start with this error will always fail.
fn is_permanent(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(
            Errno::NOENT
                | Errno::ACCESS
                | Errno::PERM
                | Errno::NOEXEC
                | Errno::NOTDIR
                | Errno::ISDIR
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    type Lines = Arc<Mutex<Vec<String>>>;

    fn supervised(script: &str) -> (ApplicationSupervisor, Lines) {
        let lines = Lines::default();
        let to = lines.clone();
        let notice: ChildNotice =
            Arc::new(move |line| to.lock().expect("a lock").push(line.into()));
        let application = ApplicationSpec {
            command: ["sh", "-c", script].map(String::from).into(),
            folder: None,
            env: vec![("WORD".into(), "hello".into())],
            stop_timeout: Duration::from_secs(5),
        };
        let supervisor = ApplicationSupervisor::start(application, notice).expect("a thread");
        (supervisor, lines)
    }

    fn wait_for(lines: &Lines, text: &str, count: usize) {
        lowroad_testkit::wait_until(text, || {
            let lines = lines.lock().expect("a lock");
            let found = lines.iter().filter(|line| line.contains(text)).count();
            (found >= count).then_some(())
        });
    }

    #[test]
    fn ended_application_is_restarted_and_its_output_passed_on() {
        let (supervisor, lines) = supervised("echo $WORD; exit 3");
        wait_for(&lines, "hello", 2);
        wait_for(&lines, "exit status: 3", 2);
        drop(supervisor);
    }

    #[test]
    fn application_ends_gracefully_on_drop() {
        // The application ends on SIGTERM, long before the timeout.
        let script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done";
        let (supervisor, lines) = supervised(script);
        wait_for(&lines, "up", 1);
        assert!(!supervisor.start_decision().is_impossible());
        drop(supervisor);
        wait_for(&lines, "bye", 1);
        let lines = lines.lock().expect("a lock");
        assert!(
            !lines.iter().any(|line| line.contains("restart in")),
            "{lines:?}"
        );
    }

    #[test]
    fn failed_start_is_retried() {
        for (command, message) in [
            ("/nonexistent/application", "can't be started: No such file"),
            // No user can execute a folder.
            ("/", "is the server's user allowed to execute it?"),
        ] {
            let lines = Lines::default();
            let to = lines.clone();
            let notice: ChildNotice =
                Arc::new(move |line| to.lock().expect("a lock").push(line.into()));
            let application = ApplicationSpec {
                command: vec![command.into()],
                folder: None,
                env: Vec::new(),
                stop_timeout: Duration::from_secs(5),
            };
            let supervisor = ApplicationSupervisor::start(application, notice).expect("a thread");
            wait_for(&lines, message, 2);
            assert!(supervisor.start_decision().is_impossible(), "{command}");
            drop(supervisor);
        }
    }
}
