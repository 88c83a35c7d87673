//! Checks that no permit is lost and that the limit is never exceeded.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use lowroad_config as config;

use super::*;

/// Two classes, the first with three times the weight of the second; `calls_max` calls at a time.
fn classes(calls_max: usize) -> Arc<ClassTable> {
    let class = |name: &str, weight| config::ClassConfig {
        weight,
        deadline_ms: 3_600_000,
        ..config::ClassConfig::new(name.into())
    };
    let rules = [class("gold", 3), class("bronze", 1)];
    let bounds = lowroad_limits::CallBounds {
        calls_max,
        waiting_max: 100,
    };
    Arc::new(ClassTable::new(&[&rules[0], &rules[1]], bounds))
}

fn arrive(classes: &Arc<ClassTable>, number: usize) -> ClassAdmission {
    let classes = classes.clone();
    ClassChoice { classes, number }.arrive()
}

fn waits(admission: ClassAdmission) -> ClassWait {
    match admission {
        ClassAdmission::Waits(turn) => turn,
        _ => panic!("there is no room"),
    }
}

fn poll(turn: &mut ClassWait) -> Poll<Option<ClassPermit>> {
    Pin::new(turn).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn permit_of_dropped_waiter_goes_to_next_waiter() {
    let classes = classes(1);
    let first = arrive(&classes, 0);
    let mut gone = waits(arrive(&classes, 0));
    let called = waits(arrive(&classes, 0));
    let mut last = waits(arrive(&classes, 0));
    assert!(poll(&mut gone).is_pending() && poll(&mut last).is_pending());
    drop(gone);
    drop(first);
    assert!(poll(&mut last).is_pending());
    // Admitted, but dropped before being polled again.
    drop(called);
    let Poll::Ready(Some(permit)) = poll(&mut last) else {
        panic!("it is its turn");
    };
    drop(permit);
    let numbers = |class| classes.lock().counts(class);
    assert_eq!((numbers(0), numbers(1)), ((0, 0), (0, 0)));
}

/// Threads that acquire, wait, give up and release as fast as they can.
#[test]
fn concurrent_waiters_neither_lose_permits_nor_exceed_limit() {
    let classes = classes(2);
    let inside = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (classes, inside) = (&classes, &inside);
            scope.spawn(move || {
                for round in 0..10_000 {
                    if round % 7 == thread {
                        drop(arrive(classes, round % 2));
                    }
                    let permit = match arrive(classes, thread % 2) {
                        ClassAdmission::Begins(permit) => permit,
                        ClassAdmission::Waits(turn) => block_on(turn).expect("there are places"),
                        ClassAdmission::Shed => panic!("there are places"),
                    };
                    assert!(inside.fetch_add(1, SeqCst) < 2);
                    inside.fetch_sub(1, SeqCst);
                    drop(permit);
                }
            });
        }
    });
    let numbers = |class| classes.lock().counts(class);
    assert_eq!((numbers(0), numbers(1)), ((0, 0), (0, 0)));
}

/// Parks the thread until it is woken, and polls only then.
fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    struct Thread(std::thread::Thread);
    impl std::task::Wake for Thread {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Thread(std::thread::current())));
    loop {
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
