//! The interfaces of this network namespace, and which tier each of them supports.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{AddressFamily, SockaddrLike};

use crate::machine::device;

/// An interface of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkInterface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: i32,
}

/// Properties of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceDetails {
    /// The interface.
    pub interface: NetworkInterface,
    /// Whether it is up.
    pub is_up: bool,
    /// Whether it is `lo`.
    pub is_loopback: bool,
    /// Whether its frames are Ethernet frames.
    pub is_ethernet: bool,
    /// Its driver; empty if unknown.
    pub driver: String,
    /// Maximum length of its IP packets.
    pub mtu: u32,
}

impl InterfaceDetails {
    /// The reason for which the interface does not support native XDP, as far as that is known without an attempt.
    #[must_use]
    pub fn xdp_obstacle(&self) -> Option<&'static str> {
        if self.is_loopback {
            return Some("lo has no native XDP");
        }
        match self.driver.as_str() {
            "veth" => Some("veth leaves no room behind short frames, so responses do not fit"),
            "ena" => Some("ena can't pass data from XDP to TC, which migration requires"),
            _ => None,
        }
    }
}

const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;

/// All interfaces, sorted by name. Interfaces that disappear during the call are left out.
///
/// # Errors
/// If the kernel does not list them.
pub fn all() -> io::Result<Vec<InterfaceDetails>> {
    let mut found: Vec<InterfaceDetails> = Vec::new();
    for entry in getifaddrs()? {
        let Some(link) = entry
            .address
            .filter(|address| address.family() == Some(AddressFamily::Packet))
            .and_then(|address| address.as_link_addr().copied())
        else {
            continue;
        };
        let name = entry.interface_name;
        let mtu = match device::mtu(&name) {
            // The interface has disappeared since it was listed.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
            other => other.unwrap_or(1500),
        };
        let kind = link.hatype();
        found.push(InterfaceDetails {
            is_up: entry.flags.contains(InterfaceFlags::IFF_UP),
            is_loopback: kind == ARPHRD_LOOPBACK,
            is_ethernet: kind == ARPHRD_ETHER || kind == ARPHRD_LOOPBACK,
            driver: device::driver(&name).unwrap_or_default(),
            mtu,
            interface: NetworkInterface {
                name,
                // The index comes from the list itself, since a lookup by name might find another interface, or none.
                // `ifindex` is a C int in the kernel, which the library has widened.
                index: link.ifindex() as i32,
            },
        });
    }
    found.sort_by(|a, b| a.interface.name.cmp(&b.interface.name));
    Ok(found)
}

/// The addresses of all interfaces; IPv4 as `::ffff:a.b.c.d`.
///
/// # Errors
/// If the kernel does not list them.
pub fn addresses() -> io::Result<Vec<[u8; 16]>> {
    let mut found: Vec<_> = assigned()?
        .iter()
        .map(|address| address.ip().octets())
        .collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Adds the scope (interface) to a local address, if it is link-local, so that the daemon can connect to it.
///
/// # Errors
/// `AddrNotAvailable` if the address is not local, or exists on several interfaces, which may belong to different
/// servers.
pub fn with_scope(local: SocketAddr) -> io::Result<SocketAddr> {
    match local.ip().is_loopback() {
        // All of 127.0.0.0/8 is local, though only one of its addresses is assigned.
        true => Ok(local),
        false => with_scope_from(local, &assigned()?),
    }
}

fn with_scope_from(local: SocketAddr, assigned: &[SocketAddrV6]) -> io::Result<SocketAddr> {
    let address = match local.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let scopes = || {
        let matching = assigned
            .iter()
            .filter(|candidate| *candidate.ip() == address);
        matching.map(SocketAddrV6::scope_id)
    };
    let first = scopes().next();
    // The same address on several interfaces is ambiguous.
    match first {
        Some(scope) if scopes().all(|other| other == scope) => {
            let mut scoped = local;
            if let SocketAddr::V6(v6) = &mut scoped {
                v6.set_scope_id(scope);
            }
            Ok(scoped)
        }
        _ => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}

/// All addresses, with the scope if they are link-local; IPv4 as `::ffff:a.b.c.d`.
fn assigned() -> io::Result<Vec<SocketAddrV6>> {
    let new_address = |address: Ipv6Addr, scope| SocketAddrV6::new(address, 0, 0, scope);
    let mut found = Vec::new();
    for entry in getifaddrs()? {
        let Some(address) = entry.address else {
            continue;
        };
        // Only link-local addresses have a scope.
        if let Some(v4) = address.as_sockaddr_in() {
            found.push(new_address(v4.ip().to_ipv6_mapped(), 0));
        } else if let Some(v6) = address.as_sockaddr_in6() {
            found.push(new_address(v6.ip(), v6.scope_id()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_scope_adds_the_interface_of_link_local_addresses() {
        let address = |text: &str| text.parse::<SocketAddrV6>().expect(text);
        let assigned = [
            "[::ffff:192.0.2.1]:0",
            "[fe80::1%2]:0",
            "[fe80::2%2]:0",
            "[fe80::2%3]:0",
            "[2001:db8::1]:0",
            "[2001:db8::1]:0",
        ]
        .map(address);
        let scoped = |text: &str| {
            let local = text.parse().expect(text);
            let found = with_scope_from(local, &assigned);
            found.map_or("none".to_owned(), |found| found.to_string())
        };
        assert_eq!(scoped("192.0.2.1:80"), "192.0.2.1:80");
        assert_eq!(scoped("[2001:db8::1]:80"), "[2001:db8::1]:80");
        assert_eq!(scoped("[fe80::1]:80"), "[fe80::1%2]:80");
        for other in ["[fe80::2]:80", "192.0.2.2:80", "0.0.0.0:80", "[::]:80"] {
            assert_eq!(scoped(other), "none", "{other}");
        }
    }
}
