//! Probe source: a pair of addresses from the ranges reserved for documentation (RFC 5737, RFC 3849). The daemon
//! fetches from the first one, so that it gets the server's response for unknown clients; pass-through connections come
//! from the second one. To the kernel both are local: a route to `lo` delivers the server's replies. To servers they
//! look like remote clients. See rtnetlink(7).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use lowroad_wire::width::lower;

use crate::layout;

const HEADER_LEN: usize = 16;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
/// Request and acknowledge; for a new route also: create or replace.
const FLAGS: u16 = 0x1 | 0x4;
const FLAGS_NEW: u16 = FLAGS | 0x400 | 0x100;
const MESSAGE_ERROR: u16 = 2;

const TABLE_LOCAL: u8 = 255;
const PROTOCOL_STATIC: u8 = 4;
const SCOPE_HOST: u8 = 254;
const TYPE_LOCAL: u8 = 2;
const ATTRIBUTE_TO: u16 = 1;
const ATTRIBUTE_DEVICE: u16 = 4;
/// The index of `lo` in every network namespace.
const LOOPBACK_INDEX: u32 = 1;

/// Maximum number of routes to remove; each belongs to another interface.
const ROUTES_MAX: usize = 64;

/// Source address of pass-through connections to this server: the second of the pair, next to [`address`]. A server may
/// trust requests from [`address`], but pass-through requests contain fields that the clients wrote.
#[must_use]
pub fn untrusted_address(server: SocketAddr) -> SocketAddr {
    let mut from = address(server);
    from.set_ip(match from.ip() {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() | 1).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() | 1).into(),
    });
    from
}

/// The probe source address for this server, in the same scope as the server's clients.
#[must_use]
pub fn address(server: SocketAddr) -> SocketAddr {
    let number = u128::from(layout::OUTSIDER);
    match server {
        SocketAddr::V4(_) => SocketAddr::new(Ipv4Addr::from(layout::OUTSIDER).into(), 0),
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
            let link_local = Ipv6Addr::from(0xfe80_u128 << 112 | number);
            SocketAddrV6::new(link_local, 0, 0, v6.scope_id()).into()
        }
        SocketAddr::V6(_) => {
            SocketAddr::new(Ipv6Addr::from(0x2001_0db8_u128 << 96 | number).into(), 0)
        }
    }
}

/// An example of each kind of server address. Each kind has a different probe source address.
const SERVERS: [&str; 3] = ["0.0.0.0:0", "[::]:0", "[fe80::1]:0"];

fn addresses() -> impl Iterator<Item = IpAddr> {
    SERVERS
        .map(|server| address(server.parse().expect("an address")).ip())
        .into_iter()
}

/// Whether the address is a probe source address.
#[must_use]
pub fn is_probe_source(address: IpAddr) -> bool {
    addresses().any(|source| source == address)
}

/// Routes the replies of this server back to this machine, in the thread's network namespace. Idempotent.
///
/// # Errors
/// If the kernel refuses.
pub fn add(server: SocketAddr) -> io::Result<()> {
    let from = address(server);
    let device = match from {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => v6.scope_id(),
        _ => LOOPBACK_INDEX,
    };
    change(NEW_ROUTE, FLAGS_NEW, from.ip(), Some(device))
}

/// Removes the routes that exist.
pub fn remove() {
    for from in addresses() {
        // A remaining route is harmless, since the address is reserved.
        let mut attempts = 0..ROUTES_MAX;
        while attempts.next().is_some() && change(DELETE_ROUTE, FLAGS, from, None).is_ok() {}
    }
}

fn change(kind: u16, flags: u16, address: IpAddr, device: Option<u32>) -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // NETLINK_ROUTE is 0.
        None,
    )?;
    send(
        &socket,
        &message(kind, flags, address, device),
        SendFlags::empty(),
    )?;
    let mut reply = [0; 4096];
    let (len, _) = recv(&socket, reply.as_mut_slice(), RecvFlags::empty())?;
    acknowledged(&reply[..len])
}

/// Encodes a message about a route to the pair of addresses, through the given interface, or through any.
fn message(kind: u16, flags: u16, address: IpAddr, device: Option<u32>) -> Vec<u8> {
    // A prefix that is one bit short covers both addresses of the pair.
    let (family, bits, to) = match address {
        IpAddr::V4(v4) => (libc::AF_INET as u8, 31, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6 as u8, 127, v6.octets().to_vec()),
    };
    // struct rtmsg: family, lengths of destination and source, TOS, table, protocol, scope, type, flags.
    let mut body = vec![
        family,
        bits,
        0,
        0,
        TABLE_LOCAL,
        PROTOCOL_STATIC,
        SCOPE_HOST,
        TYPE_LOCAL,
    ];
    body.extend([0; 4]);
    let device = device.map(u32::to_ne_bytes);
    let attributes = [
        (ATTRIBUTE_TO, Some((4 + to.len(), to.as_slice()))),
        (
            ATTRIBUTE_DEVICE,
            device.as_ref().map(|bytes| (8, bytes.as_slice())),
        ),
    ];
    for (attribute, value) in attributes {
        let Some((len, value)) = value else { continue };
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        body.extend(len.to_ne_bytes());
        body.extend(attribute.to_ne_bytes());
        body.extend(value);
    }
    let len = lower((HEADER_LEN + body.len()) as u64);
    let mut message = len.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Checks that a reply is an acknowledgement: an error message with code 0.
fn acknowledged(reply: &[u8]) -> io::Result<()> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = reply.get(4..6).ok_or_else(malformed)?;
    let code = reply
        .get(HEADER_LEN..HEADER_LEN + 4)
        .ok_or_else(malformed)?;
    let code = i32::from_ne_bytes(code.try_into().map_err(|_| malformed())?);
    match code {
        _ if kind != MESSAGE_ERROR.to_ne_bytes() => Err(malformed()),
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.wrapping_neg())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_source_matches_the_family_and_scope_of_the_server() {
        let from = |server: &str| address(server.parse().expect(server)).to_string();
        assert_eq!(from("10.0.0.1:80"), "203.0.113.254:0");
        assert_eq!(from("[fd77::1]:80"), "[2001:db8::cb00:71fe]:0");
        assert_eq!(from("[fe80::1%2]:80"), "[fe80::cb00:71fe%2]:0");
        let other = |server: &str| untrusted_address(server.parse().expect(server)).to_string();
        assert_eq!(other("10.0.0.1:80"), "203.0.113.255:0");
        assert_eq!(other("[fd77::1]:80"), "[2001:db8::cb00:71ff]:0");
    }

    #[test]
    fn route_messages_contain_their_length_and_error_replies_fail() {
        let to = Ipv4Addr::new(192, 0, 2, 2).into();
        let with_device = message(NEW_ROUTE, FLAGS_NEW, to, Some(LOOPBACK_INDEX));
        assert_eq!(with_device.len(), 44);
        assert_eq!(with_device[..4], 44u32.to_ne_bytes());
        assert_eq!(message(DELETE_ROUTE, FLAGS, to, None).len(), 36);
        let reply = |kind: u16, code: i32| {
            let mut bytes = [20u32.to_ne_bytes().to_vec(), kind.to_ne_bytes().to_vec()].concat();
            bytes.resize(HEADER_LEN, 0);
            bytes.extend(code.to_ne_bytes());
            acknowledged(&bytes).map_err(|error| error.raw_os_error())
        };
        assert_eq!(reply(MESSAGE_ERROR, 0), Ok(()));
        assert_eq!(reply(MESSAGE_ERROR, -17), Err(Some(17)));
        assert_eq!(reply(24, 0), Err(None));
        assert!(acknowledged(&[0; 7]).is_err());
    }
}
