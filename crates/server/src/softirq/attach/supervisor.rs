//! Supervisor of the level in front of the own server: restarts the daemon when it dies. The server itself can't,
//! since it has given up root. The supervisor has no other task, so little can make it fail; if it dies, the daemon
//! continues.

use std::io::{Read, stdin};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use lowroad_child_processes::backoff::RestartBackoff;
use lowroad_child_processes::process::{ChildProcess, readable, ready, same_command};
use lowroad_privileges::capabilities;
use lowroad_softirq::layout;
use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::level::publisher;
use lowroad_softirq::programs::folder;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};

use super::{RETAINED, drain, placement};
use crate::cli::softirq::AttachArgs;
use crate::softirq::managed_level::messages::{GONE, report_to_server};
use crate::{signals, terminal_output};

/// Pause before a restart: the first one, and the maximum.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A daemon that ran this long did not fail at its start, so the pause is reset.
const LONG_LIFE: Duration = Duration::from_secs(60);

/// Runs the daemon with the same arguments, and restarts it until it ends normally or the server ends.
///
/// # Errors
/// When the first start fails; the daemon has printed the reason.
pub fn supervise(args: &AttachArgs) -> Result<(), String> {
    placement::check_machine()?;
    placement::check_pins()?;
    folder::mount_pins().map_err(|error| error.to_string())?;
    capabilities::reduce(RETAINED)?;
    let folder = folder::port_folder(args.ports[0]).map_err(|error| error.to_string())?;
    // The signals to reopen logs are for the server, but a whole process group may receive them.
    signals::discard(&[SIGHUP, SIGUSR1])?;
    // Before the daemon starts, so that no signal is lost.
    let stop = signals::receive(&[SIGTERM, SIGINT, SIGQUIT])?;
    let mut backoff = RestartBackoff::new(PAUSE_MIN, PAUSE_MAX, LONG_LIFE);
    let mut has_worked = false;
    loop {
        let mut daemon = start()?;
        let pid = daemon.pid();
        let end = wait(&mut daemon, &stop)?;
        // A normal end is a detach, or the end of the server.
        if end.status.success() || end.was_signalled {
            return Ok(());
        }
        let level = SoftirqLevel::open(&folder).ok();
        // A daemon that never served has a lasting problem, so a restart would not help.
        has_worked |= level
            .as_ref()
            .is_some_and(|opened| opened.control().pid == pid);
        let Some(level) = level.filter(|_| has_worked) else {
            return Err(format!(
                "the level is not attached: its process ended ({})",
                end.status
            ));
        };
        // Without a daemon no process receives the server's changes. Until the restart all requests go to the server,
        // and responses published before are removed.
        level.set_mode(layout::MODE_DRAIN);
        if let Err(error) = publisher::purge(&level, &publisher::published(&level)) {
            terminal_output::note(error);
        }
        let pause = backoff.record_end(daemon.lifetime());
        let description = describe(end.status);
        report_to_server(
            GONE,
            &format!("{description}; restart in {} s", pause.as_secs()),
        );
        match wait_for_restart(pause, &folder, &stop)? {
            PauseOutcome::Whole => {}
            PauseOutcome::TakenOff => return Ok(()),
            PauseOutcome::Ended => return drain::detach(&folder, args.drain),
        }
    }
}

fn start() -> Result<ChildProcess, String> {
    // The same binary, as the pinned maps have its layout.
    ChildProcess::spawn(same_command(|arg| arg != "--keep"))
        .map_err(|error| format!("starting the level's process: {error}"))
}

struct SupervisorEnd {
    status: ExitStatus,
    /// Whether a signal to this process, passed on to the daemon, caused the end.
    was_signalled: bool,
}

fn wait(daemon: &mut ChildProcess, mut stop: &UnixStream) -> Result<SupervisorEnd, String> {
    let failed = |error: std::io::Error| format!("the level's process: {error}");
    let mut was_signalled = false;
    loop {
        let descriptors = [Some(readable(daemon)), Some(readable(&stop))];
        let [has_ended, is_signalled] = ready(descriptors, None).map_err(failed)?;
        if has_ended {
            let status = daemon.reap().map_err(failed)?;
            return Ok(SupervisorEnd {
                status,
                was_signalled,
            });
        }
        if is_signalled {
            let _ = stop.read(&mut [0; 64]);
            was_signalled = true;
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

/// The result of a pause.
enum PauseOutcome {
    Whole,
    /// `lowroad detach` has removed the level.
    TakenOff,
    /// The server has ended, or this process received an end signal.
    Ended,
}

fn wait_for_restart(
    pause: Duration,
    folder: &Path,
    stop: &UnixStream,
) -> Result<PauseOutcome, String> {
    let deadline = Instant::now() + pause;
    loop {
        // Not polled for reading: messages are for the daemon. poll(2) reports the server's end (POLLHUP) without a
        // request.
        let input = stdin();
        let server = PollFd::new(&input, PollFlags::empty());
        let result = ready([Some(server), Some(readable(stop))], Some(deadline));
        match result.map_err(|error| format!("waiting: {error}"))? {
            [false, false] if deadline > Instant::now() => {}
            [false, false] if folder.exists() => return Ok(PauseOutcome::Whole),
            [false, false] => return Ok(PauseOutcome::TakenOff),
            _ => return Ok(PauseOutcome::Ended),
        }
    }
}
