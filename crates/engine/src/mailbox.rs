//! Delivers messages from other threads to a worker: a queue, and a notification that ends the worker's wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Wakes a worker from another thread. Cheap if the worker is awake.
pub trait WorkerNotify: Send + Sync {
    /// Ends the worker's current or next wait.
    fn notify(&self);
}

/// A queue of messages to one worker. Clones share the queue.
pub struct WorkerMailbox<M> {
    shared: Arc<MailboxQueue<M>>,
}

struct MailboxQueue<M> {
    queue: Mutex<Vec<M>>,
    waker: Arc<dyn WorkerNotify>,
}

impl<M> Clone for WorkerMailbox<M> {
    fn clone(&self) -> Self {
        WorkerMailbox {
            shared: self.shared.clone(),
        }
    }
}

impl<M> WorkerMailbox<M> {
    /// An empty mailbox that notifies `waker`.
    pub fn new(waker: Arc<dyn WorkerNotify>) -> Self {
        WorkerMailbox {
            shared: Arc::new(MailboxQueue {
                queue: Mutex::new(Vec::new()),
                waker,
            }),
        }
    }

    /// Adds a message. The queue needs no limit, as there is one outcome per deferred request and few operator
    /// commands.
    pub fn post(&self, message: M) {
        self.post_if_short(usize::MAX, || message);
    }

    /// Adds a message if fewer than `len_max` are waiting. Returns whether it was added.
    pub fn post_if_short(&self, len_max: usize, message: impl FnOnce() -> M) -> bool {
        let was_empty = {
            let mut queue = self.queue();
            if queue.len() >= len_max {
                return false;
            }
            queue.push(message());
            queue.len() == 1
        };
        // One notification per batch, as the worker takes all messages together.
        if was_empty {
            self.shared.waker.notify();
        }
        true
    }

    /// Moves all messages, in order, into an empty vector. The queue uses the vector's memory from then on.
    pub fn take(&self, messages: &mut Vec<M>) {
        debug_assert!(messages.is_empty(), "what is there would come again");
        std::mem::swap(&mut *self.queue(), messages);
    }

    fn queue(&self) -> MutexGuard<'_, Vec<M>> {
        self.shared
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct CountingWaker(AtomicUsize);

    impl WorkerNotify for CountingWaker {
        fn notify(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn long_queue_takes_only_messages_without_a_limit() {
        let waker = Arc::new(CountingWaker::default());
        let mailbox = WorkerMailbox::new(waker.clone());
        assert!(mailbox.post_if_short(2, || 1));
        assert!(mailbox.post_if_short(2, || 2));
        assert!(!mailbox.post_if_short(2, || unreachable!("is not made")));
        mailbox.post(3);
        let mut messages = Vec::new();
        mailbox.take(&mut messages);
        assert_eq!(messages, [1, 2, 3]);
        assert_eq!(waker.0.load(Ordering::Relaxed), 1);
        assert!(mailbox.post_if_short(2, || 4));
        assert_eq!(waker.0.load(Ordering::Relaxed), 2);
    }
}
