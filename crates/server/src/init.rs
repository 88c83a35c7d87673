//! An init process for containers. As process 1, or as a child subreaper, the server would become the parent of all
//! orphans in its container, left by CGI programs, hooks and applications. Therefore an init process starts the actual
//! server as its child, forwards signals to it, reaps all processes, and exits with the server's status. The server
//! waits only for its own children, so it can't collect a status that other code waits for.
//!
//! In an upgrade, the server names its successor over its standard input, and the successor replaces it here.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Instant;

use lowroad_child_processes::message::{PacketChannel, SendMode};
use lowroad_child_processes::process::{readable, ready};
use lowroad_privileges::hide_process;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, child_subreaper, getpid, kill_process,
    set_parent_process_death_signal, test_kill_process, wait,
};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::terminal_output;
use crate::upgrade::predecessor;

/// This variable is set in the actual server's environment, so that the server does not start another init process.
const VARIABLE: &str = "LOWROAD_UNDER_INIT";
/// The signals that are forwarded to the server.
const FORWARDED: [(i32, Signal); 6] = [
    (SIGHUP, Signal::HUP),
    (SIGINT, Signal::INT),
    (SIGQUIT, Signal::QUIT),
    (SIGTERM, Signal::TERM),
    (SIGUSR1, Signal::USR1),
    (SIGUSR2, Signal::USR2),
];
/// Exit codes of processes that were ended by a signal begin here, as in a shell.
const SIGNALLED: i32 = 128;

/// If orphans would become children of this process, runs the server below an init process. Returns the server's exit
/// code; `None` in the actual server, and if no init process is needed.
pub fn run() -> Option<ExitCode> {
    // The predecessor's init process, if there is one, keeps its place.
    if predecessor::is_expected() {
        return None;
    }
    if std::env::var_os(VARIABLE).is_some() {
        end_with_init();
        return None;
    }
    // On a machine with its own init process, orphans do not become children of this one.
    if !reaps_orphans() {
        return None;
    }
    // Socket activation: `LISTEN_PID` names this process, so a child would not accept the sockets (sd_listen_fds(3)).
    if std::env::var_os("LISTEN_FDS").is_some() {
        return None;
    }
    match start() {
        Ok((server, signals)) => Some(reap(server, signals)),
        Err(error) => {
            terminal_output::note(format_args!(
                "warning: orphaned processes will stay zombies, because the built-in init process \
                 can't be started: {error}; start the container with an init process (docker run \
                 --init)"
            ));
            None
        }
    }
}

/// Whether orphans become children of this process.
fn reaps_orphans() -> bool {
    getpid() == Pid::INIT || child_subreaper().is_ok_and(|is_subreaper| is_subreaper.is_some())
}

/// Makes the kernel send SIGTERM to the server when this process ends. The end of process 1 ends the whole container,
/// but that of a subreaper does not. A later change of the user clears this setting (prctl(2), `PR_SET_PDEATHSIG`).
fn end_with_init() {
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
}

/// The connection of a server to its init process.
pub struct InitLink(PacketChannel);

impl From<OwnedFd> for InitLink {
    fn from(socket: OwnedFd) -> InitLink {
        InitLink(socket.into())
    }
}

impl InitLink {
    /// The connection of a server that its init process has started.
    pub fn find() -> Option<InitLink> {
        std::env::var_os(VARIABLE)?;
        PacketChannel::to_parent().ok().map(InitLink)
    }

    /// A duplicate, for a successor.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn share(&self) -> std::io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }

    /// Names the process that is the server from now on.
    pub fn name_server(&self, process: u32) {
        // Fails if the init process has ended.
        let _ = self.0.send(&process.to_be_bytes(), &[], SendMode::Try);
    }
}

/// The server process, which a successor replaces in an upgrade.
struct ServerProcess {
    pid: Pid,
    channel: PacketChannel,
}

impl ServerProcess {
    /// Applies the messages that name successors.
    fn update(&mut self) {
        let now = Some(Instant::now());
        let mut message = Vec::new();
        while ready([Some(readable(&self.channel))], now).is_ok_and(|[is_ready]| is_ready) {
            if self.channel.receive(&mut message).is_err() {
                return;
            }
            let bytes = <[u8; 4]>::try_from(&message[..]);
            let pid = bytes.map(u32::from_be_bytes).unwrap_or_default();
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                self.pid = pid;
            }
        }
    }
}

fn start() -> std::io::Result<(ServerProcess, Signals)> {
    // The signals are registered before the child starts, so that none is lost.
    let signals = Signals::new(
        FORWARDED
            .map(|(number, _)| number)
            .into_iter()
            .chain([SIGCHLD]),
    )?;
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    // If /proc is not mounted, the first argument may still be the program's path.
    let program = std::env::current_exe().unwrap_or_else(|_| name.clone().into());
    let mut command = Command::new(program);
    command.arg0(name).args(arguments).env(VARIABLE, "1");
    // The terminal signals a whole process group. In a separate group the server gets each signal only once, from here.
    command.process_group(0);
    let (channel, peer) = PacketChannel::pair()?;
    command.stdin(peer);
    let server = command.spawn()?;
    let pid = Pid::from_child(&server);
    Ok((ServerProcess { pid, channel }, signals))
}

/// Forwards signals and reaps processes until the server has ended.
fn reap(mut server: ServerProcess, mut signals: Signals) -> ExitCode {
    // Other processes of the same user must not read this process's environment, which may hold secrets.
    if let Err(error) = hide_process() {
        terminal_output::note(format_args!("warning: {error}"));
    }
    loop {
        for number in signals.wait() {
            let forwarded = FORWARDED.iter().find(|(listed, _)| *listed == number);
            if let Some((_, signal)) = forwarded {
                server.update();
                // The server is not reaped yet, so its process number can't belong to another process.
                let _ = kill_process(server.pid, *signal);
            }
        }
        // SIGCHLD is not queued: one signal may stand for several ended processes.
        if let Some(code) = reap_ended(&mut server) {
            return code;
        }
    }
}

/// Reaps all ended processes; returns the server's exit code if it is among them, and no successor has replaced it.
fn reap_ended(server: &mut ServerProcess) -> Option<ExitCode> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                // A predecessor has named its successor before it ends.
                server.update();
                // Until its predecessor has ended, a successor is not a child of this process, so its end may have been
                // collected elsewhere.
                if pid == server.pid || test_kill_process(server.pid).is_err() {
                    return Some(exit_code(ExitStatus::from_raw(status.as_raw())));
                }
            }
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let signalled = || status.signal().map(|number| SIGNALLED + number);
    let code = status.code().or_else(signalled);
    u8::try_from(code.unwrap_or(1)).map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_is_that_of_the_server() {
        for (raw, want) in [(0, 0), (1 << 8, 1), (15, 143), (9, 137)] {
            let code = exit_code(ExitStatus::from_raw(raw));
            assert_eq!(code, ExitCode::from(want), "{raw}");
        }
    }
}
