//! The kernel's sockets whose connections need this level: those that wait while their connections are answered
//! here, and those whose numbers are translated (bpf/kept.h). They have to be gone before it goes.

use std::net::SocketAddrV6;

use crate::layout::connection;
use crate::level::Level;
use crate::level::connections::{ends_of, is_shifted, needs_place};
use crate::machine::netlink::{self, Socket};

/// The two ends of a connection: of this machine, and of the client.
type Ends = (SocketAddrV6, SocketAddrV6);

/// Whether any connection to these ports is translated, as far as the kernel knows.
#[must_use]
pub fn is_any(level: &Level, is_meant: impl Fn(u16) -> bool) -> bool {
    let translated = find(level, |way| is_shifted(way) && is_meant(port_of(way)));
    translated.into_iter().any(|(local, remote)| {
        // What can't be found out may be.
        !matches!(
            netlink::socket_of(local, remote),
            Ok(Socket::None | Socket::Ended | Socket::Listener | Socket::FullListener)
        )
    })
}

/// Ends all of those of these ports, and says how many; while the programs work yet, so that clients hear of it.
pub fn end(level: &Level, is_meant: impl Fn(u16) -> bool) -> usize {
    let needing = |way: &connection| is_shifted(way) || needs_place(way);
    let found = find(level, |way| needing(way) && is_meant(port_of(way)));
    let ended = found
        .into_iter()
        .map(|(local, remote)| netlink::destroy(local, remote));
    // Where the kernel can't, nothing is kept.
    ended.filter(|ended| matches!(ended, Ok(true))).count()
}

fn port_of(way: &connection) -> u16 {
    u16::from_be(way.tuple.local_port_be)
}

fn find(level: &Level, is_meant: impl Fn(&connection) -> bool) -> Vec<Ends> {
    let meant = level.entries().filter(|way| is_meant(way));
    meant.map(|way| ends_of(&way.tuple)).collect()
}
