//! A bound that no client takes all of. Who has much of it has to leave as much free as its share says, so whoever comes
//! first finds room, however much the others want (dynamic thresholds, Choudhury and Hahne 1998). It knows neither what
//! is under way nor who judges that an address is a client's.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::permits::{Concurrency, Permit};

/// Counts of clients in a row; a power of two.
const ROW_LEN: usize = 1024;

/// A bound, and how much of it each client has.
#[derive(Debug)]
pub struct Shares {
    bound: Arc<Concurrency>,
    percent: usize,
    /// Two counts a client, each in a row of its own at places that nobody can foretell. Others may count there, too, so
    /// the lower one is what the client has at most; two clients share both by one chance in a million.
    counts: Box<[[AtomicU32; ROW_LEN]; 2]>,
    hasher: RandomState,
    refused: AtomicU64,
}

/// Leave for one of a client's; given back when it is dropped.
#[derive(Debug)]
pub struct ClientPermit {
    of: Arc<Shares>,
    places: [usize; 2],
    _permit: Permit,
}

/// Why there is no leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLeave {
    /// As many are under way as may be.
    Full,
    /// This client has its share.
    Share,
}

impl Shares {
    /// As many as `max` at a time, of which a client that is alone may have so many percent; 100 is no bound.
    pub fn new(max: usize, percent: usize) -> Arc<Shares> {
        Arc::new(Shares {
            bound: Concurrency::new(max),
            percent: percent.min(100),
            counts: Box::new([(); 2].map(|()| [(); ROW_LEN].map(|()| AtomicU32::new(0)))),
            hasher: RandomState::new(),
            refused: AtomicU64::new(0),
        })
    }

    /// Leave for one more of the client at this address.
    ///
    /// # Errors
    /// [`NoLeave`]
    pub fn try_acquire(self: &Arc<Self>, client: IpAddr) -> Result<ClientPermit, NoLeave> {
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

    fn permit(&self, places: [usize; 2]) -> Result<Permit, NoLeave> {
        let max = self.bound.max();
        let free = max.saturating_sub(self.bound.under_way());
        let held = self.of(places).map(|count| count.load(Relaxed)).min();
        let held = held.map_or(0, |held| held as usize);
        // What others take meanwhile is theirs: a bound that is exact to the last one would need a lock.
        if free > 0 && held * (100 - self.percent) >= free * self.percent {
            return Err(NoLeave::Share);
        }
        self.bound.try_acquire().ok_or(NoLeave::Full)
    }

    /// How many there may be.
    pub fn max(&self) -> usize {
        self.bound.max()
    }

    /// How many there are.
    pub fn under_way(&self) -> usize {
        self.bound.under_way()
    }

    /// How often there was no leave.
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
        let hash = self.hasher.hash_one(network_of(client));
        // Bits that have nothing to do with each other; the rest falls away.
        [hash as usize % ROW_LEN, (hash >> 32) as usize % ROW_LEN]
    }
}

/// What one subscriber has: an IPv4 address, or 64 bits of an IPv6 address.
fn network_of(client: IpAddr) -> u64 {
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
    fn all(shares: &Arc<Shares>, client: IpAddr) -> Vec<ClientPermit> {
        std::iter::from_fn(|| shares.try_acquire(client).ok()).collect()
    }

    #[test]
    fn a_client_leaves_room_for_the_next() {
        let shares = Shares::new(256, 75);
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
        let shares = Shares::new(4, 75);
        for _ in 0..3 {
            assert_eq!(all(&shares, client(1)).len(), 3);
        }
        assert_eq!((shares.under_way(), shares.refused()), (0, 3));
    }

    #[test]
    fn a_bound_of_one_can_be_had_and_no_bound_is_none() {
        assert_eq!(all(&Shares::new(1, 1), client(1)).len(), 1);
        assert_eq!(all(&Shares::new(7, 100), client(1)).len(), 7);
        let shares = Shares::new(1, 100);
        let _one = shares.try_acquire(client(1)).expect("room");
        assert_eq!(shares.try_acquire(client(2)).err(), Some(NoLeave::Full));
    }

    #[test]
    fn a_client_is_a_network() {
        let of = |text: &str| network_of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
