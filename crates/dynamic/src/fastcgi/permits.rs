//! Leave to have a connection to a server: so many at a time, over all workers. It knows nothing of
//! connections.
//!
//! Whoever waits on the worker where leave is given back gets it, with the connection that has just
//! become free there; another worker's only if it has waited markedly longer. Strict order would
//! move connections from worker to worker, and rouse one for each request.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// How much longer than the worker's own another's must have waited, in ms of the workers' clocks,
/// which may tick every 4 ms only.
const MARKEDLY_MS: u64 = 1;

/// Leave for so many.
pub struct Permits(Mutex<State>);

struct State {
    free: usize,
    /// Who waits, for each worker in the order of coming.
    lines: Vec<VecDeque<Waiting>>,
    /// Who has leave and does not know it yet.
    called: Vec<u64>,
    next: u64,
}

struct Waiting {
    number: u64,
    since_ms: u64,
    waker: Waker,
}

/// Leave; given back when it is dropped.
pub struct Permit {
    permits: Arc<Permits>,
    worker: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.give_back(self.worker);
    }
}

/// Waits for leave.
pub struct Acquire {
    permits: Arc<Permits>,
    worker: usize,
    since_ms: u64,
    number: Option<u64>,
}

impl Permits {
    /// None, for so many workers.
    pub fn new(workers: usize) -> Permits {
        Permits(Mutex::new(State {
            free: 0,
            lines: (0..workers).map(|_| VecDeque::new()).collect(),
            called: Vec::new(),
            next: 0,
        }))
    }

    /// So many more.
    pub fn add(&self, count: usize) {
        let mut wakers = Vec::new();
        let mut state = self.lock();
        state.free += count;
        while state.free > 0
            && let Some(waker) = state.call(0)
        {
            state.free -= 1;
            wakers.push(waker);
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits for leave on a worker, one of those that there are, since `now_ms` of monotonic time.
    pub fn acquire(self: &Arc<Self>, worker: usize, now_ms: u64) -> Acquire {
        Acquire {
            permits: self.clone(),
            worker,
            since_ms: now_ms,
            number: None,
        }
    }

    /// Leave, if somebody would get it at once.
    pub fn try_acquire(self: &Arc<Self>, worker: usize) -> Option<Permit> {
        self.lock().take().then(|| self.permit(worker))
    }

    /// How many nobody has.
    pub fn free(&self) -> usize {
        self.lock().free
    }

    fn permit(self: &Arc<Self>, worker: usize) -> Permit {
        Permit {
            permits: self.clone(),
            worker,
        }
    }

    fn give_back(&self, worker: usize) {
        let mut state = self.lock();
        match state.call(worker) {
            Some(waker) => {
                drop(state);
                waker.wake();
            }
            None => state.free += 1,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self) -> bool {
        let is_free = self.free > 0;
        self.free -= usize::from(is_free);
        is_free
    }

    /// Gives leave to who is next when it was given back on this worker.
    fn call(&mut self, worker: usize) -> Option<Waker> {
        let first = |line: &VecDeque<Waiting>| line.front().map(|waiting| waiting.since_ms);
        let fronts = self.lines.iter().map(first).enumerate();
        let oldest = fronts.filter_map(|(worker, since)| Some((since?, worker)));
        let (since, other) = oldest.min()?;
        let own = first(&self.lines[worker]);
        let chosen = match own {
            Some(own) if own <= since + MARKEDLY_MS => worker,
            _ => other,
        };
        let waiting = self.lines[chosen].pop_front()?;
        self.called.push(waiting.number);
        Some(waiting.waker)
    }

    /// Whether it has leave by now.
    fn was_called(&mut self, number: u64) -> bool {
        let called = self.called.iter().position(|called| *called == number);
        called.map(|at| self.called.swap_remove(at)).is_some()
    }
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let permits = self.permits.clone();
        let mut state = permits.lock();
        let worker = self.worker;
        let Some(number) = self.number else {
            if state.take() {
                drop(state);
                return Poll::Ready(permits.permit(worker));
            }
            let number = state.next;
            state.next += 1;
            state.lines[worker].push_back(Waiting {
                number,
                since_ms: self.since_ms,
                waker: context.waker().clone(),
            });
            drop(state);
            self.number = Some(number);
            return Poll::Pending;
        };
        if state.was_called(number) {
            drop(state);
            self.number = None;
            return Poll::Ready(permits.permit(worker));
        }
        let mut line = state.lines[worker].iter_mut();
        if let Some(waiting) = line.find(|waiting| waiting.number == number) {
            waiting.waker.clone_from(context.waker());
        }
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut state = self.permits.lock();
        if state.was_called(number) {
            drop(state);
            return self.permits.give_back(self.worker);
        }
        state.lines[self.worker].retain(|waiting| waiting.number != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    fn context() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    #[test]
    fn leave_goes_round_and_not_beyond_its_number() {
        let permits = Arc::new(Permits::new(2));
        permits.add(1);
        let first = permits.try_acquire(0).expect("it is free");
        assert!(permits.try_acquire(1).is_none());
        let mut other = pin!(permits.acquire(1, 0));
        let mut own = pin!(permits.acquire(0, 0));
        assert!(other.as_mut().poll(&mut context()).is_pending());
        assert!(own.as_mut().poll(&mut context()).is_pending());
        // The other came first, but not by much.
        let mut state = permits.lock();
        state.lines[0][0].since_ms = state.lines[1][0].since_ms + MARKEDLY_MS;
        drop(state);
        drop(first);
        assert!(other.as_mut().poll(&mut context()).is_pending());
        let Poll::Ready(second) = own.as_mut().poll(&mut context()) else {
            panic!("it is the worker's own turn");
        };
        drop(second);
        let third = other.as_mut().poll(&mut context());
        assert!(third.is_ready());
        assert!(permits.try_acquire(1).is_none());
        drop(third);
        assert!(permits.try_acquire(1).is_some());
    }

    #[test]
    fn who_has_waited_markedly_longer_elsewhere_is_next() {
        let permits = Arc::new(Permits::new(2));
        permits.add(1);
        let first = permits.try_acquire(0).expect("it is free");
        let mut other = pin!(permits.acquire(1, 0));
        let mut own = pin!(permits.acquire(0, 0));
        assert!(other.as_mut().poll(&mut context()).is_pending());
        assert!(own.as_mut().poll(&mut context()).is_pending());
        let mut state = permits.lock();
        state.lines[0][0].since_ms = state.lines[1][0].since_ms + MARKEDLY_MS * 2;
        drop(state);
        drop(first);
        assert!(own.as_mut().poll(&mut context()).is_pending());
        assert!(other.as_mut().poll(&mut context()).is_ready());
    }

    #[test]
    fn who_goes_away_passes_it_on() {
        let permits = Arc::new(Permits::new(1));
        permits.add(1);
        let first = permits.try_acquire(0).expect("it is free");
        let mut gone = Box::pin(permits.acquire(0, 0));
        let mut called = Box::pin(permits.acquire(0, 0));
        let mut last = pin!(permits.acquire(0, 0));
        assert!(gone.as_mut().poll(&mut context()).is_pending());
        assert!(called.as_mut().poll(&mut context()).is_pending());
        assert!(last.as_mut().poll(&mut context()).is_pending());
        drop(gone);
        drop(first);
        drop(called);
        assert!(last.as_mut().poll(&mut context()).is_ready());
        permits.add(2);
        assert_eq!(permits.lock().free, 3);
    }
}
