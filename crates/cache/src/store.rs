//! The cache store: a map from keys to values, bounded in bytes, with the eviction policy S3-FIFO.
//!
//! The caller supplies the hashes and checks freshness. Removed values are returned to the caller and not dropped here,
//! since they may own arena extents.
//!
//! # Why S3-FIFO
//! (Yang, Zhang, Qiu, Yue, Rashmi: *FIFO queues are all you need for cache eviction*, SOSP 2023.) Most objects of a web
//! site are requested only once in the time that they would spend in the cache. A new key enters a *small* FIFO with a
//! tenth of the bytes. If it is requested again, it moves to the *main* FIFO; otherwise it is soon evicted. A *ghost*
//! queue remembers the hashes of keys that were evicted from the small FIFO; a key that is inserted again while
//! remembered enters main directly. A scan over the whole site thus uses only a tenth of the cache and leaves the rest
//! unchanged.
//!
//! - LRU moves a node in a list at each hit (three nodes written, cold cache lines), and one scan over the site
//!   empties it.
//! - CLOCK is as cheap at a hit, but a scan passes through the whole cache.
//! - W-TinyLFU resists scans as well, at the cost of a frequency sketch written at each hit and aged by halving, and
//!   an LRU.
//! - SIEVE is simpler still, one FIFO and a hand, but during a scan its hand moves slowly over the new keys: its
//!   authors do not claim resistance to scans.
//!
//! A hit here costs one hash table probe, one key comparison, and the increment of a one-byte counter up to 3.

use crate::ghost_queue::GhostQueue;
use crate::nodes::{CacheNode, FifoQueue, KeyHash, NodeTable};
use alloc::vec::Vec;
use core::mem::size_of;
use hashbrown::HashTable;

#[cfg(test)]
mod tests;

/// The highest hit count: two bits are enough to separate hot keys from the rest.
const FREQUENCY_MAX: u8 = 3;

/// The number of hits in the small FIFO that promotes a key to main.
const PROMOTE_FROM: u8 = 2;

/// The small FIFO may use the capacity divided by this.
const SMALL_SHARE: u64 = 10;

/// The largest accepted object has the capacity divided by this: otherwise a few objects could evict all others.
const LARGEST_SHARE: u64 = 4;

/// Counts of operations and the current contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounters {
    /// Values stored, replacements included.
    pub inserted: u64,
    /// Values evicted for space; removed and replaced ones are not counted.
    pub evicted: u64,
    /// Values refused because they were too large.
    pub refused: u64,
    /// Values stored now.
    pub objects: u64,
    /// The size in bytes of the values stored now, each including `CacheStore::ENTRY_OVERHEAD`.
    pub bytes: u64,
}

/// A value that contains its key.
pub trait KeyedValue {
    /// The key.
    fn key(&self) -> &[u8];
}

/// A map from keys to values that never exceeds its capacity in bytes.
///
/// The caller supplies the hashes, of which the lower 32 bits are used; equal keys must have equal hashes. If clients
/// choose the keys, the hash function should be keyed: otherwise they could make all keys collide.
#[derive(Debug)]
pub struct CacheStore<V> {
    capacity_bytes: u64,
    /// The indices of the nodes by hash: each linked node is in the table once.
    table: HashTable<u32>,
    nodes: NodeTable<V>,
    ghost: GhostQueue,
    inserted: u64,
    evicted: u64,
    refused: u64,
}

impl<V: KeyedValue> CacheStore<V> {
    /// The size of an entry in addition to its value, in bytes: its node, its slot in the table (half full at worst),
    /// and one hash in the ghost queue.
    pub const ENTRY_OVERHEAD: u64 =
        (NodeTable::<V>::BYTES_EACH + 2 * (size_of::<u32>() + 1) + GhostQueue::BYTES_EACH) as u64;

    /// An empty store; it allocates memory as it fills. With a capacity of 0 it refuses all values.
    pub fn new(capacity_bytes: u64) -> Self {
        CacheStore {
            capacity_bytes,
            table: HashTable::new(),
            nodes: NodeTable::new(),
            ghost: GhostQueue::default(),
            inserted: 0,
            evicted: 0,
            refused: 0,
        }
    }

    /// The value of a key; counts as a hit.
    pub fn find(&mut self, hash: u64, key: &[u8]) -> Option<&V> {
        let node_index = self.index(hash, key)?;
        let node = self.nodes.node_mut(node_index);
        // The counter of a hot node is at its maximum and no longer written, so that its cache line stays shared.
        if node.frequency < FREQUENCY_MAX {
            node.frequency += 1;
        }
        Some(&node.value)
    }

    /// The value of a key, without counting a hit.
    pub fn peek(&self, hash: u64, key: &[u8]) -> Option<&V> {
        self.index(hash, key)
            .map(|node_index| &self.nodes.node(node_index).value)
    }

    /// Stores a value of `size` bytes, including its key but not [`Self::ENTRY_OVERHEAD`].
    ///
    /// A value with an equal key is replaced; the new value keeps its queue and hits. The replaced value and then the
    /// evicted ones are appended to `dropped`.
    ///
    /// # Errors
    /// The value is returned if it exceeds a quarter of the capacity. A value with an equal key is removed
    /// nevertheless: it must not outlive the attempt to replace it.
    pub fn insert(
        &mut self,
        hash: u64,
        value: V,
        size: u64,
        dropped: &mut Vec<V>,
    ) -> Result<(), V> {
        let replaced = self
            .index(hash, value.key())
            .map(|node_index| self.take(node_index));
        let rank = replaced.as_ref().map(|node| (node.queue, node.frequency));
        // Done before the size check, so that the old value is removed even if the new one is refused.
        dropped.extend(replaced.map(|node| node.value));

        let bytes = size.saturating_add(Self::ENTRY_OVERHEAD);
        if bytes > self.capacity_bytes / LARGEST_SHARE || !self.nodes.has_room() {
            self.refused += 1;
            return Err(value);
        }
        let hash = KeyHash::from(hash);
        let (queue, frequency) = rank.unwrap_or_else(|| (self.first_queue(hash), 0));
        while self.bytes() + bytes > self.capacity_bytes {
            let Some(victim) = self.evict_one() else {
                break;
            };
            dropped.push(victim);
        }
        let mut node = CacheNode::new(hash, value, bytes, queue);
        // A replaced key keeps its rank: only its value is new.
        node.frequency = frequency;
        let node_index = self.nodes.insert(node);
        self.table
            .insert_unique(hash.table_hash(), node_index, |&other| {
                self.nodes.node(other).hash.table_hash()
            });
        self.inserted += 1;
        Ok(())
    }

    /// Removes a value.
    pub fn remove(&mut self, hash: u64, key: &[u8]) -> Option<V> {
        self.index(hash, key)
            .map(|node_index| self.take(node_index).value)
    }

    /// Evicts the next value, as if its space were needed. `None` if the store is empty.
    ///
    /// A single call may pass over many values that had hits. The amortized cost is constant, since each step uses up
    /// one earlier hit.
    pub fn evict_one(&mut self) -> Option<V> {
        let victim = self.victim()?;
        let node = self.take(victim);
        // S3-FIFO remembers only the keys that the small FIFO evicted.
        if node.queue == FifoQueue::Small {
            // The ghost queue remembers as many keys as the store has: enough to recognize keys that are inserted again
            // while main turns over once. ENTRY_OVERHEAD includes its memory.
            self.ghost.push(node.hash.table_hash(), self.table.len());
        }
        self.evicted += 1;
        Some(node.value)
    }

    /// Removes all values for which `keep` is false, and appends them to `dropped`.
    pub fn retain(&mut self, mut keep: impl FnMut(&V) -> bool, dropped: &mut Vec<V>) {
        let rejected: Vec<u32> = self
            .nodes
            .indices()
            .filter(|&node_index| !keep(&self.nodes.node(node_index).value))
            .collect();
        dropped.extend(
            rejected
                .into_iter()
                .map(|node_index| self.take(node_index).value),
        );
    }

    /// Removes all values, and empties the ghost queue.
    pub fn clear(&mut self, dropped: &mut Vec<V>) {
        self.table.clear();
        self.ghost.clear();
        dropped.extend(self.nodes.take_all().map(|node| node.value));
    }

    /// The counts since `new`, and the current contents.
    pub fn counters(&self) -> StoreCounters {
        StoreCounters {
            inserted: self.inserted,
            evicted: self.evicted,
            refused: self.refused,
            objects: self.table.len() as u64,
            bytes: self.bytes(),
        }
    }

    /// All values in arbitrary order, without counting hits.
    pub fn iter(&self) -> impl Iterator<Item = &V> {
        self.nodes
            .indices()
            .map(|node_index| &self.nodes.node(node_index).value)
    }

    fn index(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let hash = KeyHash::from(hash);
        let is_match = |&node_index: &u32| {
            let node = self.nodes.node(node_index);
            node.hash == hash && *node.value.key() == *key
        };
        self.table.find(hash.table_hash(), is_match).copied()
    }

    /// Unlinks a node from table and FIFO.
    fn take(&mut self, node_index: u32) -> CacheNode<V> {
        let node = self.nodes.remove(node_index);
        if let Ok(table_entry) = self
            .table
            .find_entry(node.hash.table_hash(), |&other| other == node_index)
        {
            table_entry.remove();
        }
        node
    }

    fn bytes(&self) -> u64 {
        self.nodes.bytes(FifoQueue::Small) + self.nodes.bytes(FifoQueue::Main)
    }

    fn first_queue(&self, hash: KeyHash) -> FifoQueue {
        if self.ghost.contains(hash.table_hash()) {
            FifoQueue::Main
        } else {
            FifoQueue::Small
        }
    }

    /// The node to evict next. Nodes with hits are passed over: they move from small to main, or to the newest end of
    /// main with one hit less, so that the loop ends.
    fn victim(&mut self) -> Option<u32> {
        loop {
            let queue = self.queue_to_shorten();
            let node_index = self.nodes.oldest(queue)?;
            let node = self.nodes.node_mut(node_index);
            match queue {
                FifoQueue::Small if node.frequency >= PROMOTE_FROM => node.frequency = 0,
                FifoQueue::Main if node.frequency > 0 => node.frequency -= 1,
                _ => return Some(node_index),
            }
            self.nodes.renew(node_index, FifoQueue::Main);
        }
    }

    /// The FIFO from which to evict: small while it exceeds its share or main is empty, otherwise main.
    fn queue_to_shorten(&self) -> FifoQueue {
        let small_share = self.capacity_bytes / SMALL_SHARE;
        let main_is_empty = self.nodes.oldest(FifoQueue::Main).is_none();
        if self.nodes.bytes(FifoQueue::Small) > small_share || main_is_empty {
            FifoQueue::Small
        } else {
            FifoQueue::Main
        }
    }
}
