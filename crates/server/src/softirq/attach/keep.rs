//! The process between our own server and the daemon of its level: it starts the daemon again when that
//! dies. The server can't, since it has given up root. It does nothing else, so that nothing can happen
//! to it; without it the daemon works on.

use std::io::stdin;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use lowroad_privileges::capabilities;
use lowroad_softirq::layout;
use lowroad_softirq::level::Level;
use lowroad_softirq::level::publish;
use lowroad_softirq::programs::folder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::{KEPT, drain, place};
use crate::cli::softirq::Attach;
use crate::say;
use crate::softirq::own::words::{GONE, say_to_server};

/// How long it waits before it starts the daemon again: the first time, and at most.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A daemon that has lived so long did not die of how it was started.
const LONG_LIFE: Duration = Duration::from_secs(60);

/// Starts the daemon with the same arguments, again and again, until it ends by itself or the server
/// does.
///
/// # Errors
/// When it can't be started the first time: it has said why.
pub fn keep(args: &Attach) -> Result<(), String> {
    place::check_machine()?;
    place::check_pins()?;
    folder::mount_pins().map_err(|error| error.to_string())?;
    capabilities::reduce(KEPT)?;
    let folder = folder::of_port(args.ports[0]).map_err(|error| error.to_string())?;
    let ends = [SIGTERM, SIGINT, SIGQUIT].into_iter();
    let mut signals = Signals::new(ends.chain([SIGCHLD, SIGHUP, SIGUSR1]))
        .map_err(|error| format!("signals: {error}"))?;
    let mut pause = PAUSE_MIN;
    let mut has_worked = false;
    loop {
        let begin = Instant::now();
        let mut daemon = start()?;
        let pid = daemon.id();
        let end = wait(&mut daemon, &mut signals)?;
        if end.status.success() || end.was_told {
            return Ok(());
        }
        let level = Level::open(&folder).ok();
        has_worked |= level.as_ref().is_some_and(|one| one.control().pid == pid);
        let Some(level) = level.filter(|_| has_worked) else {
            return Err(format!("no level: its process ended ({})", end.status));
        };
        // Nobody hears the server's word of changes now: the server answers, until there is a daemon
        // again, and what that one finds is forgotten.
        level.set_mode(layout::MODE_DRAIN);
        if let Err(error) = publish::purge(&level, &publish::published(&level)) {
            say::note(error);
        }
        if begin.elapsed() > LONG_LIFE {
            pause = PAUSE_MIN;
        }
        let how = describe(end.status);
        say_to_server(GONE, &format!("{how}; again in {} s", pause.as_secs()));
        match rest(pause, &folder, &mut signals) {
            Rested::Whole => pause = (pause * 2).min(PAUSE_MAX),
            Rested::TakenOff => return Ok(()),
            Rested::Ended => return drain::take_off(&folder, args.drain),
        }
    }
}

fn start() -> Result<Child, String> {
    // This program, even if the file is another one by now: the maps have its layout.
    let mut command = Command::new("/proc/self/exe");
    let mut args = std::env::args_os();
    command.arg0(args.next().unwrap_or_default());
    command.args(args.filter(|arg| arg != "--keep"));
    command
        .spawn()
        .map_err(|error| format!("starting the level's process: {error}"))
}

struct End {
    status: ExitStatus,
    /// By a signal to this process, which the daemon got too.
    was_told: bool,
}

fn wait(daemon: &mut Child, signals: &mut Signals) -> Result<End, String> {
    let mut was_told = false;
    loop {
        // Before the first signal is waited for too: it may be one of those of the last daemon.
        let ended = daemon.try_wait();
        if let Some(status) = ended.map_err(|error| format!("the level's process: {error}"))? {
            return Ok(End { status, was_told });
        }
        for signal in signals.wait() {
            if is_end(signal) {
                was_told = true;
                // It has not been waited for, so the number is still its own.
                let _ = kill_process(Pid::from_child(daemon), Signal::TERM);
            }
        }
    }
}

/// What a group of processes is sent to reopen its logs is for the server.
fn is_end(signal: i32) -> bool {
    matches!(signal, SIGTERM | SIGINT | SIGQUIT)
}

fn describe(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("killed by signal {signal}"),
        None => format!("ended with {status}"),
    }
}

/// How a pause went.
enum Rested {
    Whole,
    /// `lowroad detach` has taken the level off.
    TakenOff,
    /// The server has ended, or this process was told to.
    Ended,
}

fn rest(pause: Duration, folder: &Path, signals: &mut Signals) -> Rested {
    let deadline = Instant::now() + pause;
    loop {
        if signals.pending().any(is_end) {
            return Rested::Ended;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let left = Timespec::try_from(left).expect("it is short");
        // Nothing is asked for but the end, which is always reported. A signal interrupts it.
        let input = stdin();
        let mut server = [PollFd::new(&input, PollFlags::empty())];
        if matches!(poll(&mut server, Some(&left)), Ok(1..)) {
            return Rested::Ended;
        }
    }
    match folder.exists() {
        true => Rested::Whole,
        false => Rested::TakenOff,
    }
}
