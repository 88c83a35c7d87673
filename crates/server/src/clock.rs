//! The two clocks, for helper threads; workers have their driver's.

use rustix::time::{ClockId, clock_gettime};

/// Monotonic ms, the same clock as the workers'.
pub fn now_ms() -> u64 {
    #[cfg(all(test, feature = "programs"))]
    if let Some(now_ms) = crate::simulated::now_ms() {
        return now_ms;
    }
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Nanoseconds since 1970 as file times are kept: never behind the time of a change just made.
pub fn unix_ns() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
