//! The look-ups while a configuration is loaded: all at the same time, with one deadline.

use std::collections::HashMap;
use std::future::Future as _;
use std::hash::Hash;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::NameAnswer;

/// Time limit of all look-ups of a configuration together.
const LOOKUPS_TIMEOUT: Duration = Duration::from_secs(2);

/// The answer of a look-up in progress.
pub type PendingLookup = oneshot::Receiver<io::Result<NameAnswer>>;

/// The first look-ups of the names of a configuration, by a key that contains the name and the resolver.
pub struct FirstLookups<K>(Mutex<LookupBatch<K>>);

struct LookupBatch<K> {
    deadline: Instant,
    lookups: HashMap<K, FirstLookup>,
}

enum FirstLookup {
    Pending(PendingLookup),
    Ended(NameAnswer),
}

impl<K: Hash + Eq> Default for FirstLookups<K> {
    fn default() -> FirstLookups<K> {
        FirstLookups(Mutex::new(LookupBatch::new(Instant::now())))
    }
}

impl<K: Hash + Eq> LookupBatch<K> {
    fn new(now: Instant) -> LookupBatch<K> {
        LookupBatch {
            deadline: now + LOOKUPS_TIMEOUT,
            lookups: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq> FirstLookups<K> {
    /// Begins the look-ups of a configuration, and forgets those of the previous one. Does not block.
    pub fn begin(&self, lookups: impl Iterator<Item = (K, PendingLookup)>) {
        let mut batch = LookupBatch::new(Instant::now());
        batch
            .lookups
            .extend(lookups.map(|(key, pending)| (key, FirstLookup::Pending(pending))));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = batch;
    }

    /// The answer of a look-up, which `start` starts if the configuration did not name it. Blocks until the deadline of
    /// the configuration. Without an answer there are no servers: [`watch_name`](super::watch_name) repeats the look-up.
    pub fn wait(&self, key: K, start: impl FnOnce() -> PendingLookup) -> NameAnswer {
        // Locked during the wait: only the thread that loads configurations waits here.
        let mut batch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = batch.deadline;
        let lookup = batch.lookups.entry(key);
        let lookup = lookup.or_insert_with(|| FirstLookup::Pending(start()));
        if let FirstLookup::Pending(pending) = lookup {
            let answer = wait_until(pending, deadline).and_then(Result::ok);
            *lookup = FirstLookup::Ended(answer.unwrap_or_default());
        }
        match lookup {
            FirstLookup::Ended(answer) => answer.clone(),
            FirstLookup::Pending(_) => NameAnswer::default(),
        }
    }
}

/// Wakes the thread that waits.
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a look-up; `None` after the deadline, or if the look-up has ended without an answer.
fn wait_until(pending: &mut PendingLookup, deadline: Instant) -> Option<io::Result<NameAnswer>> {
    let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut pending = pin!(pending);
    loop {
        // Polled before the deadline is checked: an answer that has arrived is used in any case.
        if let Poll::Ready(answer) = pending.as_mut().poll(&mut context) {
            return answer.ok();
        }
        let remaining = deadline.checked_duration_since(Instant::now())?;
        thread::park_timeout(remaining);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(last: u8) -> NameAnswer {
        vec![([127, 0, 0, last], 80).into()].into()
    }

    #[test]
    fn all_lookups_have_one_deadline() {
        let (silent, silent_lookup) = oneshot::channel();
        let (late, late_lookup) = oneshot::channel();
        let lookups = FirstLookups::default();
        lookups.begin([("silent", silent_lookup), ("late", late_lookup)].into_iter());
        lookups.0.lock().expect("the batch").deadline = Instant::now();
        let unexpected = || unreachable!("the look-up has begun");
        assert_eq!(lookups.wait("silent", unexpected), NameAnswer::default());
        // An answer that arrives while another name is waited for is used.
        late.send(Ok(server(1))).expect("a receiver");
        assert_eq!(lookups.wait("late", unexpected), server(1));
        // Origins with the same name share the answer.
        assert_eq!(lookups.wait("late", unexpected), server(1));
        drop(silent);
    }

    #[test]
    fn answers_wake_the_waiting_thread_and_failures_end_the_wait() {
        let lookups = FirstLookups::<&str>::default();
        lookups.0.lock().expect("the batch").deadline += Duration::from_secs(600);
        let (sender, pending) = oneshot::channel();
        let thread = thread::spawn(move || sender.send(Ok(server(2))));
        assert_eq!(lookups.wait("other", || pending), server(2));
        assert!(thread.join().expect("no panic").is_ok());
        // A resolver without a thread drops the sender.
        assert_eq!(
            lookups.wait("none", || oneshot::channel().1),
            NameAnswer::default()
        );
    }
}
