//! Starts the program again, as a new version's process beside the running one (an upgrade).
//!
//! A server without root privileges can't start a process with root privileges. So while it is root, it starts a *starter*,
//! which keeps these rights and performs one action: it starts the program with the arguments and the environment that
//! the server was started with. The server passes only a socket, which becomes the new process's standard input.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use lowroad_child_processes::message::{PacketChannel, SendMode, decode, encode};
use lowroad_child_processes::process::{
    ChildHandle, ChildProcess, helper_command, readable, ready,
};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::helper::open_unchangeable;
use crate::hide_process;

/// Set in the environment of a process that takes over from a running one.
pub const HANDOVER_VARIABLE: &str = "LOWROAD_HANDOVER";
/// The variables of socket activation (sd_listen_fds(3)): a successor gets the sockets from its predecessor.
const ACTIVATION_VARIABLES: [&str; 4] = [
    "LISTEN_PID",
    "LISTEN_PIDFDID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
];
/// Timeout of an answer: the starter only starts or ends a process.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The starter of this process, if there is one.
static STARTER: OnceLock<Starter> = OnceLock::new();

/// How a program was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramStart {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    folder: PathBuf,
}

/// A request to the starter.
#[derive(Serialize, Deserialize)]
enum StarterRequest {
    /// The program to start; the first request.
    Program(ProgramStart),
    /// Starts the program with the passed socket as its standard input.
    Start,
    /// Kills the process that was started last.
    Kill,
}

/// The starter's answer: done, or the reason why not.
type StarterAnswer = Result<(), String>;

struct Starter {
    channel: Mutex<PacketChannel>,
    process: ChildHandle,
}

impl ProgramStart {
    /// How this process was started. To be called at the start, before the environment changes, and while the path of
    /// the program's file is known: the kernel appends " (deleted)" once the file is replaced.
    ///
    /// # Errors
    /// The path of the program or the current folder is unknown.
    pub fn of_this_process() -> io::Result<ProgramStart> {
        let is_inherited = |name: &OsString| {
            let mut excluded = ACTIVATION_VARIABLES.into_iter().chain([HANDOVER_VARIABLE]);
            !excluded.any(|variable| name == variable)
        };
        Ok(ProgramStart {
            program: program_path()?,
            arguments: std::env::args_os().collect(),
            environment: std::env::vars_os()
                .filter(|(name, _)| is_inherited(name))
                .collect(),
            folder: std::env::current_dir()?,
        })
    }

    /// The path of the program.
    pub fn path(&self) -> &Path {
        &self.program
    }

    /// Starts the program as a successor of this process, which it reaches over `socket`.
    ///
    /// # Errors
    /// Those of fork(2) and execve(2).
    pub fn start(&self, socket: OwnedFd) -> io::Result<ChildProcess> {
        let mut arguments = self.arguments.iter();
        let mut command = Command::new(&self.program);
        command
            .arg0(arguments.next().cloned().unwrap_or_default())
            .args(arguments)
            .env_clear()
            .envs(self.environment.iter().cloned())
            .env(HANDOVER_VARIABLE, "1")
            .current_dir(&self.folder)
            // It leads a group, so that it can be killed with its children.
            .process_group(0)
            .stdin(socket);
        ChildProcess::spawn(command)
    }
}

/// The path by which this program was started. It may be a link to the current version, which `current_exe` would
/// resolve.
fn program_path() -> io::Result<PathBuf> {
    let resolved = std::env::current_exe()?;
    let name = std::env::args_os().next().map(PathBuf::from);
    // A name without a folder was looked up in PATH.
    let called = name.filter(|path| path.components().count() > 1);
    match called {
        Some(path) if path.canonicalize().is_ok_and(|it| it == resolved) => {
            std::path::absolute(path)
        }
        _ => Ok(resolved),
    }
}

/// Starts the starter. To be called while this process is root; the starter ends when this process does.
///
/// # Errors
/// No process or descriptor is available.
pub fn start(program: &ProgramStart) -> io::Result<()> {
    let mut command = helper_command("starter");
    // The environment comes with the request; signals from the terminal are meant for the server.
    command.env_clear().process_group(0);
    let (mut child, channel) = ChildProcess::spawn_with_channel(command)?;
    channel.set_receive_timeout(ANSWER_TIMEOUT)?;
    let process = child.handle();
    thread::Builder::new()
        .name("starter".into())
        // This thread reaps the starter when it ends.
        .spawn(move || child.reap())?;
    exchange(&channel, &StarterRequest::Program(program.clone()), None)?
        .map_err(io::Error::other)?;
    // A process starts only one server, so this is the first starter.
    let _ = STARTER.set(Starter {
        channel: Mutex::new(channel),
        process,
    });
    Ok(())
}

/// Whether this process has a starter.
pub fn is_started() -> bool {
    STARTER.get().is_some()
}

/// Ends the starter, and waits for its exit.
pub fn end() {
    if let Some(starter) = STARTER.get() {
        lock(&starter.channel).close();
        starter.process.wait_for_helper();
    }
}

/// Has the starter start the program, with `socket` as its standard input.
///
/// # Errors
/// The starter has ended, or its reason why it does not start the program.
pub fn start_program(socket: &OwnedFd) -> Result<(), String> {
    request(&StarterRequest::Start, Some(socket))
}

/// Has the starter kill the process that it started last.
pub fn kill_program() {
    // The process may have ended already.
    let _ = request(&StarterRequest::Kill, None);
}

fn request(request: &StarterRequest, socket: Option<&OwnedFd>) -> StarterAnswer {
    let gone = |error: io::Error| {
        format!("the process that starts programs with root's rights has failed: {error}")
    };
    let starter = STARTER
        .get()
        .ok_or_else(|| gone(io::ErrorKind::NotFound.into()))?;
    exchange(&lock(&starter.channel), request, socket).map_err(gone)?
}

/// Sends a request and waits for the answer.
fn exchange(
    channel: &PacketChannel,
    request: &StarterRequest,
    socket: Option<&OwnedFd>,
) -> io::Result<StarterAnswer> {
    let descriptors = socket.map(AsFd::as_fd);
    channel.send(&encode(request)?, descriptors.as_slice(), SendMode::Wait)?;
    let mut answer = Vec::new();
    channel.receive(&mut answer)?;
    Ok(decode(&answer)?)
}

fn lock(channel: &Mutex<PacketChannel>) -> std::sync::MutexGuard<'_, PacketChannel> {
    // A panic while the lock was held leaves at most an unread answer, which fails the next request.
    channel.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the starter, until the server has ended.
///
/// # Errors
/// This process can't be protected, or standard input is no channel.
pub fn serve() -> Result<(), String> {
    hide_process()?;
    let channel =
        PacketChannel::to_parent().map_err(|error| format!("the server's socket: {error}"))?;
    let mut state = StarterState::default();
    let mut buffer = Vec::new();
    loop {
        let waiting = [
            Some(readable(&channel)),
            state.started.as_ref().map(readable),
        ];
        let [has_request, has_ended] =
            ready(waiting, None).map_err(|error| format!("waiting: {error}"))?;
        if has_ended && let Some(mut ended) = state.started.take() {
            // The server learns of the end from its own socket.
            let _ = ended.reap();
        }
        if has_request {
            let Ok(descriptors) = channel.receive(&mut buffer) else {
                return Ok(());
            };
            let Ok(request) = decode(&buffer) else {
                return Ok(());
            };
            let answer = state.perform(request, descriptors);
            let Ok(bytes) = encode(&answer) else {
                return Ok(());
            };
            if channel.send(&bytes, &[], SendMode::Wait).is_err() {
                return Ok(());
            }
        }
    }
}

/// The starter's program and the process that it started last.
#[derive(Default)]
struct StarterState {
    program: Option<ProgramStart>,
    started: Option<ChildProcess>,
}

impl StarterState {
    fn perform(&mut self, request: StarterRequest, mut sockets: Vec<OwnedFd>) -> StarterAnswer {
        match request {
            // Only the first program counts: the server sends it while it is root.
            StarterRequest::Program(program) => {
                self.program.get_or_insert(program);
                Ok(())
            }
            StarterRequest::Start => {
                self.started = Some(self.start(sockets.pop())?);
                Ok(())
            }
            StarterRequest::Kill => {
                if let Some(mut started) = self.started.take() {
                    // A child of the program might keep the sockets that it got.
                    started.signal_group(Signal::KILL);
                    let _ = started.kill();
                }
                Ok(())
            }
        }
    }

    /// Starts the program, if only root can change its file.
    fn start(&self, socket: Option<OwnedFd>) -> Result<ChildProcess, String> {
        let (Some(start), Some(socket)) = (&self.program, socket) else {
            return Err("the request has no program or no socket".to_owned());
        };
        let failed = |reason: &dyn std::fmt::Display| {
            format!("can't start {}: {reason}", start.program.display())
        };
        open_unchangeable(&start.program).map_err(|reason| failed(&reason))?;
        start.start(socket).map_err(|error| failed(&error))
    }
}
