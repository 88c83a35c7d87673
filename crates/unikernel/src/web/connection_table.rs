//! The connection table: the use and state of each connection, by its index.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use lowroad_net::ConnectionId;

/// The use of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotUse {
    /// No connection.
    Free,
    /// A client; the next request can be read.
    Reading,
    /// A client; its response is not acknowledged completely.
    Answering,
    /// A client; its request waits for a free page task.
    Queued,
    /// A client; its page is being generated.
    Waiting,
    /// Closing: input is dropped.
    Closing,
    /// A connection to the database.
    Database,
}

/// A slot of the table.
#[derive(Clone, Copy)]
pub struct ConnectionSlot {
    /// The use of the slot.
    pub used: SlotUse,
    /// The generation of its connection.
    pub generation: u32,
    /// The peer's address.
    pub peer: SocketAddrV4,
    /// The start of the incomplete request in microseconds, or 0. Set by `ConnectionTable::set_begun`.
    begun_us: u64,
    /// Bytes of it that were searched for the end of the head.
    pub seen_len: usize,
    /// Its length with the body; 0 while the head is incomplete.
    pub needed_len: usize,
    /// The client has sent its FIN.
    pub is_finished: bool,
}

impl ConnectionSlot {
    const FREE: ConnectionSlot = ConnectionSlot {
        used: SlotUse::Free,
        generation: 0,
        peer: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
        begun_us: 0,
        seen_len: 0,
        needed_len: 0,
        is_finished: false,
    };

    /// Whether there is an incomplete request.
    #[inline]
    pub fn is_partial(&self) -> bool {
        self.begun_us != 0
    }
}

/// All slots.
pub struct ConnectionTable {
    all: Vec<ConnectionSlot>,
    partial_count: u64,
}

impl ConnectionTable {
    /// A table for `count` connections.
    pub fn new(count: usize) -> ConnectionTable {
        ConnectionTable {
            all: vec![ConnectionSlot::FREE; count],
            partial_count: 0,
        }
    }

    /// The slot of a connection.
    #[inline]
    pub fn get(&mut self, id: ConnectionId) -> &mut ConnectionSlot {
        &mut self.all[id.index as usize]
    }

    /// Occupies a slot for a connection.
    pub fn take(&mut self, id: ConnectionId, used: SlotUse, peer: Option<SocketAddrV4>) {
        *self.get(id) = ConnectionSlot {
            used,
            generation: id.generation,
            peer: peer.unwrap_or(ConnectionSlot::FREE.peer),
            ..ConnectionSlot::FREE
        };
    }

    /// Sets the start of the incomplete request in microseconds; 0: none. Incomplete requests are counted, which
    /// spares the scan when there are none.
    pub fn set_begun(&mut self, id: ConnectionId, begun_us: u64) {
        let place = self.get(id);
        let (was, is) = (place.is_partial(), begun_us != 0);
        place.begun_us = begun_us;
        self.partial_count += u64::from(is);
        self.partial_count -= u64::from(was);
    }

    /// The number of incomplete requests.
    #[inline]
    pub fn partial_count(&self) -> u64 {
        self.partial_count
    }

    /// The number of slots, used or free.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The connection at an index, its use, and the start of its incomplete request.
    pub fn at(&self, index: usize) -> (ConnectionId, SlotUse, Option<u64>) {
        let place = &self.all[index];
        let id = ConnectionId {
            index: index as u32,
            generation: place.generation,
        };
        let begun_us = Some(place.begun_us).filter(|begun_us| *begun_us > 0);
        (id, place.used, begun_us)
    }
}
