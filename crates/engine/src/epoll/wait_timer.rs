//! The timeout of a wait: a kernel timer (timerfd) that stays armed across waits.
//!
//! The kernel sets up and removes a timeout of `epoll_wait` for each wait, and a busy worker waits once per request.
//! Its deadlines, in contrast, are those of idle connections and seldom move closer. So the timer is armed only for an
//! earlier deadline than its current one; when it fires too early, the worker waits once more.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// To be registered for input, edge-triggered, so that it need not be read.
pub struct WaitTimer {
    timer: OwnedFd,
    /// Its expiry, in monotonic ms; none if it is disarmed or has fired.
    fires_ms: Option<u64>,
}

impl WaitTimer {
    /// A disarmed timer.
    ///
    /// # Errors
    /// When the process is out of descriptors.
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
        if self.fires_ms.is_some_and(|fires_ms| fires_ms <= end_ms) {
            return true;
        }
        // Relative: `now_ms` comes from a coarse clock, which lags behind the clock of an absolute timer.
        let once = Itimerspec {
            it_interval: timespec(0),
            it_value: timespec(timeout_ms),
        };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
        self.fires_ms = set.is_ok().then_some(end_ms);
        set.is_ok()
    }

    /// Records that its event has arrived.
    pub fn has_fired(&mut self) {
        self.fires_ms = None;
    }
}

impl AsFd for WaitTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
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

    /// Whether the timer is armed for about `timeout_ms` from now, in the steps of these tests.
    fn is_set_for(timer: &WaitTimer, timeout_ms: u64) -> bool {
        let left = timerfd_gettime(&timer.timer).expect("a timer").it_value;
        left.tv_sec >= (timeout_ms / 1000 - 500) as i64 && left.tv_sec <= (timeout_ms / 1000) as i64
    }

    #[test]
    fn it_is_set_anew_only_for_an_earlier_end() {
        let mut timer = WaitTimer::new().expect("a timer");
        assert!(timer.set(0, 9_000_000) && is_set_for(&timer, 9_000_000));
        // A later deadline, and an equal one: the timer already fires early enough.
        assert!(timer.set(1000, 9_500_000) && is_set_for(&timer, 9_000_000));
        assert!(timer.set(1_000_000, 8_000_000) && is_set_for(&timer, 9_000_000));
        assert!(timer.set(1_000_000, 5_000_000) && is_set_for(&timer, 5_000_000));
        timer.has_fired();
        assert!(timer.set(1_000_000, 7_000_000) && is_set_for(&timer, 7_000_000));
    }
}
