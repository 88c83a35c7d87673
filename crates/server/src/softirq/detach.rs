//! `lowroad detach`: removes ports from a level, or the whole level, with or without a running daemon.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lowroad_child_processes::process::{readable, ready};
use lowroad_softirq::key::RequestKey;
use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::level::publisher;
use lowroad_softirq::programs::folder;
use rustix::process::{Signal, pidfd_send_signal};

use super::attach::drain;
use super::worker::instances;
use super::{level_lock, levels, namespace};
use crate::cli::softirq::DetachArgs;
use crate::terminal_output;

/// Maximum duration of one wait for the end of a process.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Removes the levels of these ports, and ends the interceptions.
///
/// # Errors
/// A message for the user.
pub fn detach(args: &DetachArgs) -> Result<(), String> {
    if let Some(namespace) = &args.netns {
        namespace::enter_namespace(namespace)?;
    }
    // Workers end first, so that connections which the level migrates go to the server on the port.
    let workers = signal_workers(&args.ports)?;
    let mut folders = Vec::new();
    for port in &args.ports {
        match find(*port) {
            Ok(folder) => folders.push(folder),
            // The port had an interception but no level.
            Err(_) if workers.iter().any(|(worker, _)| worker == port) => {}
            Err(error) => return Err(error),
        }
    }
    // Several ports may belong to one level.
    folders.sort();
    folders.dedup();
    let result = folders
        .iter()
        .try_for_each(|folder| detach_level(folder, args));
    // `unmount_pins` is also called after a failure; it does nothing while other levels remain.
    folder::unmount_pins();
    result?;
    workers
        .iter()
        .try_for_each(|(port, process)| wait_for_worker(*port, process))
}

/// Signals the intercepting servers of these ports to end. Returns each port with its process.
fn signal_workers(ports: &[u16]) -> Result<Vec<(u16, OwnedFd)>, String> {
    let results = ports.iter().map(|port| {
        let signalled = instances::signal_end(*port)?;
        Ok(signalled.map(|(process, _)| (*port, process)))
    });
    results.filter_map(Result::transpose).collect()
}

fn wait_for_worker(port: u16, process: &OwnedFd) -> Result<(), String> {
    while !has_ended(process)? {}
    instances::tidy(port);
    instances::remove_unused_route();
    terminal_output::out(format_args!("the workers released port {port}\n"))
}

/// Removes these ports from a level. If the level has no other ports, removes the level.
fn detach_level(folder: &Path, args: &DetachArgs) -> Result<(), String> {
    if let Ok(level) = SoftirqLevel::open(folder) {
        let ports = level.ports();
        let (detached, remaining): (Vec<u16>, Vec<u16>) = ports
            .into_iter()
            .partition(|port| args.ports.contains(port));
        if !remaining.is_empty() {
            return detach_ports(&level, &detached, &remaining, args.drain);
        }
    }
    // A running daemon removes its level itself.
    if let Some((process, pid)) = level_lock::holder_process(folder) {
        return end_daemon(&process, pid, folder);
    }
    drain::detach(folder, args.drain)?;
    terminal_output::out(format_args!(
        "detached from port {}\n",
        join_ports(&args.ports)
    ))
}

/// Removes ports from a level; its daemon continues to serve the others.
fn detach_ports(
    level: &SoftirqLevel,
    detached: &[u16],
    remaining: &[u16],
    drain_s: u32,
) -> Result<(), String> {
    // From here on, the programs leave new connections to the kernel.
    detached.iter().for_each(|port| level.drain_port(*port));
    // The ports are stopped only after the drain, because until then the remaining connections need the programs.
    drain::end_connections(level, |port| detached.contains(&port), drain_s);
    detached.iter().for_each(|port| level.stop_port(*port));
    let is_detached = |key: &RequestKey| detached.contains(&key.parts().port);
    let mut published = publisher::published(level);
    // The other ports' responses stay published.
    published
        .retain(|response| RequestKey::read(&response.key).is_some_and(|key| is_detached(&key)));
    publisher::purge(level, &published).map_err(|error| error.to_string())?;
    terminal_output::out(format_args!(
        "detached from port {}; port {} stays attached\n",
        join_ports(detached),
        join_ports(remaining)
    ))
}

fn join_ports(ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    ports.join(", ")
}

/// Finds the level that answers on a port.
///
/// # Errors
/// When there is none: a message for the user.
pub fn find(port: u16) -> Result<PathBuf, String> {
    // Tried before the others, as its name is known without opening all levels.
    let first = folder::port_folder(port).map_err(|error| error.to_string())?;
    let has_port = |folder: &Path| match SoftirqLevel::open(folder) {
        Ok(level) => level.ports().contains(&port),
        Err(_) => false,
    };
    // A level that can't be opened, or has no ports yet, is found by its folder's name, which contains the port.
    let has_ports = || SoftirqLevel::open(&first).is_ok_and(|level| !level.ports().is_empty());
    if first.exists() && (has_port(&first) || !has_ports()) {
        return Ok(first);
    }
    let all = folder::all().map_err(|error| error.to_string())?;
    let found = all.into_iter().find(|folder| has_port(folder));
    found.ok_or_else(|| levels::no_level_text(Some(port)))
}

/// Ends a running daemon, which drains and removes its level itself.
fn end_daemon(process: &OwnedFd, pid: u32, folder: &Path) -> Result<(), String> {
    pidfd_send_signal(process, Signal::TERM).map_err(|error| format!("process {pid}: {error}"))?;
    // The daemon has its own drain timeout. The folder is checked after the daemon's end, because until then the daemon
    // may still remove it.
    let mut is_removed = false;
    while !has_ended(process)? {
        is_removed |= !folder.exists();
    }
    match !is_removed && folder.exists() {
        true => Err(format!("process {pid} ended without detaching; try again")),
        false => terminal_output::out("detached\n"),
    }
}

/// Waits up to [`POLL_INTERVAL`] for the end of a process.
fn has_ended(process: &OwnedFd) -> Result<bool, String> {
    let deadline = Instant::now() + POLL_INTERVAL;
    // A process descriptor becomes readable when the process has ended (pidfd_open(2)).
    let ended = ready([Some(readable(process))], Some(deadline));
    ended
        .map(|[has_ended]| has_ended)
        .map_err(|error| format!("waiting for the daemon: {error}"))
}
