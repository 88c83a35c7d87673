//! The time of day, set by the caller. `rustls` uses it to verify certificates and to issue tickets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// Seconds since 1970, set by the event loops. Clones share one value.
///
/// Several workers may set the same clock: their times differ by little, and certificates and tickets last for hours.
#[derive(Clone, Debug, Default)]
pub struct TlsClock(Arc<AtomicU64>);

impl TlsClock {
    /// A clock that is set to `unix_s`.
    pub fn new(unix_s: u64) -> TlsClock {
        TlsClock(Arc::new(AtomicU64::new(unix_s)))
    }

    /// Sets the time.
    pub fn set(&self, unix_s: u64) {
        self.0.store(unix_s, Ordering::Relaxed);
    }

    /// The time that was set last.
    pub fn unix_s(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(
            self.unix_s(),
        )))
    }
}
