//! Counts and lists the entries of the connection table, without changing it.

use std::net::SocketAddrV6;

use crate::clock::{now_ns, units_since};
use crate::layout::{self, CONNECTION_WAYS, connection};

use super::SoftirqLevel;

/// Number of connections of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Live on the fast path.
    pub open: usize,
    /// Migrating to a kernel listener.
    pub migrating: usize,
    /// Owned by the kernel.
    pub kernel: usize,
    /// Connections with a parked socket or with translated sequence numbers, including idle ones.
    pub parked: usize,
    /// Slots of the table.
    pub slots: usize,
}

impl SoftirqLevel {
    /// Counts the whole table.
    #[must_use]
    pub fn connections(&self) -> ConnectionCounts {
        self.connections_at(|_| true)
    }

    /// Counts the connections to some of the ports.
    #[must_use]
    pub fn connections_at(&self, is_selected: impl Fn(u16) -> bool) -> ConnectionCounts {
        let now_ns = now_ns();
        let idle = self.control().idle;
        let mut counts = ConnectionCounts {
            slots: self.connections.len() * CONNECTION_WAYS as usize,
            ..ConnectionCounts::default()
        };
        for entry in self.entries() {
            if !is_selected(u16::from_be(entry.tuple.local_port_be)) {
                continue;
            }
            // Parked sockets are counted before idle entries are skipped: a parked socket exists until it is closed.
            counts.parked += usize::from(has_parked_socket(&entry));
            if u32::from(units_since(now_ns, entry.seen)) > idle {
                continue;
            }
            match u32::from(entry.state) {
                layout::STATE_OPEN | layout::STATE_CLOSING => counts.open += 1,
                layout::STATE_HANDED => counts.migrating += 1,
                layout::STATE_KERNEL | layout::STATE_ASKED => counts.kernel += 1,
                // Ended connections, which keep their slots for a while, are not counted.
                _ => {}
            }
        }
        counts
    }

    /// Copies of all occupied slots of the table, one after the other.
    pub(crate) fn entries(&self) -> impl Iterator<Item = layout::connection> {
        let buckets = (0..self.connections.len()).map(|index| self.connections.read(index));
        let slots = buckets.flat_map(|bucket| bucket.way);
        slots.filter(|slot| slot.tag != 0)
    }
}

/// The local and the remote address of a connection; IPv4 as `::ffff:a.b.c.d`.
pub(crate) fn endpoints(tuple: &layout::tuple) -> (SocketAddrV6, SocketAddrV6) {
    (
        end(&tuple.local_be, tuple.local_port_be),
        end(&tuple.client_be, tuple.client_port_be),
    )
}

fn end(address_be: &[u32; 4], port_be: u16) -> SocketAddrV6 {
    let mut bytes = [0; 16];
    for (to, word) in bytes.chunks_exact_mut(4).zip(address_be) {
        // The words are already in network byte order.
        to.copy_from_slice(&word.to_ne_bytes());
    }
    SocketAddrV6::new(bytes.into(), u16::from_be(port_be), 0, 0)
}

/// Whether the connection has an open kernel socket with sequence numbers that differ from the client's
/// (bpf/connections.h).
pub(crate) fn has_parked_socket(entry: &connection) -> bool {
    let socket = u32::from(entry.socket);
    if is_translated(entry) {
        return socket != layout::SOCKET_ENDED;
    }
    let is_live = [layout::STATE_OPEN, layout::STATE_CLOSING].contains(&u32::from(entry.state));
    socket == layout::SOCKET_KEPT && is_live
}

/// Whether the kernel owns the connection, with sequence numbers that differ from the client's.
pub(crate) fn is_translated(entry: &connection) -> bool {
    u32::from(entry.state) == layout::STATE_KERNEL && (entry.socket_rcv | entry.socket_snd) != 0
}
