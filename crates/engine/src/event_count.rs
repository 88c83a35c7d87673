//! The notification of a worker: an eventcount with one waiter, which parks in its driver's wait. A notification is a
//! system call only while the worker is parked, and a store while it is awake.
//!
//! A producer first stores its item, then notifies. After a notification the worker checks all sources of items. It
//! never parks while a notification is pending: it first announces that it will park, then checks for a notification.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::mailbox::WorkerNotify;

/// The eventcount of one worker.
pub struct EventCount {
    notified: AtomicBool,
    parked: AtomicBool,
    unpark: Box<dyn Fn() + Send + Sync>,
}

impl EventCount {
    /// An eventcount without notification; `unpark` ends a wait.
    pub fn new(unpark: impl Fn() + Send + Sync + 'static) -> Arc<EventCount> {
        Arc::new(EventCount {
            notified: AtomicBool::new(false),
            parked: AtomicBool::new(false),
            unpark: Box::new(unpark),
        })
    }

    /// Announces a wait, and returns whether the worker may park. Any later notification ends the wait.
    pub fn prepare(&self) -> bool {
        // Sequentially consistent, as `notify` stores and loads the same two flags in the other order (Dekker): at
        // least one of them sees the other's store.
        self.parked.store(true, SeqCst);
        !self.notified.load(SeqCst)
    }

    /// Called after a wait: the worker is awake.
    pub fn resume(&self) {
        self.parked.store(false, SeqCst);
    }

    /// Whether there is a notification that [`EventCount::take_notified`] has not consumed.
    pub fn is_notified(&self) -> bool {
        self.notified.load(SeqCst)
    }

    /// Whether the worker is parked, or about to park.
    pub fn is_parked(&self) -> bool {
        self.parked.load(SeqCst)
    }

    /// Consumes the notification. Returns whether there was one.
    pub fn take_notified(&self) -> bool {
        // The load comes first: a swap takes the cache line from other threads even if there is nothing to consume.
        self.notified.load(SeqCst) && self.notified.swap(false, SeqCst)
    }
}

impl WorkerNotify for EventCount {
    fn notify(&self) {
        self.notified.store(true, SeqCst);
        // One call per wait: the unparked worker checks all sources.
        if self.parked.load(SeqCst) && self.parked.swap(false, SeqCst) {
            (self.unpark)();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn notify_unparks_a_parked_worker_once() {
        let unparked = Arc::new(AtomicUsize::new(0));
        let count = unparked.clone();
        let event_count = EventCount::new(move || {
            count.fetch_add(1, SeqCst);
        });
        event_count.notify();
        assert_eq!(unparked.load(SeqCst), 0);
        assert!(!event_count.prepare(), "it was notified before");
        event_count.resume();
        assert!(event_count.take_notified());
        assert!(!event_count.take_notified());
        assert!(event_count.prepare());
        event_count.notify();
        event_count.notify();
        assert_eq!(unparked.load(SeqCst), 1);
        event_count.resume();
        assert!(event_count.take_notified());
    }
}
