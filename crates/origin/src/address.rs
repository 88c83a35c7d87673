//! Addresses of servers.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use lowroad_engine::upstream_socket::ConnectTarget;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// A host and port.
    Tcp(SocketAddr),
    /// A host and port, with a source address that need not be a local one (transparent proxy).
    TcpFrom {
        /// The host and port.
        to: SocketAddr,
        /// The source address.
        from: IpAddr,
    },
}

impl ServerAddress {
    /// The destination in the form that the driver needs.
    pub fn remote(&self) -> ConnectTarget<'_> {
        match self {
            ServerAddress::Unix(path) => ConnectTarget::Unix(path),
            ServerAddress::Tcp(address) => ConnectTarget::Tcp(*address),
            ServerAddress::TcpFrom { to, from } => ConnectTarget::TcpFrom {
                to: *to,
                from: *from,
            },
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Unix(path) => write!(to, "unix:{}", path.display()),
            ServerAddress::Tcp(address) | ServerAddress::TcpFrom { to: address, .. } => {
                address.fmt(to)
            }
        }
    }
}
