//! A FIFO queue of waiters.

use alloc::collections::VecDeque;

/// The waiters.
#[derive(Debug)]
pub struct WaitQueue<W>(VecDeque<PermitWaiter<W>>);

#[derive(Debug)]
struct PermitWaiter<W> {
    /// The waiter's ticket. Tickets ascend in the queue.
    ticket: u64,
    /// The waiter's arrival time or deadline.
    time_ms: u64,
    waiter: W,
}

impl<W> Default for WaitQueue<W> {
    fn default() -> WaitQueue<W> {
        WaitQueue(VecDeque::new())
    }
}

impl<W> WaitQueue<W> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a waiter at the end; its ticket must be higher than all others.
    pub fn push(&mut self, ticket: u64, time_ms: u64, waiter: W) {
        self.0.push_back(PermitWaiter {
            ticket,
            time_ms,
            waiter,
        });
    }

    /// The time of the first waiter.
    pub fn first_ms(&self) -> Option<u64> {
        self.0.front().map(|first| first.time_ms)
    }

    pub fn take_first(&mut self) -> Option<W> {
        self.0.pop_front().map(|first| first.waiter)
    }

    pub fn take_last(&mut self) -> Option<W> {
        self.0.pop_back().map(|last| last.waiter)
    }

    /// Removes a waiter. False if it was removed before.
    pub fn remove(&mut self, ticket: u64) -> bool {
        // Tickets are issued in the order of the queue, so they are sorted.
        let index = self.0.binary_search_by_key(&ticket, |waiter| waiter.ticket);
        index.is_ok_and(|index| self.0.remove(index).is_some())
    }
}
