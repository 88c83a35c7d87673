//! The time of day, which tests can advance.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

/// A sleeping task checks the time at this interval, since the machine may be suspended or its clock set.
const SLEEP_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// The system's clock. All clones share one state.
#[derive(Clone, Debug, Default)]
pub struct SystemClock(Arc<ClockOffset>);

#[derive(Debug, Default)]
struct ClockOffset {
    seconds: AtomicU64,
    advanced: Notify,
}

impl SystemClock {
    /// Seconds since 1970-01-01 UTC.
    pub fn unix_s(&self) -> u64 {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
        elapsed.map_or(0, |elapsed| elapsed.as_secs()) + self.0.seconds.load(Ordering::Relaxed)
    }

    /// Advances the clock and wakes its sleepers. For tests.
    pub fn advance(&self, seconds: u64) {
        self.0.seconds.fetch_add(seconds, Ordering::Relaxed);
        self.0.advanced.notify_waiters();
    }

    /// Sleeps until the clock has reached `unix_s`.
    pub(crate) async fn sleep_until(&self, unix_s: u64) {
        loop {
            // The waiter is registered before the time is read, so that no call of `advance` in between is missed.
            let advanced = self.0.advanced.notified();
            tokio::pin!(advanced);
            advanced.as_mut().enable();
            let remaining = Duration::from_secs(unix_s.saturating_sub(self.unix_s()));
            if remaining.is_zero() {
                return;
            }
            tokio::select! {
                () = advanced => {}
                () = tokio::time::sleep(remaining.min(SLEEP_INTERVAL_MAX)) => {}
            }
        }
    }
}
