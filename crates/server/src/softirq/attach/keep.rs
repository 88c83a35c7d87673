//! The process between our own server and the daemon of its level: it starts the daemon again when that
//! dies. The server can't, since it has given up root. It does nothing else, so that nothing can happen
//! to it; without it the daemon works on.

use std::io::{Read, stdin};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use lowroad_children::backoff::Backoff;
use lowroad_children::process::{ChildProcess, readable, ready, same_command};
use lowroad_privileges::capabilities;
use lowroad_softirq::layout;
use lowroad_softirq::level::Level;
use lowroad_softirq::level::publish;
use lowroad_softirq::programs::folder;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};

use super::{KEPT, drain, place};
use crate::cli::softirq::Attach;
use crate::softirq::own::words::{GONE, say_to_server};
use crate::{say, signals};

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
    // A group of processes gets those to reopen its logs, which is for the server.
    signals::discard(&[SIGHUP, SIGUSR1])?;
    let stop = signals::receive(&[SIGTERM, SIGINT, SIGQUIT])?;
    let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX, LONG_LIFE);
    let mut has_worked = false;
    loop {
        let mut daemon = start()?;
        let pid = daemon.pid();
        let end = wait(&mut daemon, &stop)?;
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
        let pause = backoff.ended(daemon.lifetime());
        let how = describe(end.status);
        say_to_server(GONE, &format!("{how}; again in {} s", pause.as_secs()));
        match rest(pause, &folder, &stop)? {
            Rested::Whole => {}
            Rested::TakenOff => return Ok(()),
            Rested::Ended => return drain::take_off(&folder, args.drain),
        }
    }
}

fn start() -> Result<ChildProcess, String> {
    // The maps have the layout of this program.
    ChildProcess::spawn(same_command(|arg| arg != "--keep"))
        .map_err(|error| format!("starting the level's process: {error}"))
}

struct End {
    status: ExitStatus,
    /// By a signal to this process, which the daemon got too.
    was_told: bool,
}

fn wait(daemon: &mut ChildProcess, mut stop: &UnixStream) -> Result<End, String> {
    let failed = |error: std::io::Error| format!("the level's process: {error}");
    let mut was_told = false;
    loop {
        let descriptors = [Some(readable(daemon)), Some(readable(&stop))];
        let [has_ended, is_told] = ready(descriptors, None).map_err(failed)?;
        if has_ended {
            let status = daemon.reap().map_err(failed)?;
            return Ok(End { status, was_told });
        }
        if is_told {
            let _ = stop.read(&mut [0; 64]);
            was_told = true;
            daemon.signal(Signal::TERM);
        }
    }
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

fn rest(pause: Duration, folder: &Path, stop: &UnixStream) -> Result<Rested, String> {
    let deadline = Instant::now() + pause;
    loop {
        // The server's words are for the daemon; its end is reported without being asked for.
        let input = stdin();
        let server = PollFd::new(&input, PollFlags::empty());
        let ended = ready([Some(server), Some(readable(stop))], Some(deadline));
        match ended.map_err(|error| format!("waiting: {error}"))? {
            [false, false] if deadline > Instant::now() => {}
            [false, false] if folder.exists() => return Ok(Rested::Whole),
            [false, false] => return Ok(Rested::TakenOff),
            _ => return Ok(Rested::Ended),
        }
    }
}
