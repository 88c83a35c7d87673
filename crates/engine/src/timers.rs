//! Timers for the tasks of a worker. Their clock is the driver's: monotonic ms, updated after each wait.
//!
//! Starting and dropping a timer costs two stores and no list operation: when a timer is dropped, its entry stays in
//! the timer wheel, and usually the entry's next timer needs no other slot. So a timer that is started and dropped for
//! each request enters the wheel only once per revolution of the wheel. A driver limits each wait by
//! [`WorkerTimers::bound_wait`], then sets the time and wakes the timers that are due.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lowroad_timer_wheel::TimerWheel;

use crate::event_count::EventCount;
use crate::mailbox::WorkerNotify as _;

/// The width of a slot of a worker's timer wheels. Timers fire up to this much late, and never early.
pub(crate) const TICK_MS: u64 = 8;
/// No deadline.
const NEVER: u64 = u64::MAX;

/// The timers of one worker. Clones share them.
#[derive(Clone)]
pub struct WorkerTimers(Arc<TimerState>);

struct TimerState {
    /// The time after the last wait.
    now_ms: AtomicU64,
    /// When the wheel is to be checked next.
    next_ms: AtomicU64,
    table: Mutex<TimerTable>,
    event_count: Arc<EventCount>,
}

struct TimerTable {
    wheel: TimerWheel<TICK_MS>,
    entries: Vec<TimerEntry>,
    free: Vec<u32>,
    /// Entries of timers that other threads started while the worker was parked: their time starts at the end of that
    /// wait.
    unset: Vec<u32>,
    due: Vec<u32>,
    wakers: Vec<Waker>,
}

struct TimerEntry {
    /// The deadline of the current timer; its duration if the entry is unset.
    deadline_ms: u64,
    /// The entry is in the list of unset entries.
    is_unset: bool,
    waker: Option<Waker>,
}

/// The timeout elapsed before the work was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutElapsed;

impl WorkerTimers {
    /// No timers, at `now_ms`; the eventcount is the worker's.
    pub fn new(event_count: Arc<EventCount>, now_ms: u64) -> WorkerTimers {
        WorkerTimers(Arc::new(TimerState {
            now_ms: AtomicU64::new(now_ms),
            next_ms: AtomicU64::new(NEVER),
            table: Mutex::new(TimerTable {
                wheel: TimerWheel::new(0, now_ms),
                entries: Vec::new(),
                free: Vec::new(),
                unset: Vec::new(),
                due: Vec::new(),
                wakers: Vec::new(),
            }),
            event_count,
        }))
    }

    /// Monotonic ms of the worker's last wait.
    pub fn now_ms(&self) -> u64 {
        self.0.now_ms.load(Relaxed)
    }

    /// When the wheel is to be checked next, if at all.
    pub fn next_ms(&self) -> Option<u64> {
        Some(self.0.next_ms.load(Relaxed)).filter(|next_ms| *next_ms != NEVER)
    }

    /// The timeout of a wait: `timeout_ms`, or less if a timer is due earlier. Called after the worker has announced
    /// its wait, as a timer that is started afterwards ends the wait.
    pub fn bound_wait(&self, timeout_ms: Option<u64>) -> Option<u64> {
        let next_ms = self.next_ms();
        let remaining_ms = next_ms.map(|next_ms| next_ms.saturating_sub(self.now_ms()));
        [timeout_ms, remaining_ms].into_iter().flatten().min()
    }

    /// Sets the time after a wait. Called before the eventcount's `resume`, as threads that see the worker awake use
    /// this time.
    pub fn set_now(&self, now_ms: u64) {
        self.0.now_ms.store(now_ms, Relaxed);
    }

    /// Wakes the timers that are due.
    pub fn wake_due(&self) {
        let now_ms = self.now_ms();
        if now_ms < self.0.next_ms.load(Relaxed) {
            return;
        }
        let mut table = self.lock();
        table.start_unset(now_ms);
        table.wake_due(now_ms);
        self.store_next(&table);
        let mut wakers = std::mem::take(&mut table.wakers);
        drop(table);
        // Called without the lock, as a woken task may start or drop timers.
        wakers.drain(..).for_each(Waker::wake);
        self.lock().wakers = wakers;
    }

    /// A timer that is due `time` from now. The timer enters the wheel when it is first polled.
    pub fn sleep(&self, time: Duration) -> TimerSleep {
        let time_ms = ms_of(time);
        TimerSleep {
            timers: self.clone(),
            deadline: self.deadline_after(time_ms),
            entry: None,
        }
    }

    /// Waits for `work`, but no longer than `time`.
    ///
    /// # Errors
    /// [`TimeoutElapsed`]; the work is cancelled.
    pub async fn timeout<T>(
        &self,
        time: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, TimeoutElapsed> {
        let mut sleep = self.sleep(time);
        let mut work = pin!(work);
        std::future::poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(done));
            }
            sleep.poll_due(context).map(|()| Err(TimeoutElapsed))
        })
        .await
    }

    /// The number of timers.
    pub fn count(&self) -> usize {
        let table = self.lock();
        table.entries.len() - table.free.len()
    }

    fn deadline_after(&self, time_ms: u64) -> TimerDeadline {
        match time_ms {
            NEVER => TimerDeadline::At(NEVER),
            // While the worker is parked, its time may be long out of date.
            _ if self.0.event_count.is_parked() => TimerDeadline::In(time_ms),
            _ => TimerDeadline::At(self.now_ms().saturating_add(time_ms)),
        }
    }

    fn store_next(&self, table: &TimerTable) {
        let next_ms = match table.unset.is_empty() {
            true => table.wheel.next().unwrap_or(NEVER),
            // Unset entries get their deadline at the end of the wait, which must end immediately.
            false => 0,
        };
        self.0.next_ms.store(next_ms, Relaxed);
    }

    /// Ensures that the wheel is checked at `at_ms`; if necessary, ends a wait in progress.
    fn check_by(&self, at_ms: u64) {
        if at_ms < self.0.next_ms.load(Relaxed) {
            self.0.next_ms.store(at_ms, Relaxed);
            self.0.event_count.notify();
        }
    }

    fn lock(&self) -> MutexGuard<'_, TimerTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TimerTable {
    fn start_unset(&mut self, now_ms: u64) {
        for index in std::mem::take(&mut self.unset) {
            let entry = &mut self.entries[index as usize];
            if std::mem::take(&mut entry.is_unset) {
                entry.deadline_ms = entry.deadline_ms.saturating_add(now_ms);
                self.schedule(index);
            }
        }
    }

    /// Wakes the timers that are due, and schedules entries with a later deadline again.
    fn wake_due(&mut self, now_ms: u64) {
        let mut due = std::mem::take(&mut self.due);
        due.extend(std::iter::from_fn(|| self.wheel.pop(now_ms)));
        for index in due.drain(..) {
            let entry = &mut self.entries[index as usize];
            // The entry's timer has no deadline yet, or was dropped.
            if entry.is_unset || entry.deadline_ms == NEVER {
                continue;
            }
            if entry.deadline_ms <= now_ms {
                self.wakers.extend(entry.waker.take());
            } else {
                self.schedule(index);
            }
        }
        self.due = due;
    }

    /// Ensures that the entry is checked at its deadline. If it had to be moved to another slot, returns the time of
    /// the check.
    fn schedule(&mut self, index: u32) -> Option<u64> {
        self.wheel
            .schedule(index, self.entries[index as usize].deadline_ms)
    }

    fn take_entry(&mut self) -> u32 {
        // Freed entries are reused first: they may still be in the wheel, and their slot may fit.
        self.free.pop().unwrap_or_else(|| {
            self.entries.push(TimerEntry {
                deadline_ms: NEVER,
                is_unset: false,
                waker: None,
            });
            self.entries.len() as u32 - 1
        })
    }
}

/// The deadline of a timer.
#[derive(Clone, Copy)]
enum TimerDeadline {
    At(u64),
    /// This many ms after the end of the wait in progress.
    In(u64),
}

/// A timer. Dropping it cancels it.
pub struct TimerSleep {
    timers: WorkerTimers,
    deadline: TimerDeadline,
    entry: Option<u32>,
}

impl TimerSleep {
    /// Restarts the timer, which is then due `time` from now.
    pub fn reset(&mut self, time: Duration) {
        self.release_entry();
        self.deadline = self.timers.deadline_after(ms_of(time));
    }

    /// Ready once the timer is due.
    pub fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.entry {
            None => self.register(context),
            Some(index) => self.poll_entry(index, context),
        }
    }

    fn register(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (timers, deadline) = (&self.timers, self.deadline);
        match deadline {
            TimerDeadline::At(NEVER) => return Poll::Pending,
            TimerDeadline::At(at_ms) if at_ms <= timers.now_ms() => return Poll::Ready(()),
            _ => {}
        }
        let mut table = timers.lock();
        let index = table.take_entry();
        // An empty wheel does not advance, so it is set to the current time first.
        self.entry = Some(index);
        if timers.0.next_ms.load(Relaxed) == NEVER {
            table.wheel.skip_to(timers.now_ms());
        }
        let entry = &mut table.entries[index as usize];
        entry.waker = Some(context.waker().clone());
        let check_ms = match deadline {
            TimerDeadline::At(at_ms) => {
                entry.deadline_ms = at_ms;
                table.schedule(index)
            }
            TimerDeadline::In(time_ms) => {
                (entry.deadline_ms, entry.is_unset) = (time_ms, true);
                table.unset.push(index);
                Some(0)
            }
        };
        // The lock is still held, as the end of a wait also stores the time of the next check.
        if let Some(at_ms) = check_ms {
            timers.check_by(at_ms);
        }
        Poll::Pending
    }

    fn poll_entry(&mut self, index: u32, context: &mut Context<'_>) -> Poll<()> {
        let mut table = self.timers.lock();
        let entry = &mut table.entries[index as usize];
        if !entry.is_unset && entry.deadline_ms <= self.timers.now_ms() {
            drop(table);
            self.release_entry();
            // Later polls are ready too.
            self.deadline = TimerDeadline::At(0);
            return Poll::Ready(());
        }
        match &mut entry.waker {
            Some(stored) if stored.will_wake(context.waker()) => {}
            slot => *slot = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Frees the entry for another timer.
    fn release_entry(&mut self) {
        let Some(index) = self.entry.take() else {
            return;
        };
        let mut table = self.timers.lock();
        let entry = &mut table.entries[index as usize];
        // The entry may stay in the wheel; without a deadline its check does nothing.
        entry.deadline_ms = NEVER;
        let waker = entry.waker.take();
        if std::mem::take(&mut entry.is_unset) {
            table.unset.retain(|unset| *unset != index);
        }
        table.free.push(index);
        drop(table);
        // Dropped without the lock, as the waker's destructor may call this module.
        drop(waker);
    }
}

impl Future for TimerSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.poll_due(context)
    }
}

impl Drop for TimerSleep {
    fn drop(&mut self) {
        self.release_entry();
    }
}

fn ms_of(time: Duration) -> u64 {
    // Rounded up, so that a timer is never early.
    let ms = time.as_nanos().div_ceil(1_000_000);
    u64::try_from(ms).unwrap_or(NEVER)
}

#[cfg(test)]
mod tests;
