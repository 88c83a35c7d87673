//! A semaphore: how many of one kind may be under way at a time. Others are refused at once, or wait in a
//! queue of its worker (`worker_queues`).
//!
//! Acquiring and releasing are lock-free while there are no waiters. A waiter enters its queue first and then looks for
//! room; a release counts down first and then looks for waiters: so one of both sees the other.

mod worker_queues;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use self::worker_queues::WorkerQueues;
use crate::WaitCell;

/// A limit, and how near it is.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    /// 0 <= under_way <= max
    under_way: AtomicUsize,
    max: AtomicUsize,
    /// How many wait; written with the queues locked.
    waiting: AtomicUsize,
    waiting_max: usize,
    queues: Mutex<WorkerQueues>,
}

/// A permit for one; given back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    of: Arc<ConcurrencyLimit>,
    worker: usize,
}

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyWaiters;

impl ConcurrencyLimit {
    /// As many as `max` at a time; nobody waits.
    pub fn new(max: usize) -> Arc<ConcurrencyLimit> {
        ConcurrencyLimit::queued(max, 1, 0)
    }

    /// As many as `max` at a time; the others wait in one queue, that of worker 0, however many they are.
    pub fn in_line(max: usize) -> Arc<ConcurrencyLimit> {
        ConcurrencyLimit::queued(max, 1, usize::MAX)
    }

    /// As many as `max` at a time, over all of so many workers; up to `waiting_max` more wait.
    pub fn queued(max: usize, workers: usize, waiting_max: usize) -> Arc<ConcurrencyLimit> {
        Arc::new(ConcurrencyLimit {
            under_way: AtomicUsize::new(0),
            max: AtomicUsize::new(max),
            waiting: AtomicUsize::new(0),
            waiting_max,
            queues: Mutex::new(WorkerQueues::new(workers)),
        })
    }

    /// A permit, unless there are as many as there may be, or others wait for it.
    pub fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        self.try_acquire_on(0)
    }

    /// The same on a worker, one of those that there are.
    pub fn try_acquire_on(self: &Arc<Self>, worker: usize) -> Option<Permit> {
        let is_free = self.waiting() == 0 && self.count_in();
        is_free.then(|| self.permit(worker))
    }

    /// Waits for a permit on a worker, one of those that there are, since `now_ms` of monotonic time.
    pub fn acquire(self: &Arc<Self>, worker: usize, now_ms: u64) -> Acquire {
        Acquire {
            of: self.clone(),
            worker,
            since_ms: now_ms,
            place: None,
        }
    }

    /// Lets as many as `max` be under way, if it were fewer until now.
    pub fn raise(&self, max: usize) {
        self.max.fetch_max(max, SeqCst);
        self.let_in(0);
    }

    /// How many there may be.
    pub fn max(&self) -> usize {
        self.max.load(SeqCst)
    }

    /// How many there are.
    pub fn under_way(&self) -> usize {
        self.under_way.load(SeqCst)
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    fn permit(self: &Arc<Self>, worker: usize) -> Permit {
        Permit {
            of: self.clone(),
            worker,
        }
    }

    fn count_in(&self) -> bool {
        let max = self.max();
        let more = |count: usize| (count < max).then_some(count + 1);
        self.under_way.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    fn give_back(&self, worker: usize) {
        self.under_way.fetch_sub(1, SeqCst);
        self.let_in(worker);
    }

    /// Admits waiters as far as there is room, which was given back on this worker.
    fn let_in(&self, worker: usize) {
        while self.waiting() > 0 {
            let mut queues = self.lock();
            if queues.len() == 0 || !self.count_in() {
                return;
            }
            let waker = queues.take_next(worker).and_then(|cell| cell.settle(true));
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
        self.of.give_back(self.worker);
    }
}

/// Waits for a permit. Dropped, it waits no more.
pub struct Acquire {
    of: Arc<ConcurrencyLimit>,
    worker: usize,
    since_ms: u64,
    place: Option<QueuePlace>,
}

/// A place in a worker's queue.
struct QueuePlace {
    ticket: u64,
    cell: Arc<WaitCell>,
}

impl Acquire {
    /// Takes a permit at once, or a place in the queue.
    fn begin(&mut self) -> Result<Option<Permit>, TooManyWaiters> {
        if let Some(permit) = self.of.try_acquire_on(self.worker) {
            return Ok(Some(permit));
        }
        let mut queues = self.of.lock();
        if queues.len() >= self.of.waiting_max {
            return Err(TooManyWaiters);
        }
        let cell = WaitCell::pending();
        let ticket = queues.push(self.worker, self.since_ms, cell.clone());
        self.of.waiting.store(queues.len(), SeqCst);
        drop(queues);
        self.place = Some(QueuePlace { ticket, cell });
        // A release before that may have seen no waiter.
        self.of.let_in(self.worker);
        Ok(None)
    }
}

impl Future for Acquire {
    type Output = Result<Permit, TooManyWaiters>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.place.is_none()
            && let Some(permit) = self.begin()?
        {
            return Poll::Ready(Ok(permit));
        }
        let settled = self.place.as_ref().map(|place| place.cell.poll(context));
        if settled.is_none_or(|settled| settled.is_pending()) {
            return Poll::Pending;
        }
        self.place = None;
        Poll::Ready(Ok(self.of.permit(self.worker)))
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else {
            return;
        };
        let mut queues = self.of.lock();
        if queues.remove(self.worker, place.ticket) {
            self.of.waiting.store(queues.len(), SeqCst);
            return;
        }
        drop(queues);
        self.of.give_back(self.worker);
    }
}

#[cfg(test)]
mod tests;
