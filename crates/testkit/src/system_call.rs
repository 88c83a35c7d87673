//! System calls by their number, for tests of filters.

#![allow(unsafe_code)]

use std::io;

/// Makes a system call with all arguments 0.
///
/// # Errors
/// Those of the call.
pub fn without_arguments(number: libc::c_long) -> io::Result<i64> {
    call(number, [0, 0])
}

/// Makes a system call with these arguments, the others are 0. The arguments must not be addresses.
///
/// # Errors
/// Those of the call.
pub fn call(number: libc::c_long, arguments: [u64; 2]) -> io::Result<i64> {
    let [first, second] = arguments;
    // SAFETY: null addresses are refused by the kernel, and numbers can't make it write to this process's memory.
    let result = unsafe { libc::syscall(number, first, second, 0, 0, 0, 0) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}
