//! Addresses of servers.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
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
    /// The form that addresses of the same server have in common: an IPv4 address instead of its IPv6 form, the loopback
    /// address instead of the unspecified one, and a path without repeated slashes.
    pub fn canonical(&self) -> ServerAddress {
        match self {
            // Components contain neither empty names nor `.`; `..` stays, since it may follow a symbolic link.
            ServerAddress::Unix(path) => ServerAddress::Unix(path.components().collect()),
            ServerAddress::Tcp(to) => ServerAddress::Tcp(canonical(*to)),
            ServerAddress::TcpFrom { to, from } => ServerAddress::TcpFrom {
                to: canonical(*to),
                from: *from,
            },
        }
    }

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

fn canonical(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip().to_canonical() {
        // Linux connects to the loopback address then.
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    match (ip, address) {
        (IpAddr::V6(ip), SocketAddr::V6(mut v6)) => {
            v6.set_ip(ip);
            // The flow label does not identify a server; the scope of a link-local address does.
            v6.set_flowinfo(0);
            v6.into()
        }
        (ip, address) => SocketAddr::new(ip, address.port()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_server_have_one_form() {
        for (text, expected) in [
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("[::ffff:192.0.2.1]:80", "192.0.2.1:80"),
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::ffff:0.0.0.0]:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("[fe80::1%2]:80", "[fe80::1%2]:80"),
        ] {
            let address = ServerAddress::Tcp(text.parse().expect("an address"));
            assert_eq!(address.canonical().to_string(), expected);
        }
    }
}
