//! Permits: never more than the limit, handed out in order, and never lost.

use std::pin::pin;
use std::task::Waker;

use super::worker_queues::WAIT_LEAD_MIN_MS;
use super::*;

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

#[test]
fn permits_in_use_never_exceed_the_limit() {
    let limit = ConcurrencyLimit::new(2);
    let (first, second) = (limit.try_acquire(), limit.try_acquire());
    assert!(first.is_some() && second.is_some());
    // Refusals do not change the count.
    assert!(limit.try_acquire().is_none() && limit.try_acquire().is_none());
    assert_eq!(limit.in_use(), 2);
    drop(first);
    let third = limit.try_acquire();
    assert!(third.is_some() && limit.try_acquire().is_none());
    assert!(ConcurrencyLimit::new(0).try_acquire().is_none());
}

/// One permit is in use on worker 0. One waiter each on workers 1 and 0; the latter waits since `later_ms` later.
fn limit_with_two_waiters(
    later_ms: u64,
) -> (Arc<ConcurrencyLimit>, Permit, PermitWait, PermitWait) {
    let limit = ConcurrencyLimit::queued(1, 2, 2);
    let first = limit.try_acquire().expect("it is free");
    assert!(limit.try_acquire_on(1).is_none());
    let (mut other, mut own) = (limit.acquire(1, 0), limit.acquire(0, later_ms));
    assert!(Pin::new(&mut other).poll(&mut context()).is_pending());
    assert!(Pin::new(&mut own).poll(&mut context()).is_pending());
    (limit, first, other, own)
}

#[test]
fn permit_goes_to_the_same_worker_then_to_others() {
    let (limit, first, other, own) = limit_with_two_waiters(WAIT_LEAD_MIN_MS);
    let (mut other, mut own) = (pin!(other), pin!(own));
    drop(first);
    assert!(other.as_mut().poll(&mut context()).is_pending());
    let Poll::Ready(second) = own.as_mut().poll(&mut context()) else {
        panic!("it is the worker's own turn");
    };
    drop(second);
    let third = other.as_mut().poll(&mut context());
    assert!(third.is_ready());
    assert!(limit.try_acquire_on(1).is_none());
    drop(third);
    assert!(limit.try_acquire_on(1).is_some());
    assert_eq!((limit.in_use(), limit.waiting()), (0, 0));
}

#[test]
fn much_older_waiter_of_another_worker_is_admitted_first() {
    let (_, first, other, own) = limit_with_two_waiters(WAIT_LEAD_MIN_MS + 1);
    let (other, own) = (pin!(other), pin!(own));
    drop(first);
    assert!(own.poll(&mut context()).is_pending());
    assert!(other.poll(&mut context()).is_ready());
}

#[test]
fn dropped_waiter_releases_its_permit() {
    let limit = ConcurrencyLimit::queued(1, 1, 9);
    let first = limit.try_acquire().expect("it is free");
    let mut gone = Box::pin(limit.acquire(0, 0));
    let mut called = Box::pin(limit.acquire(0, 0));
    let mut last = pin!(limit.acquire(0, 0));
    assert!(gone.as_mut().poll(&mut context()).is_pending());
    assert!(called.as_mut().poll(&mut context()).is_pending());
    assert!(last.as_mut().poll(&mut context()).is_pending());
    drop(gone);
    drop(first);
    // `called` was admitted when `first` was dropped, but has not polled: `last` gets its permit.
    drop(called);
    assert!(last.as_mut().poll(&mut context()).is_ready());
    assert_eq!((limit.in_use(), limit.waiting()), (0, 0));
}

#[test]
fn queue_is_bounded_and_the_limit_can_be_raised() {
    let limit = ConcurrencyLimit::queued(0, 1, 1);
    let mut first = pin!(limit.acquire(0, 0));
    let mut second = pin!(limit.acquire(0, 0));
    assert!(first.as_mut().poll(&mut context()).is_pending());
    let refused = second.as_mut().poll(&mut context());
    assert!(matches!(refused, Poll::Ready(Err(TooManyWaiters))));
    limit.set_max(2);
    let permit = first.as_mut().poll(&mut context());
    assert!(matches!(permit, Poll::Ready(Ok(_))));
    let other = second.as_mut().poll(&mut context());
    assert!(matches!(other, Poll::Ready(Ok(_))));
    assert!(limit.try_acquire().is_none());
}

#[test]
fn lowered_limit_holds_once_permits_are_returned() {
    let limit = ConcurrencyLimit::queued(2, 1, usize::MAX);
    let (first, second) = (limit.try_acquire(), limit.try_acquire());
    limit.set_max(1);
    drop(first);
    assert!(limit.try_acquire().is_none());
    let mut waiter = pin!(limit.acquire(0, 0));
    assert!(waiter.as_mut().poll(&mut context()).is_pending());
    drop(second);
    assert!(waiter.as_mut().poll(&mut context()).is_ready());
}

/// A new request must not overtake a waiter that was admitted but has not polled yet.
#[test]
fn new_requests_do_not_overtake_admitted_waiters() {
    let (limit, first, other, own) = limit_with_two_waiters(0);
    drop(first);
    assert!(limit.try_acquire().is_none());
    drop((other, own));
    assert!(limit.try_acquire().is_some());
}

/// Threads that acquire, wait, give up and release as fast as possible: none waits forever, and the limit holds.
#[test]
fn no_wakeup_is_lost_between_threads() {
    // A lost wake-up would make a thread sleep forever.
    const ROUNDS: usize = 20_000;
    let limit = ConcurrencyLimit::queued(2, 4, usize::MAX);
    let inside = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (limit, inside) = (&limit, &inside);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    // Some waiters give up, perhaps while they are being admitted.
                    if round % 7 == worker {
                        let mut gone = pin!(limit.acquire(worker, 0));
                        let _ = gone.as_mut().poll(&mut context());
                    }
                    let permit = block_on(limit.acquire(worker, 0)).expect("a long line");
                    assert!(inside.fetch_add(1, SeqCst) < 2);
                    inside.fetch_sub(1, SeqCst);
                    drop(permit);
                }
            });
        }
    });
    assert_eq!((limit.in_use(), limit.waiting()), (0, 0));
}

/// Sleeps until it is woken; polls only then.
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
