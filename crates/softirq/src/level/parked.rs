//! Kernel sockets that depend on this level: parked ones, and those with translated sequence numbers (bpf/parked.h).
//! They must be closed before the level is detached.

use std::net::SocketAddrV6;

use crate::layout::connection;
use crate::level::SoftirqLevel;
use crate::level::connections::{endpoints, has_parked_socket, is_translated};
use crate::machine::netlink::{self, KernelSocket};

/// The local and the remote address of a connection.
type ParkedEndpoints = (SocketAddrV6, SocketAddrV6);

/// Whether the kernel still has a socket of a translated connection to the selected ports.
#[must_use]
pub fn has_parked(level: &SoftirqLevel, is_selected: impl Fn(u16) -> bool) -> bool {
    let translated = find(level, |entry| {
        is_translated(entry) && is_selected(port_of(entry))
    });
    translated.into_iter().any(|(local, remote)| {
        // If the query fails, the socket may exist.
        !matches!(
            netlink::socket_of(local, remote),
            Ok(KernelSocket::None
                | KernelSocket::Ended
                | KernelSocket::Listener
                | KernelSocket::FullListener)
        )
    })
}

/// Destroys all sockets that depend on the level at the selected ports, and returns their number. The programs must
/// still be attached, so that clients receive the resets.
pub fn end(level: &SoftirqLevel, is_selected: impl Fn(u16) -> bool) -> usize {
    let has_socket = |entry: &connection| is_translated(entry) || has_parked_socket(entry);
    let pairs = find(level, |entry| {
        has_socket(entry) && is_selected(port_of(entry))
    });
    let ended = pairs
        .into_iter()
        .map(|(local, remote)| netlink::destroy(local, remote));
    // A failure is no problem: a kernel without SOCK_DESTROY parks no sockets.
    ended.filter(|ended| matches!(ended, Ok(true))).count()
}

fn port_of(entry: &connection) -> u16 {
    u16::from_be(entry.tuple.local_port_be)
}

fn find(level: &SoftirqLevel, is_selected: impl Fn(&connection) -> bool) -> Vec<ParkedEndpoints> {
    let selected = level.entries().filter(|entry| is_selected(entry));
    selected.map(|entry| endpoints(&entry.tuple)).collect()
}
