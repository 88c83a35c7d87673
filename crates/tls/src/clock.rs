//! The time of day as its owner has set it. `rustls` asks for it when certificates are verified and tickets are made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// Seconds since 1970, set by whoever has a clock. All copies are one.
///
/// Workers may share one and all set it: they tell the same time, and what it is for is measured in hours.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// One that stands at `unix_s`.
    pub fn new(unix_s: u64) -> Clock {
        Clock(Arc::new(AtomicU64::new(unix_s)))
    }

    /// It is now this late.
    pub fn set(&self, unix_s: u64) {
        self.0.store(unix_s, Ordering::Relaxed);
    }

    /// What was set last.
    pub fn unix_s(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(
            self.unix_s(),
        )))
    }
}
