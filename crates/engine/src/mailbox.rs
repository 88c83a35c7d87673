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
        let was_empty = {
            let mut queue = self.queue();
            queue.push(message);
            queue.len() == 1
        };
        // One notification per batch, as the worker takes all messages together.
        if was_empty {
            self.shared.waker.notify();
        }
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
