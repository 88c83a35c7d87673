//! A token bucket for each of many clients, in a table of bounded size: places for the hash of a client, in sets of a few.
//! Who was heard of least is forgotten first, and begins anew with a full bucket. Knows no clients, only hashes; who computes
//! them with a secret decides that nobody can choose whose place he takes.

use alloc::vec;
use alloc::vec::Vec;

use crate::Rate;
use crate::rate::{MS_NS, Pace};

/// Places of a set.
const WAYS: usize = 8;

/// The buckets of many clients.
#[derive(Debug)]
pub struct Buckets {
    pace: Pace,
    /// Sets of [`WAYS`] places; a power of two of them.
    places: Vec<Place>,
    /// Buckets that were forgotten before they were full again.
    forgotten: u64,
}

/// The bucket of a client; one that is full says nothing, and so may be another's.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    hash: u64,
    /// When it is full again, in ns.
    full_ns: u64,
}

impl Buckets {
    /// Buckets of this rate for at least so many clients.
    #[must_use]
    pub fn new(rate: Rate, clients_max: usize) -> Buckets {
        let sets = clients_max.div_ceil(WAYS).next_power_of_two();
        Buckets {
            pace: Pace::of(rate),
            places: vec![Place::default(); sets * WAYS],
            forgotten: 0,
        }
    }

    /// Takes a token of the client with this hash.
    ///
    /// # Errors
    /// There is none; the ms after which there is one.
    pub fn take(&mut self, hash: u64, now_ms: u64) -> Result<(), u64> {
        let now_ns = now_ms.saturating_mul(MS_NS);
        let pace = self.pace;
        let Some(place) = self.place(hash, now_ns) else {
            return Ok(());
        };
        place.full_ns = pace.take(place.full_ns, now_ns)?;
        Ok(())
    }

    /// Gives a token back.
    pub fn give_back(&mut self, hash: u64, now_ms: u64) {
        let token_ns = self.pace.token_ns;
        if let Some(place) = self.place(hash, now_ms.saturating_mul(MS_NS)) {
            place.full_ns = place.full_ns.saturating_sub(token_ns);
        }
    }

    /// How many buckets were forgotten before they were full again: the table was too small for its clients.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The place of a client, which may have been another's. There always is one.
    fn place(&mut self, hash: u64, now_ns: u64) -> Option<&mut Place> {
        let sets = self.places.len() / WAYS;
        let first = (hash as usize & (sets - 1)) * WAYS;
        let set = self.places.get_mut(first..first + WAYS)?;
        let own = set.iter().position(|place| place.hash == hash);
        let oldest = || {
            let places = set.iter().enumerate();
            places
                .min_by_key(|(_, place)| place.full_ns)
                .map(|(at, _)| at)
        };
        let at = own.or_else(oldest)?;
        let place = set.get_mut(at)?;
        if own.is_none() {
            self.forgotten += u64::from(place.full_ns > now_ns);
            *place = Place { hash, full_ns: 0 };
        }
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(burst: u64, clients_max: usize) -> Buckets {
        let rate = Rate {
            requests: 10,
            period_ms: 1000,
            burst,
        };
        Buckets::new(rate, clients_max)
    }

    #[test]
    fn each_client_has_its_own() {
        let mut buckets = buckets(2, 64);
        for client in [7, 1 << 40] {
            assert_eq!(buckets.take(client, 50), Ok(()));
            assert_eq!(buckets.take(client, 50), Ok(()));
            assert_eq!(buckets.take(client, 50), Err(100));
        }
        assert_eq!(buckets.take(7, 150), Ok(()));
        buckets.give_back(7, 150);
        assert_eq!(buckets.take(7, 150), Ok(()));
        assert_eq!(buckets.take(7, 150), Err(100));
        assert_eq!(buckets.forgotten(), 0);
    }

    #[test]
    fn the_table_is_bounded_and_forgets_who_is_nearest_to_a_full_bucket() {
        let mut buckets = buckets(2, 8);
        assert_eq!(buckets.places.len(), 8);
        for client in 1..=8 {
            assert_eq!(buckets.take(client, client), Ok(()));
        }
        assert_eq!(buckets.take(2, 8), Ok(()));
        assert_eq!(buckets.take(9, 8), Ok(()));
        assert_eq!(buckets.forgotten(), 1, "the first");
        assert_eq!(buckets.take(2, 9), Err(93), "it is still known");
        // Long after, all of them are full, and nobody is wronged.
        for client in 20..28 {
            assert_eq!(buckets.take(client, 10_000), Ok(()));
        }
        assert_eq!(buckets.forgotten(), 1);
    }
}
