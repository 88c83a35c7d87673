//! A limit of which no client takes all. A client with much of it has to leave as much free as its share says, so a new
//! client finds room, however much the others want (dynamic thresholds, Choudhury and Hahne 1998).

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::permits::{ConcurrencyLimit, Permit};

/// Counts of clients in a row; a power of two.
const ROW_LEN: usize = 1024;

/// A limit, and how much of it each client has.
#[derive(Debug)]
pub struct ClientShares {
    limit: Arc<ConcurrencyLimit>,
    percent: usize,
    /// Two counts a client, each in a row of its own at places that nobody can foretell. Others may count there, too, so
    /// the lower one is what the client has at most; two clients share both by one chance in a million.
    counts: Box<[[AtomicU32; ROW_LEN]; 2]>,
    hasher: RandomState,
    refused: AtomicU64,
}

/// A permit of a client; given back when it is dropped.
#[derive(Debug)]
pub struct ClientPermit {
    of: Arc<ClientShares>,
    places: [usize; 2],
    _permit: Permit,
}

/// Why there is no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareRefusal {
    /// As many are under way as may be.
    Full,
    /// This client has its share.
    Share,
}

impl ClientShares {
    /// As many as `max` at a time, of which a client that is alone may have so many percent; 100 is no bound.
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
        let places = self.places(client);
        let permit = self.permit(places);
        if permit.is_err() {
            self.refused.fetch_add(1, Relaxed);
        }
        let permit = permit?;
        for count in self.of(places) {
            count.fetch_add(1, Relaxed);
        }
        Ok(ClientPermit {
            of: self.clone(),
            places,
            _permit: permit,
        })
    }

    fn permit(&self, places: [usize; 2]) -> Result<Permit, ShareRefusal> {
        let max = self.limit.max();
        let free = max.saturating_sub(self.limit.under_way());
        let held = self.of(places).map(|count| count.load(Relaxed)).min();
        let held = held.map_or(0, |held| held as usize);
        // What others take meanwhile is theirs: a bound that is exact to the last one would need a lock.
        if free > 0 && held * (100 - self.percent) >= free * self.percent {
            return Err(ShareRefusal::Share);
        }
        self.limit.try_acquire().ok_or(ShareRefusal::Full)
    }

    /// How many there may be.
    pub fn max(&self) -> usize {
        self.limit.max()
    }

    /// How many there are.
    pub fn under_way(&self) -> usize {
        self.limit.under_way()
    }

    /// How often there was no permit.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn of(&self, places: [usize; 2]) -> impl Iterator<Item = &AtomicU32> {
        self.counts
            .iter()
            .zip(places)
            .map(|(row, place)| &row[place])
    }

    fn places(&self, client: IpAddr) -> [usize; 2] {
        let hash = self.hasher.hash_one(client_network(client));
        // Bits that have nothing to do with each other; the rest falls away.
        [hash as usize % ROW_LEN, (hash >> 32) as usize % ROW_LEN]
    }
}

/// A client, which is what one subscriber has: an IPv4 address, or 64 bits of an IPv6 address.
pub(crate) fn client_network(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(address) => u64::from(u32::from(address)),
        IpAddr::V6(address) => (u128::from(address) >> 64) as u64,
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        for count in self.of.of(self.places) {
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

    /// All that a client gets.
    fn all(shares: &Arc<ClientShares>, client: IpAddr) -> Vec<ClientPermit> {
        std::iter::from_fn(|| shares.try_acquire(client).ok()).collect()
    }

    #[test]
    fn a_client_leaves_room_for_the_next() {
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
        assert_eq!((shares.under_way(), shares.refused()), (0, 3));
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
