//! Look-ups by the system's resolver, getaddrinfo(3), on a bounded number of threads.
//!
//! A call of the resolver can't be cancelled: it continues after its caller's timeout. Requests for a name join the look-up
//! of the name in progress, so there is at most one for each name; further ones wait for a thread.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::oneshot;

use super::{NameAnswer, PendingLookup};

/// The number of look-ups at the same time, including abandoned ones.
const THREADS_MAX: usize = 16;

/// A host and a port.
type LookupKey = (String, u16);
type LookupSender = oneshot::Sender<io::Result<NameAnswer>>;

/// The look-ups of all workers and configurations.
static LOOKUPS: Mutex<Option<LookupQueue>> = Mutex::new(None);

/// The look-ups that waited for a thread.
static DELAYED: AtomicU64 = AtomicU64::new(0);

/// The number of look-ups that have waited for a thread.
pub fn delayed() -> u64 {
    DELAYED.load(Relaxed)
}

/// The look-ups in progress, and those that wait for a thread.
#[derive(Default)]
struct LookupQueue {
    threads: usize,
    waiting: VecDeque<LookupKey>,
    /// The callers of each look-up, waiting or in progress.
    callers: HashMap<LookupKey, Vec<LookupSender>>,
}

/// Starts a look-up, or joins that of the same name. Without a thread, the receiver fails.
pub fn request(host: &str, port: u16) -> PendingLookup {
    let (sender, receiver) = oneshot::channel();
    let mut lookups = lock();
    if lookups
        .get_or_insert_default()
        .add((host.into(), port), sender)
    {
        let thread = thread::Builder::new().name("resolve".into());
        if thread.spawn(run_lookups).is_err() {
            lookups.get_or_insert_default().remove_thread();
        }
    }
    receiver
}

impl LookupQueue {
    /// Adds a caller. Whether a thread must be started.
    fn add(&mut self, key: LookupKey, caller: LookupSender) -> bool {
        let callers = self.callers.entry(key.clone()).or_default();
        let is_new = callers.is_empty();
        // Periodic look-ups of a slow name would otherwise accumulate.
        callers.retain(|caller| !caller.is_closed());
        callers.push(caller);
        if is_new {
            self.waiting.push_back(key);
        }
        let starts_thread = is_new && self.threads < THREADS_MAX;
        if is_new && !starts_thread {
            DELAYED.fetch_add(1, Relaxed);
        }
        self.threads += usize::from(starts_thread);
        starts_thread
    }

    /// The next look-up; without one, the calling thread must end.
    fn next(&mut self) -> Option<LookupKey> {
        let next = self.waiting.pop_front();
        if next.is_none() {
            self.threads -= 1;
        }
        next
    }

    fn end(&mut self, key: &LookupKey) -> Vec<LookupSender> {
        self.callers.remove(key).unwrap_or_default()
    }

    /// Records that a thread could not be started. Without any thread, the look-ups fail.
    fn remove_thread(&mut self) {
        self.threads -= 1;
        if self.threads == 0 {
            self.waiting.clear();
            self.callers.clear();
        }
    }
}

/// Performs look-ups until none waits.
fn run_lookups() {
    while let Some(key) = next_lookup() {
        let found = (key.0.as_str(), key.1).to_socket_addrs();
        let found = found.map(Iterator::collect::<Vec<SocketAddr>>);
        let callers = lock().get_or_insert_default().end(&key);
        for caller in callers {
            let answer = match &found {
                Ok(addresses) => Ok(addresses.clone().into()),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            };
            // A caller may have given up.
            let _ = caller.send(answer);
        }
    }
}

fn next_lookup() -> Option<LookupKey> {
    lock().get_or_insert_default().next()
}

fn lock() -> MutexGuard<'static, Option<LookupQueue>> {
    LOOKUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_requests_have_equal_answers() {
        // An address needs no name server.
        let lookups = [(); 2].map(|()| request("192.0.2.33", 8080));
        let expected = NameAnswer::from(vec![([192, 0, 2, 33], 8080).into()]);
        for lookup in lookups {
            let answer = lookup.blocking_recv().expect("a thread");
            assert_eq!(answer.expect("an address"), expected);
        }
    }

    #[test]
    fn silent_names_are_bounded_by_threads_and_callers_join() {
        let mut queue = LookupQueue::default();
        let key = |number: usize| (format!("{number}.test"), 80);
        let mut receivers = Vec::new();
        let mut add = |queue: &mut LookupQueue, number| {
            let (sender, receiver) = oneshot::channel();
            receivers.push(receiver);
            queue.add(key(number), sender)
        };
        let started = (0..THREADS_MAX + 5).map(|number| add(&mut queue, number));
        let before = delayed();
        assert_eq!(started.filter(|it| *it).count(), THREADS_MAX);
        assert_eq!(delayed() - before, 5);
        for number in 0..THREADS_MAX {
            assert_eq!(queue.next(), Some(key(number)));
        }
        // The look-up in progress is joined, and not repeated.
        assert!(!add(&mut queue, 0));
        assert_eq!(queue.waiting.len(), 5);
        // A caller that has given up makes room for the next one.
        receivers.remove(0).close();
        let (sender, _receiver) = oneshot::channel();
        assert!(!queue.add(key(0), sender));
        assert_eq!(queue.end(&key(0)).len(), 2);
        for number in THREADS_MAX..THREADS_MAX + 5 {
            assert_eq!(queue.next(), Some(key(number)));
        }
        assert_eq!((queue.next(), queue.threads), (None, THREADS_MAX - 1));
    }
}
