//! One request per connection: `accept4`, `read`, `write`, `close`. No state survives a request.

use std::io;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::REQUEST_MAX;
use super::site::HowlSite;

/// Accepts and serves connections without end.
pub fn serve(listener: &OwnedFd, site: &HowlSite) -> io::Result<()> {
    let mut buffer = vec![0; REQUEST_MAX];
    loop {
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            // Dropping the connection closes it.
            Ok(connection) => answer(connection.as_fd(), site, &mut buffer),
            Err(error) if is_transient(error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Serves one connection. An error ends only this connection.
fn answer(connection: BorrowedFd<'_>, site: &HowlSite, buffer: &mut [u8]) {
    // One read: the request must arrive in one piece.
    let Ok(len @ 1..) = rustix::io::read(connection, &mut *buffer) else {
        return;
    };
    let answer = site.answer(&buffer[..len]);
    let mut rest = answer.reply.bytes(answer.head_only);
    // A blocking socket accepts all bytes in one call, unless the client does not read until the time limit.
    while !rest.is_empty() {
        match rustix::io::write(connection, rest) {
            Ok(len) if len > 0 => rest = &rest[len..],
            _ => return,
        }
    }
}

/// Whether `accept` may be retried: the listener's time limit expired (it is set only for accepted sockets to inherit),
/// a client left the queue, or descriptors or memory are temporarily short.
pub fn is_transient(error: Errno) -> bool {
    matches!(
        error,
        Errno::AGAIN
            | Errno::INTR
            | Errno::CONNABORTED
            | Errno::PROTO
            | Errno::NETDOWN
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
    ) || is_shortage(error)
}

/// Whether descriptors or memory are short.
pub fn is_shortage(error: Errno) -> bool {
    matches!(
        error,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM
    )
}
