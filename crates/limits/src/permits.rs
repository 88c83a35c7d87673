//! How much of one kind may be under way at a time. What is beyond that is refused at once, or waits
//! in lines (`lines`). It knows neither who asks nor for what.
//!
//! Who finds room takes no lock, nor who gives it back while nobody waits. Who comes to wait says so
//! first and then looks for room; who gives back counts down first and then looks for those who wait:
//! so one of both sees the other.

mod lines;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use self::lines::Lines;

/// A bound, and how near it is.
#[derive(Debug)]
pub struct Concurrency {
    /// 0 <= under_way <= max
    under_way: AtomicUsize,
    max: AtomicUsize,
    /// How many wait; written with the lines locked.
    waiting: AtomicUsize,
    waiting_max: usize,
    lines: Mutex<Lines>,
}

/// Leave for one; given back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    of: Arc<Concurrency>,
    worker: usize,
}

/// There may not wait more than wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyWait;

impl Concurrency {
    /// As many as `max` at a time; nobody waits.
    pub fn new(max: usize) -> Arc<Concurrency> {
        Concurrency::queued(max, 1, 0)
    }

    /// As many as `max` at a time; the others wait in one line, that of worker 0, however many they are.
    pub fn in_line(max: usize) -> Arc<Concurrency> {
        Concurrency::queued(max, 1, usize::MAX)
    }

    /// As many as `max` at a time, over all of so many workers; up to `waiting_max` more wait.
    pub fn queued(max: usize, workers: usize, waiting_max: usize) -> Arc<Concurrency> {
        Arc::new(Concurrency {
            under_way: AtomicUsize::new(0),
            max: AtomicUsize::new(max),
            waiting: AtomicUsize::new(0),
            waiting_max,
            lines: Mutex::new(Lines::new(workers)),
        })
    }

    /// Leave for one more, unless there are as many as there may be, or others wait for it.
    pub fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        self.try_acquire_on(0)
    }

    /// The same on a worker, one of those that there are.
    pub fn try_acquire_on(self: &Arc<Self>, worker: usize) -> Option<Permit> {
        let is_free = self.waiting() == 0 && self.count_in();
        is_free.then(|| self.permit(worker))
    }

    /// Waits for leave on a worker, one of those that there are, since `now_ms` of monotonic time.
    pub fn acquire(self: &Arc<Self>, worker: usize, now_ms: u64) -> Acquire {
        Acquire {
            of: self.clone(),
            worker,
            since_ms: now_ms,
            number: None,
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

    /// Gives leave to those who wait, as far as there is room; it was given back on this worker.
    fn let_in(&self, worker: usize) {
        while self.waiting() > 0 {
            let mut lines = self.lock();
            if lines.len() == 0 || !self.count_in() {
                return;
            }
            let waker = lines.call(worker);
            self.waiting.store(lines.len(), SeqCst);
            drop(lines);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.of.give_back(self.worker);
    }
}

/// Waits for leave. Dropped, it waits no more.
pub struct Acquire {
    of: Arc<Concurrency>,
    worker: usize,
    since_ms: u64,
    /// Its number in the line.
    number: Option<u64>,
}

impl Acquire {
    /// At once, or gets in line. Whether the latter.
    fn begin(&mut self, context: &mut Context<'_>) -> Result<Option<Permit>, TooManyWait> {
        if let Some(permit) = self.of.try_acquire_on(self.worker) {
            return Ok(Some(permit));
        }
        let mut lines = self.of.lock();
        if lines.len() >= self.of.waiting_max {
            return Err(TooManyWait);
        }
        let waker = context.waker().clone();
        self.number = Some(lines.push(self.worker, self.since_ms, waker));
        self.of.waiting.store(lines.len(), SeqCst);
        drop(lines);
        // Who gave back before that may have seen nobody.
        self.of.let_in(self.worker);
        Ok(None)
    }
}

impl Future for Acquire {
    type Output = Result<Permit, TooManyWait>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.number.is_none()
            && let Some(permit) = self.begin(context)?
        {
            return Poll::Ready(Ok(permit));
        }
        let Some(number) = self.number else {
            return Poll::Pending;
        };
        let mut lines = self.of.lock();
        if !lines.was_called(number) {
            lines.wait_on(self.worker, number, context.waker());
            return Poll::Pending;
        }
        drop(lines);
        self.number = None;
        Poll::Ready(Ok(self.of.permit(self.worker)))
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut lines = self.of.lock();
        if lines.was_called(number) {
            drop(lines);
            return self.of.give_back(self.worker);
        }
        lines.remove(self.worker, number);
        self.of.waiting.store(lines.len(), SeqCst);
    }
}

#[cfg(test)]
mod tests;
