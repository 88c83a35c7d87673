//! Addresses of servers.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use lowroad_engine::outgoing::Remote;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// A host and port.
    Tcp(SocketAddr),
    /// A host and port, with a source address that this machine need not have.
    TcpFrom {
        /// The host and port.
        to: SocketAddr,
        /// The source address.
        from: IpAddr,
    },
}

impl Address {
    /// The destination for the driver.
    pub fn remote(&self) -> Remote<'_> {
        match self {
            Address::Unix(path) => Remote::Unix(path),
            Address::Tcp(address) => Remote::Tcp(*address),
            Address::TcpFrom { to, from } => Remote::TcpFrom {
                to: *to,
                from: *from,
            },
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(to, "unix:{}", path.display()),
            Address::Tcp(address) | Address::TcpFrom { to: address, .. } => address.fmt(to),
        }
    }
}
