//! Tests of the cache store: the eviction policy by example, the accounting by random operations compared with a plain
//! map, and the resistance to scans compared with an LRU of the same size.

use super::*;
use crate::xorshift;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;

const OVERHEAD: u64 = CacheStore::<Number>::ENTRY_OVERHEAD;

/// A value with a key of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    key: [u8; 8],
    value: u64,
}

impl KeyedValue for Number {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

fn number(key: u64, value: u64) -> Number {
    Number {
        key: key.to_be_bytes(),
        value,
    }
}

fn values(numbers: &[Number]) -> Vec<u64> {
    numbers.iter().map(|number| number.value).collect()
}

/// Spreads a number over 64 bits, like the hash of a key.
fn hash_of(key: u64) -> u64 {
    let mixed = (key ^ (key >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// A store with room for `objects` values of 100 bytes.
fn store_for(objects: u64) -> CacheStore<Number> {
    CacheStore::new(objects * (100 + OVERHEAD))
}

fn find(store: &mut CacheStore<Number>, key: u64) -> Option<u64> {
    let found = store.find(hash_of(key), &key.to_be_bytes());
    found.map(|number| number.value)
}

fn holds(store: &CacheStore<Number>, key: u64) -> bool {
    store.peek(hash_of(key), &key.to_be_bytes()).is_some()
}

/// Inserts `key` with the same number as its value; returns the dropped values.
fn put(store: &mut CacheStore<Number>, key: u64) -> Vec<u64> {
    let mut dropped = Vec::new();
    let stored = store.insert(hash_of(key), number(key, key), 100, &mut dropped);
    assert_eq!(stored, Ok(()));
    values(&dropped)
}

fn queue_of(store: &CacheStore<Number>, key: u64) -> Option<FifoQueue> {
    store
        .index(hash_of(key), &key.to_be_bytes())
        .map(|at| store.nodes.node(at).queue)
}

/// Checks the invariants that hold after any operation.
fn check(store: &CacheStore<Number>, seed: u64) {
    let mut bytes = [0, 0];
    let mut count = 0;
    for at in store.nodes.indices() {
        let node = store.nodes.node(at);
        bytes[node.queue as usize] += node.bytes;
        count += 1;
        assert!(node.frequency <= FREQUENCY_MAX, "seed {seed}");
        assert_eq!(
            store.index(node.hash.table_hash(), node.value.key()),
            Some(at),
            "seed {seed}: table and slab"
        );
    }
    assert_eq!(
        store.table.len(),
        count,
        "seed {seed}: no index is left over"
    );
    for queue in [FifoQueue::Small, FifoQueue::Main] {
        assert_eq!(
            store.nodes.bytes(queue),
            bytes[queue as usize],
            "seed {seed}: {queue:?}"
        );
    }
    let counters = store.counters();
    assert_eq!(
        (counters.bytes, counters.objects),
        (bytes[0] + bytes[1], count as u64)
    );
    assert!(
        counters.bytes <= store.capacity_bytes,
        "seed {seed}: over the capacity"
    );
}

#[test]
fn inserted_values_are_found_and_counted() {
    let mut store = store_for(10);
    assert_eq!(find(&mut store, 1), None);
    assert!(put(&mut store, 1).is_empty());
    assert_eq!(find(&mut store, 1), Some(1));
    assert!(holds(&store, 1) && !holds(&store, 2), "peek counts nothing");
    let expected = StoreCounters {
        inserted: 1,
        objects: 1,
        bytes: 100 + OVERHEAD,
        ..StoreCounters::default()
    };
    assert_eq!(store.counters(), expected);
    assert_eq!(store.iter().collect::<Vec<_>>(), [&number(1, 1)]);
}

#[test]
fn keys_with_equal_hashes_are_distinguished() {
    // Clients could provoke collisions, so look-ups must be correct despite them.
    let mut store: CacheStore<Number> = CacheStore::new(1 << 20);
    let mut dropped = Vec::new();
    for key in 0..50u64 {
        let stored = store.insert(7, number(key, key), 1, &mut dropped);
        assert_eq!(stored, Ok(()));
    }
    assert_eq!(store.find(7, &33u64.to_be_bytes()), Some(&number(33, 33)));
    assert_eq!(store.remove(7, &33u64.to_be_bytes()), Some(number(33, 33)));
    assert_eq!(store.find(7, &33u64.to_be_bytes()), None);
    assert_eq!(store.find(7, &34u64.to_be_bytes()), Some(&number(34, 34)));
    assert_eq!(
        store.find(8, &34u64.to_be_bytes()),
        None,
        "the hash is part of the question"
    );
    check(&store, 0);
}

#[test]
fn scan_evicts_from_small_and_spares_main() {
    // The core property of S3-FIFO.
    let mut store = store_for(100);
    for key in 0..50 {
        put(&mut store, key);
        find(&mut store, key);
        find(&mut store, key);
    }
    let mut dropped_values = Vec::new();
    for key in 1000..2000 {
        dropped_values.extend(put(&mut store, key));
    }
    assert!(
        dropped_values.iter().all(|&key| key >= 1000),
        "only those that were asked for once go"
    );
    assert!(dropped_values.is_sorted(), "first in, first out");
    assert!((0..50).all(|key| queue_of(&store, key) == Some(FifoQueue::Main)));
    check(&store, 0);
}

#[test]
fn one_hit_does_not_promote_to_main() {
    let mut store = store_for(20);
    put(&mut store, 1);
    find(&mut store, 1);
    put(&mut store, 2);
    find(&mut store, 2);
    find(&mut store, 2);
    for key in 100..140 {
        put(&mut store, key);
    }
    assert_eq!(
        (queue_of(&store, 1), queue_of(&store, 2)),
        (None, Some(FifoQueue::Main))
    );
}

#[test]
fn key_in_the_ghost_queue_enters_main() {
    let mut store = store_for(20);
    for key in 0..25 {
        put(&mut store, key);
    }
    assert!(!holds(&store, 0));
    put(&mut store, 0);
    assert_eq!(queue_of(&store, 0), Some(FifoQueue::Main));
    for key in 100..200 {
        put(&mut store, key);
    }
    assert!(!holds(&store, 1));
    put(&mut store, 1);
    assert_eq!(
        queue_of(&store, 1),
        Some(FifoQueue::Small),
        "forgotten in the meantime"
    );
}

#[test]
fn main_evicts_in_order_and_reinserts_nodes_with_hits() {
    let mut store = store_for(20);
    for key in 0..20 {
        put(&mut store, key);
        find(&mut store, key);
        find(&mut store, key);
    }
    assert_eq!(store.evict_one(), Some(number(0, 0)), "the oldest of main");
    assert!((1..18).all(|key| queue_of(&store, key) == Some(FifoQueue::Main)));
    assert!(
        (18..20).all(|key| queue_of(&store, key) == Some(FifoQueue::Small)),
        "its share is kept"
    );
    find(&mut store, 1);
    assert_eq!(store.evict_one(), Some(number(2, 2)));
    let rest: Vec<u64> = core::iter::from_fn(|| store.evict_one().map(|it| it.value)).collect();
    assert_eq!(
        rest,
        [
            3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 1, 18, 19
        ]
    );
    assert_eq!((store.counters().evicted, store.counters().bytes), (20, 0));
}

#[test]
fn replaced_value_keeps_queue_and_hits() {
    // A refreshed response must not lose its rank in the eviction order.
    let mut store = store_for(20);
    put(&mut store, 1);
    find(&mut store, 1);
    find(&mut store, 1);
    store.evict_one();
    for key in 0..20 {
        put(&mut store, key);
    }
    assert_eq!(
        queue_of(&store, 1),
        Some(FifoQueue::Small),
        "evict_one took it, it began anew"
    );
    find(&mut store, 1);
    find(&mut store, 1);
    let mut dropped = Vec::new();
    let stored = store.insert(hash_of(1), number(1, 111), 50, &mut dropped);
    assert_eq!(stored, Ok(()));
    assert_eq!(
        (values(&dropped), find(&mut store, 1)),
        (vec![1], Some(111))
    );
    assert_eq!(store.counters().bytes, 20 * (100 + OVERHEAD) - 50);
    for key in 100..150 {
        put(&mut store, key);
    }
    assert_eq!(
        queue_of(&store, 1),
        Some(FifoQueue::Main),
        "its hits were kept"
    );
    put(&mut store, 1);
    assert_eq!(queue_of(&store, 1), Some(FifoQueue::Main), "and its queue");
    check(&store, 0);
}

#[test]
fn too_large_value_is_returned_and_the_old_value_removed() {
    // The old response is outdated, even if the new one cannot be stored.
    let capacity = 4 * (100 + OVERHEAD);
    let mut store: CacheStore<Number> = CacheStore::new(capacity);
    let mut dropped = Vec::new();
    assert_eq!(
        store.insert(hash_of(1), number(1, 1), 101, &mut dropped),
        Err(number(1, 1)),
        "a byte too much"
    );
    assert_eq!(
        store.insert(hash_of(1), number(1, 2), 100, &mut dropped),
        Ok(())
    );
    assert_eq!(
        store.insert(hash_of(1), number(1, 3), u64::MAX, &mut dropped),
        Err(number(1, 3)),
        "no overflow"
    );
    assert_eq!((values(&dropped), holds(&store, 1)), (vec![2], false));
    let counters = store.counters();
    assert_eq!(
        (counters.refused, counters.inserted, counters.evicted),
        (2, 1, 0)
    );
    assert_eq!((counters.objects, counters.bytes), (0, 0));
}

#[test]
fn store_of_capacity_zero_rejects_all_values() {
    let mut store: CacheStore<Number> = CacheStore::new(0);
    let mut dropped = Vec::new();
    let one = number(1, 1);
    assert_eq!(store.insert(1, one, 0, &mut dropped), Err(one));
    assert_eq!(
        (
            store.find(1, b"").copied(),
            store.remove(1, b""),
            store.evict_one()
        ),
        (None, None, None)
    );
    store.clear(&mut dropped);
    assert!(dropped.is_empty());
}

#[test]
fn retain_and_clear_return_the_removed_values() {
    let mut store = store_for(50);
    for key in 0..50 {
        put(&mut store, key);
    }
    let mut dropped = Vec::new();
    store.retain(
        |number| number.key[7] != 3 && number.value % 10 != 7,
        &mut dropped,
    );
    let mut dropped_values = values(&dropped);
    dropped_values.sort_unstable();
    assert_eq!(dropped_values, [3, 7, 17, 27, 37, 47]);
    assert!(!holds(&store, 3) && holds(&store, 13));
    assert_eq!(
        (store.counters().objects, store.counters().evicted),
        (44, 0)
    );
    check(&store, 0);

    dropped.clear();
    store.clear(&mut dropped);
    assert_eq!(
        (dropped.len(), store.counters().bytes, store.iter().count()),
        (44, 0, 0)
    );
    put(&mut store, 5);
    assert_eq!(find(&mut store, 5), Some(5));
    check(&store, 0);
}

#[test]
fn ghost_queue_is_bounded_by_the_number_of_values() {
    // Its memory is part of `ENTRY_OVERHEAD`.
    let mut store = store_for(50);
    for key in 0..10_000 {
        put(&mut store, key);
    }
    let remembered = (0..10_000)
        .filter(|&key| {
            store
                .ghost
                .contains(KeyHash::from(hash_of(key)).table_hash())
        })
        .count();
    assert!((40..=50).contains(&remembered), "{remembered}");
}

#[test]
fn random_operations_agree_with_a_plain_map() {
    for seed in 1..=10u64 {
        let mut state = hash_of(seed);
        let mut random = move |below: u64| xorshift(&mut state) % below;
        let mut store: CacheStore<Number> = CacheStore::new(40_000);
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        let mut dropped = Vec::new();
        for step in 0..3000u64 {
            let key = random(200);
            // A short hash, to provoke collisions.
            let (hash, bytes) = (hash_of(key) & 0xFFFF, key.to_be_bytes());
            match random(20) {
                0..8 => {
                    // A value may be absent at any time; if it is found, it must be the newest one.
                    let found = store.find(hash, &bytes).map(|number| number.value);
                    assert!(
                        found.is_none() || found == model.get(&key).copied(),
                        "seed {seed}"
                    );
                }
                8..16 => {
                    let size = random(if step % 7 == 0 { 15_000 } else { 900 });
                    match store.insert(hash, number(key, step), size, &mut dropped) {
                        Ok(()) => model.insert(key, step),
                        Err(back) => {
                            assert_eq!(back, number(key, step), "seed {seed}");
                            model.remove(&key)
                        }
                    };
                }
                16 | 17 => {
                    let dropped_values = store.remove(hash, &bytes).map(|number| number.value);
                    assert!(
                        dropped_values.is_none() || dropped_values == model.remove(&key),
                        "seed {seed}"
                    );
                }
                18 => dropped.extend(store.evict_one()),
                _ => {
                    let bit = random(8);
                    store.retain(
                        |number| u64::from(number.key[7].count_ones()) != bit,
                        &mut dropped,
                    );
                }
            }
            check(&store, seed);
        }
        // Each value was inserted once and has left at most once: none is lost, none duplicated.
        let left = store.iter();
        let mut seen: Vec<u64> = dropped.iter().chain(left).map(|it| it.value).collect();
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all, "seed {seed}: a value twice");
        for Number { key, value } in store.iter() {
            let key = u64::from_be_bytes(*key);
            assert_eq!(model.get(&key), Some(value), "seed {seed}");
        }
    }
}

/// A plain LRU for comparison, with the newest key at the back. It is small enough for linear search.
struct Lru {
    keys: VecDeque<u64>,
    len_max: usize,
}

impl Lru {
    fn hit_or_insert(&mut self, key: u64) -> bool {
        let found = self.keys.iter().position(|&other| other == key);
        if let Some(index) = found {
            self.keys.remove(index);
        } else if self.keys.len() == self.len_max {
            self.keys.pop_front();
        }
        self.keys.push_back(key);
        found.is_some()
    }
}

fn hit_or_insert(store: &mut CacheStore<Number>, key: u64) -> bool {
    let hit = find(store, key).is_some();
    if !hit {
        put(store, key);
    }
    hit
}

/// A random rank below `ranks`, with a probability of about 1 / rank (Zipf): the octave is uniform, and so is the rank
/// within the octave.
fn zipf(random: &mut impl FnMut() -> u64, ranks: u64) -> u64 {
    loop {
        let octave = random() % u64::from(ranks.ilog2() + 1);
        let rank = (1 << octave) + random() % (1 << octave) - 1;
        if rank < ranks {
            return rank;
        }
    }
}

#[test]
fn scan_keeps_the_working_set_that_an_lru_loses() {
    const OBJECTS: u16 = 500;
    const WORKING_SET: u64 = 350;
    let mut state = 0x1234_5678_9ABC_DEF1;
    let mut random = || xorshift(&mut state);
    let mut store = store_for(OBJECTS.into());
    let mut lru = Lru {
        keys: VecDeque::new(),
        len_max: OBJECTS.into(),
    };
    for _ in 0..20_000 {
        let key = zipf(&mut random, WORKING_SET);
        hit_or_insert(&mut store, key);
        lru.hit_or_insert(key);
    }
    // The scan: ten new keys for each request to the working set.
    let (mut hits, mut lru_hits, requests) = (0u32, 0u32, 2000u32);
    for turn in 0..u64::from(requests) {
        for step in 0..10 {
            hit_or_insert(&mut store, 1_000_000 + turn * 10 + step);
            lru.hit_or_insert(1_000_000 + turn * 10 + step);
        }
        let key = zipf(&mut random, WORKING_SET);
        hits += u32::from(hit_or_insert(&mut store, key));
        lru_hits += u32::from(lru.hit_or_insert(key));
    }
    let (share, lru_share) = (hits * 100 / requests, lru_hits * 100 / requests);
    assert!(share > 90, "S3-FIFO kept {share} % of the hits");
    assert!(
        lru_share < 70,
        "the LRU kept {lru_share} %: the scan is too weak to prove anything"
    );
}
