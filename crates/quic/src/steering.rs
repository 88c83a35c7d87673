//! Steering: the worker that a datagram belongs to, from its first bytes. The kernel distributes datagrams by addresses,
//! and a client may change its own; then the datagram is passed on, or a program of the socket group has chosen the
//! right socket before ([`classic`]).
//!
//! Read RFC 8999 for the layout that all versions share, and RFC 9000 §5.2, §10.3.

pub mod classic;

use crate::connection_ids::{CONNECTION_ID_LEN, ConnectionIdKey, WorkerPlace};

/// The bit of long headers in the first byte (RFC 8999 §5.1).
pub(crate) const LONG_HEADER: u8 = 0x80;
/// The offset of the length of the destination's identifier in a long header: after the first byte and the version.
pub(crate) const LONG_ID_LEN_AT: usize = 5;
/// The offset of the identifier in a short header.
pub(crate) const SHORT_ID_AT: usize = 1;

/// The receiver of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuicRoute {
    /// A connection of this worker.
    Here,
    /// A connection of another worker of this process: its number.
    Worker(u8),
    /// A connection of the process with the other generation bit: the number of its worker.
    OtherGeneration(u8),
    /// A packet that may begin a connection, or requests the versions. The receiving worker processes it.
    New,
    /// A packet of a connection that no running worker has. The receiving worker answers with a stateless reset.
    Reset,
    /// Not a packet of this server.
    Invalid,
}

/// The workers that can receive a datagram.
#[derive(Clone, Copy, Debug)]
pub struct SteeringTable {
    /// The key of the identifiers.
    pub key: ConnectionIdKey,
    /// This worker.
    pub here: WorkerPlace,
    /// The number of workers of this process.
    pub workers: u8,
    /// The number of workers of the process with the other generation bit; 0 if there is none.
    pub other_workers: u8,
}

impl SteeringTable {
    /// The receiver of a datagram.
    #[must_use]
    pub fn route(&self, datagram: &[u8]) -> QuicRoute {
        let Some(first) = datagram.first() else {
            return QuicRoute::Invalid;
        };
        let is_long = first & LONG_HEADER != 0;
        let id = match is_long {
            true => long_header_id(datagram),
            false => datagram.get(SHORT_ID_AT..SHORT_ID_AT + CONNECTION_ID_LEN),
        };
        let Some(id) = id else {
            return QuicRoute::Invalid;
        };
        match (self.key.decode(id), is_long) {
            (Some(place), _) => self.route_place(place, is_long),
            // The client has chosen the identifier.
            (None, true) => QuicRoute::New,
            (None, false) => QuicRoute::Invalid,
        }
    }

    fn route_place(&self, place: WorkerPlace, is_long: bool) -> QuicRoute {
        // Most datagrams: the kernel distributes by addresses, and few clients change theirs.
        if place == self.here {
            return QuicRoute::Here;
        }
        // A worker that is gone may be known from a configuration with more workers.
        let is_own = place.generation == self.here.generation;
        match is_own {
            true if place.worker < self.workers => QuicRoute::Worker(place.worker),
            false if place.worker < self.other_workers => QuicRoute::OtherGeneration(place.worker),
            // Only short headers are answered with a reset; a handshake begins again.
            _ if is_long => QuicRoute::New,
            _ => QuicRoute::Reset,
        }
    }
}

/// The destination's identifier in a long header.
fn long_header_id(datagram: &[u8]) -> Option<&[u8]> {
    let (len, rest) = datagram.get(LONG_ID_LEN_AT..)?.split_first()?;
    rest.get(..usize::from(*len))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 16] = *b"a sixteen bytes!";

    fn place(generation: bool, worker: u8) -> WorkerPlace {
        WorkerPlace { generation, worker }
    }

    fn table() -> SteeringTable {
        SteeringTable {
            key: ConnectionIdKey::new(KEY),
            here: place(true, 1),
            workers: 4,
            other_workers: 2,
        }
    }

    fn short(place: WorkerPlace) -> Vec<u8> {
        let id = ConnectionIdKey::new(KEY).encode(place, [1, 2, 3, 4, 5, 6]);
        [&[0x40][..], &id, &[0; 30]].concat()
    }

    fn long(id: &[u8]) -> Vec<u8> {
        [&[0xc0, 0, 0, 0, 1, id.len() as u8][..], id, &[0; 30]].concat()
    }

    #[test]
    fn short_headers_are_routed_by_their_identifier() {
        let table = table();
        assert_eq!(table.route(&short(place(true, 1))), QuicRoute::Here);
        assert_eq!(table.route(&short(place(true, 3))), QuicRoute::Worker(3));
        assert_eq!(table.route(&short(place(true, 4))), QuicRoute::Reset);
        let other = QuicRoute::OtherGeneration(1);
        assert_eq!(table.route(&short(place(false, 1))), other);
        assert_eq!(table.route(&short(place(false, 2))), QuicRoute::Reset);
    }

    #[test]
    fn long_headers_begin_connections_unless_they_belong_to_one() {
        let table = table();
        assert_eq!(table.route(&long(b"ABCDEFGH")), QuicRoute::New);
        assert_eq!(table.route(&long(b"an identifier of 20!")), QuicRoute::New);
        let id = ConnectionIdKey::new(KEY).encode(place(true, 2), [7; 6]);
        assert_eq!(table.route(&long(&id)), QuicRoute::Worker(2));
        let gone = ConnectionIdKey::new(KEY).encode(place(false, 9), [7; 6]);
        assert_eq!(table.route(&long(&gone)), QuicRoute::New);
    }

    #[test]
    fn short_and_foreign_datagrams_are_invalid() {
        let table = table();
        for datagram in [&[][..], &[0x40], &[0x40; 8], &[0xc0; 6], &[0x40; 40]] {
            assert_eq!(table.route(datagram), QuicRoute::Invalid, "{datagram:?}");
        }
        assert_eq!(table.route(&long(&[1; 20])[..20]), QuicRoute::Invalid);
    }
}
