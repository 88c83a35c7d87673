//! A semaphore of which no client can take all: dynamic thresholds (Choudhury and Hahne 1998). The share that a client
//! may use shrinks with the free permits, so a new client always finds some, at any demand of the others.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::permits::{ConcurrencyLimit, Permit};

/// The number of counts in a row; a power of two.
const ROW_LEN: usize = 1024;

/// A limit, and the permits in use by each client.
#[derive(Debug)]
pub struct ClientShares {
    limit: Arc<ConcurrencyLimit>,
    percent: usize,
    /// A count-min sketch: each client has one count in each row, at unpredictable positions. Other clients may share
    /// a count, so the lower one is an upper bound for the client; two clients share both with a probability of one in
    /// a million.
    counts: Box<[[AtomicU32; ROW_LEN]; 2]>,
    hasher: RandomState,
    refused: AtomicU64,
}

/// A permit of a client; released when dropped.
#[derive(Debug)]
pub struct ClientPermit {
    shares: Arc<ClientShares>,
    slots: [usize; 2],
    _permit: Permit,
}

/// Why a permit is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareRefusal {
    /// All permits are in use.
    Full,
    /// The client has reached its share.
    Share,
}

impl ClientShares {
    /// At most `max` permits, of which a single client may use `percent`; 100 means no bound.
    pub fn new(max: usize, percent: usize) -> Arc<ClientShares> {
        Arc::new(ClientShares {
            limit: ConcurrencyLimit::new(max),
            percent: percent.min(100),
            counts: Box::new([(); 2].map(|()| [(); ROW_LEN].map(|()| AtomicU32::new(0)))),
            hasher: RandomState::new(),
            refused: AtomicU64::new(0),
        })
    }

    /// A permit for the client at this address.
    ///
    /// # Errors
    /// [`ShareRefusal`]
    pub fn try_acquire(self: &Arc<Self>, client: IpAddr) -> Result<ClientPermit, ShareRefusal> {
        let slots = self.slots(client);
        let permit = self.permit(slots);
        if permit.is_err() {
            self.refused.fetch_add(1, Relaxed);
        }
        let permit = permit?;
        for count in self.counters(slots) {
            count.fetch_add(1, Relaxed);
        }
        Ok(ClientPermit {
            shares: self.clone(),
            slots,
            _permit: permit,
        })
    }

    fn permit(&self, slots: [usize; 2]) -> Result<Permit, ShareRefusal> {
        let max = self.limit.max();
        let free = max.saturating_sub(self.limit.in_use());
        // Of two counters that other clients may share, the smaller one is closer to the client's number (count-min
        // sketch).
        let share = self.counters(slots).map(|count| count.load(Relaxed)).min();
        let share = share.map_or(0, |share| share as usize);
        // Concurrent acquisitions may exceed the bound by a few: an exact one would need a lock.
        if free > 0 && share * (100 - self.percent) >= free * self.percent {
            return Err(ShareRefusal::Share);
        }
        self.limit.try_acquire().ok_or(ShareRefusal::Full)
    }

    /// The limit.
    pub fn max(&self) -> usize {
        self.limit.max()
    }

    /// The number of permits in use.
    pub fn in_use(&self) -> usize {
        self.limit.in_use()
    }

    /// The number of refusals.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn counters(&self, slots: [usize; 2]) -> impl Iterator<Item = &AtomicU32> {
        self.counts.iter().zip(slots).map(|(row, slot)| &row[slot])
    }

    fn slots(&self, client: IpAddr) -> [usize; 2] {
        let hash = self.hasher.hash_one(client_network(client));
        // Two independent parts of the hash.
        [hash as usize % ROW_LEN, (hash >> 32) as usize % ROW_LEN]
    }
}

/// The network of one subscriber: an IPv4 address, or the upper 64 bits of an IPv6 address.
pub(crate) fn client_network(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(address) => u64::from(u32::from(address)),
        // A client usually controls a whole /64.
        IpAddr::V6(address) => (u128::from(address) >> 64) as u64,
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        for count in self.shares.counters(self.slots) {
            count.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    /// All permits that a client gets.
    fn all(shares: &Arc<ClientShares>, client: IpAddr) -> Vec<ClientPermit> {
        std::iter::from_fn(|| shares.try_acquire(client).ok()).collect()
    }

    #[test]
    fn a_client_leaves_room_for_the_next() {
        // Each further client gets three quarters of the rest.
        let shares = ClientShares::new(256, 75);
        let mut had = Vec::new();
        let lens: Vec<usize> = (0..6)
            .map(|number| {
                had.push(all(&shares, client(number)));
                had.last().map_or(0, Vec::len)
            })
            .collect();
        assert_eq!(lens, [192, 48, 12, 3, 1, 0]);
        had.remove(0);
        assert_eq!(all(&shares, client(9)).len(), 144, "three quarters of 192");
    }

    #[test]
    fn what_is_given_back_is_there_again() {
        let shares = ClientShares::new(4, 75);
        for _ in 0..3 {
            assert_eq!(all(&shares, client(1)).len(), 3);
        }
        assert_eq!((shares.in_use(), shares.refused()), (0, 3));
    }

    #[test]
    fn a_bound_of_one_can_be_had_and_no_bound_is_none() {
        assert_eq!(all(&ClientShares::new(1, 1), client(1)).len(), 1);
        assert_eq!(all(&ClientShares::new(7, 100), client(1)).len(), 7);
        let shares = ClientShares::new(1, 100);
        let _one = shares.try_acquire(client(1)).expect("room");
        assert_eq!(
            shares.try_acquire(client(2)).err(),
            Some(ShareRefusal::Full)
        );
    }

    #[test]
    fn a_client_is_a_network() {
        let of = |text: &str| client_network(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
