//! Connections in TIME-WAIT (RFC 9293 §3.3.2): a ring in the order of their closing times, with a hash index. A new
//! entry evicts the oldest.

use alloc::vec;
use alloc::vec::Vec;

use super::segment::ConnectionKey;

const NONE: u32 = u32::MAX;
/// The duration of TIME-WAIT, as in Linux.
const LIFE_US: u64 = 60_000_000;

/// A closed connection.
#[derive(Clone, Copy)]
pub(crate) struct ClosedConnection {
    pub key: ConnectionKey,
    pub rcv_nxt: u32,
    pub snd_nxt: u32,
}

#[derive(Clone, Copy)]
struct TimeWaitEntry {
    closed: ClosedConnection,
    at_us: u64,
    next: u32,
    is_occupied: bool,
}

pub(crate) struct TimeWaitTable {
    ring: Vec<TimeWaitEntry>,
    heads: Vec<u32>,
    next: usize,
    key: u64,
    /// The local IP address, which keys do not include.
    local: u32,
}

impl TimeWaitTable {
    /// A table for `count` entries, rounded up to a power of two.
    pub(crate) fn new(count: usize, key: u64) -> TimeWaitTable {
        let count = count.next_power_of_two().clamp(16, 65_536);
        let entry = TimeWaitEntry {
            closed: ClosedConnection {
                key: ConnectionKey(0),
                rcv_nxt: 0,
                snd_nxt: 0,
            },
            at_us: 0,
            next: NONE,
            is_occupied: false,
        };
        TimeWaitTable {
            ring: vec![entry; count],
            heads: vec![NONE; count * 2],
            next: 0,
            key: key | 1,
            local: 0,
        }
    }

    /// Sets the local address. Entries of another address are dropped: they cannot conflict with new connections.
    pub(crate) fn set_local(&mut self, local: u32) {
        if self.local == local {
            return;
        }
        self.local = local;
        self.heads.fill(NONE);
        for entry in &mut self.ring {
            entry.is_occupied = false;
        }
    }

    fn bucket(&self, key: ConnectionKey) -> usize {
        let product = u128::from(key.0 ^ self.key.rotate_left(32)) * u128::from(self.key);
        ((product >> 64) as usize ^ product as usize) & (self.heads.len() - 1)
    }

    /// Adds an entry. Returns whether an unexpired entry was evicted.
    pub(crate) fn insert(&mut self, closed: ClosedConnection, now_us: u64) -> bool {
        let at = self.next;
        self.next = (at + 1) % self.ring.len();
        let old = self.ring[at];
        // The eviction of an expired entry does not count.
        let displaces = old.is_occupied && now_us.saturating_sub(old.at_us) < LIFE_US;
        if old.is_occupied {
            self.unlink(at as u32);
        }
        let bucket = self.bucket(closed.key);
        self.ring[at] = TimeWaitEntry {
            closed,
            at_us: now_us,
            next: self.heads[bucket],
            is_occupied: true,
        };
        self.heads[bucket] = at as u32;
        displaces
    }

    /// Finds an unexpired entry.
    pub(crate) fn find(&self, key: ConnectionKey, now_us: u64) -> Option<(u32, ClosedConnection)> {
        let mut at = self.heads[self.bucket(key)];
        while let Some(entry) = self.ring.get(at as usize) {
            if entry.closed.key == key && now_us.saturating_sub(entry.at_us) < LIFE_US {
                return Some((at, entry.closed));
            }
            at = entry.next;
        }
        None
    }

    /// Removes an entry that `TimeWaitTable::find` returned.
    pub(crate) fn unlink(&mut self, at: u32) {
        let bucket = self.bucket(self.ring[at as usize].closed.key);
        let next = self.ring[at as usize].next;
        self.ring[at as usize].is_occupied = false;
        if self.heads[bucket] == at {
            self.heads[bucket] = next;
            return;
        }
        let mut previous = self.heads[bucket];
        while let Some(entry) = self.ring.get_mut(previous as usize) {
            if entry.next == at {
                entry.next = next;
                return;
            }
            previous = entry.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_entry_is_evicted_and_entries_expire() {
        let mut table = TimeWaitTable::new(16, 77);
        let over = |i: u16| ClosedConnection {
            key: ConnectionKey::new(1, i, 80),
            rcv_nxt: u32::from(i),
            snd_nxt: 0,
        };
        assert!((0..16).all(|i| !table.insert(over(i), 5)));
        assert!(table.insert(over(16), 6));
        assert!(table.find(over(0).key, 6).is_none());
        for i in 1..17 {
            assert_eq!(
                table.find(over(i).key, 6).map(|it| it.1.rcv_nxt),
                Some(u32::from(i))
            );
        }
        let (at, _) = table.find(over(9).key, 6).expect("there");
        table.unlink(at);
        assert!(table.find(over(9).key, 6).is_none());
        assert!(table.find(over(8).key, 5 + LIFE_US).is_none());
        assert!(!table.insert(over(17), 5 + LIFE_US));
    }

    #[test]
    fn changing_the_local_address_removes_entries() {
        let mut table = TimeWaitTable::new(16, 77);
        let over = |i: u16| ClosedConnection {
            key: ConnectionKey::new(1, i, 80),
            rcv_nxt: 0,
            snd_nxt: 0,
        };
        table.set_local(1);
        assert!((0..9).all(|i| !table.insert(over(i), 5)));
        table.set_local(1);
        assert!(table.find(over(3).key, 5).is_some());
        table.set_local(2);
        assert!((0..9).all(|i| table.find(over(i).key, 5).is_none()));
        assert!((0..16).all(|i| !table.insert(over(i), 5)));
        assert!(table.insert(over(16), 5));
        assert!((1..17).all(|i| table.find(over(i).key, 5).is_some()));
    }
}
