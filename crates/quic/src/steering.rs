//! Steering: the worker that a datagram belongs to, from its first bytes. The kernel distributes datagrams by addresses,
//! and a client may change its own; then the datagram is passed on, or a program of the socket group has chosen the
//! right socket before ([`classic`]).
//!
//! Read RFC 8999 for the layout that all versions share, and RFC 9000 §5.2, §10.3.

pub mod classic;

use lowroad_engine::datagram_relay::ProcessWorker;

use crate::connection_ids::{CONNECTION_ID_LEN, ConnectionIdKey};

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
    /// A connection of another process.
    Process(ProcessWorker),
    /// A packet that may begin a connection, or requests the versions. The receiving worker may process it, or else this
    /// one: all packets with one identifier have the same number.
    New(u8),
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
    pub here: ProcessWorker,
    /// The number of workers of this process.
    pub workers: u8,
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
            // Most datagrams: the kernel distributes by addresses, and few clients change theirs.
            (Some(place), _) if place == self.here => QuicRoute::Here,
            (Some(place), _) if place.generation != self.here.generation => {
                QuicRoute::Process(place)
            }
            // A worker that is gone may be known from a configuration with more workers.
            (Some(place), _) if place.worker < self.workers => QuicRoute::Worker(place.worker),
            // Only short headers are answered with a reset; a handshake begins again.
            (Some(_), false) => QuicRoute::Reset,
            // The client has chosen the identifier.
            (_, true) => QuicRoute::New(self.worker_of_new(id)),
            (None, false) => QuicRoute::Invalid,
        }
    }

    /// The worker for a connection; its first packets have an identifier of the client.
    fn worker_of_new(&self, id: &[u8]) -> u8 {
        // Clients choose unpredictable identifiers (RFC 9000 §7.2).
        let sum = id.iter().fold(0_u32, |sum, byte| sum + u32::from(*byte));
        (sum % u32::from(self.workers.max(1))) as u8
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

    fn place(generation: u8, worker: u8) -> ProcessWorker {
        ProcessWorker { generation, worker }
    }

    fn table() -> SteeringTable {
        SteeringTable {
            key: ConnectionIdKey::new(KEY),
            here: place(7, 1),
            workers: 4,
        }
    }

    fn short(place: ProcessWorker) -> Vec<u8> {
        let id = ConnectionIdKey::new(KEY).encode(place, [1, 2, 3, 4]);
        [&[0x40][..], &id, &[0; 30]].concat()
    }

    fn long(id: &[u8]) -> Vec<u8> {
        [&[0xc0, 0, 0, 0, 1, id.len() as u8][..], id, &[0; 30]].concat()
    }

    #[test]
    fn short_headers_are_routed_by_their_identifier() {
        let table = table();
        assert_eq!(table.route(&short(place(7, 1))), QuicRoute::Here);
        assert_eq!(table.route(&short(place(7, 3))), QuicRoute::Worker(3));
        assert_eq!(table.route(&short(place(7, 4))), QuicRoute::Reset);
        for other in [place(6, 1), place(8, 200)] {
            assert_eq!(table.route(&short(other)), QuicRoute::Process(other));
        }
    }

    #[test]
    fn long_headers_begin_connections_unless_they_belong_to_one() {
        let table = table();
        assert_eq!(table.route(&long(b"ABCDEFGH")), QuicRoute::New(0));
        assert_eq!(table.route(&long(b"ABCDEFGI")), QuicRoute::New(1));
        let longer = long(b"an identifier of 20!");
        assert!(matches!(table.route(&longer), QuicRoute::New(0..4)));
        let id = |place| ConnectionIdKey::new(KEY).encode(place, [7; 4]);
        assert_eq!(table.route(&long(&id(place(7, 2)))), QuicRoute::Worker(2));
        let other = place(6, 9);
        assert_eq!(table.route(&long(&id(other))), QuicRoute::Process(other));
        let gone = long(&id(place(7, 9)));
        assert!(matches!(table.route(&gone), QuicRoute::New(0..4)));
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
