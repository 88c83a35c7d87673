//! Kernel sockets that depend on this level: parked sockets, and those with translated sequence numbers (bpf/parked.h).
//! They must be closed before the level is detached.

use std::net::SocketAddrV6;

use crate::layout::connection;
use crate::level::SoftirqLevel;
use crate::level::connections::{ends_of, is_shifted, needs_place};
use crate::machine::netlink::{self, KernelSocket};

/// The local and the remote address of a connection.
type ParkedEndpoints = (SocketAddrV6, SocketAddrV6);

/// Whether the kernel still has a socket for a translated connection to these ports.
#[must_use]
pub fn is_any(level: &SoftirqLevel, is_meant: impl Fn(u16) -> bool) -> bool {
    let translated = find(level, |way| is_shifted(way) && is_meant(port_of(way)));
    translated.into_iter().any(|(local, remote)| {
        // After a failed query the socket may exist.
        !matches!(
            netlink::socket_of(local, remote),
            Ok(KernelSocket::None
                | KernelSocket::Ended
                | KernelSocket::Listener
                | KernelSocket::FullListener)
        )
    })
}

/// Destroys all such sockets of these ports and returns their number. The programs must still be attached, so that
/// clients receive the resets.
pub fn end(level: &SoftirqLevel, is_meant: impl Fn(u16) -> bool) -> usize {
    let needing = |way: &connection| is_shifted(way) || needs_place(way);
    let found = find(level, |way| needing(way) && is_meant(port_of(way)));
    let ended = found
        .into_iter()
        .map(|(local, remote)| netlink::destroy(local, remote));
    // A kernel without SOCK_DESTROY parks no sockets.
    ended.filter(|ended| matches!(ended, Ok(true))).count()
}

fn port_of(way: &connection) -> u16 {
    u16::from_be(way.tuple.local_port_be)
}

fn find(level: &SoftirqLevel, is_meant: impl Fn(&connection) -> bool) -> Vec<ParkedEndpoints> {
    let meant = level.entries().filter(|way| is_meant(way));
    meant.map(|way| ends_of(&way.tuple)).collect()
}
