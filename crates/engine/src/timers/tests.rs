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

/// Timers of an awake worker at the time 1000 ms, a counter, and a waker that increments the counter.
fn timers() -> (WorkerTimers, Arc<Count>, Waker) {
    let event_count = EventCount::new(|| {});
    let count = Arc::new(Count::default());
    (
        WorkerTimers::new(event_count, 1000),
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
fn timer_fires_within_one_tick_and_never_early() {
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
fn timer_beyond_the_wheel_range_fires_on_time() {
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
fn started_and_dropped_timers_share_one_wheel_entry() {
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
fn reused_entry_is_rescheduled_for_an_earlier_timer() {
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
    // Conversely, an early check of the entry does not end a later timer.
    let mut long = timers.sleep(ms(5000));
    assert!(long.poll_due(&mut context).is_pending());
    advance(&timers, 3000);
    assert_eq!(woken.0.load(SeqCst), 1);
    assert!(long.poll_due(&mut context).is_pending());
    advance(&timers, 1020 + 5000 + 2 * TICK_MS);
    assert_eq!(woken.0.load(SeqCst), 2);
}

#[test]
fn reset_restarts_the_timer() {
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
fn zero_duration_is_ready_and_max_duration_is_not_scheduled() {
    let (timers, _, waker) = timers();
    let mut context = Context::from_waker(&waker);
    assert!(timers.sleep(ms(0)).poll_due(&mut context).is_ready());
    let mut never = timers.sleep(Duration::MAX);
    assert!(never.poll_due(&mut context).is_pending());
    assert_eq!(timers.bound_wait(None), None);
}

/// Another thread starts a timer while the worker is parked, so the worker's clock shows the start of the wait.
#[test]
fn timer_started_while_parked_counts_from_the_end_of_the_wait() {
    let unparked = Arc::new(AtomicUsize::new(0));
    let count = unparked.clone();
    let event_count = EventCount::new(move || {
        count.fetch_add(1, SeqCst);
    });
    let timers = WorkerTimers::new(event_count.clone(), 1000);
    let woken = Arc::new(Count::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    assert!(event_count.prepare());
    // The worker's wait has lasted five seconds by now.
    let mut sleep = timers.sleep(ms(100));
    let mut dropped = timers.sleep(ms(100));
    assert!(sleep.poll_due(&mut context).is_pending());
    assert!(dropped.poll_due(&mut context).is_pending());
    drop(dropped);
    assert_eq!(unparked.load(SeqCst), 1, "the wait takes no account of it");
    assert_eq!(timers.bound_wait(None), Some(0));
    advance(&timers, 6000);
    event_count.resume();
    assert_eq!(woken.0.load(SeqCst), 0);
    assert!(sleep.poll_due(&mut context).is_pending());
    advance(&timers, 6099);
    assert!(sleep.poll_due(&mut context).is_pending());
    advance(&timers, 6100 + TICK_MS);
    assert_eq!(woken.0.load(SeqCst), 1);
    assert!(sleep.poll_due(&mut context).is_ready());
}

/// Compares random operations with a list of deadlines.
#[test]
fn random_start_and_drop_keep_other_timers_on_time() {
    for seed in 1..200u64 {
        let mut random = seed;
        let mut random_below = move |below: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
            (random >> 33) % below
        };
        let (timers, _, _) = timers();
        let mut now_ms = 1000;
        let mut all: Vec<(TimerSleep, u64, Arc<Count>)> = Vec::new();
        for _ in 0..300 {
            match random_below(4) {
                0 | 1 => {
                    let time_ms = random_below(30_000) + 1;
                    let mut sleep = timers.sleep(ms(time_ms));
                    let count = Arc::new(Count::default());
                    let waker = Waker::from(count.clone());
                    let polled = sleep.poll_due(&mut Context::from_waker(&waker));
                    assert!(polled.is_pending());
                    all.push((sleep, now_ms + time_ms, count));
                }
                2 if !all.is_empty() => {
                    let at = random_below(all.len() as u64) as usize;
                    drop(all.swap_remove(at));
                }
                _ => {
                    let to_ms = now_ms + random_below(3000);
                    // As in a driver, no wait is longer than the bound.
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
