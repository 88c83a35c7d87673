//! How often each client may ask, by a rule. A client is an IPv4 address, or the first 64 bits of an IPv6 address, since that is
//! what one customer is given.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lowroad_config as config;
use lowroad_limits::{Buckets, Rate};

/// Clients that a limit knows at a time; 16 bytes each.
const CLIENTS_MAX: usize = 65_536;

/// A bucket for each client.
pub struct Limit {
    buckets: Mutex<Buckets>,
    /// Keyed, so that nobody can choose addresses that share a place.
    hasher: RandomState,
}

impl Limit {
    /// One whose buckets are full.
    pub fn new(rate: &config::Rate) -> Limit {
        let rate = Rate {
            requests: rate.requests,
            period_ms: rate.period_ms,
            burst: rate.burst,
        };
        Limit {
            buckets: Mutex::new(Buckets::new(rate, CLIENTS_MAX)),
            hasher: RandomState::new(),
        }
    }

    /// Takes a request of a client.
    ///
    /// # Errors
    /// It is beyond the limit; the seconds after which one may come.
    pub fn take(&self, client: IpAddr, now_ms: u64) -> Result<(), u64> {
        let hash = self.hash(client);
        let taken = self.lock().take(hash, now_ms);
        taken.map_err(|wait_ms| wait_ms.div_ceil(1000).max(1))
    }

    /// Gives one back.
    pub fn give_back(&self, client: IpAddr, now_ms: u64) {
        let hash = self.hash(client);
        self.lock().give_back(hash, now_ms);
    }

    /// Clients that were forgotten too early.
    pub fn forgotten(&self) -> u64 {
        self.lock().forgotten()
    }

    fn hash(&self, client: IpAddr) -> u64 {
        match client.to_canonical() {
            IpAddr::V4(address) => self.hasher.hash_one(address.to_bits()),
            IpAddr::V6(address) => self.hasher.hash_one(address.to_bits() >> 64),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_of_ipv6_is_a_network() {
        let limit = Limit::new(&config::Rate {
            requests: 1,
            period_ms: 60_000,
            burst: 1,
        });
        let take = |address: &str| limit.take(address.parse().expect("an address"), 5);
        assert_eq!(take("2001:db8::1"), Ok(()));
        assert_eq!(take("2001:db8::ffff:1"), Err(60));
        assert_eq!(take("2001:db8:0:1::1"), Ok(()));
        assert_eq!(take("192.0.2.1"), Ok(()));
        assert_eq!(take("::ffff:192.0.2.1"), Err(60));
        assert_eq!(take("192.0.2.2"), Ok(()));
    }
}
