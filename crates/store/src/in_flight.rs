//! Request coalescing: a table of the fetches in flight, so that concurrent misses for the same response share one
//! fetch. The caller that begins a fetch must end it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use crate::lock::lock;

/// The number of slots that remember keys with a last fetch that could not be shared.
const UNSHARED_SLOTS: usize = 4096;

/// Identifies equal fetches: the cache key, and all else that distinguishes them.
pub type InFlightKey = Arc<[u8]>;

/// The fetches in flight. `W` is the type of a waiter.
pub struct InFlightTable<W> {
    table: Mutex<InFlightMap<W>>,
    /// Hashes of keys with a last fetch that could not be shared, each in the slot that the hash selects.
    unshared: Box<[AtomicU64]>,
    next_id: AtomicU64,
}

type InFlightMap<W> = HashMap<InFlightKey, InFlightFetch<W>, foldhash::fast::RandomState>;

struct InFlightFetch<W> {
    id: u64,
    waiters: Vec<W>,
    /// The fetch's work, which is cancelled when the last waiter drops its reference.
    work: Option<Weak<FetchWork>>,
}

/// The work of a fetch. The waiters share it; when the last one drops it, the fetch is cancelled.
#[derive(Default)]
pub struct FetchWork(Mutex<Option<Box<dyn Send>>>);

/// Identifies one fetch until its end.
#[derive(Clone)]
pub struct InFlightTicket {
    job: InFlightKey,
    id: u64,
}

/// The role of a caller: follower or leader.
pub enum CoalescingRole {
    /// Follower: the fetch is running.
    Follower(Arc<FetchWork>),
    /// Leader: the caller must fetch.
    Leader(InFlightTicket, Arc<FetchWork>),
}

impl FetchWork {
    /// Sets the running work.
    pub fn set(&self, work: Box<dyn Send>) {
        *lock(&self.0) = Some(work);
    }
}

impl<W> Default for InFlightTable<W> {
    fn default() -> InFlightTable<W> {
        InFlightTable {
            table: Mutex::default(),
            unshared: (0..UNSHARED_SLOTS).map(|_| AtomicU64::new(0)).collect(),
            next_id: AtomicU64::new(0),
        }
    }
}

impl<W> InFlightTable<W> {
    /// Whether a thread has panicked while it changed the table, which may be inconsistent then.
    pub fn is_poisoned(&self) -> bool {
        self.table.is_poisoned()
    }

    /// Adds a waiter to the fetch in flight, or begins one. `begin` runs under the lock, so that no caller can join a
    /// fetch for which `begin` then returns an error.
    ///
    /// # Errors
    /// The error of `begin`.
    pub fn join_or_begin<E>(
        &self,
        job: InFlightKey,
        waiter: W,
        begin: impl FnOnce(InFlightTicket) -> Result<(), E>,
    ) -> Result<(), E> {
        match lock(&self.table).entry(job) {
            // Request coalescing: the fetch in flight answers this waiter, too.
            Entry::Occupied(mut in_flight) => in_flight.get_mut().waiters.push(waiter),
            Entry::Vacant(vacant) => {
                let ticket = self.ticket(vacant.key());
                let id = ticket.id;
                // Called under the lock, so that the fetch can't end before its waiter is in the table.
                begin(ticket)?;
                vacant.insert(InFlightFetch {
                    id,
                    waiters: vec![waiter],
                    work: None,
                });
            }
        }
        Ok(())
    }

    /// Joins a running fetch that is not cancelled. Otherwise the caller becomes the leader, without being a waiter;
    /// the fetch is cancelled when all holders of its work are gone.
    pub fn join(&self, job: &InFlightKey, waiter: W) -> CoalescingRole {
        let mut table = lock(&self.table);
        // If no waiter holds its work any more, the fetch is cancelled and can't be joined.
        if let Some(fetch) = table.get_mut(job)
            && let Some(work) = fetch.work.as_ref().and_then(Weak::upgrade)
        {
            fetch.waiters.push(waiter);
            return CoalescingRole::Follower(work);
        }
        let (ticket, work) = self.insert(&mut table, job);
        CoalescingRole::Leader(ticket, work)
    }

    /// Begins a fetch without waiters, unless one is running; see `InFlightTable::join`.
    pub fn begin(&self, job: &InFlightKey) -> Option<(InFlightTicket, Arc<FetchWork>)> {
        let mut table = lock(&self.table);
        let is_running = |fetch: &InFlightFetch<W>| {
            let work = fetch.work.as_ref().and_then(Weak::upgrade);
            work.is_some()
        };
        if table.get(job).is_some_and(is_running) {
            return None;
        }
        Some(self.insert(&mut table, job))
    }

    fn insert(
        &self,
        table: &mut InFlightMap<W>,
        job: &InFlightKey,
    ) -> (InFlightTicket, Arc<FetchWork>) {
        let (ticket, work) = (self.ticket(job), Arc::default());
        let fetch = InFlightFetch {
            id: ticket.id,
            waiters: Vec::new(),
            work: Some(Arc::downgrade(&work)),
        };
        table.insert(job.clone(), fetch);
        (ticket, work)
    }

    /// Ends a fetch and returns its waiters.
    pub fn end(&self, ticket: &InFlightTicket) -> Vec<W> {
        let mut table = lock(&self.table);
        match table.get(&ticket.job) {
            Some(fetch) if fetch.id == ticket.id => {}
            // A cancelled fetch may have been replaced by a newer one with the same key.
            _ => return Vec::new(),
        }
        let fetch = table.remove(&ticket.job);
        fetch.map_or(Vec::new(), |fetch| fetch.waiters)
    }

    /// Whether the last fetch for a key with this hash could not be shared. Approximate: keys share slots.
    pub fn is_unshared(&self, hash: u64) -> bool {
        self.mark_slot(hash).load(Relaxed) == hash
    }

    /// Records whether the fetch for a key with this hash could be shared.
    pub fn record_sharing(&self, hash: u64, is_shared: bool) {
        let mark = self.mark_slot(hash);
        match (is_shared, mark.load(Relaxed) == hash) {
            // Written only if it changes, since workers share the cache line.
            (false, false) => mark.store(hash, Relaxed),
            (true, true) => mark.store(0, Relaxed),
            _ => {}
        }
    }

    fn mark_slot(&self, hash: u64) -> &AtomicU64 {
        &self.unshared[(hash >> 32) as usize % UNSHARED_SLOTS]
    }

    fn ticket(&self, job: &InFlightKey) -> InFlightTicket {
        InFlightTicket {
            job: job.clone(),
            id: self.next_id.fetch_add(1, Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str) -> InFlightKey {
        name.as_bytes().into()
    }

    #[test]
    fn equal_misses_share_one_fetch() {
        let makings = InFlightTable::default();
        let mut begun = None;
        for number in 0..3 {
            let begin = |ticket| {
                assert!(begun.replace(ticket).is_none());
                Ok::<_, ()>(())
            };
            assert_eq!(makings.join_or_begin(job("a"), number, begin), Ok(()));
        }
        let ticket = begun.take().expect("it was begun");
        assert_eq!(makings.end(&ticket), [0, 1, 2]);
        assert!(makings.end(&ticket).is_empty());
        assert_eq!(
            makings.join_or_begin(job("a"), 3, |_| Err("full")),
            Err("full")
        );
        let mut again = false;
        let begin = |_| {
            again = true;
            Ok::<_, ()>(())
        };
        assert_eq!(makings.join_or_begin(job("a"), 4, begin), Ok(()));
        assert!(again, "what was refused is not waited for");
    }

    #[test]
    fn fetch_is_cancelled_when_its_last_waiter_is_dropped() {
        let makings = InFlightTable::default();
        let CoalescingRole::Leader(ticket, work) = makings.join(&job("a"), 0) else {
            panic!("nobody makes it");
        };
        let task = Arc::new(());
        work.set(Box::new(task.clone()));
        let CoalescingRole::Follower(other) = makings.join(&job("a"), 1) else {
            panic!("it is being made");
        };
        drop(work);
        assert_eq!(Arc::strong_count(&task), 2);
        drop(other);
        assert_eq!(Arc::strong_count(&task), 1, "nobody waits");
        // A cancelled fetch can't be joined, and its end must not end the next one.
        let CoalescingRole::Leader(next, _work) = makings.join(&job("a"), 2) else {
            panic!("it was given up");
        };
        assert!(makings.end(&ticket).is_empty());
        assert!(matches!(
            makings.join(&job("a"), 3),
            CoalescingRole::Follower(_)
        ));
        assert_eq!(makings.end(&next), [3]);
    }

    #[test]
    fn keys_of_unshared_fetches_are_remembered() {
        let makings = InFlightTable::<()>::default();
        let (one, same_place) = (7 << 32 | 1, 7 << 32 | 2);
        makings.record_sharing(one, false);
        assert!(makings.is_unshared(one) && !makings.is_unshared(same_place));
        makings.record_sharing(same_place, true);
        assert!(makings.is_unshared(one));
        makings.record_sharing(one, true);
        assert!(!makings.is_unshared(one));
    }
}
