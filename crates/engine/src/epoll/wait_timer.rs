//! The timeout of a wait: a kernel timer (timerfd) that stays armed across waits.
//!
//! The kernel sets up and removes a timeout of `epoll_wait` for each wait, and a busy worker waits once per request.
//! Most deadlines of a worker are those of idle connections, and the next deadline seldom becomes earlier. So the timer
//! is rearmed only for a deadline before its expiry; if it fires too early, the worker waits once more.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// The timer that ends a wait. It is registered with epoll for input, edge-triggered, so it need not be read.
pub struct WaitTimer {
    timer: OwnedFd,
    /// The timer's expiry in monotonic ms; `None` if it is disarmed or has fired.
    fires_ms: Option<u64>,
}

impl WaitTimer {
    /// A disarmed timer.
    ///
    /// # Errors
    /// The process is out of file descriptors.
    pub fn new() -> io::Result<WaitTimer> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(WaitTimer {
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            fires_ms: None,
        })
    }

    /// Ensures that the timer fires within `timeout_ms` from now. False if the kernel refuses.
    pub fn set(&mut self, now_ms: u64, timeout_ms: u64) -> bool {
        let end_ms = now_ms.saturating_add(timeout_ms);
        // A timer that fires early costs one wake-up; setting it before each wait would cost a system call each time.
        if self.fires_ms.is_some_and(|fires_ms| fires_ms <= end_ms) {
            return true;
        }
        // The time is relative, as `now_ms` comes from a coarse clock, which lags behind the clock of an absolute
        // timer.
        let once = Itimerspec {
            it_interval: timespec(0),
            it_value: timespec(timeout_ms),
        };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
        self.fires_ms = set.is_ok().then_some(end_ms);
        set.is_ok()
    }

    /// Records that the timer's event has arrived.
    pub fn clear_fired(&mut self) {
        self.fires_ms = None;
    }
}

impl AsFd for WaitTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

/// A timer that ends waits at a precise time, for protocols with deadlines in microseconds. It is registered like a
/// [`WaitTimer`].
///
/// Such deadlines move with nearly each packet, mostly further away, so this timer, too, is rearmed only for an earlier
/// time.
pub struct WakeTimer {
    timer: OwnedFd,
    /// When waits end.
    deadline_us: Option<u64>,
    /// The timer's expiry in monotonic µs; `None` if it is disarmed or has fired.
    fires_us: Option<u64>,
}

impl WakeTimer {
    /// A disarmed timer.
    ///
    /// # Errors
    /// The process is out of file descriptors.
    pub fn new() -> io::Result<WakeTimer> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(WakeTimer {
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            deadline_us: None,
            fires_us: None,
        })
    }

    /// Sets the time at which waits end, for the next [`WakeTimer::arm`].
    pub fn set(&mut self, at_us: Option<u64>) {
        self.deadline_us = at_us;
    }

    /// Ensures that the timer fires at the time that is set, or earlier. Called before each wait.
    pub fn arm(&mut self) {
        let Some(at_us) = self.deadline_us else {
            return;
        };
        if self.fires_us.is_some_and(|fires_us| fires_us <= at_us) {
            return;
        }
        let once = Itimerspec {
            it_interval: timespec(0),
            // A time of 0 would disarm the timer.
            it_value: timespec_of_us(at_us.max(1)),
        };
        // Absolute, unlike in `WaitTimer`: this deadline comes from the precise clock that the timer uses.
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once);
        self.fires_us = set.is_ok().then_some(at_us);
    }

    /// Records that the timer's event has arrived.
    pub fn clear_fired(&mut self) {
        self.fires_us = None;
    }
}

impl AsFd for WakeTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

fn timespec_of_us(us: u64) -> Timespec {
    Timespec {
        tv_sec: (us / 1_000_000).try_into().unwrap_or(i64::MAX),
        tv_nsec: (us % 1_000_000 * 1000) as i64,
    }
}

/// Converts milliseconds for the kernel.
pub fn timespec(ms: u64) -> Timespec {
    Timespec {
        tv_sec: (ms / 1000).try_into().unwrap_or(i64::MAX),
        tv_nsec: (ms % 1000 * 1_000_000) as i64,
    }
}

#[cfg(test)]
mod tests {
    use rustix::time::timerfd_gettime;

    use super::*;

    /// Whether the timer is armed for about `timeout_ms` from now, with the tolerance that these tests need.
    fn is_set_for(timer: &WaitTimer, timeout_ms: u64) -> bool {
        let left = timerfd_gettime(&timer.timer).expect("a timer").it_value;
        left.tv_sec >= (timeout_ms / 1000 - 500) as i64 && left.tv_sec <= (timeout_ms / 1000) as i64
    }

    #[test]
    fn wait_timer_is_rearmed_only_for_an_earlier_deadline() {
        let mut timer = WaitTimer::new().expect("a timer");
        assert!(timer.set(0, 9_000_000) && is_set_for(&timer, 9_000_000));
        // A later deadline, and an equal one: the timer already fires early enough.
        assert!(timer.set(1000, 9_500_000) && is_set_for(&timer, 9_000_000));
        assert!(timer.set(1_000_000, 8_000_000) && is_set_for(&timer, 9_000_000));
        assert!(timer.set(1_000_000, 5_000_000) && is_set_for(&timer, 5_000_000));
        timer.clear_fired();
        assert!(timer.set(1_000_000, 7_000_000) && is_set_for(&timer, 7_000_000));
    }

    #[test]
    fn wake_timer_is_rearmed_only_for_an_earlier_time() {
        const HOUR_US: u64 = 3_600_000_000;
        // These times are later than any uptime, so the timer never fires.
        let base_us = 1_000_000 * HOUR_US;
        let mut timer = WakeTimer::new().expect("a timer");
        let mut armed_after = |at_us| {
            timer.set(at_us);
            timer.arm();
            timer.fires_us
        };
        assert_eq!(armed_after(None), None);
        assert_eq!(armed_after(Some(base_us)), Some(base_us));
        assert_eq!(armed_after(Some(base_us + HOUR_US)), Some(base_us));
        let earlier_us = base_us - HOUR_US;
        assert_eq!(armed_after(Some(earlier_us)), Some(earlier_us));
        assert_eq!(armed_after(None), Some(earlier_us));
        timer.clear_fired();
        assert_eq!(timer.fires_us, None);
    }
}
