//! The connection table: a slab with a keyed hash index of four-tuples.

use alloc::vec;
use alloc::vec::Vec;

use super::connection::TcpConnection;
use super::segment::ConnectionKey;
use crate::stack_api::ConnectionId;

const NONE: u32 = u32::MAX;
/// The number of slots that one search examines.
const SEARCHED_SLOTS_MAX: usize = 64;

struct FlowSlot {
    generation: u32,
    /// The next slot of the same bucket, or the next free slot.
    next: u32,
    connection: Option<TcpConnection>,
}

pub(crate) struct FlowTable {
    slots: Vec<FlowSlot>,
    heads: Vec<u32>,
    free: u32,
    count: usize,
    clock_hand: usize,
    keys: [u64; 2],
}

impl FlowTable {
    /// A table for `count` connections.
    pub(crate) fn new(count: usize, keys: [u64; 2]) -> FlowTable {
        let count = count.min(NONE as usize - 1);
        let next_of = |index: usize| match index + 1 < count {
            true => index as u32 + 1,
            false => NONE,
        };
        let new_slot = |index: usize| FlowSlot {
            generation: 0,
            next: next_of(index),
            connection: None,
        };
        FlowTable {
            slots: (0..count).map(new_slot).collect(),
            // At most half as many connections as buckets, which keeps the chains short.
            heads: vec![NONE; (count * 2).next_power_of_two()],
            free: if count > 0 { 0 } else { NONE },
            count: 0,
            clock_hand: 0,
            keys: [keys[0] | 1, keys[1] | 1],
        }
    }

    #[inline(always)]
    fn bucket(&self, key: ConnectionKey) -> usize {
        // Two keyed multiplications, folded: without the keys an attacker can't construct collisions.
        let mix = |value: u64, key: u64| {
            let product = u128::from(value ^ key.rotate_left(32)) * u128::from(key);
            product as u64 ^ (product >> 64) as u64
        };
        let hash = mix(mix(key.0, self.keys[0]), self.keys[1]);
        (hash >> 16) as usize & (self.heads.len() - 1)
    }

    /// The index of a connection.
    #[inline(always)]
    pub(crate) fn find(&self, key: ConnectionKey) -> Option<u32> {
        let mut at = self.heads[self.bucket(key)];
        while let Some(slot) = self.slots.get(at as usize) {
            if slot
                .connection
                .as_ref()
                .is_some_and(|connection| connection.key == key)
            {
                return Some(at);
            }
            at = slot.next;
        }
        None
    }

    /// Inserts a connection; `None`: the table is full.
    pub(crate) fn insert(&mut self, connection: TcpConnection) -> Option<ConnectionId> {
        let index = self.free;
        let bucket = self.bucket(connection.key);
        let slot = self.slots.get_mut(index as usize)?;
        self.free = slot.next;
        slot.next = self.heads[bucket];
        slot.connection = Some(connection);
        self.heads[bucket] = index;
        self.count += 1;
        Some(ConnectionId {
            index,
            generation: slot.generation,
        })
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, index: u32) -> Option<TcpConnection> {
        let slot = self.slots.get_mut(index as usize)?;
        let connection = slot.connection.take()?;
        // Existing identifiers of the slot become invalid.
        slot.generation = slot.generation.wrapping_add(1);
        let next = core::mem::replace(&mut slot.next, self.free);
        self.free = index;
        self.count -= 1;
        let bucket = self.bucket(connection.key);
        if self.heads[bucket] == index {
            self.heads[bucket] = next;
        } else {
            let mut at = self.heads[bucket];
            while let Some(slot) = self.slots.get_mut(at as usize) {
                if slot.next == index {
                    slot.next = next;
                    break;
                }
                at = slot.next;
            }
        }
        Some(connection)
    }

    /// The connection in a slot.
    pub(crate) fn at(&self, index: u32) -> Option<&TcpConnection> {
        self.slots.get(index as usize)?.connection.as_ref()
    }

    /// Like `FlowTable::at`, mutable.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut TcpConnection> {
        self.slots.get_mut(index as usize)?.connection.as_mut()
    }

    /// The connection with an identifier, if it still exists.
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&TcpConnection> {
        let slot = self.slots.get(id.index as usize)?;
        match slot.generation == id.generation {
            true => slot.connection.as_ref(),
            false => None,
        }
    }

    /// Like `FlowTable::get`, mutable.
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut TcpConnection> {
        let slot = self.slots.get_mut(id.index as usize)?;
        match slot.generation == id.generation {
            true => slot.connection.as_mut(),
            false => None,
        }
    }

    /// The current identifier of a slot.
    pub(crate) fn id(&self, index: u32) -> ConnectionId {
        let generation = self
            .slots
            .get(index as usize)
            .map_or(0, |slot| slot.generation);
        ConnectionId { index, generation }
    }

    /// The number of connections.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The number of slots.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free == NONE
    }

    /// The next stalled connection among the following slots. If `with_buffers`, only connections that hold buffers.
    pub(crate) fn stalled(&mut self, now_us: u64, with_buffers: bool) -> Option<u32> {
        for _ in 0..SEARCHED_SLOTS_MAX.min(self.slots.len()) {
            self.clock_hand = (self.clock_hand + 1) % self.slots.len();
            if let Some(connection) = &self.slots[self.clock_hand].connection
                && connection.is_stalled(now_us)
                && (!with_buffers || connection.holds_buffers())
            {
                return Some(self.clock_hand as u32);
            }
        }
        None
    }

    /// The connection that has been idle longest among the following slots, if it received no input since `before_us`.
    /// Each search continues where the previous one ended (clock hand).
    pub(crate) fn idle(&mut self, before_us: u64) -> Option<u32> {
        let mut longest: Option<(u64, u32)> = None;
        for _ in 0..SEARCHED_SLOTS_MAX.min(self.slots.len()) {
            self.clock_hand = (self.clock_hand + 1) % self.slots.len();
            let Some(connection) = &self.slots[self.clock_hand].connection else {
                continue;
            };
            let is_older =
                longest.is_none_or(|(oldest_us, _)| connection.last_received_us < oldest_us);
            if connection.last_received_us <= before_us && is_older && connection.is_idle() {
                longest = Some((connection.last_received_us, self.clock_hand as u32));
            }
        }
        longest.map(|(_, index)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_connections_are_found_and_ids_are_not_reused() {
        let mut table = FlowTable::new(100, [3, 4]);
        let key = |i: u32| ConnectionKey::new(0x0a00_0000 + i % 7, (i * 3) as u16, 80);
        let ids: Vec<ConnectionId> = (0..100)
            .map(|i| {
                table
                    .insert(TcpConnection::new(key(i), 1460, 0))
                    .expect("room")
            })
            .collect();
        assert!(
            table.is_full()
                && table
                    .insert(TcpConnection::new(key(101), 1460, 0))
                    .is_none()
        );
        for i in (0..100).step_by(2) {
            assert!(table.remove(ids[i as usize].index).is_some());
        }
        for i in 0..100 {
            let found = table.find(key(i)).map(|index| table.id(index));
            assert_eq!(found, (i % 2 == 1).then_some(ids[i as usize]));
        }
        let id = table
            .insert(TcpConnection::new(key(200), 1460, 0))
            .expect("room");
        assert!(!ids.contains(&id));
        assert!(table.get(ids[0]).is_none() && table.get(id).is_some());
        assert_eq!(table.count(), 51);
    }
}
