//! Where a server is. It knows nothing of what is spoken there.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use lowroad_engine::outgoing::Remote;

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// A host and port.
    Tcp(SocketAddr),
    /// The same, asked from an address that need not be one of this machine's.
    TcpFrom {
        /// The host and port.
        to: SocketAddr,
        /// From where.
        from: IpAddr,
    },
}

impl Address {
    /// Where a connection is to lead.
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
