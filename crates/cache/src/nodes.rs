//! The nodes of [`crate::CacheStore`]: a slab, and two FIFO queues as doubly linked lists in that slab. Links are slab
//! indices, so that a node can be removed from the middle of its queue in constant time, and no node moves in memory.

use alloc::vec::Vec;
use core::mem::size_of;

/// No node: the end of a FIFO.
const NIL: u32 = u32::MAX;

/// The FIFO of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FifoQueue {
    /// The FIFO of new keys.
    Small,
    /// The FIFO of keys that were requested again.
    Main,
}

/// A stored value, which includes its key. There are millions of nodes, so the type is kept small.
#[derive(Debug)]
pub(crate) struct CacheNode<V> {
    pub(crate) hash: KeyHash,
    pub(crate) value: V,
    /// The size in bytes: value, key and overhead.
    pub(crate) bytes: u64,
    /// Hits since the node entered its FIFO, `<= 3`.
    pub(crate) frequency: u8,
    pub(crate) queue: FifoQueue,
    newer: u32,
    older: u32,
}

impl<V> CacheNode<V> {
    pub(crate) fn new(hash: KeyHash, value: V, bytes: u64, queue: FifoQueue) -> CacheNode<V> {
        CacheNode {
            hash,
            value,
            bytes,
            frequency: 0,
            queue,
            newer: NIL,
            older: NIL,
        }
    }
}

/// The stored part of a key's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyHash(u32);

impl From<u64> for KeyHash {
    fn from(hash: u64) -> KeyHash {
        KeyHash(hash as u32)
    }
}

impl KeyHash {
    /// Expands the hash to 64 bits: the table uses the lower bits for positions and the upper ones for tags.
    pub(crate) fn table_hash(self) -> u64 {
        // hashbrown uses high and low bits of the hash, so both halves must depend on the key.
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

/// The two ends of a FIFO, and the bytes in it.
#[derive(Clone, Copy, Debug)]
struct FifoEnds {
    newest: u32,
    oldest: u32,
    bytes: u64,
}

const EMPTY: FifoEnds = FifoEnds {
    newest: NIL,
    oldest: NIL,
    bytes: 0,
};

/// All nodes of a store.
#[derive(Debug)]
pub(crate) struct NodeTable<V> {
    slots: Vec<Option<CacheNode<V>>>,
    /// The indices of the slots that are `None`.
    vacant: Vec<u32>,
    small: FifoEnds,
    main: FifoEnds,
}

impl<V> NodeTable<V> {
    /// The size of one node in bytes, without memory that the value points to.
    pub(crate) const BYTES_EACH: usize = size_of::<Option<CacheNode<V>>>() + size_of::<u32>();

    pub(crate) fn new() -> NodeTable<V> {
        NodeTable {
            slots: Vec::new(),
            vacant: Vec::new(),
            small: EMPTY,
            main: EMPTY,
        }
    }

    /// Whether there is a free index for one more node.
    pub(crate) fn has_room(&self) -> bool {
        !self.vacant.is_empty() || self.slots.len() < NIL as usize
    }

    pub(crate) fn node(&self, index: u32) -> &CacheNode<V> {
        self.slots[index as usize]
            .as_ref()
            .expect("links and the table name slots in use")
    }

    pub(crate) fn node_mut(&mut self, index: u32) -> &mut CacheNode<V> {
        self.slots[index as usize]
            .as_mut()
            .expect("links and the table name slots in use")
    }

    pub(crate) fn oldest(&self, queue: FifoQueue) -> Option<u32> {
        Some(self.fifo(queue).oldest).filter(|&index| index != NIL)
    }

    /// The bytes of the nodes in a FIFO.
    pub(crate) fn bytes(&self, queue: FifoQueue) -> u64 {
        self.fifo(queue).bytes
    }

    /// Inserts a node as the newest of `node.queue`. [`Self::has_room`] must hold.
    pub(crate) fn insert(&mut self, node: CacheNode<V>) -> u32 {
        let index = match self.vacant.pop() {
            Some(index) => {
                self.slots[index as usize] = Some(node);
                index
            }
            // Slots are reused first, so the slab never exceeds the largest number of nodes.
            None => {
                self.slots.push(Some(node));
                u32::try_from(self.slots.len() - 1).expect("the caller asked has_room")
            }
        };
        self.link(index);
        index
    }

    /// Removes a node.
    pub(crate) fn remove(&mut self, index: u32) -> CacheNode<V> {
        // Unlinked first, since `unlink` reads the node from its slot.
        self.unlink(index);
        self.vacant.push(index);
        self.slots[index as usize]
            .take()
            .expect("links and the table name slots in use")
    }

    /// Moves a node to the newest end of a FIFO: the one that it is in, or the other one.
    pub(crate) fn renew(&mut self, index: u32, queue: FifoQueue) {
        self.unlink(index);
        self.node_mut(index).queue = queue;
        self.link(index);
    }

    /// The indices in use, in arbitrary order.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + use<'_, V> {
        (0u32..)
            .zip(&self.slots)
            .filter_map(|(index, slot)| slot.as_ref().map(|_| index))
    }

    /// Removes all nodes and frees their slots.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = CacheNode<V>> + use<V> {
        core::mem::replace(self, NodeTable::new())
            .slots
            .into_iter()
            .flatten()
    }

    fn fifo(&self, queue: FifoQueue) -> &FifoEnds {
        match queue {
            FifoQueue::Small => &self.small,
            FifoQueue::Main => &self.main,
        }
    }

    fn fifo_mut(&mut self, queue: FifoQueue) -> &mut FifoEnds {
        match queue {
            FifoQueue::Small => &mut self.small,
            FifoQueue::Main => &mut self.main,
        }
    }

    fn link(&mut self, index: u32) {
        let (queue, bytes) = (self.node(index).queue, self.node(index).bytes);
        let fifo = self.fifo_mut(queue);
        let previous_newest = fifo.newest;
        fifo.newest = index;
        fifo.bytes += bytes;
        if previous_newest == NIL {
            fifo.oldest = index;
        } else {
            self.node_mut(previous_newest).newer = index;
        }
        let node = self.node_mut(index);
        // The node becomes the newest one.
        (node.newer, node.older) = (NIL, previous_newest);
    }

    fn unlink(&mut self, index: u32) {
        let node = self.node(index);
        let (queue, bytes, newer, older) = (node.queue, node.bytes, node.newer, node.older);
        let fifo = self.fifo_mut(queue);
        fifo.bytes -= bytes;
        if newer == NIL {
            fifo.newest = older;
        }
        if older == NIL {
            fifo.oldest = newer;
        }
        if newer != NIL {
            self.node_mut(newer).older = older;
        }
        if older != NIL {
            self.node_mut(older).newer = newer;
        }
    }
}
