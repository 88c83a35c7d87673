//! Receives signals as bytes on a socket (the self-pipe technique), for processes that poll signals together with other
//! descriptors.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

/// Returns a non-blocking socket that receives a byte for each of these signals.
///
/// # Errors
/// No descriptors are left: a message for the operator.
pub fn receive(signals: &[i32]) -> Result<UnixStream, String> {
    let result = UnixStream::pair().and_then(|(read, write)| {
        read.set_nonblocking(true)?;
        for signal in signals {
            signal_hook::low_level::pipe::register(*signal, write.try_clone()?)?;
        }
        Ok(read)
    });
    result.map_err(|error| format!("signals: {error}"))
}

/// As [`receive`], for SIGINT and SIGTERM.
///
/// # Errors
/// As [`receive`].
pub fn receive_end_signals() -> Result<UnixStream, String> {
    receive(&[SIGINT, SIGTERM])
}

/// Ignores these signals by a handler, because children would inherit `SIG_IGN`.
///
/// # Errors
/// The kernel refuses: a message for the operator.
pub fn discard(signals: &[i32]) -> Result<(), String> {
    let mut signals = signals.iter();
    let result = signals.try_for_each(|signal| {
        // execve(2) resets a handler, so children have the default action.
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(*signal, flag).map(drop)
    });
    result.map_err(|error| format!("signals: {error}"))
}
