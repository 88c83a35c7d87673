//! How a worker is reached: an eventcount, whose one waiter parks in its driver's wait. A notification
//! is a system call only while the worker is parked, and a store while it is awake.
//!
//! Who has something for the worker puts it where the worker looks, and notifies. The worker looks
//! wherever something may lie when it was notified, and never parks over a notification: it prepares
//! first and looks then.

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
    /// One that nobody has notified; `unpark` ends a wait.
    pub fn new(unpark: impl Fn() + Send + Sync + 'static) -> Arc<EventCount> {
        Arc::new(EventCount {
            notified: AtomicBool::new(false),
            parked: AtomicBool::new(false),
            unpark: Box::new(unpark),
        })
    }

    /// Before a wait: whether the worker may park. Whoever notifies from now on ends the wait.
    pub fn prepare(&self) -> bool {
        self.parked.store(true, SeqCst);
        !self.notified.load(SeqCst)
    }

    /// After a wait.
    pub fn resume(&self) {
        self.parked.store(false, SeqCst);
    }

    /// Whether it was notified since somebody called [`EventCount::take_notified`].
    pub fn is_notified(&self) -> bool {
        self.notified.load(SeqCst)
    }

    /// Whether the worker waits, or is about to.
    pub fn is_parked(&self) -> bool {
        self.parked.load(SeqCst)
    }

    /// Whether it was notified since this was last asked.
    pub fn take_notified(&self) -> bool {
        self.notified.load(SeqCst) && self.notified.swap(false, SeqCst)
    }
}

impl WorkerNotify for EventCount {
    fn notify(&self) {
        self.notified.store(true, SeqCst);
        // One call a wait: whoever is unparked looks everywhere.
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
