//! Converts the results of libbpf functions into those of the standard library.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Takes ownership of a descriptor that libbpf has created.
pub(crate) fn owned(fd: i32) -> io::Result<OwnedFd> {
    checked(fd)?;
    // SAFETY: a fresh descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// libbpf returns negative error numbers.
pub(crate) fn checked(status: i32) -> io::Result<()> {
    match status {
        0.. => Ok(()),
        number => Err(io::Error::from_raw_os_error(-number)),
    }
}
