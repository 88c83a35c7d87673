//! The init process of a container. As process 1 (or as a child subreaper) a server becomes the parent of every orphan
//! in its container: what CGI programs, hooks and applications leave behind. It then starts the server proper as a child,
//! passes signals on to it, reaps every process that ends, and ends as the server does. The server itself waits for its
//! own children only, so that nothing else takes their exit states. Knows nothing of servers.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};

use lowroad_privileges::hide_process;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, child_subreaper, getpid, kill_process,
    set_parent_process_death_signal, wait,
};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::say;

/// Set for the server proper, so that it isn't an init process too.
const VARIABLE: &str = "LOWROAD_UNDER_INIT";
/// Signals that are the server's.
const PASSED_ON: [(i32, Signal); 6] = [
    (SIGHUP, Signal::HUP),
    (SIGINT, Signal::INT),
    (SIGQUIT, Signal::QUIT),
    (SIGTERM, Signal::TERM),
    (SIGUSR1, Signal::USR1),
    (SIGUSR2, Signal::USR2),
];
/// Exit codes of processes that a signal ended begin here, as in a shell.
const SIGNALLED: i32 = 128;

/// Runs the server below an init process if this process has to reap orphans. Returns the server's exit code, or `None`
/// in the server proper, and wherever there is nothing to reap.
pub fn run() -> Option<ExitCode> {
    if std::env::var_os(VARIABLE).is_some() {
        end_with_init();
        return None;
    }
    if !reaps_orphans() {
        return None;
    }
    // A supervisor's sockets are addressed to this process by number.
    if std::env::var_os("LISTEN_FDS").is_some() {
        return None;
    }
    match start() {
        Ok((server, signals)) => Some(reap(server, signals)),
        Err(error) => {
            say::note(format_args!(
                "warning: processes that programs leave behind stay zombies: can't start below an init process: {error}; \
                 start the container with an init process (docker run --init)"
            ));
            None
        }
    }
}

/// Whether orphans become children of this process.
fn reaps_orphans() -> bool {
    getpid() == Pid::INIT || child_subreaper().is_ok_and(|is_subreaper| is_subreaper.is_some())
}

/// Process 1 takes the whole container along when it ends, a subreaper does not. A later change of the user clears this.
fn end_with_init() {
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
}

fn start() -> std::io::Result<(Child, Signals)> {
    // Before the child starts, so that no signal is lost.
    let signals = Signals::new(
        PASSED_ON
            .map(|(number, _)| number)
            .into_iter()
            .chain([SIGCHLD]),
    )?;
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    // Without /proc its name may still lead to the program.
    let program = std::env::current_exe().unwrap_or_else(|_| name.clone().into());
    let mut command = Command::new(program);
    command.arg0(name).args(arguments).env(VARIABLE, "1");
    // A terminal signals all of a process group, and each signal is to reach the server once.
    command.process_group(0);
    Ok((command.spawn()?, signals))
}

/// Passes signals on and reaps, until the server has ended.
fn reap(server: Child, mut signals: Signals) -> ExitCode {
    // Its environment may have secrets.
    if let Err(error) = hide_process() {
        say::note(format_args!("warning: {error}"));
    }
    let server = Pid::from_child(&server);
    loop {
        for number in signals.wait() {
            let passed_on = PASSED_ON.iter().find(|(known, _)| *known == number);
            if let Some((_, signal)) = passed_on {
                // It isn't reaped yet, so the number is still its own.
                let _ = kill_process(server, *signal);
            }
        }
        if let Some(code) = reap_ended(server) {
            return code;
        }
    }
}

/// Reaps all that have ended; returns the server's exit code if it is among them.
fn reap_ended(server: Pid) -> Option<ExitCode> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == server => {
                return Some(exit_code(ExitStatus::from_raw(status.as_raw())));
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
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
    fn a_server_ends_the_container_as_it_ends() {
        for (raw, want) in [(0, 0), (1 << 8, 1), (15, 143), (9, 137)] {
            let code = exit_code(ExitStatus::from_raw(raw));
            assert_eq!(code, ExitCode::from(want), "{raw}");
        }
    }
}
