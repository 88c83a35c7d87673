//! The two clocks, for helper threads and the access log; workers have their driver's otherwise.
//!
//! The C library reads them, and does not depend on the vDSO, the kernel's page of code for it: valgrind has none.

use std::sync::OnceLock;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

static REPLACEMENT: OnceLock<fn() -> Option<u64>> = OnceLock::new();

/// Monotonic ms, the same clock as the workers'.
pub fn now_ms() -> u64 {
    let replaced = REPLACEMENT.get().and_then(|replacement| replacement());
    replaced.unwrap_or_else(coarse_ms)
}

/// Has [`now_ms`] give other times where `replacement` has one, as in a simulation. The first call counts.
pub fn replace(replacement: fn() -> Option<u64>) {
    let _ = REPLACEMENT.set(replacement);
}

fn coarse_ms() -> u64 {
    read(ClockId::CLOCK_MONOTONIC_COARSE).as_millis() as u64 // far below 2^64
}

/// Monotonic us, not coarse.
pub fn monotonic_us() -> u64 {
    read(ClockId::CLOCK_MONOTONIC).as_micros() as u64 // far below 2^64
}

/// Milliseconds since 1970, not coarse.
pub fn unix_ms() -> u64 {
    read(ClockId::CLOCK_REALTIME).as_millis() as u64 // far below 2^64
}

/// How much later the calendar's clock is than the monotonic one, ms: the same whenever it is asked, as long as nobody sets the
/// clock. So a time that goes from one to the other and back comes back as it was.
pub fn calendar_ahead_ms() -> i64 {
    const TRIES: u32 = 8;
    const AT_ONCE_NS: i64 = 100_000;
    let mut best = (i64::MAX, 0);
    for _ in 0..TRIES {
        // The coarse clock of [`now_ms`] lags by up to a tick.
        let (before_ns, calendar_ns, after_ns) = (monotonic_ns(), unix_ns(), monotonic_ns());
        best = best.min((after_ns - before_ns, calendar_ns - before_ns));
        if best.0 < AT_ONCE_NS {
            break;
        }
    }
    best.1.div_euclid(1_000_000)
}

fn monotonic_ns() -> i64 {
    read(ClockId::CLOCK_MONOTONIC).as_nanos() as i64 // until 2262
}

/// Nanoseconds since 1970 as file times are kept: never behind the time of a change just made.
pub fn unix_ns() -> i64 {
    read(ClockId::CLOCK_REALTIME).as_nanos() as i64 // until 2262
}

fn read(clock: ClockId) -> Duration {
    // It fails only for clocks that a system lacks, and Linux has these.
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}
