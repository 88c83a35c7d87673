//! Queues of waiters for permits, one for each worker.
//!
//! A permit goes to a waiter on the worker where it was released, together with the resource that became free there. A
//! waiter on another worker gets the permit only if it has waited markedly longer: strict FIFO order would move
//! connections between workers, and wake another worker for each request.

use std::sync::Arc;

use crate::WaitCell;
use crate::wait_queue::WaitQueue;

/// How much longer the waiter of another worker must have waited, in ms. The workers' clocks may tick only every 4 ms.
pub const WAIT_LEAD_MIN_MS: u64 = 1;

/// The queues.
#[derive(Debug)]
pub struct WorkerQueues {
    /// The queue of each worker, by the worker's index.
    queues: Vec<WaitQueue<Arc<WaitCell>>>,
    ticket_next: u64,
}

impl WorkerQueues {
    /// Empty queues for this many workers.
    pub fn new(workers: usize) -> WorkerQueues {
        WorkerQueues {
            queues: (0..workers).map(|_| WaitQueue::default()).collect(),
            ticket_next: 0,
        }
    }

    /// The number of waiters.
    pub fn len(&self) -> usize {
        self.queues.iter().map(WaitQueue::len).sum()
    }

    /// Adds a waiter and returns its ticket.
    pub fn push(&mut self, worker: usize, since_ms: u64, cell: Arc<WaitCell>) -> u64 {
        let ticket = self.ticket_next;
        self.ticket_next += 1;
        self.queues[worker].push(ticket, since_ms, cell);
        ticket
    }

    /// Removes the next waiter for a permit that was released on this worker.
    pub fn take_next(&mut self, worker: usize) -> Option<Arc<WaitCell>> {
        let firsts = self.queues.iter().map(WaitQueue::first_ms).enumerate();
        let oldest = firsts.filter_map(|(worker, since_ms)| Some((since_ms?, worker)));
        let (since_ms, oldest) = oldest.min()?;
        let chosen = match self.queues[worker].first_ms() {
            // A waiter on the releasing worker needs no wake-up of another thread.
            Some(worker_since_ms) if worker_since_ms <= since_ms + WAIT_LEAD_MIN_MS => worker,
            _ => oldest,
        };
        self.queues[chosen].take_first()
    }

    /// Removes a waiter. False if it was removed before.
    pub fn remove(&mut self, worker: usize, ticket: u64) -> bool {
        self.queues[worker].remove(ticket)
    }
}
