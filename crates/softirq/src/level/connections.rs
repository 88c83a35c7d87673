//! The table of connections, counted and looked through. It changes nothing in it.

use std::net::SocketAddrV6;

use crate::clock::{now_ns, units_since};
use crate::layout::{self, CONNECTION_WAYS, connection};

use super::Level;

/// How many connections there are of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Answered here, and not over.
    pub open: usize,
    /// On their way to a listener.
    pub handed: usize,
    /// Known to be the kernel's.
    pub kernel: usize,
    /// Of all, idle ones too: those with a socket that is kept, or whose numbers are translated.
    pub kept: usize,
    /// Places.
    pub places: usize,
}

impl Level {
    /// Counts the table through.
    #[must_use]
    pub fn connections(&self) -> Connections {
        self.connections_at(|_| true)
    }

    /// The same, only those to some of the ports.
    #[must_use]
    pub fn connections_at(&self, is_meant: impl Fn(u16) -> bool) -> Connections {
        let now_ns = now_ns();
        let idle = self.control().idle;
        let mut found = Connections {
            places: self.connections.len() * CONNECTION_WAYS as usize,
            ..Connections::default()
        };
        for way in self.entries() {
            if !is_meant(u16::from_be(way.tuple.local_port_be)) {
                continue;
            }
            found.kept += usize::from(needs_place(&way));
            if u32::from(units_since(now_ns, way.seen)) > idle {
                continue;
            }
            match u32::from(way.state) {
                layout::STATE_OPEN | layout::STATE_CLOSING => found.open += 1,
                layout::STATE_HANDED => found.handed += 1,
                layout::STATE_KERNEL | layout::STATE_ASKED => found.kernel += 1,
                _ => {}
            }
        }
        found
    }

    /// Copies of all places of the table of connections that are taken, one after the other.
    pub(crate) fn entries(&self) -> impl Iterator<Item = layout::connection> {
        let buckets = (0..self.connections.len()).map(|index| self.connections.read(index));
        let places = buckets.flat_map(|bucket| bucket.way);
        places.filter(|place| place.tag != 0)
    }
}

/// The two ends of a connection: that of this machine, and that of the client; IPv4 as `::ffff:a.b.c.d`.
pub(crate) fn ends_of(tuple: &layout::tuple) -> (SocketAddrV6, SocketAddrV6) {
    (
        end(&tuple.local_be, tuple.local_port_be),
        end(&tuple.client_be, tuple.client_port_be),
    )
}

fn end(address_be: &[u32; 4], port_be: u16) -> SocketAddrV6 {
    let mut bytes = [0; 16];
    for (to, word) in bytes.chunks_exact_mut(4).zip(address_be) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    SocketAddrV6::new(bytes.into(), u16::from_be(port_be), 0, 0)
}

/// Whether it has an open socket with other numbers than the client's (bpf/connections.h).
pub(crate) fn needs_place(way: &connection) -> bool {
    let socket = u32::from(way.socket);
    if is_shifted(way) {
        return socket != layout::SOCKET_ENDED;
    }
    let is_live = [layout::STATE_OPEN, layout::STATE_CLOSING].contains(&u32::from(way.state));
    socket == layout::SOCKET_KEPT && is_live
}

/// Whether the kernel has it, with other numbers than the client.
pub(crate) fn is_shifted(way: &connection) -> bool {
    u32::from(way.state) == layout::STATE_KERNEL && (way.socket_rcv | way.socket_snd) != 0
}
