//! The time of day. Tests may set it ahead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

/// A sleep is looked at again after this long: the machine may have been suspended, or its clock set.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The system's clock. All copies are one.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<Ahead>);

#[derive(Debug, Default)]
struct Ahead {
    seconds: AtomicU64,
    moved: Notify,
}

impl Clock {
    /// Seconds since 1970.
    pub fn unix_s(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs()) + self.0.seconds.load(Ordering::Relaxed)
    }

    /// Sets it ahead; whoever sleeps on it sees so. For tests.
    pub fn advance(&self, seconds: u64) {
        self.0.seconds.fetch_add(seconds, Ordering::Relaxed);
        self.0.moved.notify_waiters();
    }

    /// Returns when it is this late.
    pub(crate) async fn sleep_until(&self, unix_s: u64) {
        loop {
            let moved = self.0.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let left = Duration::from_secs(unix_s.saturating_sub(self.unix_s()));
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = moved => {}
                () = tokio::time::sleep(left.min(LOOK_AGAIN)) => {}
            }
        }
    }
}
