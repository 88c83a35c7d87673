//! The connection table: use and state of each connection, by the index of the connection.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use lowroad_net::ConnectionId;

/// The use of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotUse {
    /// No connection.
    Free,
    /// A client; its next request can be read.
    Reading,
    /// A client; its response is not completely acknowledged.
    Answering,
    /// A client; its request waits for a free page task.
    Queued,
    /// A client; its page is being generated.
    Waiting,
    /// Being closed; received bytes are dropped.
    Closing,
    /// A connection to the database.
    Database,
}

/// A slot of the table.
#[derive(Clone, Copy)]
pub struct ConnectionSlot {
    /// The use of the slot.
    pub usage: SlotUse,
    /// The generation of the connection in this slot.
    pub generation: u32,
    /// The peer's address.
    pub peer: SocketAddrV4,
    /// The time in microseconds at which the incomplete request began; 0 if there is none. Set by
    /// `ConnectionTable::set_request_start`.
    request_start_us: u64,
    /// Number of bytes of the incomplete request that were searched for the end of the head.
    pub searched_len: usize,
    /// Length of the incomplete request including the body; 0 while the head is incomplete.
    pub needed_len: usize,
    /// The client has sent its FIN.
    pub is_finished: bool,
}

impl ConnectionSlot {
    const FREE: ConnectionSlot = ConnectionSlot {
        usage: SlotUse::Free,
        generation: 0,
        peer: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
        request_start_us: 0,
        searched_len: 0,
        needed_len: 0,
        is_finished: false,
    };

    /// Whether there is an incomplete request.
    #[inline]
    pub fn is_partial(&self) -> bool {
        self.request_start_us != 0
    }
}

/// All slots.
pub struct ConnectionTable {
    slots: Vec<ConnectionSlot>,
    partial_count: u64,
}

impl ConnectionTable {
    /// A table for `count` connections.
    pub fn new(count: usize) -> ConnectionTable {
        ConnectionTable {
            slots: vec![ConnectionSlot::FREE; count],
            partial_count: 0,
        }
    }

    /// The slot of a connection.
    #[inline]
    pub fn get(&mut self, id: ConnectionId) -> &mut ConnectionSlot {
        &mut self.slots[id.index as usize]
    }

    /// Occupies a slot for a connection.
    pub fn occupy(&mut self, id: ConnectionId, usage: SlotUse, peer: Option<SocketAddrV4>) {
        *self.get(id) = ConnectionSlot {
            usage,
            generation: id.generation,
            peer: peer.unwrap_or(ConnectionSlot::FREE.peer),
            ..ConnectionSlot::FREE
        };
    }

    /// Sets the time at which the incomplete request began, in microseconds; 0 if there is none. Incomplete requests
    /// are counted, so that the table is scanned only if there are any.
    pub fn set_request_start(&mut self, id: ConnectionId, start_us: u64) {
        let slot = self.get(id);
        let (was_partial, is_partial) = (slot.is_partial(), start_us != 0);
        slot.request_start_us = start_us;
        self.partial_count += u64::from(is_partial);
        self.partial_count -= u64::from(was_partial);
    }

    /// The number of incomplete requests.
    #[inline]
    pub fn partial_count(&self) -> u64 {
        self.partial_count
    }

    /// The number of slots, used and free.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// The connection at an index, the use of its slot, and the time at which its incomplete request began.
    pub fn at(&self, index: usize) -> (ConnectionId, SlotUse, Option<u64>) {
        let slot = &self.slots[index];
        let id = ConnectionId {
            index: index as u32,
            generation: slot.generation,
        };
        let start_us = Some(slot.request_start_us).filter(|begun_us| *begun_us > 0);
        (id, slot.usage, start_us)
    }
}
