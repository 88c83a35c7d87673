//! Limits on open connections, in total and per client address. Shared by all workers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of independent maps, so that workers rarely contend for a lock.
const SHARDS: usize = 16;

/// Counts open connections, and the workers that accept none for a while.
#[derive(Default)]
pub struct ConnectionLimit {
    open: AtomicUsize,
    suspended_workers: AtomicUsize,
    by_address: [Mutex<HashMap<IpAddr, u32>>; SHARDS],
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionOverload {
    /// The total limit is reached.
    Connections,
    /// The limit of this address is reached.
    Address,
}

impl ConnectionLimit {
    /// Counts a new connection, unless a limit would be exceeded.
    ///
    /// # Errors
    /// The limit that is reached; the connection is not counted.
    pub fn enter(
        &self,
        peer: IpAddr,
        max: usize,
        address_max: u32,
    ) -> Result<(), ConnectionOverload> {
        if self.open.fetch_add(1, Relaxed) >= max {
            self.open.fetch_sub(1, Relaxed);
            return Err(ConnectionOverload::Connections);
        }
        // The total is checked first: it needs no lock, so refusing stays cheap during a flood.
        let mut map = self.shard(peer);
        let count = map.entry(peer).or_insert(0);
        if *count >= address_max {
            drop(map);
            self.open.fetch_sub(1, Relaxed);
            return Err(ConnectionOverload::Address);
        }
        // Incremented only below the limits, so that a refusal has nothing to undo.
        *count += 1;
        Ok(())
    }

    /// Counts a connection of a proxy. Its address limit does not apply: [`ConnectionLimit::transfer`] later moves the
    /// connection to the client's address.
    ///
    /// # Errors
    /// As for [`ConnectionLimit::enter`].
    pub fn enter_for_proxied(&self, proxy: IpAddr, max: usize) -> Result<(), ConnectionOverload> {
        self.enter(proxy, max, u32::MAX)
    }

    /// Moves a connection to another address.
    ///
    /// # Errors
    /// That address has too many connections. The connection is counted for that address nevertheless, until
    /// [`ConnectionLimit::leave`].
    pub fn transfer(
        &self,
        from: IpAddr,
        to: IpAddr,
        address_max: u32,
    ) -> Result<(), ConnectionOverload> {
        self.leave(from);
        self.open.fetch_add(1, Relaxed);
        let mut map = self.shard(to);
        let count = map.entry(to).or_insert(0);
        *count += 1;
        match *count <= address_max {
            true => Ok(()),
            false => Err(ConnectionOverload::Address),
        }
    }

    /// Removes a connection that [`ConnectionLimit::enter`] counted.
    pub fn leave(&self, peer: IpAddr) {
        self.open.fetch_sub(1, Relaxed);
        let mut map = self.shard(peer);
        if let Some(count) = map.get_mut(&peer) {
            *count -= 1;
            // Entries of 0 are removed, so that the size of the maps is bounded by the number of open connections.
            if *count == 0 {
                map.remove(&peer);
            }
        }
    }

    /// Counts a worker that accepts no connections for a while. Returns false for the last one of `workers` that accepts
    /// connections, which must not stop.
    pub fn suspend_worker(&self, workers: usize) -> bool {
        let with_one_more = |suspended| (suspended + 1 < workers).then_some(suspended + 1);
        self.suspended_workers
            .fetch_update(Relaxed, Relaxed, with_one_more)
            .is_ok()
    }

    /// Counts a suspended worker that accepts connections again.
    pub fn resume_worker(&self) {
        self.suspended_workers.fetch_sub(1, Relaxed);
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    fn shard(&self, peer: IpAddr) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        // Neighboring addresses differ in their last byte, so they use different locks.
        let last = match peer {
            IpAddr::V4(v4) => v4.octets()[3],
            IpAddr::V6(v6) => v6.octets()[7] ^ v6.octets()[15],
        };
        self.by_address[usize::from(last) % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_accepting_worker_is_not_suspended() {
        let admission = ConnectionLimit::default();
        assert!(!admission.suspend_worker(1));
        assert!(admission.suspend_worker(3) && admission.suspend_worker(3));
        assert!(!admission.suspend_worker(3));
        admission.resume_worker();
        assert!(admission.suspend_worker(3));
    }

    #[test]
    fn connection_limits_apply_and_leave_frees_a_place() {
        let admission = ConnectionLimit::default();
        let (a, b) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        assert_eq!(admission.enter(a, 3, 2), Ok(()));
        assert_eq!(admission.enter(a, 3, 2), Ok(()));
        assert_eq!(admission.enter(a, 3, 2), Err(ConnectionOverload::Address));
        assert_eq!(admission.enter(b, 3, 2), Ok(()));
        assert_eq!(
            admission.enter(b, 3, 2),
            Err(ConnectionOverload::Connections)
        );
        admission.leave(a);
        assert_eq!(admission.enter(b, 3, 2), Ok(()));
        assert_eq!(admission.open(), 3);
    }

    #[test]
    fn transferred_connection_counts_for_the_client_address() {
        // Behind a proxy all connections have one peer address.
        let admission = ConnectionLimit::default();
        let (proxy, client) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        for passed in [Ok(()), Ok(()), Err(ConnectionOverload::Address)] {
            assert_eq!(admission.enter_for_proxied(proxy, 9), Ok(()));
            assert_eq!(admission.transfer(proxy, client, 2), passed);
        }
        assert_eq!(admission.open(), 3);
        (0..3).for_each(|_| admission.leave(client));
        assert_eq!(admission.open(), 0);
        assert_eq!(admission.enter(client, 1, 1), Ok(()));
    }
}
