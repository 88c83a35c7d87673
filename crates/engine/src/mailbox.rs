//! How other threads reach a worker: a queue and something that wakes its wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Reaches a worker from another thread. One that is awake loses nothing by it.
pub trait WorkerNotify: Send + Sync {
    /// Makes the worker's current or next wait end.
    fn notify(&self);
}

/// A queue into one worker. Clones lead to the same worker.
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
    /// An empty mailbox whose posts wake with `waker`.
    pub fn new(waker: Arc<dyn WorkerNotify>) -> Self {
        WorkerMailbox {
            shared: Arc::new(MailboxQueue {
                queue: Mutex::new(Vec::new()),
                waker,
            }),
        }
    }

    /// Adds a message. It is bounded by its senders: one outcome per waiting connection, and the
    /// operator's commands.
    pub fn post(&self, message: M) {
        let was_empty = {
            let mut queue = self.queue();
            queue.push(message);
            queue.len() == 1
        };
        // One wake per batch: whoever drains takes everything.
        if was_empty {
            self.shared.waker.notify();
        }
    }

    /// Moves all messages, in the order of their posts, into an empty vector, whose memory is used
    /// for the next ones.
    pub fn take(&self, into: &mut Vec<M>) {
        debug_assert!(into.is_empty(), "what is there would come again");
        std::mem::swap(&mut *self.queue(), into);
    }

    fn queue(&self) -> MutexGuard<'_, Vec<M>> {
        self.shared
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
