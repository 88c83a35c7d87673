//! A semaphore from which no client can take all permits: dynamic thresholds (Choudhury and Hahne 1998). A client's
//! share shrinks with the number of free permits, so a new client always finds a free permit, whatever the demand of
//! the others.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::permits::{ConcurrencyLimit, Permit};

/// The number of counters in a row; a power of two.
const ROW_LEN: usize = 1024;

/// A concurrency limit, and the number of permits in use by each client.
#[derive(Debug)]
pub struct ClientShares {
    limit: Arc<ConcurrencyLimit>,
    percent: usize,
    /// A count-min sketch: each client has one counter in each of two rows, at unpredictable positions. A counter may
    /// be shared with other clients, so the lower of the two is an upper bound for the client; two clients share both
    /// counters with a probability of one in a million.
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
    /// At most `max` permits, of which a single client may use `percent`; 100 disables the limit per client.
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
        // The lower of the client's two counters is closer to its number of permits (count-min sketch).
        let share = self.counters(slots).map(|count| count.load(Relaxed)).min();
        let share = share.map_or(0, |share| share as usize);
        // Concurrent acquisitions may exceed the share by a few permits: an exact limit would need a lock.
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

    /// The number of refused acquisitions.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn counters(&self, slots: [usize; 2]) -> impl Iterator<Item = &AtomicU32> {
        self.counts.iter().zip(slots).map(|(row, slot)| &row[slot])
    }

    fn slots(&self, client: IpAddr) -> [usize; 2] {
        let hash = self.hasher.hash_one(client_network(client));
        // The two slots come from independent parts of the hash.
        [hash as usize % ROW_LEN, (hash >> 32) as usize % ROW_LEN]
    }
}

/// The network of one subscriber: the IPv4 address, or the upper 64 bits of the IPv6 address.
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

    /// All permits that a client can get.
    fn all(shares: &Arc<ClientShares>, client: IpAddr) -> Vec<ClientPermit> {
        std::iter::from_fn(|| shares.try_acquire(client).ok()).collect()
    }

    #[test]
    fn a_single_client_cannot_take_all_permits() {
        // Each further client gets three quarters of the remaining permits.
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
    fn released_permits_can_be_acquired_again() {
        let shares = ClientShares::new(4, 75);
        for _ in 0..3 {
            assert_eq!(all(&shares, client(1)).len(), 3);
        }
        assert_eq!((shares.in_use(), shares.refused()), (0, 3));
    }

    #[test]
    fn single_permit_can_be_acquired_and_100_percent_is_unlimited() {
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
    fn clients_of_one_64_prefix_share_a_limit() {
        let of = |text: &str| client_network(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
