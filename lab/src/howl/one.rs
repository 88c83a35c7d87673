//! A connection a request: `accept4`, `read`, `write`, `close`. Nothing is kept from one to the next.

use std::io;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::REQUEST_MAX;
use super::site::HowlSite;

/// Accepts and answers for ever.
pub fn serve(listener: &OwnedFd, site: &HowlSite) -> io::Result<()> {
    let mut buffer = vec![0; REQUEST_MAX];
    loop {
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            // Dropping the connection closes it.
            Ok(connection) => answer(connection.as_fd(), site, &mut buffer),
            Err(error) if passes(error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// What can go wrong with a client is its own affair: the connection ends.
fn answer(connection: BorrowedFd<'_>, site: &HowlSite, buffer: &mut [u8]) {
    let Ok(len @ 1..) = rustix::io::read(connection, &mut *buffer) else {
        return;
    };
    let answer = site.answer(&buffer[..len]);
    let mut rest = answer.reply.bytes(answer.head_only);
    // A blocking socket takes all at once, unless the client is silent for too long.
    while !rest.is_empty() {
        match rustix::io::write(connection, rest) {
            Ok(len) if len > 0 => rest = &rest[len..],
            _ => return,
        }
    }
}

/// The listener's time limit (it is there to be inherited), or a client that went away in the
/// queue; and when descriptors or memory are short, the next connection may fare better.
pub fn passes(error: Errno) -> bool {
    matches!(
        error,
        Errno::AGAIN
            | Errno::INTR
            | Errno::CONNABORTED
            | Errno::PROTO
            | Errno::NETDOWN
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
    ) || is_short(error)
}

/// Descriptors or memory are short.
pub fn is_short(error: Errno) -> bool {
    matches!(
        error,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM
    )
}
