//! A token bucket for each of many clients, in a set-associative table of bounded size, indexed by a hash of the
//! client's address. The fullest bucket of a set is evicted first; its client then starts again with a full bucket.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::client_shares::client_network;
use crate::rate::{BucketState, CellRate, RequestRate};

/// The number of buckets; 16 bytes each.
const CLIENTS_MAX: usize = 65_536;
/// The number of slots in a set.
const WAYS: usize = 8;

/// The token buckets of all clients.
#[derive(Debug)]
pub struct ClientRates {
    buckets: Mutex<BucketTable>,
    /// The hasher is keyed, so that a client cannot choose addresses that share a set.
    hasher: RandomState,
}

#[derive(Debug)]
struct BucketTable {
    rate: CellRate,
    /// Sets of [`WAYS`] slots; the number of sets is a power of two.
    buckets: Vec<ClientBucket>,
    /// The number of buckets evicted before they were full again.
    evicted: u64,
}

/// The bucket of a client. A full bucket is equivalent to none, so its slot can be reused.
#[derive(Clone, Copy, Debug, Default)]
struct ClientBucket {
    hash: u64,
    state: BucketState,
}

impl ClientRates {
    /// An empty table: each client starts with a full bucket of this rate.
    pub fn new(rate: RequestRate) -> ClientRates {
        ClientRates {
            buckets: Mutex::new(BucketTable::new(rate, CLIENTS_MAX)),
            hasher: RandomState::new(),
        }
    }

    /// Takes a token of a client.
    ///
    /// # Errors
    /// The client has no token; the value is the time until its next token in ms.
    pub fn take(&self, client: IpAddr, now_ms: u64) -> Result<(), u64> {
        let hash = self.hash(client);
        self.lock().take(hash, now_ms)
    }

    /// Returns a token.
    pub fn refund(&self, client: IpAddr, now_ms: u64) {
        let hash = self.hash(client);
        self.lock().refund(hash, now_ms);
    }

    /// The number of buckets evicted before they were full again. If it grows, the table is too small for the number of
    /// clients.
    pub fn evicted(&self) -> u64 {
        self.lock().evicted
    }

    fn hash(&self, client: IpAddr) -> u64 {
        self.hasher.hash_one(client_network(client))
    }

    fn lock(&self) -> MutexGuard<'_, BucketTable> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BucketTable {
    /// A table for at least `clients_max` clients.
    fn new(rate: RequestRate, clients_max: usize) -> BucketTable {
        // The number of sets is a power of two, so that a mask selects the set.
        let sets = clients_max.div_ceil(WAYS).next_power_of_two();
        BucketTable {
            rate: CellRate::new(rate),
            buckets: vec![ClientBucket::default(); sets * WAYS],
            evicted: 0,
        }
    }

    fn take(&mut self, hash: u64, now_ms: u64) -> Result<(), u64> {
        let rate = self.rate;
        let bucket = self.bucket(hash, now_ms);
        bucket.map_or(Ok(()), |bucket| bucket.take(rate, now_ms))
    }

    fn refund(&mut self, hash: u64, now_ms: u64) {
        let rate = self.rate;
        if let Some(bucket) = self.bucket(hash, now_ms) {
            bucket.refund(1, rate);
        }
    }

    /// The bucket of a client; evicts a bucket if necessary. Always `Some`.
    fn bucket(&mut self, hash: u64, now_ms: u64) -> Option<&mut BucketState> {
        let sets = self.buckets.len() / WAYS;
        let first = (hash as usize & (sets - 1)) * WAYS;
        let set = self.buckets.get_mut(first..first + WAYS)?;
        let existing = set.iter().position(|bucket_slot| bucket_slot.hash == hash);
        let fullest = || {
            // Evicting the fullest bucket gives its client the fewest extra tokens.
            let candidates = set.iter().enumerate();
            let fullest = candidates.min_by_key(|(_, bucket_slot)| bucket_slot.state.full_ns);
            fullest.map(|(index, _)| index)
        };
        let bucket_slot = set.get_mut(existing.or_else(fullest)?)?;
        if existing.is_none() {
            self.evicted += u64::from(!bucket_slot.state.is_full(now_ms));
            *bucket_slot = ClientBucket {
                hash,
                state: BucketState::default(),
            };
        }
        Some(&mut bucket_slot.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(burst: u64, clients_max: usize) -> BucketTable {
        let rate = RequestRate {
            requests: 10,
            period_ms: 1000,
            burst,
        };
        BucketTable::new(rate, clients_max)
    }

    #[test]
    fn clients_have_separate_buckets() {
        let mut buckets = table(2, 64);
        for client in [7, 1 << 40] {
            assert_eq!(buckets.take(client, 50), Ok(()));
            assert_eq!(buckets.take(client, 50), Ok(()));
            assert_eq!(buckets.take(client, 50), Err(100));
        }
        assert_eq!(buckets.take(7, 150), Ok(()));
        buckets.refund(7, 150);
        assert_eq!(buckets.take(7, 150), Ok(()));
        assert_eq!(buckets.take(7, 150), Err(100));
        assert_eq!(buckets.evicted, 0);
    }

    #[test]
    fn full_table_evicts_the_fullest_bucket() {
        // Eight clients fill the only set.
        let mut buckets = table(2, 8);
        assert_eq!(buckets.buckets.len(), 8);
        for client in 1..=8 {
            assert_eq!(buckets.take(client, client), Ok(()));
        }
        assert_eq!(buckets.take(2, 8), Ok(()));
        assert_eq!(buckets.take(9, 8), Ok(()));
        assert_eq!(buckets.evicted, 1, "the first");
        assert_eq!(buckets.take(2, 9), Err(93), "it is still known");
        // By then all buckets are full.
        for client in 20..28 {
            assert_eq!(buckets.take(client, 10_000), Ok(()));
        }
        assert_eq!(buckets.evicted, 1);
    }

    #[test]
    fn ipv6_clients_are_limited_per_64_prefix() {
        // A subscriber has a whole /64 and could use another address for each request.
        let rates = ClientRates::new(RequestRate {
            requests: 1,
            period_ms: 60_000,
            burst: 1,
        });
        let take = |address: &str| rates.take(address.parse().expect("an address"), 5);
        assert_eq!(take("2001:db8::1"), Ok(()));
        assert_eq!(take("2001:db8::ffff:1"), Err(60_000));
        assert_eq!(take("2001:db8:0:1::1"), Ok(()));
        assert_eq!(take("192.0.2.1"), Ok(()));
        assert_eq!(take("::ffff:192.0.2.1"), Err(60_000));
        assert_eq!(take("192.0.2.2"), Ok(()));
    }
}
