//! The supervisor of the level in front of this server. It restarts the daemon after a crash, which the server can't
//! do, since it has given up root. It does nothing else, so it is unlikely to fail; if it does, the daemon continues.

use std::io::{Read, stdin};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use lowroad_child_processes::backoff::RestartBackoff;
use lowroad_child_processes::message::PacketChannel;
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
use crate::softirq::managed_level::messages::{ATTACH, GONE, report_to_server};
use crate::{signals, terminal_output};

/// Minimum and maximum pause before a restart.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A daemon that ran for this long did not fail at its start, so the pause is reset to the minimum.
const LONG_LIFE: Duration = Duration::from_secs(60);

/// Starts the daemon with the same arguments. Restarts it until it ends normally, or the server ends.
///
/// # Errors
/// The first start fails; the daemon has printed the reason.
pub fn supervise(args: &AttachArgs) -> Result<(), String> {
    placement::check_machine()?;
    placement::check_pins()?;
    folder::mount_pins().map_err(|error| error.to_string())?;
    capabilities::reduce(RETAINED)?;
    let folder = folder::port_folder(args.ports[0]).map_err(|error| error.to_string())?;
    // These signals reopen the server's logs, but may be sent to the whole process group.
    signals::discard(&[SIGHUP, SIGUSR1])?;
    // The receiver is created before the daemon starts, so that no signal is lost.
    let stop = signals::receive(&[SIGTERM, SIGINT, SIGQUIT])?;
    if args.later && !wait_for_server()? {
        return Ok(());
    }
    let mut backoff = RestartBackoff::new(PAUSE_MIN, PAUSE_MAX, LONG_LIFE);
    let mut has_worked = false;
    loop {
        let mut daemon = start()?;
        let pid = daemon.pid();
        let end = wait(&mut daemon, &stop)?;
        // The daemon was detached, the server has ended, or this process received a signal to end.
        if end.status.success() || end.was_signalled {
            return Ok(());
        }
        let level = SoftirqLevel::open(&folder).ok();
        // A daemon that has never served has a lasting problem, which a restart would not solve.
        has_worked |= level
            .as_ref()
            .is_some_and(|opened| opened.control().pid == pid);
        let Some(level) = level.filter(|_| has_worked) else {
            return Err(format!(
                "the level is not attached: its process ended ({})",
                end.status
            ));
        };
        // Without a daemon, no process receives the server's changes. So published responses are removed, and until the
        // restart all requests go to the server.
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
            PauseOutcome::Elapsed => {}
            PauseOutcome::Detached => return Ok(()),
            PauseOutcome::Ended => return drain::detach(&folder, args.drain),
        }
    }
}

/// Waits until the server requests the level. Returns false if the server ends first.
fn wait_for_server() -> Result<bool, String> {
    let channel =
        PacketChannel::to_parent().map_err(|error| format!("the server's socket: {error}"))?;
    let mut message = Vec::new();
    // Reports of changes, which may arrive before, concern published responses, and no response is published yet.
    while channel.receive(&mut message).is_ok() {
        if message == ATTACH {
            return Ok(true);
        }
    }
    Ok(false)
}

fn start() -> Result<ChildProcess, String> {
    // The daemon runs this process's executable file, because its layout of the pinned maps must be the same.
    ChildProcess::spawn(same_command(|arg| !["--keep", "--later"].contains(&arg)))
        .map_err(|error| format!("starting the level's process: {error}"))
}

struct SupervisorEnd {
    status: ExitStatus,
    /// Whether the daemon ended because this process passed a signal on.
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

/// The result of a pause before a restart.
enum PauseOutcome {
    Elapsed,
    /// `lowroad detach` has removed the level.
    Detached,
    /// The server has ended, or this process received a signal to end.
    Ended,
}

fn wait_for_restart(
    pause: Duration,
    folder: &Path,
    stop: &UnixStream,
) -> Result<PauseOutcome, String> {
    let deadline = Instant::now() + pause;
    loop {
        // Standard input is not polled for input, because messages on this socket are for the daemon. poll(2) reports
        // the server's end (POLLHUP) in any case.
        let input = stdin();
        let server = PollFd::new(&input, PollFlags::empty());
        let result = ready([Some(server), Some(readable(stop))], Some(deadline));
        match result.map_err(|error| format!("waiting: {error}"))? {
            [false, false] if deadline > Instant::now() => {}
            [false, false] if folder.exists() => return Ok(PauseOutcome::Elapsed),
            [false, false] => return Ok(PauseOutcome::Detached),
            _ => return Ok(PauseOutcome::Ended),
        }
    }
}
