//! How a level ends: new connections go to the kernel at once, live ones with their next request, and
//! what is idle then is let go. `lowroad detach` does it for a daemon that lives, and for one that is dead.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use lowroad_softirq::folder;
use lowroad_softirq::layout;
use lowroad_softirq::level::Level;
use lowroad_softirq::outsider;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

use super::{hold, place};
use crate::say;

/// `lowroad detach`.
#[derive(Args)]
pub struct Detach {
    /// The port, the first of those that were attached to
    #[arg(value_name = "PORT")]
    pub port: u16,
    /// In which network namespace: a path, a process's number or a name of `ip netns`
    #[arg(long, value_name = "NAMESPACE")]
    pub netns: Option<String>,
    /// Seconds that idle connections get
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub drain: u32,
}

/// How often it is looked whether connections are left.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Handshakes under way are in no table; they get this long to complete.
const HANDSHAKE_TIME: Duration = Duration::from_secs(1);

/// Takes a level off.
///
/// # Errors
/// A text for the user.
pub fn detach(args: &Detach) -> Result<(), String> {
    if let Some(namespace) = &args.netns {
        place::enter_namespace(namespace)?;
    }
    let folder = find(args.port)?;
    if let Some((process, pid)) = hold::keeper_itself(&folder) {
        return end_daemon(&process, pid, &folder);
    }
    take_off(&folder, args.drain)?;
    say::out(format_args!("detached from port {}\n", args.port))
}

/// Takes off what a dead daemon has left.
///
/// # Errors
/// A text for the user.
pub fn take_off(folder: &Path, drain_s: u32) -> Result<(), String> {
    // Nobody attaches there meanwhile.
    let _held = hold::hold(folder)?;
    if let Ok(level) = Level::open(folder) {
        end(&level, drain_s);
    }
    remove(folder)
}

/// Removes what a level has left, and with the last of this namespace the way to who asked for them.
///
/// # Errors
/// A text for the user.
pub fn remove(folder: &Path) -> Result<(), String> {
    folder::remove(folder).map_err(|error| error.to_string())?;
    if folder::all().is_ok_and(|levels| levels.is_empty()) {
        outsider::remove();
    }
    Ok(())
}

/// The level that answers on a port.
///
/// # Errors
/// When there is none: a text for the user.
pub fn find(port: u16) -> Result<std::path::PathBuf, String> {
    let first = folder::of_port(port).map_err(|error| error.to_string())?;
    if first.exists() {
        return Ok(first);
    }
    let all = folder::all().map_err(|error| error.to_string())?;
    all.into_iter()
        .find(|folder| Level::open(folder).is_ok_and(|level| level.ports().contains(&port)))
        .ok_or(format!("nothing is attached to port {port} here"))
}

/// Ends a daemon that lives: it drains and removes its level itself.
fn end_daemon(process: &OwnedFd, pid: u32, folder: &Path) -> Result<(), String> {
    pidfd_send_signal(process, Signal::TERM).map_err(|error| format!("process {pid}: {error}"))?;
    // It knows its own drain time, and dies or removes the folder in the end.
    while folder.exists() && !has_ended(process)? {}
    match folder.exists() {
        true => Err(format!("process {pid} ended without detaching; try again")),
        false => say::out("detached\n"),
    }
}

/// Waits a little for the end of a process.
fn has_ended(process: &OwnedFd) -> Result<bool, String> {
    let patience = Timespec::try_from(LOOK_INTERVAL).expect("it is short");
    // It can be read when the process has ended.
    let mut ends = [PollFd::new(process, PollFlags::IN)];
    match poll(&mut ends, Some(&patience)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(format!("waiting for the daemon: {error}")),
    }
}

/// Lets connections go up, and switches the programs off.
pub fn end(level: &Level, drain_s: u32) {
    level.set_mode(layout::MODE_DRAIN);
    let begin = Instant::now();
    let longest = Duration::from_secs(u64::from(drain_s));
    loop {
        let left = level.connections();
        let is_idle = left.open + left.handed == 0 && begin.elapsed() >= HANDSHAKE_TIME;
        if is_idle || begin.elapsed() >= longest {
            break;
        }
        thread::sleep(LOOK_INTERVAL);
    }
    level.set_mode(layout::MODE_OFF);
}
