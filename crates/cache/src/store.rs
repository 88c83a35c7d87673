//! Keys to values, bounded in bytes; what is evicted is chosen by S3-FIFO.
//!
//! It knows no clock and no HTTP: freshness is the caller's, the hash too, and so is the disposal
//! of values that go, which are handed out and not dropped here (they may name arena extents).
//!
//! # Why S3-FIFO
//! (Yang, Zhang, Qiu, Yue, Rashmi: *FIFO queues are all you need for cache eviction*, SOSP 2023.)
//! Most objects of a web site's request stream are asked for once in the time that they would spend
//! in the cache. A new key goes to a *small* FIFO with a tenth of the bytes and leaves it soon,
//! unless it is asked for again; only then it comes to the *main* FIFO. A *ghost* of hashes remembers
//! those that left the small one, and who returns while remembered goes to main at once. A walk
//! over the whole site so passes through a tenth of the cache and leaves the rest alone.
//!
//! - LRU moves a node in a list at each hit (three nodes written, cold cache lines), and one walk
//!   over the site empties it.
//! - CLOCK is as cheap at a hit, but a walk passes through all of it.
//! - W-TinyLFU resists walks as well, for a frequency sketch written at each hit and aged by halving,
//!   and an LRU besides.
//! - SIEVE is simpler still, one FIFO and a hand, but a walk makes its hand pass over the new keys
//!   slowly: its authors themselves do not claim resistance to scans.
//!
//! A hit here is one probe, one key compare, and one byte that is written until it has reached 3.

use crate::ghost::Ghost;
use crate::nodes::{Hash, Node, Nodes, Queue};
use alloc::vec::Vec;
use core::mem::size_of;
use hashbrown::HashTable;

#[cfg(test)]
mod tests;

/// Hits beyond this many change nothing: two bits are enough to tell the hot from the rest.
const FREQUENCY_MAX: u8 = 3;

/// Hits while in the small FIFO that bring a key to main.
const PROMOTE_FROM: u8 = 2;

/// The share of the small FIFO is the capacity divided by this.
const SMALL_SHARE: u64 = 10;

/// The largest object is the capacity divided by this: a few could otherwise drive out all others.
const LARGEST_SHARE: u64 = 4;

/// What a store has done and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Values taken in, replacements included.
    pub inserted: u64,
    /// Values driven out for want of space; neither removed nor replaced ones.
    pub evicted: u64,
    /// Values given back because they were too large.
    pub refused: u64,
    /// Values held now.
    pub objects: u64,
    /// What they count for now, in bytes: the sum of size and [`Store::ENTRY_OVERHEAD`] of each.
    pub bytes: u64,
}

/// A value that has its key with it.
pub trait Keyed {
    /// The key.
    fn key(&self) -> &[u8];
}

/// A map from keys to values that never counts for more bytes than its capacity.
///
/// Hashes are the caller's; equal keys must come with equal hashes. The lower 32 bits count. Where clients choose
/// the keys, the hash should be keyed, or they can make all keys collide.
#[derive(Debug)]
pub struct Store<V> {
    capacity_bytes: u64,
    /// Indices of nodes by the node's hash: each node that is linked is in it once.
    table: HashTable<u32>,
    nodes: Nodes<V>,
    ghost: Ghost,
    inserted: u64,
    evicted: u64,
    refused: u64,
}

impl<V: Keyed> Store<V> {
    /// What a value counts for beside its size, in bytes: its node, its place in the
    /// table (half full at worst), and one hash in the ghost.
    pub const ENTRY_OVERHEAD: u64 =
        (Nodes::<V>::BYTES_EACH + 2 * (size_of::<u32>() + 1) + Ghost::BYTES_EACH) as u64;

    /// An empty store; it takes memory as it fills. With a capacity of 0 it refuses everything.
    pub fn new(capacity_bytes: u64) -> Self {
        Store {
            capacity_bytes,
            table: HashTable::new(),
            nodes: Nodes::new(),
            ghost: Ghost::default(),
            inserted: 0,
            evicted: 0,
            refused: 0,
        }
    }

    /// The value of a key; counts as a use of it.
    pub fn find(&mut self, hash: u64, key: &[u8]) -> Option<&V> {
        let at = self.index(hash, key)?;
        let node = self.nodes.node_mut(at);
        if node.frequency < FREQUENCY_MAX {
            node.frequency += 1;
        }
        Some(&node.value)
    }

    /// The value of a key; counts nothing.
    pub fn peek(&self, hash: u64, key: &[u8]) -> Option<&V> {
        self.index(hash, key).map(|at| &self.nodes.node(at).value)
    }

    /// Stores a value that counts for `size` bytes, its key included, beside [`Store::ENTRY_OVERHEAD`].
    ///
    /// An equal key is replaced, and keeps the place that it has earned. What has to leave, the
    /// replaced value first, is appended to `dropped`.
    ///
    /// # Errors
    /// The value is given back if it counts for more than a quarter of the capacity. An equal key is
    /// removed even so: its old value must not outlive the attempt to replace it.
    pub fn insert(
        &mut self,
        hash: u64,
        value: V,
        size: u64,
        dropped: &mut Vec<V>,
    ) -> Result<(), V> {
        let replaced = self.index(hash, value.key()).map(|at| self.take(at));
        let place = replaced.as_ref().map(|node| (node.queue, node.frequency));
        dropped.extend(replaced.map(|node| node.value));

        let bytes = size.saturating_add(Self::ENTRY_OVERHEAD);
        if bytes > self.capacity_bytes / LARGEST_SHARE || !self.nodes.has_room() {
            self.refused += 1;
            return Err(value);
        }
        let hash = Hash::from(hash);
        let (queue, frequency) = place.unwrap_or_else(|| (self.first_queue(hash), 0));
        while self.bytes() + bytes > self.capacity_bytes {
            let Some(victim) = self.evict_one() else {
                break;
            };
            dropped.push(victim);
        }
        let mut node = Node::new(hash, value, bytes, queue);
        node.frequency = frequency;
        let at = self.nodes.insert(node);
        self.table.insert_unique(hash.for_table(), at, |&other| {
            self.nodes.node(other).hash.for_table()
        });
        self.inserted += 1;
        Ok(())
    }

    /// Takes a value out, whoever asked for it.
    pub fn remove(&mut self, hash: u64, key: &[u8]) -> Option<V> {
        self.index(hash, key).map(|at| self.take(at).value)
    }

    /// Drives out the value that is next to leave, as if its space were needed. None = empty.
    ///
    /// A single call may pass over many values that had hits; each step is paid for by a hit.
    pub fn evict_one(&mut self) -> Option<V> {
        let victim = self.victim()?;
        let node = self.take(victim);
        if node.queue == Queue::Small {
            // The ghost may remember as many as the store holds: enough to notice who returns
            // while main turns over once, and bounded by what ENTRY_OVERHEAD has counted.
            self.ghost.push(node.hash.for_table(), self.table.len());
        }
        self.evicted += 1;
        Some(node.value)
    }

    /// Takes out all values for which `keep` is false, and appends them to `dropped`.
    pub fn retain(&mut self, mut keep: impl FnMut(&V) -> bool, dropped: &mut Vec<V>) {
        let leaving: Vec<u32> = self
            .nodes
            .indices()
            .filter(|&at| !keep(&self.nodes.node(at).value))
            .collect();
        dropped.extend(leaving.into_iter().map(|at| self.take(at).value));
    }

    /// Takes out everything, the memory of keys that were evicted included.
    pub fn clear(&mut self, dropped: &mut Vec<V>) {
        self.table.clear();
        self.ghost.clear();
        dropped.extend(self.nodes.take_all().map(|node| node.value));
    }

    /// What was done since [`Store::new`], and what is held now.
    pub fn counters(&self) -> Counters {
        Counters {
            inserted: self.inserted,
            evicted: self.evicted,
            refused: self.refused,
            objects: self.table.len() as u64,
            bytes: self.bytes(),
        }
    }

    /// All values, in no order that means anything; counts nothing.
    pub fn iter(&self) -> impl Iterator<Item = &V> {
        self.nodes.indices().map(|at| &self.nodes.node(at).value)
    }

    fn index(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let hash = Hash::from(hash);
        let same = |&at: &u32| {
            let node = self.nodes.node(at);
            node.hash == hash && *node.value.key() == *key
        };
        self.table.find(hash.for_table(), same).copied()
    }

    /// Unlinks a node from table and FIFO.
    fn take(&mut self, at: u32) -> Node<V> {
        let node = self.nodes.remove(at);
        if let Ok(found) = self
            .table
            .find_entry(node.hash.for_table(), |&other| other == at)
        {
            found.remove();
        }
        node
    }

    fn bytes(&self) -> u64 {
        self.nodes.bytes(Queue::Small) + self.nodes.bytes(Queue::Main)
    }

    fn first_queue(&self, hash: Hash) -> Queue {
        if self.ghost.contains(hash.for_table()) {
            Queue::Main
        } else {
            Queue::Small
        }
    }

    /// The node to evict next. Those that it passes over are moved on: from small to main, or to
    /// the young end of main with one hit less, so it comes to an end.
    fn victim(&mut self) -> Option<u32> {
        loop {
            let queue = self.queue_to_shorten();
            let at = self.nodes.oldest(queue)?;
            let node = self.nodes.node_mut(at);
            match queue {
                Queue::Small if node.frequency >= PROMOTE_FROM => node.frequency = 0,
                Queue::Main if node.frequency > 0 => node.frequency -= 1,
                _ => return Some(at),
            }
            self.nodes.renew(at, Queue::Main);
        }
    }

    /// Small while it has more than its share or main has nothing, else main.
    fn queue_to_shorten(&self) -> Queue {
        let small_share = self.capacity_bytes / SMALL_SHARE;
        let main_is_empty = self.nodes.oldest(Queue::Main).is_none();
        if self.nodes.bytes(Queue::Small) > small_share || main_is_empty {
            Queue::Small
        } else {
            Queue::Main
        }
    }
}
