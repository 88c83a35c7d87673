//! Signals as bytes on a socket, for processes that wait for them beside other descriptors.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

/// From now on a byte can be read here for each of these signals; reading never waits.
///
/// # Errors
/// There are no descriptors left: a text for the operator.
pub fn receive(signals: &[i32]) -> Result<UnixStream, String> {
    let registered = UnixStream::pair().and_then(|(read, write)| {
        read.set_nonblocking(true)?;
        for signal in signals {
            signal_hook::low_level::pipe::register(*signal, write.try_clone()?)?;
        }
        Ok(read)
    });
    registered.map_err(|error| format!("signals: {error}"))
}

/// As [`receive`], for SIGINT and SIGTERM.
///
/// # Errors
/// As of [`receive`].
pub fn stops() -> Result<UnixStream, String> {
    receive(&[SIGINT, SIGTERM])
}

/// From now on these signals have no effect. Children do not inherit that.
///
/// # Errors
/// The kernel refuses: a text for the operator.
pub fn discard(signals: &[i32]) -> Result<(), String> {
    let mut signals = signals.iter();
    let discarded = signals.try_for_each(|signal| {
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(*signal, flag).map(drop)
    });
    discarded.map_err(|error| format!("signals: {error}"))
}
