//! The keeper: the parent process of all peers, which ensures that they never outlive the lab.
//!
//! The keeper reads from a pipe from the lab. When the pipe closes, because the lab ended, crashed or was killed, the
//! keeper ends all its programs and removes the folder and the namespace. As a child subreaper it inherits daemons
//! with parents that have exited, so these are ended too. It runs in a separate session, so it receives no signals from
//! the terminal. The keeper only executes jobs and has no knowledge of servers.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use super::job::{JobStep, KeeperJob, KeeperMessage, KeeperPaths};
use super::namespace::NetworkNamespace;
use super::system::{descendants, describe_exit, pin, raise_descriptors, signals};

/// The name of the file that receives the output of all programs.
pub const OUTPUT: &str = "output";

/// Maximum time of each step.
const STEP_MAX: Duration = Duration::from_secs(60);

/// Time that programs have to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);

/// Time that killed programs have to disappear: they may hang in the kernel.
const DEATH_MAX: Duration = Duration::from_secs(5);

/// Interval at which a socket without a listener is checked again.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs the keeper: reads jobs from standard input and writes results to standard output.
pub fn run() -> ExitCode {
    let mut lines = std::io::stdin().lock().lines().map_while(Result::ok);
    // Without a first line the lab has ended already, and nothing was started that needs cleaning up.
    let Some(paths) = lines
        .next()
        .and_then(|line| serde_json::from_str(&line).ok())
    else {
        return ExitCode::FAILURE;
    };
    let mut keeper = match PeerKeeper::new(paths) {
        Ok(keeper) => keeper,
        Err(text) => {
            send(&KeeperMessage::Failed(text));
            return ExitCode::FAILURE;
        }
    };
    // The lab needs the namespace's number before it sends the job, because the plan contains the peer's address.
    let number = keeper.namespace.as_ref().map(NetworkNamespace::number);
    send(&KeeperMessage::Placed(number));
    if let Some(job) = lines
        .next()
        .and_then(|line| serde_json::from_str(&line).ok())
        && let Err(JobEnd::Failed(text)) = keeper.work(&job)
    {
        send(&KeeperMessage::Failed(format!(
            "{text}{}",
            tail(&keeper.folder)
        )));
    }
    // The keeper cleans up also after a failure: no step may leave programs behind.
    keeper.clean_up();
    ExitCode::SUCCESS
}

/// Sends a message. Errors are ignored, since the lab may be gone.
fn send(message: &KeeperMessage) {
    let line = serde_json::to_string(message).expect("plain data");
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The last lines of the output of the programs in `folder`, for an error message.
pub fn tail(folder: &Path) -> String {
    let bytes = std::fs::read(folder.join(OUTPUT)).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(2000)..]).into_owned();
    match text.trim() {
        "" => String::from("; it printed nothing"),
        text => format!("; it printed:\n{text}"),
    }
}

/// Why a job ended.
enum JobEnd {
    /// The lab has ended, or requested the end.
    Stopped,
    /// A step failed.
    Failed(String),
}

/// An event for which the keeper waits.
enum KeeperEvent {
    Gone,
    Child,
    Time,
}

struct PeerKeeper {
    folder: PathBuf,
    namespace: Option<NetworkNamespace>,
    /// Readable when a child has ended.
    child_signals: UnixStream,
    /// Readable when this process has received a signal to end.
    stop_signals: UnixStream,
    /// Children by process id.
    children: HashMap<Pid, String>,
}

impl PeerKeeper {
    fn new(paths: KeeperPaths) -> Result<PeerKeeper, String> {
        let text = |error: std::io::Error| format!("the keeper process cannot start: {error}");
        // setsid fails if this process already leads a process group, as when started in a shell.
        let _ = rustix::process::setsid();
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|error| text(error.into()))?;
        // Signals become readable descriptors, so that a single poll waits for children and for the lab.
        let child_signals = signals(&[SIGCHLD]).map_err(text)?;
        let stop_signals = signals(&[SIGHUP, SIGINT, SIGTERM]).map_err(text)?;
        pin(&paths.cpus)?;
        raise_descriptors();
        let namespace = paths.namespace.then(NetworkNamespace::make).transpose()?;
        let keeper = PeerKeeper {
            folder: paths.folder,
            namespace,
            child_signals,
            stop_signals,
            children: HashMap::new(),
        };
        if let Err(error) = std::fs::create_dir(&keeper.folder) {
            let path = keeper.folder.display();
            let text = format!("cannot make the folder {path}: {error}");
            // The namespace exists already and would outlive the keeper.
            if let Some(namespace) = &keeper.namespace {
                namespace.remove();
            }
            return Err(text);
        }
        Ok(keeper)
    }

    /// Executes all steps, then waits until the job ends.
    fn work(&mut self, job: &KeeperJob) -> Result<(), JobEnd> {
        for (name, text) in &job.files {
            std::fs::write(self.folder.join(name), text)
                .map_err(|error| JobEnd::Failed(format!("cannot write {name}: {error}")))?;
        }
        for step in &job.steps {
            match step {
                JobStep::Start(argv) => self.start(argv, None).map(|_| ())?,
                JobStep::Run(argv, input) => self.run(argv, input.as_deref())?,
                JobStep::Await(socket) => {
                    let answers = || UnixStream::connect(socket).is_ok();
                    let failure = format!("no server answers on {}", socket.display());
                    self.wait_until(&answers, &failure)?;
                }
                JobStep::AwaitPort(address) => {
                    let answers = || TcpStream::connect_timeout(address, POLL_INTERVAL).is_ok();
                    self.wait_until(&answers, &format!("no server answers on {address}"))?;
                }
                JobStep::AwaitOutput(text) => {
                    let output = self.folder.join(OUTPUT);
                    let is_printed = || has_printed(&output, text);
                    self.wait_until(&is_printed, &format!("no process printed {text:?}"))?;
                }
            }
        }
        send(&KeeperMessage::Ready);
        loop {
            // `wait_for_step` returns only with an error: the lab has ended, or a program has exited.
            self.wait_for_step(None)?;
        }
    }

    fn start(&mut self, argv: &[String], input: Option<&Path>) -> Result<Pid, JobEnd> {
        let mut words = self
            .namespace
            .as_ref()
            .map(NetworkNamespace::prefix)
            .unwrap_or_default();
        words.extend_from_slice(argv);
        let failed =
            |error: std::io::Error| JobEnd::Failed(format!("{} does not start: {error}", argv[0]));
        // The file is opened in append mode, so that several programs can write to it without overwriting each other's
        // lines.
        let output = File::options()
            .append(true)
            .create(true)
            .open(self.folder.join(OUTPUT))
            .map_err(failed)?;
        let input = match input {
            Some(file) => Stdio::from(File::open(file).map_err(|error| {
                JobEnd::Failed(format!("cannot read {}: {error}", file.display()))
            })?),
            None => Stdio::null(),
        };
        let child = Command::new(&words[0])
            .args(&words[1..])
            .current_dir(&self.folder)
            // Temporary files of the programs then disappear with the folder.
            .env("TMPDIR", &self.folder)
            // A separate process group, since Apache signals its whole group to end its workers.
            .process_group(0)
            .stdin(input)
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(output)
            .spawn()
            .map_err(failed)?;
        let pid = Pid::from_child(&child);
        // The program is recorded: if a recorded program ends, the job has failed; other children are orphans of
        // servers.
        self.children.insert(pid, argv[0].clone());
        Ok(pid)
    }

    fn run(&mut self, argv: &[String], input: Option<&Path>) -> Result<(), JobEnd> {
        let pid = self.start(argv, input)?;
        // This program is expected to exit, so `wait_for_step` must not treat that as a failure.
        self.children.remove(&pid);
        let deadline = Instant::now() + STEP_MAX;
        loop {
            for (dead, status) in self.reap() {
                match status.exit_status() {
                    Some(0) if dead == pid => return Ok(()),
                    _ if dead == pid => {
                        return Err(JobEnd::Failed(describe_exit(&argv[0], status)));
                    }
                    // Another child: if a started program exits, the whole job has failed.
                    _ => self.handle_child_end(dead, status)?,
                }
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            match self.wait(true, Some(remaining)) {
                KeeperEvent::Gone => return Err(JobEnd::Stopped),
                KeeperEvent::Time => {
                    return Err(JobEnd::Failed(format!("{} takes too long", argv[0])));
                }
                KeeperEvent::Child => {}
            }
        }
    }

    /// Waits until a condition holds; `failure` is the error message after a timeout.
    fn wait_until(&mut self, condition: &dyn Fn() -> bool, failure: &str) -> Result<(), JobEnd> {
        let deadline = Instant::now() + STEP_MAX;
        while !condition() {
            if Instant::now() > deadline {
                return Err(JobEnd::Failed(failure.to_owned()));
            }
            self.wait_for_step(Some(POLL_INTERVAL))?;
        }
        Ok(())
    }

    /// Waits for an event for at most `limit`.
    fn wait_for_step(&mut self, limit: Option<Duration>) -> Result<(), JobEnd> {
        if let KeeperEvent::Gone = self.wait(true, limit) {
            return Err(JobEnd::Stopped);
        }
        for (dead, status) in self.reap() {
            self.handle_child_end(dead, status)?;
        }
        Ok(())
    }

    /// Handles the exit of a process: an error for a started program; workers of daemons may exit at any time.
    fn handle_child_end(&mut self, dead: Pid, status: WaitStatus) -> Result<(), JobEnd> {
        match self.children.remove(&dead) {
            Some(program) => Err(JobEnd::Failed(describe_exit(&program, status))),
            None => Ok(()),
        }
    }

    fn wait(&mut self, watches_lab: bool, limit: Option<Duration>) -> KeeperEvent {
        let stdin = std::io::stdin();
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut ready = vec![PollFd::new(&self.child_signals, PollFlags::IN)];
        if watches_lab {
            ready.push(PollFd::new(&self.stop_signals, PollFlags::IN));
            // The lab sends no further lines, so readiness can only mean the end.
            ready.push(PollFd::new(&stdin, PollFlags::IN));
        }
        match rustix::event::poll(&mut ready, limit.as_ref()) {
            Ok(0) => return KeeperEvent::Time,
            Ok(_) => {}
            // EINTR, probably by SIGCHLD; reaping is harmless even if no child has exited.
            Err(_) => return KeeperEvent::Child,
        }
        if ready[1..]
            .iter()
            .any(|poll_fd| !poll_fd.revents().is_empty())
        {
            return KeeperEvent::Gone;
        }
        // Drains all notifications, since one reap handles all children that have exited.
        let _ = rustix::io::read(&self.child_signals, &mut [0; 256]);
        KeeperEvent::Child
    }

    /// Reaps children that have exited.
    fn reap(&self) -> Vec<(Pid, WaitStatus)> {
        let mut dead = Vec::new();
        // Several children may have ended, but SIGCHLD is not queued (signal(7)).
        while let Ok(Some(child)) = rustix::process::wait(WaitOptions::NOHANG) {
            dead.push(child);
        }
        dead
    }

    /// Ends all programs and cleans up.
    fn clean_up(mut self) {
        // SIGTERM only to the started programs, since servers end their own workers in order.
        for &pid in self.children.keys() {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        if !self.wait_for_all(GRACE, false) {
            self.wait_for_all(DEATH_MAX, true);
        }
        if let Some(namespace) = &self.namespace {
            namespace.remove();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }

    /// Waits until this process has no descendants; returns whether that happened in time. With `kill`, it kills the
    /// processes that it finds.
    fn wait_for_all(&mut self, limit: Duration, kill: bool) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            self.reap();
            // As a subreaper the keeper inherits every orphan, so without children there are no descendants.
            if rustix::process::wait(WaitOptions::NOHANG).is_err() {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            if kill {
                // The descendants are listed in each round, since a process may have started others before it ended.
                for pid in descendants(rustix::process::getpid()) {
                    let _ = rustix::process::kill_process(pid, Signal::KILL);
                }
            }
            self.wait(false, Some(POLL_INTERVAL));
        }
    }
}

/// Whether the output contains a text.
fn has_printed(output: &Path, text: &str) -> bool {
    let printed = std::fs::read(output).unwrap_or_default();
    String::from_utf8_lossy(&printed).contains(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_tail_of_missing_file_says_printed_nothing() {
        assert!(tail(Path::new("/nowhere-at-all")).contains("printed nothing"));
    }
}
