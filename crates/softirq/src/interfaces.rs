//! The interfaces of this network namespace, and which tier suits each.

use std::io;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::{AddressFamily, SockaddrLike};

use crate::device;
use crate::links::Interface;

/// What is known of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details {
    /// The interface.
    pub interface: Interface,
    /// It is up.
    pub is_up: bool,
    /// It is `lo`.
    pub is_loopback: bool,
    /// Its frames are Ethernet's.
    pub is_ethernet: bool,
    /// Its driver, as the driver says; empty if it does not.
    pub driver: String,
    /// Bytes of its IP packets.
    pub mtu: u32,
}

impl Details {
    /// Why native XDP is not for it, if that is known without trying.
    #[must_use]
    pub fn why_not_xdp(&self) -> Option<&'static str> {
        if self.is_loopback {
            return Some("lo has no native XDP");
        }
        match self.driver.as_str() {
            "veth" => Some("veth leaves no room behind short frames, so answers do not fit"),
            "ena" => Some("ena can't pass data from XDP to TC, which a handover needs"),
            _ => None,
        }
    }

    /// Whether frames from peers on this machine come with half a checksum, so that a check would be
    /// wrong about them.
    #[must_use]
    pub fn has_partial_sums(&self) -> bool {
        self.is_loopback
            || matches!(
                self.driver.as_str(),
                "veth" | "virtio_net" | "tun" | "bridge"
            )
    }
}

const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;

/// All interfaces, by name.
///
/// # Errors
/// When the kernel does not list them.
pub fn all() -> io::Result<Vec<Details>> {
    let mut found: Vec<Details> = Vec::new();
    for entry in getifaddrs()? {
        let Some(link) = entry
            .address
            .filter(|address| address.family() == Some(AddressFamily::Packet))
            .and_then(|address| address.as_link_addr().copied())
        else {
            continue;
        };
        let name = entry.interface_name;
        let index = if_nametoindex(name.as_str())?;
        let kind = link.hatype();
        found.push(Details {
            is_up: entry.flags.contains(InterfaceFlags::IFF_UP),
            is_loopback: kind == ARPHRD_LOOPBACK,
            is_ethernet: kind == ARPHRD_ETHER || kind == ARPHRD_LOOPBACK,
            driver: device::driver(&name).unwrap_or_default(),
            mtu: device::mtu(&name).unwrap_or(1500),
            interface: Interface {
                name,
                index: i32::try_from(index).expect("interfaces have small numbers"),
            },
        });
    }
    found.sort_by(|a, b| a.interface.name.cmp(&b.interface.name));
    Ok(found)
}

/// The addresses of all interfaces; IPv4 as `::ffff:a.b.c.d`.
///
/// # Errors
/// When the kernel does not list them.
pub fn addresses() -> io::Result<Vec<[u8; 16]>> {
    let mut found = Vec::new();
    for entry in getifaddrs()? {
        let Some(address) = entry.address else {
            continue;
        };
        if let Some(v4) = address.as_sockaddr_in() {
            found.push(v4.ip().to_ipv6_mapped().octets());
        } else if let Some(v6) = address.as_sockaddr_in6() {
            found.push(v6.ip().octets());
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}
