//! A semaphore that limits the concurrent operations of one kind. Further operations are refused immediately, or wait
//! in a queue of their worker (`worker_queues`).
//!
//! Acquiring and releasing are lock-free while there are no waiters. A waiter enters its queue before it checks for a
//! free permit, and a release frees its permit before it checks for waiters, so at least one of the two notices the
//! other.

mod worker_queues;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use self::worker_queues::WorkerQueues;
use crate::WaitCell;

/// A limit, and the number of permits in use.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    /// 0 <= in_use <= max, except after `max` was lowered.
    in_use: AtomicUsize,
    max: AtomicUsize,
    /// The number of waiters; written while the queues are locked.
    waiting: AtomicUsize,
    waiting_max: usize,
    queues: Mutex<WorkerQueues>,
}

/// A permit for one operation; released when dropped.
#[derive(Debug)]
pub struct Permit {
    limit: Arc<ConcurrencyLimit>,
    worker: usize,
}

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyWaiters;

impl ConcurrencyLimit {
    /// At most `max` permits, without a queue.
    pub fn new(max: usize) -> Arc<ConcurrencyLimit> {
        ConcurrencyLimit::queued(max, 1, 0)
    }

    /// At most `max` permits; any number of waiters, in one queue (that of worker 0).
    pub fn with_unbounded_queue(max: usize) -> Arc<ConcurrencyLimit> {
        ConcurrencyLimit::queued(max, 1, usize::MAX)
    }

    /// At most `max` permits over all workers; up to `waiting_max` waiters.
    pub fn queued(max: usize, workers: usize, waiting_max: usize) -> Arc<ConcurrencyLimit> {
        Arc::new(ConcurrencyLimit {
            in_use: AtomicUsize::new(0),
            max: AtomicUsize::new(max),
            waiting: AtomicUsize::new(0),
            waiting_max,
            queues: Mutex::new(WorkerQueues::new(workers)),
        })
    }

    /// Acquires a permit, unless all are in use or there are waiters.
    pub fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        self.try_acquire_on(0)
    }

    /// Like `try_acquire`, on a worker, which must exist.
    pub fn try_acquire_on(self: &Arc<Self>, worker: usize) -> Option<Permit> {
        // A permit that is free while there are waiters is reserved for them.
        let is_free = self.waiting() == 0 && self.try_count();
        is_free.then(|| self.permit(worker))
    }

    /// Waits for a permit on a worker, which must exist. The wait starts at `now_ms` (monotonic).
    pub fn acquire(self: &Arc<Self>, worker: usize, now_ms: u64) -> PermitWait {
        PermitWait {
            limit: self.clone(),
            worker,
            since_ms: now_ms,
            queued: None,
        }
    }

    /// Sets the limit to `max`. If it is lower than the number of permits in use, none are issued until enough are returned.
    pub fn set_max(&self, max: usize) {
        self.max.store(max, SeqCst);
        // A higher limit may admit waiters.
        self.admit_next(0);
    }

    /// The limit.
    pub fn max(&self) -> usize {
        self.max.load(SeqCst)
    }

    /// The number of permits in use.
    pub fn in_use(&self) -> usize {
        self.in_use.load(SeqCst)
    }

    /// The number of waiters.
    pub fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    fn permit(self: &Arc<Self>, worker: usize) -> Permit {
        Permit {
            limit: self.clone(),
            worker,
        }
    }

    fn try_count(&self) -> bool {
        let max = self.max();
        // SeqCst here and for `waiting`: only a total order ensures that a release or a waiter notices the other.
        let incremented = |count: usize| (count < max).then_some(count + 1);
        self.in_use
            .fetch_update(SeqCst, SeqCst, incremented)
            .is_ok()
    }

    fn release(&self, worker: usize) {
        self.in_use.fetch_sub(1, SeqCst);
        self.admit_next(worker);
    }

    /// Admits waiters as long as there are free permits; a permit was released on this worker.
    fn admit_next(&self, worker: usize) {
        while self.waiting() > 0 {
            let mut queues = self.lock();
            // The queue is checked again with the lock: a concurrent release may have admitted the waiters.
            if queues.len() == 0 || !self.try_count() {
                return;
            }
            let waker = queues.take_next(worker).and_then(|cell| cell.settle(true));
            // The permit is already counted for the waiter. The waiter is woken after the lock is released, since the
            // waker may take locks of its executor.
            self.waiting.store(queues.len(), SeqCst);
            drop(queues);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, WorkerQueues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limit.release(self.worker);
    }
}

/// Waits for a permit. Dropping it ends the wait.
pub struct PermitWait {
    limit: Arc<ConcurrencyLimit>,
    worker: usize,
    since_ms: u64,
    queued: Option<QueuePlace>,
}

/// An entry in a worker's queue.
struct QueuePlace {
    ticket: u64,
    cell: Arc<WaitCell>,
}

impl PermitWait {
    /// Takes a permit, or enters the queue.
    fn begin(&mut self) -> Result<Option<Permit>, TooManyWaiters> {
        if let Some(permit) = self.limit.try_acquire_on(self.worker) {
            return Ok(Some(permit));
        }
        let mut queues = self.limit.lock();
        // The length is checked with the lock, so that the queue never exceeds its limit.
        if queues.len() >= self.limit.waiting_max {
            return Err(TooManyWaiters);
        }
        let cell = WaitCell::pending();
        let ticket = queues.push(self.worker, self.since_ms, cell.clone());
        self.limit.waiting.store(queues.len(), SeqCst);
        drop(queues);
        self.queued = Some(QueuePlace { ticket, cell });
        // A release before the push may not have noticed this waiter.
        self.limit.admit_next(self.worker);
        Ok(None)
    }
}

impl Future for PermitWait {
    type Output = Result<Permit, TooManyWaiters>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.queued.is_none()
            && let Some(permit) = self.begin()?
        {
            return Poll::Ready(Ok(permit));
        }
        let outcome = self.queued.as_ref().map(|queued| queued.cell.poll(context));
        if outcome.is_none_or(|outcome| outcome.is_pending()) {
            return Poll::Pending;
        }
        self.queued = None;
        Poll::Ready(Ok(self.limit.permit(self.worker)))
    }
}

impl Drop for PermitWait {
    fn drop(&mut self) {
        let Some(queued) = self.queued.take() else {
            return;
        };
        let mut queues = self.limit.lock();
        if queues.remove(self.worker, queued.ticket) {
            self.limit.waiting.store(queues.len(), SeqCst);
            return;
        }
        // The waiter was admitted in the meantime: release its permit.
        drop(queues);
        self.limit.release(self.worker);
    }
}

#[cfg(test)]
mod tests;
