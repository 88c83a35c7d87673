//! What libbpf's own functions give back, as the standard library has it.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A descriptor that libbpf has made.
pub(crate) fn owned(fd: i32) -> io::Result<OwnedFd> {
    checked(fd)?;
    // SAFETY: a fresh descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// libbpf gives back the negative error number.
pub(crate) fn checked(status: i32) -> io::Result<()> {
    match status {
        0.. => Ok(()),
        number => Err(io::Error::from_raw_os_error(-number)),
    }
}
