//! Where a server is. It knows nothing of what is spoken there.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use lowroad_engine::outgoing::Remote;

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// A host and port.
    Tcp(SocketAddr),
}

impl Address {
    /// Where a connection is to lead.
    pub fn remote(&self) -> Remote<'_> {
        match self {
            Address::Unix(path) => Remote::Unix(path),
            Address::Tcp(address) => Remote::Tcp(*address),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(to, "unix:{}", path.display()),
            Address::Tcp(address) => address.fmt(to),
        }
    }
}
