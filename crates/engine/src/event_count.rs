//! The notification of a worker: an eventcount with one waiter, which parks in its driver's wait. A notification is a
//! system call only while the worker is parked, and a store while it is awake.
//!
//! A producer stores its item first and notifies then. The worker checks all sources of items after a notification,
//! and never parks with a pending one: it announces that it will park first, and checks then.

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

    /// Before a wait: returns whether the worker may park. Any later notification ends the wait.
    pub fn prepare(&self) -> bool {
        // Sequentially consistent, as `notify` stores and loads the same two flags in the other order (Dekker): one of
        // both sees the other's store.
        self.parked.store(true, SeqCst);
        !self.notified.load(SeqCst)
    }

    /// After a wait.
    pub fn resume(&self) {
        self.parked.store(false, SeqCst);
    }

    /// Whether there is a notification that [`EventCount::take_notified`] has not consumed.
    pub fn is_notified(&self) -> bool {
        self.notified.load(SeqCst)
    }

    /// Whether the worker waits, or is about to.
    pub fn is_parked(&self) -> bool {
        self.parked.load(SeqCst)
    }

    /// Consumes the notification. Returns whether there was one.
    pub fn take_notified(&self) -> bool {
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
    fn only_who_is_parked_is_unparked_and_only_once() {
        let unparked = Arc::new(AtomicUsize::new(0));
        let count = unparked.clone();
        let bell = EventCount::new(move || {
            count.fetch_add(1, SeqCst);
        });
        bell.notify();
        assert_eq!(unparked.load(SeqCst), 0);
        assert!(!bell.prepare(), "it was notified before");
        bell.resume();
        assert!(bell.take_notified());
        assert!(!bell.take_notified());
        assert!(bell.prepare());
        bell.notify();
        bell.notify();
        assert_eq!(unparked.load(SeqCst), 1);
        bell.resume();
        assert!(bell.take_notified());
    }
}
