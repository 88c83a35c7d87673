//! How a level ends: new connections go to the kernel at once, live ones with their next request, and
//! what is idle then is let go. `lowroad detach` does it for a daemon that lives, and for one that is dead.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use lowroad_softirq::folder;
use lowroad_softirq::kept;
use lowroad_softirq::key::Key;
use lowroad_softirq::layout;
use lowroad_softirq::level::Level;
use lowroad_softirq::outsider;
use lowroad_softirq::publish;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

use super::{hold, levels, place};
use crate::say;

/// `lowroad detach`.
#[derive(Args)]
pub struct Detach {
    /// The ports; others that were attached together with them stay
    #[arg(value_name = "PORT", required = true)]
    pub ports: Vec<u16>,
    /// In which network namespace: a path, a process's number or a name of `ip netns`
    #[arg(long, value_name = "NAMESPACE")]
    pub netns: Option<String>,
    /// Seconds that connections get, to ask for something or to end
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
    let mut folders: Vec<PathBuf> = args
        .ports
        .iter()
        .map(|port| find(*port))
        .collect::<Result<_, _>>()?;
    folders.sort();
    folders.dedup();
    let done = folders
        .iter()
        .try_for_each(|folder| one_level(folder, args));
    folder::unmount_pins();
    done
}

/// Takes these ports off a level, or all of it if no other is left.
fn one_level(folder: &Path, args: &Detach) -> Result<(), String> {
    if let Ok(level) = Level::open(folder) {
        let ports = level.ports();
        let (going, left): (Vec<u16>, Vec<u16>) = ports
            .into_iter()
            .partition(|port| args.ports.contains(port));
        if !left.is_empty() {
            return take_ports_off(&level, &going, &left, args.drain);
        }
    }
    if let Some((process, pid)) = hold::keeper_itself(folder) {
        return end_daemon(&process, pid, folder);
    }
    take_off(folder, args.drain)?;
    say::out(format_args!("detached from port {}\n", named(&args.ports)))
}

/// The daemon works on for the others.
fn take_ports_off(level: &Level, going: &[u16], left: &[u16], drain_s: u32) -> Result<(), String> {
    going.iter().for_each(|port| level.drain_port(*port));
    end_connections(level, |port| going.contains(&port), drain_s);
    going.iter().for_each(|port| level.take_port_off(*port));
    let is_of_them = |key: &Key| going.contains(&key.parts().port);
    let mut published = publish::published(level);
    published.retain(|one| Key::read(&one.key).is_some_and(|key| is_of_them(&key)));
    publish::purge(level, &published).map_err(|error| error.to_string())?;
    say::out(format_args!(
        "detached from port {}; port {} stays\n",
        named(going),
        named(left)
    ))
}

fn named(ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    ports.join(", ")
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
pub fn find(port: u16) -> Result<PathBuf, String> {
    let first = folder::of_port(port).map_err(|error| error.to_string())?;
    let is_there = |folder: &Path| match Level::open(folder) {
        Ok(level) => level.ports().contains(&port),
        Err(_) => false,
    };
    // What can't be opened, or has no ports yet, is known by its name.
    let has_ports = || Level::open(&first).is_ok_and(|level| !level.ports().is_empty());
    if first.exists() && (is_there(&first) || !has_ports()) {
        return Ok(first);
    }
    let all = folder::all().map_err(|error| error.to_string())?;
    let found = all.into_iter().find(|folder| is_there(folder));
    found.ok_or_else(|| levels::nothing(Some(port)))
}

/// Ends a daemon that lives: it drains and removes its level itself.
fn end_daemon(process: &OwnedFd, pid: u32, folder: &Path) -> Result<(), String> {
    pidfd_send_signal(process, Signal::TERM).map_err(|error| format!("process {pid}: {error}"))?;
    // It knows its own drain time. What it leaves behind is gone when it has ended, not before.
    let mut is_removed = false;
    while !has_ended(process)? {
        is_removed |= !folder.exists();
    }
    match !is_removed && folder.exists() {
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
    end_connections(level, |_| true, drain_s);
    level.set_mode(layout::MODE_OFF);
}

/// Waits for the connections that need this level, and ends what is left of them.
fn end_connections(level: &Level, is_meant: impl Fn(u16) -> bool, drain_s: u32) {
    let begin = Instant::now();
    let longest = Duration::from_secs(u64::from(drain_s));
    let is_needed = || {
        // In the order in which a connection goes through these states.
        let is_translated = kept::is_any(level, &is_meant);
        let left = level.connections_at(&is_meant);
        is_translated || left.open + left.handed > 0
    };
    while (is_needed() || begin.elapsed() < HANDSHAKE_TIME) && begin.elapsed() < longest {
        thread::sleep(LOOK_INTERVAL);
    }
    let ended = kept::end(level, is_meant);
    if ended > 0 {
        say::note(format_args!(
            "{ended} connections that could not go on without this level were ended; --drain gives them more time"
        ));
    }
}
