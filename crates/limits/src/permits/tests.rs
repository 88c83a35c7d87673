//! Permits circulate: never more than the limit, in order, and without loss.

use std::pin::pin;
use std::task::Waker;

use super::worker_queues::MARKEDLY_MS;
use super::*;

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

#[test]
fn there_are_never_more_than_may_be() {
    let bound = ConcurrencyLimit::new(2);
    let (first, second) = (bound.try_acquire(), bound.try_acquire());
    assert!(first.is_some() && second.is_some());
    // Refusals change no count.
    assert!(bound.try_acquire().is_none() && bound.try_acquire().is_none());
    assert_eq!(bound.in_use(), 2);
    drop(first);
    let third = bound.try_acquire();
    assert!(third.is_some() && bound.try_acquire().is_none());
    assert!(ConcurrencyLimit::new(0).try_acquire().is_none());
}

/// One permit is in use on worker 0; one waiter each on 1 and 0, the latter `later_ms` later.
fn two_who_wait(later_ms: u64) -> (Arc<ConcurrencyLimit>, Permit, PermitWait, PermitWait) {
    let bound = ConcurrencyLimit::queued(1, 2, 2);
    let first = bound.try_acquire().expect("it is free");
    assert!(bound.try_acquire_on(1).is_none());
    let (mut other, mut own) = (bound.acquire(1, 0), bound.acquire(0, later_ms));
    assert!(Pin::new(&mut other).poll(&mut context()).is_pending());
    assert!(Pin::new(&mut own).poll(&mut context()).is_pending());
    (bound, first, other, own)
}

#[test]
fn leave_stays_with_the_worker_and_then_goes_round() {
    let (bound, first, other, own) = two_who_wait(MARKEDLY_MS);
    let (mut other, mut own) = (pin!(other), pin!(own));
    drop(first);
    assert!(other.as_mut().poll(&mut context()).is_pending());
    let Poll::Ready(second) = own.as_mut().poll(&mut context()) else {
        panic!("it is the worker's own turn");
    };
    drop(second);
    let third = other.as_mut().poll(&mut context());
    assert!(third.is_ready());
    assert!(bound.try_acquire_on(1).is_none());
    drop(third);
    assert!(bound.try_acquire_on(1).is_some());
    assert_eq!((bound.in_use(), bound.waiting()), (0, 0));
}

#[test]
fn who_has_waited_markedly_longer_elsewhere_is_next() {
    let (_, first, other, own) = two_who_wait(MARKEDLY_MS + 1);
    let (other, own) = (pin!(other), pin!(own));
    drop(first);
    assert!(own.poll(&mut context()).is_pending());
    assert!(other.poll(&mut context()).is_ready());
}

#[test]
fn who_goes_away_passes_it_on() {
    let bound = ConcurrencyLimit::queued(1, 1, 9);
    let first = bound.try_acquire().expect("it is free");
    let mut gone = Box::pin(bound.acquire(0, 0));
    let mut called = Box::pin(bound.acquire(0, 0));
    let mut last = pin!(bound.acquire(0, 0));
    assert!(gone.as_mut().poll(&mut context()).is_pending());
    assert!(called.as_mut().poll(&mut context()).is_pending());
    assert!(last.as_mut().poll(&mut context()).is_pending());
    drop(gone);
    drop(first);
    // It was admitted by the drop of `first`, but has not polled: its permit goes to `last`.
    drop(called);
    assert!(last.as_mut().poll(&mut context()).is_ready());
    assert_eq!((bound.in_use(), bound.waiting()), (0, 0));
}

#[test]
fn a_line_has_an_end_and_a_bound_may_be_raised() {
    let bound = ConcurrencyLimit::queued(0, 1, 1);
    let mut first = pin!(bound.acquire(0, 0));
    let mut second = pin!(bound.acquire(0, 0));
    assert!(first.as_mut().poll(&mut context()).is_pending());
    let refused = second.as_mut().poll(&mut context());
    assert!(matches!(refused, Poll::Ready(Err(TooManyWaiters))));
    bound.raise(2);
    let permit = first.as_mut().poll(&mut context());
    assert!(matches!(permit, Poll::Ready(Ok(_))));
    let other = second.as_mut().poll(&mut context());
    assert!(matches!(other, Poll::Ready(Ok(_))));
    assert!(bound.try_acquire().is_none());
    // The limit never falls: permits in use may rely on it.
    bound.raise(1);
    assert_eq!(bound.max(), 2);
}

/// A new request cannot overtake a waiter that was admitted but has not polled yet.
#[test]
fn nobody_passes_those_who_wait() {
    let (bound, first, other, own) = two_who_wait(0);
    drop(first);
    assert!(bound.try_acquire().is_none());
    drop((other, own));
    assert!(bound.try_acquire().is_some());
}

/// Threads that acquire, wait, give up and release as fast as possible: none waits for ever, and the limit holds.
#[test]
fn nobody_is_forgotten_between_threads() {
    // A lost wake-up would make a thread sleep for ever.
    const ROUNDS: usize = 20_000;
    let bound = ConcurrencyLimit::queued(2, 4, usize::MAX);
    let inside = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (bound, inside) = (&bound, &inside);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    // Some waiters give up, perhaps just when they are admitted.
                    if round % 7 == worker {
                        let mut gone = pin!(bound.acquire(worker, 0));
                        let _ = gone.as_mut().poll(&mut context());
                    }
                    let permit = block_on(bound.acquire(worker, 0)).expect("a long line");
                    assert!(inside.fetch_add(1, SeqCst) < 2);
                    inside.fetch_sub(1, SeqCst);
                    drop(permit);
                }
            });
        }
    });
    assert_eq!((bound.in_use(), bound.waiting()), (0, 0));
}

/// Sleeps until it is woken, and polls only then.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Thread(std::thread::Thread);
    impl std::task::Wake for Thread {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Thread(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}
