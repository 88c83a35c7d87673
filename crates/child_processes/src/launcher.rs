//! The thread that starts all child processes, so that other threads can give up the right to do so.
//!
//! A child inherits the restrictions of the thread that starts it: its seccomp filters and `no_new_privs`. This thread has
//! none.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// A command to start, and the channel for the result.
type LaunchOrder = (Command, Sender<io::Result<Child>>);

/// The thread, if it was started.
static LAUNCHER: OnceLock<Sender<LaunchOrder>> = OnceLock::new();

/// Starts the thread, once in a process. To be called by a thread without restrictions.
///
/// # Errors
/// No thread is available.
pub fn start() -> io::Result<()> {
    let (sender, orders) = channel::<LaunchOrder>();
    thread::Builder::new()
        .name("launcher".into())
        .spawn(move || {
            for (mut command, reply) in orders {
                let child = command.spawn();
                // Dropped first, as the caller waits until only the child has its ends of sockets.
                drop(command);
                // The caller waits for the reply.
                let _ = reply.send(child);
            }
        })?;
    // A process starts one server, so there is no earlier thread.
    let _ = LAUNCHER.set(sender);
    Ok(())
}

/// Starts a child: on the launcher's thread, or on this one if there is no launcher.
///
/// # Errors
/// Those of fork(2) and execve(2).
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
    let Some(launcher) = LAUNCHER.get() else {
        return command.spawn();
    };
    let ended = || io::Error::other("the thread that starts processes has ended");
    let (reply, result) = channel();
    let sent = launcher.send((command, reply));
    sent.map_err(|_| ended())?;
    result.recv().map_err(|_| ended())?
}
