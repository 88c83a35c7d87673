use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Wake;

use super::*;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Timers at 1000 ms of a worker that is awake, and a waker that counts its calls.
fn timers() -> (WorkerTimers, Arc<Count>, Waker) {
    let bell = EventCount::new(|| {});
    let count = Arc::new(Count::default());
    (
        WorkerTimers::new(bell, 1000),
        count.clone(),
        Waker::from(count.clone()),
    )
}

fn advance(timers: &WorkerTimers, now_ms: u64) {
    timers.set_now(now_ms);
    timers.wake_due();
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_timer_is_due_in_time_and_never_early() {
    let (timers, woken, waker) = timers();
    let mut context = Context::from_waker(&waker);
    assert_eq!(timers.bound_wait(None), None);
    assert_eq!(timers.bound_wait(Some(7)), Some(7));
    let mut sleep = timers.sleep(ms(100));
    assert!(sleep.poll_due(&mut context).is_pending());
    let left_ms = timers.bound_wait(None).expect("a bound");
    assert!((100..100 + TICK_MS).contains(&left_ms), "{left_ms}");
    assert_eq!(timers.bound_wait(Some(7)), Some(7));
    advance(&timers, 1099);
    assert_eq!(woken.0.load(SeqCst), 0);
    assert!(sleep.poll_due(&mut context).is_pending());
    advance(&timers, 1000 + left_ms);
    assert_eq!(woken.0.load(SeqCst), 1);
    assert!(sleep.poll_due(&mut context).is_ready());
    assert!(sleep.poll_due(&mut context).is_ready());
    assert_eq!(timers.count(), 0);
}

#[test]
fn a_timer_beyond_the_wheels_horizon_is_due_then_and_not_before() {
    let (timers, woken, waker) = timers();
    let mut context = Context::from_waker(&waker);
    let mut sleep = timers.sleep(ms(60_000));
    assert!(sleep.poll_due(&mut context).is_pending());
    let mut now_ms = 1000;
    while woken.0.load(SeqCst) == 0 {
        now_ms += timers.bound_wait(None).expect("a bound").max(1);
        advance(&timers, now_ms);
    }
    assert!((61_000..61_000 + TICK_MS).contains(&now_ms), "{now_ms}");
    assert!(sleep.poll_due(&mut context).is_ready());
}

#[test]
fn what_is_begun_and_dropped_again_and_again_is_noted_once() {
    let (timers, woken, waker) = timers();
    let mut context = Context::from_waker(&waker);
    for now_ms in 1000..5000 {
        advance(&timers, now_ms);
        let mut sleep = timers.sleep(ms(10_000));
        assert!(sleep.poll_due(&mut context).is_pending());
    }
    let bound = timers.bound_wait(None).expect("the first one's note");
    assert!(bound <= 6000 + TICK_MS, "{bound}");
    assert_eq!(timers.lock().entries.len(), 1);
    advance(&timers, 20_000);
    assert_eq!(woken.0.load(SeqCst), 0, "nobody waits any more");
    assert_eq!(timers.bound_wait(None), None);
}

#[test]
fn an_entry_with_a_later_note_is_looked_at_for_an_earlier_timer() {
    let (timers, woken, waker) = timers();
    let mut context = Context::from_waker(&waker);
    let mut long = timers.sleep(ms(1000));
    assert!(long.poll_due(&mut context).is_pending());
    drop(long);
    let mut short = timers.sleep(ms(20));
    assert!(short.poll_due(&mut context).is_pending());
    advance(&timers, 1020 + TICK_MS);
    assert_eq!(woken.0.load(SeqCst), 1);
    assert!(short.poll_due(&mut context).is_ready());
    // And vice versa: the earlier check does not end the later timer.
    let mut long = timers.sleep(ms(5000));
    assert!(long.poll_due(&mut context).is_pending());
    advance(&timers, 3000);
    assert_eq!(woken.0.load(SeqCst), 1);
    assert!(long.poll_due(&mut context).is_pending());
    advance(&timers, 1020 + 5000 + 2 * TICK_MS);
    assert_eq!(woken.0.load(SeqCst), 2);
}

#[test]
fn a_timer_begins_anew() {
    let (timers, woken, waker) = timers();
    let mut context = Context::from_waker(&waker);
    let mut sleep = timers.sleep(ms(50));
    assert!(sleep.poll_due(&mut context).is_pending());
    advance(&timers, 1040);
    sleep.reset(ms(50));
    assert!(sleep.poll_due(&mut context).is_pending());
    advance(&timers, 1060);
    assert_eq!(woken.0.load(SeqCst), 0);
    advance(&timers, 1100);
    assert_eq!(woken.0.load(SeqCst), 1);
    assert!(sleep.poll_due(&mut context).is_ready());
}

#[test]
fn no_time_at_all_is_over_at_once_and_for_ever_is_not_noted() {
    let (timers, _, waker) = timers();
    let mut context = Context::from_waker(&waker);
    assert!(timers.sleep(ms(0)).poll_due(&mut context).is_ready());
    let mut never = timers.sleep(Duration::MAX);
    assert!(never.poll_due(&mut context).is_pending());
    assert_eq!(timers.bound_wait(None), None);
}

/// Another thread starts a timer while the worker is parked: its clock shows the start of the wait.
#[test]
fn time_that_was_slept_does_not_count() {
    let unparked = Arc::new(AtomicUsize::new(0));
    let count = unparked.clone();
    let bell = EventCount::new(move || {
        count.fetch_add(1, SeqCst);
    });
    let timers = WorkerTimers::new(bell.clone(), 1000);
    let woken = Arc::new(Count::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    assert!(bell.prepare());
    // Five seconds later.
    let mut sleep = timers.sleep(ms(100));
    let mut dropped = timers.sleep(ms(100));
    assert!(sleep.poll_due(&mut context).is_pending());
    assert!(dropped.poll_due(&mut context).is_pending());
    drop(dropped);
    assert_eq!(unparked.load(SeqCst), 1, "the wait takes no account of it");
    assert_eq!(timers.bound_wait(None), Some(0));
    advance(&timers, 6000);
    bell.resume();
    assert_eq!(woken.0.load(SeqCst), 0);
    assert!(sleep.poll_due(&mut context).is_pending());
    advance(&timers, 6099);
    assert!(sleep.poll_due(&mut context).is_pending());
    advance(&timers, 6100 + TICK_MS);
    assert_eq!(woken.0.load(SeqCst), 1);
    assert!(sleep.poll_due(&mut context).is_ready());
}

/// Random operations, compared with a list of deadlines.
#[test]
fn whatever_is_begun_reset_and_dropped_the_others_are_due_in_time() {
    for seed in 1..200u64 {
        let mut random = seed;
        let mut dice = move |below: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
            (random >> 33) % below
        };
        let (timers, _, _) = timers();
        let mut now_ms = 1000;
        let mut all: Vec<(TimerSleep, u64, Arc<Count>)> = Vec::new();
        for _ in 0..300 {
            match dice(4) {
                0 | 1 => {
                    let time_ms = dice(30_000) + 1;
                    let mut sleep = timers.sleep(ms(time_ms));
                    let count = Arc::new(Count::default());
                    let waker = Waker::from(count.clone());
                    let polled = sleep.poll_due(&mut Context::from_waker(&waker));
                    assert!(polled.is_pending());
                    all.push((sleep, now_ms + time_ms, count));
                }
                2 if !all.is_empty() => {
                    let at = dice(all.len() as u64) as usize;
                    drop(all.swap_remove(at));
                }
                _ => {
                    let to_ms = now_ms + dice(3000);
                    // Like a driver: no wait is longer than the bound.
                    while now_ms < to_ms {
                        let left_ms = timers.bound_wait(Some(to_ms - now_ms)).expect("a bound");
                        now_ms += left_ms.max(1);
                        advance(&timers, now_ms);
                    }
                }
            }
            all.retain_mut(|(sleep, due_ms, count)| {
                let is_late = now_ms >= *due_ms + TICK_MS;
                let woken = count.0.load(SeqCst) > 0;
                assert!(woken || !is_late, "seed {seed}: not woken");
                assert!(!woken || now_ms >= *due_ms, "seed {seed}: early");
                let waker = Waker::from(count.clone());
                let polled = sleep.poll_due(&mut Context::from_waker(&waker));
                assert_eq!(polled.is_ready(), now_ms >= *due_ms, "seed {seed}");
                polled.is_pending()
            });
            assert_eq!(timers.count(), all.len(), "seed {seed}");
        }
    }
}
