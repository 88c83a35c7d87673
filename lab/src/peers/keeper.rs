//! The keeper: the parent process of the peers, so that they never outlive the lab.
//!
//! It holds a pipe from the lab. When the pipe closes, because the lab ended, crashed or was killed, the keeper ends
//! all its programs and removes the folder and the namespace. As a child subreaper it inherits daemons after their
//! parents exit, so they are found too; in its own session it receives no signals from the terminal. It only executes
//! jobs and has no knowledge of servers.

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
use super::system::{below, pin, raise_descriptors, signals, told};

/// The name of the file with the output of all programs.
pub const OUTPUT: &str = "output";

/// Maximum time of each step.
const STEP_MAX: Duration = Duration::from_secs(60);

/// Time for programs to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);

/// Time for killed programs to disappear: they may hang in the kernel.
const DEATH_MAX: Duration = Duration::from_secs(5);

/// Poll interval of a socket on which no program listens yet.
const LOOK: Duration = Duration::from_millis(10);

/// Runs the keeper: jobs on standard input, results on standard output.
pub fn run() -> ExitCode {
    let mut lines = std::io::stdin().lock().lines().map_while(Result::ok);
    let Some(place) = lines
        .next()
        .and_then(|line| serde_json::from_str(&line).ok())
    else {
        return ExitCode::FAILURE;
    };
    let mut keeper = match PeerKeeper::new(place) {
        Ok(keeper) => keeper,
        Err(text) => {
            say(&KeeperMessage::Failed(text));
            return ExitCode::FAILURE;
        }
    };
    // The lab needs the number before it sends the job, since the plan has the peer's address.
    let number = keeper.namespace.as_ref().map(NetworkNamespace::number);
    say(&KeeperMessage::Placed(number));
    if let Some(job) = lines
        .next()
        .and_then(|line| serde_json::from_str(&line).ok())
        && let Err(JobEnd::Failed(text)) = keeper.work(&job)
    {
        say(&KeeperMessage::Failed(format!(
            "{text}{}",
            tail(&keeper.folder)
        )));
    }
    // Also after a failure, so that no step leaves programs behind.
    keeper.clear();
    ExitCode::SUCCESS
}

/// Sends a message. Errors are ignored, since the lab may be gone.
fn say(said: &KeeperMessage) {
    let line = serde_json::to_string(said).expect("plain data");
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The end of the output of the programs in `folder`, for a message.
pub fn tail(folder: &Path) -> String {
    let bytes = std::fs::read(folder.join(OUTPUT)).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(2000)..]).into_owned();
    match text.trim() {
        "" => String::from("; it printed nothing"),
        text => format!("; it printed:\n{text}"),
    }
}

/// The end of a job.
enum JobEnd {
    /// The lab is gone, or requested the end.
    Asked,
    /// A step failed.
    Failed(String),
}

/// An event of the keeper's wait.
enum KeeperEvent {
    Gone,
    Child,
    Time,
}

struct PeerKeeper {
    folder: PathBuf,
    namespace: Option<NetworkNamespace>,
    /// Readable when a child has ended.
    ended: UnixStream,
    /// Readable when this process is to end.
    asked: UnixStream,
    /// Children by process id.
    children: HashMap<Pid, String>,
}

impl PeerKeeper {
    fn new(place: KeeperPaths) -> Result<PeerKeeper, String> {
        let text = |error: std::io::Error| format!("the keeper process cannot start: {error}");
        // setsid fails if this process already leads a group, as when started by hand.
        let _ = rustix::process::setsid();
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|error| text(error.into()))?;
        // Signals become readable descriptors, so that a single poll waits for children and for the lab.
        let ended = signals(&[SIGCHLD]).map_err(text)?;
        let asked = signals(&[SIGHUP, SIGINT, SIGTERM]).map_err(text)?;
        pin(&place.cpus)?;
        raise_descriptors();
        let namespace = place.namespace.then(NetworkNamespace::make).transpose()?;
        let keeper = PeerKeeper {
            folder: place.folder,
            namespace,
            ended,
            asked,
            children: HashMap::new(),
        };
        if let Err(error) = std::fs::create_dir(&keeper.folder) {
            let path = keeper.folder.display();
            let text = format!("cannot make the folder {path}: {error}");
            // The namespace exists already, and would outlive the keeper.
            if let Some(namespace) = &keeper.namespace {
                namespace.remove();
            }
            return Err(text);
        }
        Ok(keeper)
    }

    /// Executes all steps, then waits for the end.
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
                    let lacks = format!("no server answers on {}", socket.display());
                    self.wait_until(&answers, &lacks)?;
                }
                JobStep::AwaitPort(address) => {
                    let answers = || TcpStream::connect_timeout(address, LOOK).is_ok();
                    self.wait_until(&answers, &format!("no server answers on {address}"))?;
                }
                JobStep::AwaitSaid(text) => {
                    let output = self.folder.join(OUTPUT);
                    let has_said = || holds(&output, text);
                    self.wait_until(&has_said, &format!("no process printed {text:?}"))?;
                }
            }
        }
        say(&KeeperMessage::Ready);
        loop {
            // Ends with an error: the lab is gone, or a program has ended.
            self.step_on(None)?;
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
            .env("TMPDIR", &self.folder)
            .process_group(0)
            .stdin(input)
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(output)
            .spawn()
            .map_err(failed)?;
        let pid = Pid::from_child(&child);
        self.children.insert(pid, argv[0].clone());
        Ok(pid)
    }

    fn run(&mut self, argv: &[String], input: Option<&Path>) -> Result<(), JobEnd> {
        let pid = self.start(argv, input)?;
        // Its end is expected, so `step_on` must not treat it as a failure.
        self.children.remove(&pid);
        let end = Instant::now() + STEP_MAX;
        loop {
            for (dead, status) in self.reap() {
                match status.exit_status() {
                    Some(0) if dead == pid => return Ok(()),
                    _ if dead == pid => return Err(JobEnd::Failed(told(&argv[0], status))),
                    // Another child: a started program that ends is a failure of the whole job.
                    _ => self.mourn(dead, status)?,
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.wait(true, Some(left)) {
                KeeperEvent::Gone => return Err(JobEnd::Asked),
                KeeperEvent::Time => {
                    return Err(JobEnd::Failed(format!("{} takes too long", argv[0])));
                }
                KeeperEvent::Child => {}
            }
        }
    }

    /// Waits until a condition holds; `lacks` is the error on a timeout.
    fn wait_until(&mut self, is_so: &dyn Fn() -> bool, lacks: &str) -> Result<(), JobEnd> {
        let end = Instant::now() + STEP_MAX;
        while !is_so() {
            if Instant::now() > end {
                return Err(JobEnd::Failed(lacks.to_owned()));
            }
            self.step_on(Some(LOOK))?;
        }
        Ok(())
    }

    /// Waits for an event for at most `limit`.
    fn step_on(&mut self, limit: Option<Duration>) -> Result<(), JobEnd> {
        if let KeeperEvent::Gone = self.wait(true, limit) {
            return Err(JobEnd::Asked);
        }
        for (dead, status) in self.reap() {
            self.mourn(dead, status)?;
        }
        Ok(())
    }

    /// Handles the end of a process: an error for a started program, while workers of daemons may end at any time.
    fn mourn(&mut self, dead: Pid, status: WaitStatus) -> Result<(), JobEnd> {
        match self.children.remove(&dead) {
            Some(program) => Err(JobEnd::Failed(told(&program, status))),
            None => Ok(()),
        }
    }

    fn wait(&mut self, lab_too: bool, limit: Option<Duration>) -> KeeperEvent {
        let stdin = std::io::stdin();
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut ready = vec![PollFd::new(&self.ended, PollFlags::IN)];
        if lab_too {
            ready.push(PollFd::new(&self.asked, PollFlags::IN));
            // The lab sends no more lines: any readiness means the end.
            ready.push(PollFd::new(&stdin, PollFlags::IN));
        }
        match rustix::event::poll(&mut ready, limit.as_ref()) {
            Ok(0) => return KeeperEvent::Time,
            Ok(_) => {}
            // EINTR, probably by SIGCHLD: reaping without a child is harmless.
            Err(_) => return KeeperEvent::Child,
        }
        if ready[1..].iter().any(|one| !one.revents().is_empty()) {
            return KeeperEvent::Gone;
        }
        // Drains the wake-ups: one reap handles all children that have ended.
        let _ = rustix::io::read(&self.ended, &mut [0; 256]);
        KeeperEvent::Child
    }

    /// Reaps ended children.
    fn reap(&self) -> Vec<(Pid, WaitStatus)> {
        let mut dead = Vec::new();
        while let Ok(Some(one)) = rustix::process::wait(WaitOptions::NOHANG) {
            dead.push(one);
        }
        dead
    }

    /// Ends all programs and cleans up.
    fn clear(mut self) {
        // SIGTERM only to the started programs: servers end their own workers in order.
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

    /// Waits until no process is left below this one; returns whether that happened. With `kill`, processes found
    /// meanwhile are killed.
    fn wait_for_all(&mut self, limit: Duration, kill: bool) -> bool {
        let end = Instant::now() + limit;
        loop {
            self.reap();
            // As subreaper the keeper inherits every orphan, so no child means no process.
            if rustix::process::wait(WaitOptions::NOHANG).is_err() {
                return true;
            }
            if Instant::now() > end {
                return false;
            }
            if kill {
                for pid in below(rustix::process::getpid()) {
                    let _ = rustix::process::kill_process(pid, Signal::KILL);
                }
            }
            self.wait(false, Some(LOOK));
        }
    }
}

/// Whether the output contains a text.
fn holds(output: &Path, text: &str) -> bool {
    let said = std::fs::read(output).unwrap_or_default();
    String::from_utf8_lossy(&said).contains(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_file_nothing_was_printed() {
        assert!(tail(Path::new("/nowhere-at-all")).contains("printed nothing"));
    }
}
