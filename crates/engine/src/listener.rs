//! Listening sockets: opened by us, one per worker, or handed over by a supervisor.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::sys;

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// Seconds for which the kernel may keep a connection that has not sent anything yet.
const DEFER_ACCEPT_S: i32 = 1;

/// A listening socket.
pub struct Listener {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    /// Whether other workers accept from the very same socket.
    pub shared: bool,
}

impl Listener {
    /// Opens a socket at `address` that shares its port with the other workers' (`SO_REUSEPORT`):
    /// the kernel spreads connections over them.
    ///
    /// # Errors
    /// As of bind(2): the address is in use, not ours, or not permitted.
    pub fn open(address: SocketAddr) -> io::Result<Listener> {
        let socket = new_socket(address)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        prepare(&socket)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Listener {
            socket,
            shared: false,
        })
    }

    /// Takes a socket that a supervisor has bound and that listens already.
    ///
    /// # Errors
    /// When it is no listening stream socket.
    pub fn adopt(socket: OwnedFd) -> io::Result<Listener> {
        if !sockopt::socket_acceptconn(&socket)? {
            let text = "a socket handed over by the supervisor does not listen";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        rustix::io::ioctl_fionbio(&socket, true)?;
        // A Unix socket has no TCP options; it serves as well without.
        let _ = prepare(&socket);
        Ok(Listener {
            socket,
            shared: true,
        })
    }

    /// The same socket for another worker.
    ///
    /// # Errors
    /// When descriptors run out.
    pub fn share(&self) -> io::Result<Listener> {
        Ok(Listener {
            socket: self.socket.try_clone()?,
            shared: true,
        })
    }

    /// Where it listens, if that is an internet address.
    pub fn address(&self) -> Option<SocketAddr> {
        rustix::net::getsockname(&self.socket).ok()?.try_into().ok()
    }
}

/// Options that accepted connections inherit, so that they cost nothing per connection.
fn prepare(socket: &OwnedFd) -> io::Result<()> {
    // Answers leave in one piece as soon as they are complete.
    sockopt::set_tcp_nodelay(socket, true)?;
    // A connection is worth a worker's attention when it has sent something. Clients that connect
    // ahead of need cost nothing until then, and the first read right after accept finds bytes.
    sys::set_tcp_option(socket, libc::TCP_DEFER_ACCEPT, DEFER_ACCEPT_S)
}

/// Whether another program, or another of ours, listens at `address` now: `SO_REUSEPORT` would let
/// us share its port without a word. Asked with a socket that does not share.
///
/// # Errors
/// As of bind(2).
pub fn probe(address: SocketAddr) -> io::Result<()> {
    // Bound, but never listening: a client that comes at this moment is refused, not reset.
    let socket = new_socket(address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(rustix::net::bind(&socket, &address)?)
}

fn new_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        // `[::]` means everybody, whatever net.ipv6.bindv6only says.
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    Ok(socket)
}
