//! Converts the results of libbpf functions into those of the standard library.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Takes ownership of a descriptor returned by libbpf, or returns its error.
pub(crate) fn owned(fd: i32) -> io::Result<OwnedFd> {
    checked(fd)?;
    // SAFETY: a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Converts libbpf's negative error numbers into errors.
pub(crate) fn checked(status: i32) -> io::Result<()> {
    match status {
        0.. => Ok(()),
        number => Err(io::Error::from_raw_os_error(-number)),
    }
}
